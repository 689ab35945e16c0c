"""`foldlog run` in a process of its own, on a real server where the log matters."""

import json
import signal
from collections.abc import Callable

import pytest

from tests.cli.commands import Project, Running
from tests.cli.project import COMMAND, EVIL_TEXT

Start = Callable[..., Running]


def test_a_local_run_writes_the_text_to_stdout_and_all_else_to_stderr(project: Project) -> None:
    done = project.run("run", "project_agents:helper", "question")
    assert done.code == 0
    assert done.out == "Let me see.\nFinal answer\n"
    told = done.err.splitlines()
    assert [line.split()[0] for line in told] == ["run", "→", "·", "←", "completed"]
    assert '→ lookup {"q":"answer"}' in told
    assert "half way" in told[2]
    assert told[3].endswith("found answer")
    assert "2 steps  30 tokens (20 in, 10 out)" in told[4]


def test_json_is_one_event_a_line_and_ends_with_the_terminal_status(alone: Project) -> None:
    done = alone.run("run", "project_agents:helper", "question", "--json", "--detailed")
    assert done.code == 0
    types = [event["type"] for event in done.lines]
    assert types[0] == "status"
    assert types[-1] == "status"
    assert done.lines[-1]["status"] == "completed"
    assert {"step", "usage", "tool_call", "mcp_progress", "tool_result", "text"} <= set(types)
    assert all({"run_id", "agent_path", "cursor", "revision", "at"} <= event.keys() for event in done.lines)


def test_json_without_details_leaves_steps_and_results_out(alone: Project) -> None:
    types = {event["type"] for event in alone.run("run", "project_agents:helper", "q", "--json").lines}
    assert types == {"text", "tool_call", "mcp_progress", "status"}


def test_details_show_steps_and_usage_to_people(alone: Project) -> None:
    told = alone.run("run", "project_agents:helper", "question", "--detailed").err
    assert "— step 1 started" in told
    assert "15 tokens (10 in, 5 out)" in told


def test_quiet_leaves_only_the_text(alone: Project) -> None:
    done = alone.run("--quiet", "run", "project_agents:helper", "question")
    assert (done.out, done.err) == ("Let me see.\nFinal answer\n", "")


def test_a_registry_with_one_agent_stands_for_it_and_a_name_chooses_among_many(alone: Project) -> None:
    assert alone.run("run", "project_agents:one", "q").code == 0
    assert alone.run("run", "project_agents:registry", "q", "--agent", "helper").code == 0


def test_a_failed_run_exits_1_and_says_its_type_and_message(alone: Project) -> None:
    done = alone.run("run", "project_agents:failing", "question")
    assert done.code == 1
    assert done.error.startswith("error: auth: scripted:failing.json: turn 1")


def test_malformed_arguments_of_the_model_fail_the_call_and_not_the_run(alone: Project) -> None:
    done = alone.run("run", "project_agents:clumsy", "question")
    assert (done.code, done.out) == (0, "Sorry\n")
    assert "✗ lookup" in done.err


def test_what_a_model_says_cannot_command_the_terminal(project: Project) -> None:
    done = project.run("run", "project_agents:evil", "question", FORCE_COLOR="1")
    assert done.out == "]0;owned[2J[bold]plain31m\n"
    stored = project.run("runs", "show", project.only_run(), "--json")
    assert stored.document["output"] == EVIL_TEXT
    assert "\x9b" not in stored.out
    shown = project.run("runs", "show", project.only_run())
    assert "\x1b" not in shown.out


SHARP_LINES = ["│ echo 'a  b' \\\\", r"│ \tc\u0020", r"│ foldlog approvals approve \u001b[2J"]
SHARP_TITLE = r'title: "two  spaces\u202e"'
SHARP_JSON = (
    r"""{"command":"echo 'a  b' \\\n\tc \nfoldlog approvals approve \u001b[2J","title":"two  spaces\u202e"}"""
)


