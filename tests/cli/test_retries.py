"""`foldlog runs retry` and the options of commands that mean many runs, on a real server."""

from __future__ import annotations

from tests.cli.commands import Project


def fail(project: Project, *names: str) -> None:
    for name in names:
        project.run("run", "project_agents:failing", "x", "--run-id", name, "--quiet")


def test_a_bulk_retry_that_is_repeated_retries_each_run_once(project: Project) -> None:
    fail(project, "one", "two")
    shown = project.run("runs", "retry", "--status", "error", "--dry-run", "--json")
    assert {each["run_id"] for each in shown.document} == {"one", "two"}
    args = ("runs", "retry", "--error-type", "auth", "--agent", "failing", "--since", "1h", "--rate", "100/s")
    first = project.run(*args, "--limit", "1")
    assert first.out.startswith("run two: retried as run ")
    both = project.run(*args, "--json")
    assert (both.code, {each["run_id"]: each["is_new"] for each in both.document}) == (
        0,
        {"one": True, "two": False},
    )
    again = project.run(*args, "--json")
    retries = {each["run_id"]: each["retry"] for each in again.document}
    assert retries == {each["run_id"]: each["retry"] for each in both.document}
    rows = project.run("runs", "list", "--json").document
    assert sorted(row["job_id"] for row in rows) == ["one", "one", "two", "two"]


def test_a_run_that_cannot_be_retried_does_not_stop_the_others(project: Project) -> None:
    fail(project, "one")
    project.run(
        "fork", "one", "project_agents:registry", "--at", "1", "--run-id", "forked", "--yes", "--quiet"
    )
    found = project.run("runs", "retry", "--status", "error")
    assert found.code == 1
    lines = sorted(found.out.splitlines())
    assert lines[0].startswith("run forked: failed: run forked is a fork")
    assert lines[1].startswith("run one: retried as run ")


def test_a_command_that_would_mean_every_run_is_refused_unless_it_says_so(project: Project) -> None:
    fail(project, "one")
    for word in ("retry", "cancel", "resume"):
        refused = project.run("runs", word)
        assert (refused.code, "--all selects all runs" in refused.err) == (2, True)
        empty = project.run("runs", word, "--agent", "")
        assert (empty.code, "--agent is empty" in empty.error) == (2, True)
        for written in ("fast", "0/s"):
            rate = project.run("runs", word, "--status", "completed", "--rate", written)
            assert (rate.code, "a rate is written 10/s, 60/m or 100/h" in rate.err) == (2, True)
        waits = project.run("runs", word, "--waiting-for", "godot")
        assert (waits.code, "no run waits for 'godot'; known: approval" in waits.error) == (2, True)
    everything = project.run("runs", "retry", "--all")
    assert (everything.code, everything.out.count("retried as run")) == (0, 1)


def test_a_run_is_retried_in_this_process_and_from_where_it_failed(project: Project) -> None:
    fail(project, "one")
    here = project.run("runs", "retry", "one", "project_agents:registry")
    assert (here.code, here.out.endswith("(error)\n")) == (0, True)
    onward = project.run("runs", "retry", "one", "project_agents:registry", "--from-failure", "--json")
    assert onward.document["retry"] == "one-retry1"
    waiting = project.run("runs", "list", "--waiting-for", "approval", "--json").document
    assert waiting == []


def test_a_run_and_its_retries_are_one_job_in_the_state_of_the_last(project: Project) -> None:
    fail(project, "one", "two")
    retry = project.run("runs", "retry", "one", "project_agents:registry", "--json").document["retry"]
    jobs = {each["job_id"]: each for each in project.run("jobs", "list", "--json").document}
    assert {name: len(job["runs"]) for name, job in jobs.items()} == {"one": 2, "two": 1}
    for name in ("one", retry):
        shown = project.run("jobs", "show", name, "--json").document
        assert [run["run_id"] for run in shown["runs"]] == ["one", retry]
    assert project.run("jobs", "list", "--status", "completed").err == "no jobs\n"
    assert "is error, started by cli" in project.run("jobs", "show", "two").out
    assert project.run("jobs", "show", "nowhere").code == 1


def test_selected_runs_are_retried_in_this_process_too(project: Project) -> None:
    fail(project, "one", "two")
    here = project.run("runs", "retry", "project_agents:registry", "--status", "error", "--json")
    assert (here.code, [each["status"] for each in here.document]) == (0, ["error", "error"])
    again = project.run("runs", "retry", "project_agents:registry", "--all", "--json")
    known = {each["run_id"]: each["is_new"] for each in again.document}
    assert [known.pop(name) for name in ("one", "two")] == [False, False]
    assert set(known.values()) == {True}  # the retries failed, too
