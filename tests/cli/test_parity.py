"""`foldlog parity`: its exit codes, its document, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Project

SCRIPT = {
    "input": "question",
    "turns": [
        {"text": ["Let me ", "see."], "tool_calls": [{"id": "1", "name": "lookup", "arguments": {"q": "a"}}]},
        {"text": ["Final ", "answer"]},
    ],
}
DICE = '''
import itertools

from foldlog.runtime import Agent, tool

answers = itertools.count()


@tool(effect="pure")
def lookup(q: str) -> int:
    """Roll a die."""
    return next(answers)


AGENT = Agent("gambler", tools=[lookup])
'''


@pytest.fixture
def mine(tmp_path: Path) -> Project:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    (tmp_path / "dice.py").write_text(DICE)
    (tmp_path / "steady.py").write_text(DICE.replace("next(answers)", "6"))
    return Project(tmp_path, None)


def test_equal_executors_are_exit_code_zero_also_when_a_worker_dies(mine: Project) -> None:
    done = mine.run("parity", "steady:AGENT", "--script", "script.json", "--faults", "crash@9")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "script.json: parity: equal (12 of 12 boundaries), local and durable",
        "  faults that happened: crash@9",
    ]


def test_a_difference_is_exit_code_one_and_is_shown(mine: Project) -> None:
    done = mine.run("parity", "dice:AGENT", "--script", "script.json")
    assert done.code == 1
    assert "parity: different" in done.out
    assert "rule R4: tool_result(success) of gambler differs in result" in done.out


def test_shapes_are_equal_where_contents_are_not(mine: Project) -> None:
    assert mine.run("parity", "dice:AGENT", "--script", "script.json", "--shape").code == 0


def test_the_document_tells_each_script_and_its_difference(mine: Project) -> None:
    done = mine.run("parity", "dice:AGENT", "--script", "script.json", "--script", "script.json", "--json")
    assert done.code == 1
    first, second = done.document
    assert (first["script"], first["equal"], first["difference"]["rule"]) == ("script.json", False, "R4")
    assert first["boundaries"] == second["boundaries"] == 12


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--script", "nowhere.json"], "nowhere.json"),
        (["--script", "script.json", "--executors", "local,cloud"], "'cloud'"),
        (["--script", "script.json", "--faults", "crush@1"], "did you mean 'crash'"),
    ],
)
def test_what_is_wrong_is_exit_code_two_and_one_line(mine: Project, arguments: list[str], what: str) -> None:
    done = mine.run("parity", "steady:AGENT", *arguments)
    assert done.code == 2
    assert what in done.error