def test_what_is_approved_is_shown_by_every_command(project: Project) -> None:
    def stripped(text: str) -> list[str]:
        return [line.strip() for line in text.splitlines()]

    watched = stripped(project.run("run", "project_agents:sharp", "Go", "--no-wait", "--run-id", "cut").err)
    asked = watched.index("? shell")
    for start in (watched.index("→ shell"), asked):
        assert set(SHARP_LINES) < set(watched[start:])
        assert SHARP_TITLE in watched[start:]
    row = project.run("approvals", "list").out.splitlines()[-1]
    assert SHARP_JSON in row
    assert json.loads(SHARP_JSON)["command"] == COMMAND
    approval = project.run("approvals", "list", "--json").document[0]["approval_id"]
    (start,) = [n for n, line in enumerate(watched) if line.endswith(f"approvals approve {approval}")]
    assert start > asked
    shown = stripped(project.run("approvals", "show", approval).out)
    first = next(n for n, line in enumerate(shown) if line.startswith("arguments "))
    assert shown[first : first + 5] == ["arguments  command:", *SHARP_LINES, SHARP_TITLE]
    assert SHARP_JSON in project.run("runs", "show", "cut").out
    plan = stripped(project.run("fork", "cut", "project_agents:sharp_registry", "--at", "3").err)
    assert [line for line in plan if line in SHARP_LINES] == SHARP_LINES
    other = json.dumps({"command": "ls\n-l ", "title": "x"})
    project.run("approvals", "approve", approval, "--arguments", other)
    assert 'with {"command":"ls\\n-l ","title":"x"}' in project.run("runs", "show", "cut").out
    shown = stripped(project.run("approvals", "show", approval).out)
    edited = shown.index("edited     command:")
    assert shown[edited + 1 : edited + 4] == ["│ ls", r"│ -l\u0020", 'title: "x"']
    project.run("runs", "cancel", "cut")
    assert SHARP_JSON in project.run("runs", "history", "cut").out


def test_colours_are_for_terminals_unless_forced(alone: Project) -> None:
    assert "\x1b[" not in alone.run("run", "project_agents:helper", "q").err
    assert "\x1b[" in alone.run("run", "project_agents:helper", "q", FORCE_COLOR="1").err
    plain = alone.run("run", "project_agents:helper", "q", "--no-color", FORCE_COLOR="1").err
    assert "\x1b[3" not in plain


def test_a_pipe_gets_text_as_it_comes_and_begins_a_new_line_where_the_model_begins_again(
    alone: Project,
) -> None:
    done = alone.run("run", "project_agents:stutter", "q")
    assert (done.code, done.out) == (0, "One two\nOne three\n")
    assert "(the model starts again)" in done.err


def test_a_pipe_gets_a_text_before_its_step_is_over(project: Project, start: Start) -> None:
    running = start("run", "project_agents:slow", "q")
    assert running.until("first", of="out") == "first\n"
    running.interrupt()
    assert running.end().code == 130


def test_with_quiet_a_pipe_gets_a_text_once_and_only_when_it_holds(alone: Project) -> None:
    done = alone.run("run", "project_agents:stutter", "q", "--quiet")
    assert (done.code, done.out) == (0, "One three\n")


def test_a_terminal_gets_text_as_it_comes_and_sees_where_the_model_begins_again(alone: Project) -> None:
    shown = alone.on_terminal("run", "project_agents:stutter", "q")
    assert "One two\n" in shown
    assert "(the model starts again)" in shown
    assert "One three\n" in shown.partition("starts again")[2]
    assert "\x1b[" in shown


def test_a_time_out_exits_4_and_leaves_the_run_alone(project: Project) -> None:
    done = project.run("run", "project_agents:hanging", "q", "--timeout", "0.3")
    assert done.code == 4
    run = project.only_run()
    assert (
        f"foldlog --namespace {project.environ['FOLDLOG_NAMESPACE']} runs drive {run} project_agents:hanging"
        in (done.error)
    )
    assert project.run("runs", "show", run, "--json").document["status"] == "running"


