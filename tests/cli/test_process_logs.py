"""The logs and the health of a worker's process, as a collector and a process manager read them."""

import asyncio
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from typing import Any

from foldlog.eventlog.embedded import EphemeralServer

from tests.cli.commands import WAIT_S, Project, Running

Start = Callable[..., Running]
REGISTRY = "project_agents:registry"


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until_served(project: Project, url: str) -> None:
    assert (
        project.run("run", "project_agents:helper", "question", "--executor", "durable", NATS_URL=url).code
        == 0
    )


TRACE = "0af7651916cd43dd8448eb211c80319c"
SUBMIT = f"""
import asyncio, os
from foldlog.eventlog.events import Trigger
from foldlog.runtime import Runtime
from project_agents import hanging, registry
async def main():
    async with Runtime.open(os.environ["NATS_URL"], namespace=os.environ["FOLDLOG_NAMESPACE"], registry=registry) as rt:
        trigger = Trigger(kind="api", request_id="q-7", traceparent="00-{TRACE}-b7ad6b7169203331-01")
        await rt.start(hanging, "question", executor="durable", trigger=trigger)
asyncio.run(main())
"""


def test_each_line_of_a_workers_log_is_json_with_the_ids_of_its_work(project: Project, start: Start) -> None:
    first = start("worker", REGISTRY, "--name", "w1", "--log-format", "json")
    first.until("worker w1 serves")
    submitted = project.python(SUBMIT)
    assert submitted.code == 0, submitted.err
    run = project.only_run()
    start("runs", "stream", run, "--json").until('"tool_call"', "out")
    first.kill()
    second = start("worker", REGISTRY, "--name", "w2", "--grace-s", "0", FOLDLOG_LOG_FORMAT="json")
    second.until("claimed, epoch 2")
    second.interrupt(signal.SIGTERM)
    lines = [json.loads(line) for line in second.end().err.splitlines()]
    (taken,) = [line for line in lines if "taken over" in line["message"]]
    assert datetime.fromisoformat(taken.pop("time")).utcoffset() is not None
    assert taken == {
        "level": "info",
        "logger": "foldlog.worker",
        "message": f"run {run} of hanging: claimed, epoch 2, taken over from w1",
        "run": run,
        "agent": "hanging",
        "step": 1,
        "call": "call-1",
        "request": "q-7",
        "trace": TRACE,
    }
    assert lines[-1]["message"] == "worker w2 has ended"


def sent(worker: Running, number: signal.Signals) -> list[Any]:
    worker.interrupt(number)
    return [json.loads(line) for line in worker.end().err.splitlines()]


async def test_a_worker_says_once_when_nats_is_lost_and_once_when_it_is_back(
    project: Project, start: Start
) -> None:
    async with EphemeralServer() as server:
        worker = start("worker", REGISTRY, "--name", "w1", "--log-format", "json", NATS_URL=server.url)
        until_served(project, server.url)
        server.kill()
        worker.until("NATS lost: the connection to the server at")
        await server.restart()
        worker.until("NATS back: connected to 127.0.0.1:")
        until_served(project, server.url)
        lines = sent(worker, signal.SIGTERM)
    told = [line for line in lines if "NATS" in line["message"]]
    assert [line["message"].partition(":")[0] for line in told] == ["NATS lost", "NATS back"]
    assert all(datetime.fromisoformat(line["time"]).utcoffset() is not None for line in told)


def test_a_worker_is_healthy_while_it_runs_and_ready_until_it_drains(project: Project, start: Start) -> None:
    worker = start("worker", REGISTRY, "--name", "w1", "--health-port", "0", "--grace-s", "60")
    address = worker.until("; health at http://127.0.0.1:").partition("; health at ")[2].strip()
    assert answer(f"{address}/healthz") == (200, "ok\n")
    running = start("run", "project_agents:hanging", "question", "--executor", "durable")
    running.until("for ever")
    assert answer(f"{address}/readyz") == (200, "ok\n")
    worker.interrupt(signal.SIGTERM)
    worker.until("draining")
    assert answer(f"{address}/healthz") == (200, "ok\n")
    status, told = answer(f"{address}/readyz")
    assert (status, json.loads(told)["detail"]) == (503, "this process is starting or draining")


async def test_a_worker_whose_log_is_away_is_healthy_but_not_ready_until_it_is_back(
    project: Project, start: Start
) -> None:
    async with EphemeralServer() as server:
        worker = start("worker", REGISTRY, "--name", "w1", "--health-port", "0", NATS_URL=server.url)
        address = worker.until("; health at http://127.0.0.1:").partition("; health at ")[2].strip()
        until_served(project, server.url)
        os.kill(server.pid, signal.SIGSTOP)
        assert answer(f"{address}/healthz")[0] == 200
        assert answer(f"{address}/readyz")[0] == 503
        os.kill(server.pid, signal.SIGCONT)
        until_served(project, server.url)
        await until_ready(address)
        server.kill()
        worker.until("NATS lost")
        assert answer(f"{address}/healthz")[0] == 200
        assert answer(f"{address}/readyz")[0] == 503
        await server.restart()
        worker.until("NATS back")
        await until_ready(address)


async def until_ready(address: str) -> None:
    """An answer that takes more than its two seconds, on a busy machine, is a 503: it is asked again."""
    async with asyncio.timeout(WAIT_S):
        while (await asyncio.to_thread(answer, f"{address}/readyz"))[0] != 200:  # noqa: ASYNC110 - asked, not told
            await asyncio.sleep(0.1)


def test_a_port_that_is_taken_is_one_message(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = project.run("worker", REGISTRY, "--name", "w1", "--health-port", str(port))
    assert done.code == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in done.error
