"""`foldlog fork`: the plan, the question, the fork itself, and what it differs in from the run it left."""

import subprocess

from tests.cli.commands import FOLDLOG, WAIT_S, Project

REGISTRY = "project_agents:registry"


def a_run(project: Project, agent: str = "helper", *options: str) -> int:
    """Run an agent as `parent`; the last revision."""
    project.run("run", f"project_agents:{agent}", "question", "--run-id", "parent", *options)
    found: int = project.run("runs", "show", "parent", "--json").document["revision"]
    return found


def answered(project: Project, answer: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A command with an answer typed to its question."""
    return subprocess.run(
        [FOLDLOG, *args],
        cwd=project.place,
        env=project.environ,
        input=answer,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def listed(project: Project) -> dict[str, dict[str, object]]:
    return {row["run_id"]: row for row in project.run("runs", "list", "--json").document}


def test_a_fork_is_shown_and_asked_about_before_it_starts(project: Project) -> None:
    a_run(project)
    refused = answered(project, "n\n", "fork", "parent", REGISTRY, "--at", "9")
    assert (refused.returncode, refused.stdout.strip()) == (1, "")
    assert "revision 9 of 18" in refused.stderr
    assert "nothing was done" in refused.stderr
    silent = answered(project, "", "fork", "parent", REGISTRY, "--at", "9")
    assert silent.returncode == 2
    assert "--yes" in silent.stderr
    assert listed(project).keys() == {"parent"}
    agreed = answered(project, "y\n", "fork", "parent", REGISTRY, "--at", "9", "--run-id", "child")
    assert agreed.returncode == 0
    assert "Final answer" in agreed.stdout
    assert "foldlog --namespace" in agreed.stderr
    assert "diff parent child" in agreed.stderr
    rows = listed(project)
    assert (rows["child"]["forked_from"], rows["child"]["forked_at"]) == ("parent", 9)
    assert rows["parent"]["forked_from"] is None
    shown = project.run("runs", "show", "child")
    assert "fork of parent at revision 9, tools: ask" in shown.out
    assert project.run("runs", "show", "child", "--json").document["fork"]["run"] == "parent"
    assert project.run("replay", "child").code == 0
    assert project.run("monitor", "--once").code == 0


def test_the_plan_is_a_document_and_with_yes_the_events_and_the_difference_follow_it(
    project: Project,
) -> None:
    last = a_run(project)
    plan = project.run("fork", "parent", "--at", "8", "--tools", "replay", "--json").document
    assert (plan["first"], plan["tools"], plan["revisions"]) == ("model", "replay", last)
    assert [(call["tool_name"], call["becomes"]) for call in plan["behind"]] == [("lookup", "recorded")]
    assert listed(project).keys() == {"parent"}
    done = project.run("fork", "parent", REGISTRY, "--at", str(last), "--yes", "--json", "--diff")
    assert done.code == 0
    assert [line["type"] for line in done.lines] == [
        "fork_plan",
        "text",
        "tool_call",
        "mcp_progress",
        "text",
        "status",
        "diff",
    ]
    assert done.lines[-1]["equal"] is True


def test_a_fork_asks_for_approvals_again(project: Project) -> None:
    last = a_run(project, "careful", "--no-wait")
    fork = ("fork", "parent", REGISTRY, "--at", str(last), "--tools", "run", "--run-id", "child")
    paused = project.run(*fork, "--yes", "--no-wait")
    assert paused.code == 5
    assert "needs an approval" in paused.err
    approvals = project.run("approvals", "list", "--json").document
    assert {row["run_id"] for row in approvals} == {"parent", "child"}
    assert len({row["approval_id"] for row in approvals}) == 2


def test_what_cannot_be_forked_is_one_line_and_an_exit_code(project: Project) -> None:
    a_run(project)
    none = project.run("fork", "parent", REGISTRY, "--at", "99", "--yes")
    assert (none.code, none.error) == (2, "error: the run has revisions 1 to 18, not 99")
    unknown = project.run("fork", "nobody", REGISTRY, "--at", "1", "--yes")
    assert (unknown.code, "nobody" in unknown.error) == (1, True)
    model = project.run("fork", "parent", REGISTRY, "--at", "3", "--yes", "--model", "nope:x")
    assert (model.code, "nope" in model.error) == (2, True)
    missing = project.run("fork", "parent", REGISTRY)
    assert (missing.code, "--at" in missing.err) == (2, True)


def test_a_fork_and_the_run_it_left_are_run_again_and_a_file_is_forked(project: Project) -> None:
    last = a_run(project)
    project.run(
        "fork", "parent", REGISTRY, "--at", str(last), "--yes", "--input", "more", "--run-id", "child"
    )
    for run in ("parent", "child"):
        again = project.run("rerun", run, "--json")
        assert (again.code, again.document["equal"], again.document["errors"]) == (0, True, [])
    path = str(project.place / "parent.jsonl")
    project.run("events", "export", "parent", "--artifacts", "-o", path)
    kept = project.run("rerun", path, "project_agents:helper", "-o", str(project.place / "again.jsonl"))
    assert (kept.code, kept.out.partition(" ")[0]) == (0, "equal")
    other = project.run("rerun", path, "project_agents:careful")
    assert (other.code, "which 'project_agents:careful' does not have" in other.error) == (2, True)
    assert project.run("rerun", "nobody").code == 1
    forked = project.run("fork", path, REGISTRY, "--at", "9", "--yes", "--diff", "--run-id", "filed")
    assert (forked.code, "equal" in forked.out) == (0, True)
    assert project.run("fork", path, "--at", "9", "--run", "nobody", "--json").code == 1
    both = str(project.place / "both.jsonl")
    project.run("events", "export", "--all", "--artifacts", "-o", both)
    which = project.run("fork", both, "--at", "9", "--json")
    assert (which.code, "choose a run with --run" in which.error) == (2, True)
    assert project.run("fork", both, "--at", "9", "--run", "child", "--json").document["run"] == "child"
