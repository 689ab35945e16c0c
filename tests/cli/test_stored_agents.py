"""`foldlog agents` on a real server: saved while a worker process works, and run by it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable

import pytest

from tests.cli.commands import Project, Running

CLERK = """
name = "clerk"
model = "scripted:clerk.json"
tools = ["lookup"]
"""


def write(project: Project, name: str, text: str) -> str:
    (project.place / name).write_text(text)
    return name


def test_an_agent_is_saved_changed_run_exported_and_removed_while_a_worker_works(
    project: Project, start: Callable[..., Running]
) -> None:
    turns = [
        {"tool_calls": [{"id": "c1", "name": "lookup", "arguments": {"q": "7"}}]},
        {"text": "It is paid."},
    ]
    write(project, "clerk.json", json.dumps({"turns": turns}))
    file = write(project, "clerk.toml", CLERK)
    alone = project.run("agents", "save", file)
    assert (alone.code, alone.out.count("no worker is present that could say")) == (1, 2)
    start("worker", "project_agents:registry").until("serves")
    saved = project.run("agents", "save", file, "--from", "0", "--note", "first", "--by", "ada", "--json")
    assert (saved.code, saved.document["saved"][0]["version"]) == (0, 1)
    ran = project.run("run", "stored:clerk", "Order 7?", "--quiet")
    assert (ran.code, ran.out) == (0, "It is paid.\n"), ran.err
    changed = write(project, "clerk.toml", CLERK + 'max_steps = 4\ninstructions = "Be\\u200b kind"\n')
    assert (
        project.run("agents", "save", changed, "--by", "bo").out == "✓ clerk.toml: agent clerk, version 2\n"
    )
    late = project.run(
        "agents", "save", write(project, "clerk.toml", CLERK + "max_steps = 9\n"), "--from", "1"
    )
    assert (late.code, "it was saved as version 2 by bo" in late.out) == (1, True)
    differs = project.run("agents", "diff", "clerk", "1", "2", "--json")
    assert (differs.code, {each["key"] for each in differs.document}) == (1, {"instructions", "max_steps"})
    assert r'+ "Be\u200b kind"' in project.run("agents", "diff", "clerk", "1", "2").out
    listed = project.run("agents", "list", "--json").document
    assert [(row["name"], row["version"], row["by"], row["via"]) for row in listed] == [
        ("clerk", 2, "bo", "cli")
    ]
    (row,) = project.run("runs", "list", "--json").document
    assert project.run("runs", "list", "--agent", "clerk", "--json").document == [row]
    for form, load in (("toml", tomllib.loads), ("json", json.loads)):
        whole = project.run("agents", "export", "clerk", "--format", form).out
        assert load(whole)["max_steps"] == 4
        assert project.run("agents", "save", write(project, f"kept.{form}", whole)).out.endswith(
            "version 2\n"
        )
    shown = project.run("agents", "show", "clerk").out
    assert shown.index("bo") < shown.index("ada")
    assert r"Be\u200b kind" in shown
    again = project.run("run", "stored:clerk@1", "Order 7?", "--quiet")
    assert again.out == "It is paid.\n"
    assert project.run("agents", "remove", "clerk").out == "agent clerk: removed\n"
    gone = project.run("run", "stored:clerk", "Order 7?")
    assert (gone.code, "was removed" in gone.error) == (1, True)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["show", "nobody"], "there is no stored agent 'nobody'"),
        (["export"], "there is no stored agent to export"),
        (["save", "missing.toml"], "missing.toml: it cannot be read"),
        (["save", "broken.toml"], "broken.toml: it is not TOML"),
        (["save", "several.json"], "several.json: agents: must be a list of tables"),
        (["remove", "a b"], "the agent 'a b' must be"),
    ],
)
def test_what_is_wrong_is_one_line(alone: Project, args: list[str], told: str) -> None:
    write(alone, "broken.toml", "name = ")
    write(alone, "several.json", '{"agents": [1]}')
    refused = alone.run("agents", *args)
    assert refused.code in {1, 2}
    assert told in refused.error


def test_a_version_that_is_no_number_is_refused(alone: Project) -> None:
    refused = alone.run("run", "stored:clerk@new", "hello", "--executor", "local")
    assert "a version is a number" in refused.error


def test_a_plan_is_saved_changed_shown_saved_again_and_removed(project: Project) -> None:
    file = write(project, "release.toml", 'name = "release"\ngoal = "2.0"\nsteps = ["Build", "Ship"]\n')
    assert project.run("plans", "save", file, "--from", "0", "--by", "ada").out == (
        "✓ release.toml: plan release, version 1\n"
    )
    stepped = project.run("plans", "step", "release", "2", "completed", "--note", "out")
    assert stepped.out == "plan release, version 2: step 2 is completed\n"
    whole = project.run("plans", "show", "release", "--json")
    assert [each["version"] for each in whole.document["changes"]] == [1, 2]
    kept = write(project, "kept.json", json.dumps({**whole.document, "goal": "2.1"}))
    late = project.run("plans", "save", kept, "--from", "1")
    assert (late.code, "is not at version 1" in late.error) == (1, True)
    assert project.run("plans", "save", kept, "--from", "2").code == 0
    (row,) = project.run("plans", "list", "--json").document
    assert (row["version"], row["goal"], row["steps"][1]["note"]) == (3, "2.1", "out")
    wrong = project.run("plans", "save", write(project, "wrong.toml", 'name = "x"\nstep = []\n'))
    assert "wrong.toml: unknown key 'step'; a plan has name, goal and steps" in wrong.error
    assert project.run("plans", "step", "release", "9", "completed").code == 1
    assert project.run("plans", "remove", "release").out == "plan release: removed\n"
    assert project.run("plans", "list", "--json").document == []
