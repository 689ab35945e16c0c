"""`foldlog simulate`: its exit codes, its document, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Project

SCRIPT = {
    "input": "question",
    "turns": [
        {"tool_calls": [{"id": "1", "name": "roll", "arguments": {}}]},
        {"text": ["Final ", "answer"]},
    ],
}
DICE = '''
import itertools

from foldlog.runtime import Agent, tool

answers = itertools.count()


@tool(effect="pure")
async def roll() -> int:
    """Roll a die."""
    return next(answers)


AGENT = Agent("gambler", tools=[roll])
'''


@pytest.fixture
def mine(tmp_path: Path) -> Project:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    (tmp_path / "dice.py").write_text(DICE)
    (tmp_path / "steady.py").write_text(DICE.replace("next(answers)", "6"))
    return Project(tmp_path, None)


def test_the_document_says_what_was_played_and_what_went_wrong(mine: Project) -> None:
    done = mine.run("simulate", "steady:AGENT", "--script", "script.json", "--schedules", "40", "--json")
    assert (done.code, done.document["schedules"], done.document["failures"]) == (0, 40, [])
    assert sum(done.document["faults"].values()) > 20
    assert {"event", "fault", "count"} == set(done.document["coverage"][0])


def test_a_failure_is_exit_code_1_and_comes_with_the_command_that_plays_it_again(mine: Project) -> None:
    given = ("simulate", "dice:AGENT", "--script", "script.json")
    failed = mine.run(*given, "--schedules", "5", "--shrink", "--json")
    (failure,) = failed.document["failures"]
    assert (failed.code, failure["scenario"], failure["shrunk"]) == (1, "gambler", True)
    assert failure["problems"][0].startswith("PARITY gambler: question differs")
    assert failure["trace"]
    told = mine.run(*given, "--schedules", "5")
    *_, again = told.out.splitlines()
    assert again.endswith(f"--scenario gambler --seed {failure['seed']} --shrink")
    repeated = mine.run(*again.removeprefix("again: foldlog ").split(), "--json")
    assert repeated.document["failures"][0]["schedule"] == failure["schedule"]


def test_time_is_up_when_it_is_up(mine: Project) -> None:
    done = mine.run("simulate", "--scenario", "pure", "--for", "0.2s", "--processes", "1", "--json")
    assert done.code == 0
    assert done.document["schedules"] > 0


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--scenario", "nothing"), "error: there is no scenario 'nothing'; known: "),
        (("--for", "soon"), "error: write a duration as 30s, 10m, 1h or 2d, not 'soon'"),
        (("--script", "script.json"), "error: a script needs an agent"),
        (("dice:AGENT",), "error: an agent needs a script for its model"),
    ],
)
def test_what_makes_no_sense_is_exit_code_2(mine: Project, args: tuple[str, ...], error: str) -> None:
    done = mine.run("simulate", *args)
    assert (done.code, done.error[: len(error)]) == (2, error)