def test_a_paused_run_exits_5_without_waiting(project: Project) -> None:
    done = project.run("run", "project_agents:careful", "q", "--no-wait")
    assert done.code == 5
    assert "approvals approve ap-" in done.err
    assert project.run("runs", "list", "--status", "paused", "--json").document


def test_no_wait_leaves_when_no_unsafe_call_is_at_work_any_more(project: Project, start: Start) -> None:
    scale = project.place / "scale"
    running = start("run", "project_agents:weighing", "q", "--no-wait", SCALE=str(scale))
    running.until("waiting for calls in progress")
    scale.touch()
    ended = running.end()
    assert ended.code == 5
    assert "it has no driver now" in ended.err.partition("waiting for calls in progress")[2]
    assert "it has no driver now" not in ended.err.partition("waiting for calls in progress")[0]
    run = project.only_run()
    timeline = project.run("runs", "show", run, "--json").document["timeline"]
    assert [row["detail"] for row in timeline if row["what"] == "← weigh"] == ["weighed"]
    (approval,) = project.run("approvals", "list", "--json").document
    assert (approval["kind"], approval["tool_name"]) == ("tool", "lookup")
    assert project.run("approvals", "approve", approval["approval_id"]).code == 0
    assert project.run("runs", "drive", run, "project_agents:weighing").out == "Weighed\n"


def test_ctrl_c_while_a_call_is_at_work_leaves_at_once_and_the_call_in_doubt(
    project: Project, start: Start
) -> None:
    running = start("run", "project_agents:weighing", "q", "--no-wait", SCALE="/nowhere")
    running.until("waiting for calls in progress")
    running.interrupt()
    ended = running.end()
    assert ended.code == 130
    assert "it has no driver now" in ended.err.splitlines()[-1]
    run = project.only_run()
    assert project.run("runs", "show", run, "--json").document["status"] == "paused"
    driving = start("runs", "drive", run, "project_agents:weighing", SCALE="/nowhere")
    driving.until("? weigh")
    kinds = {row["tool_name"]: row["kind"] for row in project.run("approvals", "list", "--json").document}
    assert kinds == {"weigh": "unverifiable", "lookup": "tool"}


def test_a_paused_run_waits_and_an_answer_of_another_process_lets_it_go_on(
    project: Project, start: Start
) -> None:
    running = start("run", "project_agents:careful", "question")
    command = running.until("approvals approve").split()
    done = project.run(*command[1:], "--note", "go on", "--by", "Ada")
    assert (done.code, done.out.split()[0]) == (0, "approved:")
    ended = running.end()
    assert ended.code == 0
    assert ended.out.endswith("Final answer\n")
    assert "approved by Ada: go on" in ended.err


def test_a_rejected_call_is_told_to_the_model_and_the_run_goes_on(project: Project, start: Start) -> None:
    running = start("run", "project_agents:careful", "question")
    command = running.until("approvals reject").split()
    assert project.run(*command[1:], "--note", "not today").code == 0
    ended = running.end()
    assert ended.code == 0
    assert "✗ lookup" in ended.err


def test_ctrl_c_cancels_a_local_run(project: Project, start: Start) -> None:
    _interrupted(start, "hanging")
    assert project.run("runs", "show", project.only_run(), "--json").document["status"] == "cancelled"


def test_sigterm_gives_a_local_run_back_and_cancels_nothing(project: Project, start: Start) -> None:
    running = start("run", "project_agents:hanging", "question")
    running.until("for ever")
    running.interrupt(signal.SIGTERM)
    assert running.end().code == 143
    shown = project.run("runs", "show", project.only_run(), "--json").document
    assert (shown["status"], shown["owner"]) == ("running", None)


def test_a_tool_that_blocks_its_thread_does_not_hold_up_the_end(project: Project, start: Start) -> None:
    _interrupted(start, "clogged")


def _interrupted(start: Start, agent: str) -> None:
    running = start("run", f"project_agents:{agent}", "question")
    running.until("for ever")
    running.interrupt()
    ended = running.end()
    assert ended.code == 130
    assert "cancelled (interrupted)" in ended.err


