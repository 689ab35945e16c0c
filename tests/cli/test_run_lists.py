"""`runs list` with its filters and folded families, parts of ids, and what is said to many runs at once."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.commands import Project

FAMILY = '''
from foldlog.runtime import Agent, Registry, Swarm, tool

@tool(effect="unsafe")
def publish() -> str:
    """Publish."""
    return "done"

def member(name, **fields):
    return Agent(name, model=f"scripted:{name}.json", **fields)

closer = member("closer", tools=[publish], hitl_tools=["publish"])
pair = Swarm([member("drafter"), closer], "drafter >> closer", name="pair")
registry = Registry(agents=[pair])
'''


@pytest.fixture
def runs(project: Project) -> dict[str, str]:
    """A failed run of a user's, one that waits for an approval, and a family whose second node does."""
    place = project.place
    (place / "pair_agents.py").write_text(FAMILY)
    (place / "drafter.json").write_text(json.dumps({"turns": [{"text": "a draft"}]}))
    publish = {"tool_calls": [{"id": "1", "name": "publish", "arguments": {}}]}
    (place / "closer.json").write_text(json.dumps({"turns": [publish, {"text": "done"}]}))
    scope = json.dumps({"team": "ops", "memory": {"scope": {"user_id": "ada"}}})
    project.run("run", "project_agents:failing", "x", "--metadata", scope, "--session", "s")
    project.run("run", "project_agents:careful", "x", "--no-wait")
    project.run("run", "pair_agents:registry", "x", "--no-wait")
    rows = project.run("runs", "list", "--children", "--json").document
    return {row["agent"]: row["run_id"] for row in rows}


def agents(project: Project, *options: str) -> list[str]:
    return [row["agent"] for row in project.run("runs", "list", "--json", *options).document]


def test_runs_are_filtered_families_folded_and_many_steered_at_once(  # noqa: PLR0915 - one family, many questions
    project: Project, runs: dict[str, str]
) -> None:
    assert agents(project) == ["pair", "careful", "failing"]
    assert agents(project, "--children") == ["pair", "drafter", "closer", "careful", "failing"]
    assert agents(project, "--limit", "1") == ["pair"]
    # a run below is shown where it is meant and its root is not
    assert agents(project, "--status", "paused") == ["pair", "closer", "careful"]
    assert agents(project, "--agent", "drafter") == ["pair", "drafter"]
    assert agents(project, "--root", runs["closer"]) == ["pair", "drafter", "closer"]
    for options in (
        ("--error-type", "auth"),
        ("--user", "ada"),
        ("--metadata", "team=ops"),
        ("--metadata", "memory.scope.user_id=ada", "--session", "s"),
    ):
        assert agents(project, *options) == ["failing"]
    assert agents(project, "--metadata", "team=sales") == []
    assert agents(project, "--since", "1h") == ["pair", "careful", "failing"]
    assert agents(project, "--until", "1h") == []
    assert agents(project, "--since", "2999-01-01") == []
    assert "30m, 2d (ago)" in project.run("runs", "list", "--since", "soon").error
    assert "KEY=VALUE" in project.run("runs", "list", "--metadata", "team").error

    on_terminal = re.sub("\x1b[^m]*m", "", project.on_terminal("runs", "list", "--status", "paused"))
    head, *lines = on_terminal.splitlines()
    assert "cost" not in head
    assert all(len(line) <= 80 for line in lines)
    closer = next(line for line in lines if "└ closer" in line)
    end = closer.split()[0]
    assert runs["closer"].endswith(end.removeprefix("…"))
    assert len(end) < 10
    assert "paused" in closer
    assert lines[lines.index(closer) + 1].strip().startswith("Waits for people: publish; expires in ")

    piped = project.run("runs", "list", "--children").out.splitlines()
    assert all(line.count("\t") == piped[0].count("\t") for line in piped)
    assert [line.split("\t")[1] for line in piped[1:4]] == ["pair", "pair/drafter", "pair/closer"]

    # the part that was shown is enough for every command
    assert project.run("runs", "show", end, "--json").document["run_id"] == runs["closer"]
    assert project.run("replay", end, "--at", "3", "--json").document["run"] == runs["closer"]
    assert project.run("monitor", end, "--once").code == 0
    archive = project.place / "pair.jsonl"
    assert project.run("events", "export", runs["pair"], "-o", str(archive)).code == 0
    of_file = (str(archive), "--run", end, "--json")
    assert project.run("replay", "--at", "3", *of_file).document["run"] == runs["closer"]
    assert project.run("fork", "--at", "3", *of_file).document["run"] == runs["closer"]
    several = project.run("replay", "--at", "3", str(archive), "--run", runs["closer"][:24])
    assert (several.code, "give more of the id" in several.error) == (1, True)
    assert "has the id, prefix or suffix" in project.run("fork", "--at", "3", *of_file[:2], "nope").error
    beginning = runs["careful"][:20]
    assert project.run("runs", "pending", beginning, "--json").document["run_id"] == runs["careful"]
    assert project.run("events", "verify", beginning).code == 0
    (approval,) = project.run("approvals", "list", "--run", beginning, "--json").document
    shown = project.run("approvals", "show", approval["approval_id"][-5:], "--json").document
    assert shown == approval
    several = project.run("runs", "cancel", runs["closer"][:24])
    assert several.code == 1
    assert runs["closer"] in several.error
    assert runs["drafter"] in several.error
    assert "give more of the id" in several.error
    assert "at least 4 characters" in project.run("runs", "show", runs["careful"][-2:]).error

    would = project.run("runs", "cancel", "--status", "paused", "--since", "1h", "--dry-run", "--json")
    assert {row["run_id"] for row in would.document} == {runs["closer"], runs["careful"]}
    assert agents(project, "--status", "cancelled") == []
    assert project.run("runs", "cancel", runs["closer"], "--agent", "closer").code == 2
    assert project.run("runs", "cancel").code == 2
    # of a family the topmost is cancelled, and what is below goes with it
    would = project.run("runs", "cancel", "--root", runs["pair"], "--dry-run", "--json")
    assert [row["run_id"] for row in would.document] == [runs["pair"]]
    resumed = project.run("runs", "resume", "--agent", "careful", "--dry-run")
    assert runs["careful"] in resumed.out
    assert project.run("runs", "resume", "--agent", "careful").code == 5
    done = project.run("runs", "cancel", "--since", "1h", "--json")
    assert done.code == 0
    assert {row["run_id"] for row in done.document} == {runs["pair"], runs["careful"]}
    assert agents(project, "--status", "paused") == []
    assert project.run("runs", "cancel", "--agent", "careful").code == 1
