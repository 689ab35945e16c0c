"""Durable runs, a worker process and the commands that watch and steer them: all real processes on a real server."""

import asyncio
import re
import signal
from collections.abc import Callable
from pathlib import Path

import nats
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.names import shard_in

from tests.cli.commands import Project, Running

Start = Callable[..., Running]
WORKER = ("worker", "project_agents:registry", "--lease-s", "2")


def ready(start: Start, name: str, *options: str) -> Running:
    """A worker that serves."""
    worker = start(*WORKER, "--name", name, *options)
    worker.until(
        f"worker {name} serves careful, evil, failing, hanging, helper, reckless on nats://127.0.0.1:"
    )
    return worker


def test_a_durable_run_is_shown_while_a_worker_drives_it(project: Project, start: Start) -> None:
    worker = ready(start, "w1")
    done = project.run("run", "project_agents:helper", "question", "--executor", "durable")
    assert (done.code, done.out) == (0, "Let me see.\nFinal answer\n")
    run = project.only_run()
    worker.until(f"info run {run} of helper: claimed, epoch 1")
    worker.until(f"info run {run} of helper: completed")
    worker.interrupt(signal.SIGTERM)
    ended = worker.end()
    assert ended.code == 0
    assert "worker w1 has ended" in ended.err


def test_a_run_that_nobody_serves_says_so_and_ctrl_c_detaches_from_it(project: Project, start: Start) -> None:
    running = start("run", "project_agents:unserved", "question", "--executor", "durable")
    running.until("waiting for a worker serving unserved; no live worker does")
    running.interrupt()
    ended = running.end()
    assert ended.code == 130
    run = project.only_run()
    assert ended.err.splitlines()[-1].endswith(f"runs stream {run}")
    assert project.run("runs", "show", run, "--json").document["status"] == "queued"
    waits = project.run("runs", "pending", run)
    assert waits.code == 0
    assert waits.out.splitlines()[-1] == "worker\t\tthe run has no driver: no live worker serves its agent"
    (row,) = project.run("runs", "list", "--json").document
    assert (row["waiting_for"], row["reason"]) == ("worker", "no live worker serves 'unserved'")


def test_a_reader_that_comes_back_sees_the_whole_run(project: Project, start: Start) -> None:
    running = start("run", "project_agents:helper", "question", "--executor", "durable")
    running.until("waiting for a worker")
    running.interrupt()
    assert running.end().code == 130
    run = project.only_run()
    stream = start("runs", "stream", run)
    stream.until(f"run {run}")
    ready(start, "w1")
    ended = stream.end()
    assert (ended.code, ended.out) == (0, "Let me see.\nFinal answer\n")
    lines = project.run("runs", "stream", run, "--json", "--detailed").lines
    cursor = next(event["cursor"] for event in lines if event["type"] == "tool_result")
    behind = project.run("runs", "stream", run, "--json", "--detailed", "--after", cursor).lines
    assert behind == lines[lines.index(next(e for e in lines if e["cursor"] == cursor)) + 1 :]


def test_an_approval_parks_the_run_and_the_answer_wakes_a_worker(project: Project, start: Start) -> None:
    ready(start, "w1")
    assert project.run("run", "project_agents:careful", "q", "--executor", "durable", "--no-wait").code == 5
    (row,) = project.run("approvals", "list", "--json").document
    approval = row["approval_id"]
    shown = project.run("approvals", "show", approval)
    assert f"approvals approve {approval}" in shown.out
    arguments = '{"q": "something else"}'
    assert project.run("approvals", "approve", approval, "--arguments", arguments, "--by", "Ada").code == 0
    done = project.run("runs", "stream", row["run_id"])
    assert done.code == 0
    assert "found something else" in done.err
    decided = project.run("approvals", "show", approval, "--json").document
    assert (decided["decision"], decided["by"]) == ("approved", "Ada")
    assert project.run("approvals", "list", "--json").document == []
    late = project.run("approvals", "reject", approval)
    assert late.code == 1
    assert "was approved with other arguments by Ada already" in late.error