def test_a_run_without_a_driver_is_driven_here(project: Project) -> None:
    project.run("run", "project_agents:careful", "q", "--no-wait")
    run = project.only_run()
    (approval,) = project.run("approvals", "list", "--json").document
    assert project.run("approvals", "approve", approval["approval_id"]).code == 0
    done = project.run("runs", "drive", run, "project_agents:registry")
    assert (done.code, done.out) == (0, "Let me see.\nFinal answer\n")
    again = project.run("runs", "drive", run, "project_agents:registry")
    assert again.code == 1


def test_the_same_run_id_with_another_input_is_refused(project: Project) -> None:
    assert project.run("run", "project_agents:helper", "one", "--run-id", "mine").code == 0
    again = project.run("run", "project_agents:helper", "one", "--run-id", "mine")
    assert (again.code, again.out) == (0, "Let me see.\nFinal answer\n")
    other = project.run("run", "project_agents:helper", "two", "--run-id", "mine")
    assert other.code == 1
    assert "with another input" in other.error
    assert len(project.run("runs", "list", "--json").document) == 1


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("project_agents:no_provider", "there is no provider 'nope'"),
        ("project_agents:no_tool", "there is no tool 'nope'"),
        ("project_agents:empty", "has no agents"),
        ("project_agents:registry", "choose one with --agent NAME"),
        ("project_agents:number", "neither a Registry nor an agent, swarm, loop or workflow"),
        ("project_agents:nothing", "there is no attribute 'nothing'"),
        ("nowhere:agent", "there is no module 'nowhere'"),
        ("broken:agent", "line 1: SyntaxError"),
        ("unsigned:agent", "*words: str cannot be described to a model"),
        ("project_agents", "must be written module:attribute"),
    ],
)
def test_what_cannot_be_started_is_a_usage_error_in_one_line(alone: Project, path: str, told: str) -> None:
    done = alone.run("run", path, "question")
    assert (done.code, done.out) == (2, "")
    assert told in done.error


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("no_key", "OPENAI_API_KEY"),
        ("bad_script", "bad_script.json: turn 1: unknown key 'txt'; did you mean 'text'?"),
        ("no_script", "no_script.json cannot be read"),
    ],
)
def test_what_the_preparation_finds_missing_fails_the_run_in_one_line(
    alone: Project, agent: str, told: str
) -> None:
    done = alone.run("run", f"project_agents:{agent}", "question")
    assert done.code == 1
    assert told in done.error


def test_an_input_over_the_limit_is_refused_before_anything_is_stored(project: Project) -> None:
    script = (
        "import sys; sys.argv = ['foldlog', 'run', 'project_agents:helper', 'x' * 2_000_000]\n"
        "from foldlog.adapters.cli import main; main()"
    )
    done = project.python(script)
    assert done.code == 2
    assert "more than the" in done.error
    assert project.run("runs", "list", "--json").document == []


def test_a_url_of_another_protocol_is_a_usage_error(alone: Project) -> None:
    done = alone.run("run", "project_agents:helper", "q", "-s", "http://127.0.0.1:1")
    assert done.code == 2
    assert "must begin with nats://" in done.error


def test_a_reader_that_goes_away_ends_the_command_without_a_word(alone: Project) -> None:
    done = alone.unread("run", "project_agents:helper", "q", "--json", "--detailed")
    assert (done.code, done.err) == (1, "")


def test_every_json_document_can_be_read_back(alone: Project) -> None:
    done = alone.run("run", "project_agents:evil", "q", "--json")
    assert "".join(json.loads(line).get("text", "") for line in done.out.splitlines()) == EVIL_TEXT


def test_a_finished_run_has_a_history_and_nothing_pending(project: Project) -> None:
    done = project.run("run", "project_agents:helper", "question", "--json")
    run = done.lines[0]["run_id"]
    history = project.run("runs", "history", run)
    assert history.out.splitlines()[-1].split() == ["assistant", "Final", "answer"]
    pending = project.run("runs", "pending", run)
    assert (pending.code, pending.out) == (1, f"run {run} is completed, in step 2, at revision 18\n")
    refused = project.run("runs", "refresh-tools", run)
    assert refused.code == 1
    assert "is over" in refused.err
    wrong = project.run("runs", "refresh-tools", run, "--mcp-servers", "nowhere.json")
    assert (wrong.code, "nowhere.json cannot be read" in wrong.err) == (2, True)


