"""`foldlog slots` and `foldlog lanes`: who is at work under a limit, and who waits for a turn."""

from __future__ import annotations

from tests.cli.commands import Project


def test_who_is_at_work_and_who_waits_is_listed_with_the_limit(project: Project) -> None:
    assert "no slots are held" in project.run("slots", "list").err
    assert "no lane has open runs" in project.run("lanes", "list").err
    config = project.place / "one_at_a_time.toml"
    config.write_text('[limits]\nnamespace = 1\n"lane:mail" = 1\n')
    project.environ["FOLDLOG_CONFIG"] = str(config)
    session = ("--session", "ada", "--lane", "mail")
    first = project.start("run", "project_agents:hanging", "x", "--run-id", "first", *session)
    try:
        first.until("hang")
        second = project.start("run", "project_agents:helper", "x", "--run-id", "second")
        try:
            told = second.until("waiting for")
            assert "a slot of namespace (number 1 in the queue; 1 of 1 slots held)" in told
            rows = {row["name"]: row for row in project.run("slots", "list", "--json").document}
            assert {name: [h["run_id"] for h in row["holders"]] for name, row in rows.items()} == {
                "limit:lane:mail": ["first"],
                "limit:namespace": ["first"],
            }
            assert [waiter["run_id"] for waiter in rows["limit:namespace"]["waiting"]] == ["second"]
            assert "1 of 1" in project.run("slots", "list").out
            (lane,) = project.run("lanes", "list", "--json").document
            assert (lane["lane"], [run["run_id"] for run in lane["runs"]]) == ("lane:mail:ada", ["first"])
            assert "first" in project.run("lanes", "list").out
            pending = project.run("runs", "pending", "second").out
            assert "Waits for the limit `namespace`: place 1, all 1 taken." in pending
        finally:
            second.kill()
    finally:
        first.kill()


def test_a_limit_that_is_none_is_refused_before_anything_is_driven(project: Project) -> None:
    config = project.place / "wrong_limits.toml"
    config.write_text('[limits]\n"provider" = 2\n')
    done = project.run("run", "project_agents:helper", "x", FOLDLOG_CONFIG=str(config))
    assert done.code == 2
    assert "'provider' is not a limit" in done.error
    assert project.run("runs", "list", "--json").document == []
