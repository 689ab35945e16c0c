"""A worker dies while its command runs as a Job; the call that a person has repeated finds the Job."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.events import ApprovalRequested
from foldlog.runtime import Agent, Runtime

from tests.fakes.kubernetes_api import serve

pytestmark = pytest.mark.anyio

REGISTRY = """
import os

from foldlog.adapters.builtin import shell_tool
from foldlog.adapters.runners import JobTemplate, KubernetesRunner
from foldlog.runtime import Agent, Registry
from kubernetes_asyncio import client

runner = KubernetesRunner(
    JobTemplate(image="debian", mount_path=os.getcwd()),
    configuration=client.Configuration(host=os.environ["CLUSTER"]),
    poll_s=0.05,
)
registry = Registry(agents=[Agent("operator", model="scripted:turns.json", tools=[shell_tool(runner)])])
"""
SCRIPT = "echo ran >> runs; until [ -e gate ]; do sleep 0.05; done; echo done"
TURNS = [
    {"tool_calls": [{"id": "c1", "name": "shell", "arguments": {"command": ["sh", "-c", SCRIPT]}}]},
    {"text": "It is done."},
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def worker(folder: Path, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process, killed at the end."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("foldlog"),
        "worker",
        "jobs:registry",
        cwd=folder,
        env=os.environ | environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_a_command_does_not_run_twice_when_its_worker_dies(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(REGISTRY)
    (tmp_path / "turns.json").write_text(json.dumps({"turns": TURNS}))
    async with EphemeralServer() as server, serve() as cluster, Runtime.open(server.url) as rt:
        environment = {"NATS_URL": server.url, "CLUSTER": cluster.url}
        agent = Agent("operator", model="scripted:turns.json", tools=["shell"])
        async with asyncio.timeout(300):
            async with worker(tmp_path, **environment):
                run = await rt.start(agent, "Do it", executor="durable")
                while not (tmp_path / "runs").exists():  # noqa: ASYNC110 - Another process makes it.
                    await asyncio.sleep(0.02)
            async with worker(tmp_path, **environment):
                async with aclosing(run.stream(detailed=True)) as events:
                    asked = await anext(each async for each in events if isinstance(each, ApprovalRequested))
                assert asked.kind == "unverifiable"
                await run.resolve(asked.approval_id, "approved", outcome="retry")
                (tmp_path / "gate").touch()
                result = await run.result()
        (answer,) = [event async for event in run.stream(detailed=True) if event.type == "tool_result"]
    assert answer.result == {"exit_code": 0, "output": "done\n"}
    assert result.output == "It is done."
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert len(cluster.created) == 2
    assert len({manifest["metadata"]["name"] for manifest in cluster.created}) == 1