def test_a_request_that_only_removes_tools_says_so(project: Project) -> None:
    started = project.run("run", "project_agents:careful", "q", "--no-wait", "--json")
    run = started.lines[0]["run_id"]
    done = project.run("runs", "refresh-tools", run, "--remove", "lookup")
    assert done.out == f"run {run}: lookup will be removed before its next step\n"
    assert "the removal of lookup was requested" in project.run("runs", "show", run).out


def test_a_resume_token_is_shown_once_and_is_read_from_standard_input_or_the_environment(
    project: Project,
) -> None:
    assert project.run("run", "project_agents:careful", "q", "--no-wait").code == 5
    (row,) = project.run("approvals", "list", "--json").document
    approval = row["approval_id"]
    waits = project.run("runs", "resume", row["run_id"])
    told = f"--namespace {project.environ['FOLDLOG_NAMESPACE']} approvals approve {approval}"
    assert (waits.code, told in waits.out) == (5, True)
    token, later = (
        project.run("approvals", "token", "issue", approval, "--expires", "1h").out.strip() for _ in "ab"
    )
    assert project.run("approvals", "show", approval, "--json").document["tokens"] == 2
    wrong = project.run("approvals", "reject", "ap-other", "--token", "-", stdin=f"{token}\n")
    assert (wrong.code, token in wrong.err) == (1, False)
    done = project.run("approvals", "approve", FOLDLOG_RESUME_TOKEN=token)
    assert (done.code, done.out.split()[:2]) == (0, ["approved:", approval])
    used = project.run("approvals", "reject", "--token", "-", stdin=f"{later}\n")
    assert used.code == 1
    assert "a resume token can be used only once" in used.error
    assert "decided" not in project.run("approvals", "token", "revoke", approval).out
    shown = project.run("runs", "show", row["run_id"], "--json", "--detailed")
    assert token.rpartition(".")[2] not in shown.out + shown.err


def test_a_run_has_the_priority_of_its_option_and_a_wrong_one_starts_nothing(project: Project) -> None:
    project.run("run", "project_agents:helper", "x", "--run-id", "soon", "--priority", "9")
    assert project.run("runs", "show", "soon", "--json").document["priority"] == "urgent"
    assert "on the local executor, urgent" in project.run("runs", "show", "soon").out
    refused = project.run("run", "project_agents:helper", "x", "--run-id", "never", "--priority", "high")
    assert refused.code == 2
    assert "a priority is urgent, normal, background, or a number from 0 to 9" in refused.error
    assert [row["run_id"] for row in project.run("runs", "list", "--json").document] == ["soon"]


def test_partial_results_are_shown_as_they_come_and_as_the_result_of_a_call_that_timed_out(
    project: Project,
) -> None:
    done = project.run("run", "project_agents:counting", "x", "--run-id", "one")
    shown = [line.split("  ")[-1].strip() for line in done.err.splitlines()]
    assert "· so far: one <b>" in shown
    assert '· so far: {"counted":["one","two"]}' in shown
    assert 'timed out; so far: {"counted":["one","two"]}' in shown
    timeline = project.run("runs", "show", "one", "--json").document["timeline"]
    told = [(row["what"], row["detail"]) for row in timeline]
    assert ("partial", '"one <b>"') in told
    assert ("← count", 'timed out; so far: {"counted":["one","two"]}') in told
    exported = project.run("events", "export", "one").lines
    values = [
        event["value"]
        for each in exported
        for event in json.loads(each.get("data", "{}")).get("events", ())
        if event["type"] == "tool_partial"
    ]
    assert values == ["one <b>", {"counted": ["one", "two"]}]
    told_model = project.run("runs", "history", "one").out
    assert "[partial: the call timed out before it was done]" in told_model
    assert project.run("replay", "one").code == 0
