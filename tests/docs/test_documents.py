"""What a reader can do, a test does: every command and every Python block of the documents, in order."""

import ast
import json
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.markdown import DOCUMENTS, Block, blocks, name_of
from tests.docs.project import Project

LANGUAGES = {"console", "python", "json", "toml", "yaml", "javascript", "text", "dockerfile"}
# Blocks that cannot run in a test, by document and first line, each with the reason. They are parsed all the same.
NOT_RUN: dict[tuple[str, str], str] = {
    ("README.md", "$ make demo"): "it would install .venv; tests/demo runs the demo, and this test runs in `make test`",
    ("README.md", "$ . .venv/bin/activate"): "the tests choose their interpreter themselves",
    ("docs/how-to/workers.md", "$ docker compose up --build --detach"): "needs images; tests/unit/test_compose.py holds the file",
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


@pytest.mark.timeout(90)
@pytest.mark.parametrize("document", RUN, ids=name_of)
async def test_whatever_a_document_says_to_do_works_in_the_order_in_which_it_says_it(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NATS_URL", "NATS_CREDS", "FOLDLOG_HOME", "FOLDLOG_CONFIG", "FOLDLOG_SCRIPT_DIR"):
        monkeypatch.delenv(name, raising=False)
    async with Project.open(tmp_path, name_of(document)) as project:
        for block in blocks(document):
            if is_run(document, block) or "title" in block.attributes:
                await project.carry_out(block)


@pytest.mark.parametrize(("document", "block"), ALL)
def test_every_block_is_of_a_known_language_and_well_formed(document: Path, block: Block) -> None:
    assert block.language in LANGUAGES
    match block.language:
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
        (name_of(document), block.text.partition("\n")[0]) for document in DOCUMENTS for block in blocks(document)
    }
    assert set(NOT_RUN) <= first_lines
