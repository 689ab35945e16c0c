"""`foldlog sessions` on a real server."""

from tests.cli.commands import Project


def test_a_conversation_is_shown_and_turns_of_it_are_taken_back(project: Project):
    for text in ("first", "second"):
        assert project.run("run", "project_agents:helper", text, "--session", "s", "--quiet").code == 0
    shown = project.run("sessions", "show", "s", "--json").document
    assert [turn["messages"][0]["content"] for turn in shown["turns"]] == ["first", "second"]
    assert [turn["output"] for turn in shown["turns"]] == ["Final answer"] * 2
    assert shown["tokens_estimated"] > 10
    assert project.run("sessions", "drop", "s", "1").err == "1 turn dropped\n"
    lines = project.run("sessions", "show", "s").out.splitlines()
    assert lines[0].endswith("helper  completed")
    assert [line.split()[0] for line in lines[1:]] == ["user", "assistant", "tool", "assistant"]
    assert 'lookup({"q":"answer"})' in lines[2]


def test_a_session_with_an_open_run_is_left_alone_and_one_without_runs_is_empty(project: Project):
    started = project.run(
        "run",
        "project_agents:careful",
        "x",
        "--session",
        "s",
        "--no-wait",
        "--executor",
        "durable",
        "--timeout",
        "1",
    )
    assert started.code == 4
    refused = project.run("sessions", "drop", "s", "1")
    assert (refused.code, "is open: wait for its end, or cancel it" in refused.error) == (1, True)
    assert project.run("sessions", "show", "nobody").code == 1
