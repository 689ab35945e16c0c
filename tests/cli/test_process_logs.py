"""The logs and the health of a worker's process, as a collector and a process manager read them."""

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime

from foldlog.eventlog.embedded import EphemeralServer

from tests.cli.commands import Project, Running

Start = Callable[..., Running]
REGISTRY = "project_agents:registry"


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until_served(project: Project, url: str) -> None:
    assert (
        project.run("run", "project_agents:helper", "question", "--executor", "durable", NATS_URL=url).code
        == 0
    )


def test_each_line_of_a_workers_log_is_json_with_the_ids_of_its_work(project: Project, start: Start) -> None:
    first = start("worker", REGISTRY, "--name", "w1", "--log-format", "json")
    first.until("worker w1 serves")
    running = start("run", "project_agents:hanging", "question", "--executor", "durable")
    running.until("for ever")
    first.kill()
    second = start("worker", REGISTRY, "--name", "w2", "--grace-s", "0", FOLDLOG_LOG_FORMAT="json")
    second.until("claimed, epoch 2")
    second.interrupt(signal.SIGTERM)
    lines = [json.loads(line) for line in second.end().err.splitlines()]
    run = project.only_run()
    (taken,) = [line for line in lines if "claimed" in line["message"]]
    assert taken["message"] == f"run {run} of hanging: claimed, epoch 2, taken over from w1"
    assert (taken["level"], taken["logger"], taken["run"]) == ("info", "foldlog.worker", run)
    assert datetime.fromisoformat(taken["time"]).utcoffset() is not None
    assert lines[-1]["message"] == "worker w2 has ended"


async def test_a_worker_says_when_nats_is_lost_and_when_it_is_back(project: Project, start: Start) -> None:
    async with EphemeralServer() as server:
        worker = start("worker", REGISTRY, "--name", "w1", NATS_URL=server.url)
        until_served(project, server.url)
        server.kill()
        worker.until("warning NATS lost: the connection to the server at")
        await server.restart()
        worker.until("warning NATS back: connected to 127.0.0.1:")


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


async def test_a_worker_whose_log_is_away_is_healthy_but_not_ready(project: Project, start: Start) -> None:
    async with EphemeralServer() as server:
        worker = start("worker", REGISTRY, "--name", "w1", "--health-port", "0", NATS_URL=server.url)
        address = worker.until("; health at http://127.0.0.1:").partition("; health at ")[2].strip()
        until_served(project, server.url)
        server.kill()
        worker.until("NATS lost")
        assert answer(f"{address}/healthz")[0] == 200
        assert answer(f"{address}/readyz")[0] == 503


def test_a_port_that_is_taken_is_one_message(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = project.run("worker", REGISTRY, "--name", "w1", "--health-port", str(port))
    assert done.code == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in done.error