def test_a_killed_worker_is_replaced_and_the_timeline_tells(project: Project, start: Start) -> None:
    first = ready(start, "w1")
    running = start("run", "project_agents:hanging", "question", "--executor", "durable")
    running.until("for ever")
    first.kill()
    second = ready(start, "w2")
    second.until("claimed, epoch 2")
    run = project.only_run()
    assert project.run("runs", "cancel", run, "--reason", "enough", "--by", "Ada").code == 0
    ended = running.end()
    assert ended.code == 1
    assert "cancelled (enough)" in ended.err
    told = project.run("runs", "show", run).out
    assert "takeover" in told
    assert "by w2 from w1 (epoch 2)" in told


def test_an_unsafe_call_of_a_killed_worker_waits_for_a_decision(project: Project, start: Start) -> None:
    first = ready(start, "w1")
    running = start("run", "project_agents:reckless", "question", "--executor", "durable")
    running.until("for ever")
    first.kill()
    ready(start, "w2")
    command = running.until("--outcome succeeded").split()
    undecided = project.run(*command[1:-2])
    assert undecided.code == 1
    assert "outcome of the call: retry, succeeded (with a result) or failed" in undecided.error
    assert project.run(*command[1:], "--result", '"done by hand"').code == 0
    ended = running.end()
    assert (ended.code, ended.out) == (0, "It is done\n")
    assert "done by hand" in ended.err


def test_a_worker_drains_on_sigterm_and_gives_back_what_it_cannot_finish(
    project: Project, start: Start
) -> None:
    worker = ready(start, "w1", "--grace-s", "0")
    running = start("run", "project_agents:hanging", "question", "--executor", "durable")
    running.until("for ever")
    worker.interrupt(signal.SIGTERM)
    ended = worker.end()
    assert ended.code == 0
    assert "draining" in ended.err
    assert project.run("runs", "show", project.only_run(), "--json").document["owner"] is None


def test_a_worker_that_drains_is_shown_so_and_ends_at_once_with_a_second_signal(
    project: Project, start: Start
) -> None:
    worker = ready(start, "w1")
    running = start("run", "project_agents:hanging", "question", "--executor", "durable")
    running.until("for ever")
    worker.interrupt()
    worker.until("draining")
    while "; it drains, and takes no more runs" not in (told := project.run("doctor")).out:
        assert "w1" in told.out
    assert re.search(r"w1 +1 of \d+ .*nothing more: it drains", project.run("top", "--once").out)
    assert "nothing more, it drains: " in project.run("workers", "list").out
    worker.interrupt()
    assert worker.end().code == 130


def test_runs_can_be_paused_told_something_and_resumed_from_other_processes(
    project: Project, start: Start
) -> None:
    running = start("run", "project_agents:helper", "question", "--executor", "durable")
    running.until("waiting for a worker")
    run = project.only_run()
    assert project.run("runs", "inject", run, "by the way").code == 0
    sent = project.run("runs", "signal", run, "paid", "--data", '{"eur": 40}', "--key", "evt_17")
    assert (sent.code, "signal 1 is stored" in sent.out) == (0, True)
    assert "as before" in project.run("runs", "signal", run, "paid", "--key", "evt_17").out
    assert project.run("runs", "signal", run, "no name").code == 1
    assert project.run("runs", "pause", run).code == 0
    ready(start, "w1")
    running.until("paused (manual)")
    assert project.run("runs", "stream", run, "--no-wait").code == 5
    assert project.run("runs", "resume", run).code == 0
    ended = running.end()
    assert ended.code == 0
    assert "message: by the way" in ended.err
    assert project.run("runs", "signal", run, "paid", "--data", "{").code == 2
    too_late = project.run("runs", "signal", run, "paid", "--data", '{"eur": 40}', "--key", "k")
    assert (too_late.code, "is over (completed)" in too_late.error) == (1, True)
    late = project.run("runs", "inject", run, "too late")
    assert late.code == 1
    assert "is over (completed)" in late.error
    assert project.run("runs", "cancel", run).code == 1


async def test_a_worker_and_a_reader_sit_through_an_outage_of_the_server(place: Path) -> None:
    async with EphemeralServer() as server:
        project = Project(place, server.url)
        worker = project.start(*WORKER, "--name", "w1")
        try:
            worker.until("serves")
            running = project.start("run", "project_agents:careful", "question", "--executor", "durable")
            command = running.until("approvals approve").split()
            await server.restart()
            assert project.run(*command[1:]).code == 0
            ended = running.end()
            assert (ended.code, ended.out) == (0, "Let me see.\nFinal answer\n")
        finally:
            worker.kill()


async def test_a_reader_whose_server_is_gone_ends_when_it_is_told_to(place: Path) -> None:
    async with EphemeralServer() as server:
        project = Project(place, server.url)
        starting = project.start("run", "project_agents:unserved", "question", "--executor", "durable")
        starting.until("waiting for a worker serving unserved")
        run = project.only_run()
        stream = project.start("runs", "stream", run)
        stream.until("waiting for a worker serving unserved")
    for reader, number, code in ((starting, signal.SIGINT, 130), (stream, signal.SIGTERM, 143)):
        reader.interrupt(number)
        ended = reader.end()
        assert ended.code == code
        assert ended.err.splitlines()[-1].endswith(f"runs stream {run}")


def test_a_worker_that_serves_many_agents_shows_how_far_it_is(project: Project, start: Start) -> None:
    (project.place / "crowd_agents.py").write_text(
        "from foldlog.runtime import Agent, Registry\n"
        "agents = [Agent(f'a{n:02}', model='scripted:helper.json') for n in range(26)]\n"
        "registry = Registry(agents=agents)\n"
    )
    worker = ("worker", "crowd_agents:registry", "--name")
    end = "312 of 312 consumers of wake-ups are ready"
    piped = start(*worker, "piped")
    assert "a10, a11 and 14 more agents on nats://" in piped.until("worker piped serves a00, a01")
    piped.until("100 of 312 consumers of wake-ups are ready")
    piped.until(end)
    shown = project.on_terminal(*worker, "shown", until=end)
    assert "100 of 312 consumers of wake-ups are ready" in shown
    assert "worker shown has ended" in shown


def test_a_worker_without_agents_is_refused(project: Project) -> None:
    done = project.run("worker", "project_agents:empty")
    assert done.code == 2
    assert "has no agents" in done.error


def test_a_server_that_cannot_be_reached_is_exit_code_3_of_every_command(start: Start) -> None:
    nowhere = ("--server", "nats://127.0.0.1:1")
    doctor = start("doctor", *nowhere)
    commands = [
        start(*command, *nowhere)
        for command in (
            ("run", "project_agents:helper", "question"),
            ("worker", "project_agents:registry"),
            ("runs", "list"),
            ("approvals", "approve", "ap-1"),
        )
    ]
    for command in commands:
        ended = command.end()
        assert (ended.code, ended.out) == (3, "")
        assert "cannot reach the NATS server at nats://127.0.0.1:1" in ended.error
    diagnosis = doctor.end()
    assert diagnosis.code == 1
    assert "✗ server" in diagnosis.out
    assert "foldlog log up" in diagnosis.out


def test_what_does_not_exist_exits_1_in_one_line(project: Project) -> None:
    for args in (
        ("runs", "show"),
        ("runs", "stream"),
        ("runs", "cancel"),
        ("runs", "pause"),
        ("runs", "drive"),
    ):
        done = project.run(*args, "nothing")
        assert done.code == 1
        assert "has the id, prefix or suffix 'nothing'" in done.error
    done = project.run("approvals", "approve", "ap-nothing")
    assert done.code == 1
    assert "has the id, prefix or suffix 'ap-nothing'" in done.error


def test_a_damaged_commit_is_told_in_one_line_and_ends_every_command(project: Project) -> None:
    assert project.run("run", "project_agents:helper", "question").code == 0
    run = project.only_run()
    asyncio.run(forge(project, run))
    for args in (("show", run), ("stream", run)):
        done = project.run("runs", *args)
        assert done.code == 1
        assert f"the log of run {run} is damaged at revision" in done.error


async def forge(project: Project, run: str) -> None:
    """Store a message under the run that no executor wrote."""
    prefix = Layout(project.environ["FOLDLOG_NAMESPACE"]).prefix(shard_in(run) or 0)
    connection = await nats.connect(project.environ["NATS_URL"])
    await connection.jetstream().publish(
        f"{prefix}.run.{run}.{run}", b'{"v":1,"run":"x","root":"x","rev":99}'
    )
    await connection.close()
