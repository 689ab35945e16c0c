"""Measure the time from a `cancel()` to the caller's result and to the end of the blocked tool."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from foldlog.eventlog import RunCancelled
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.driving.host import Host

from ..bounds import FOLDLOG
from ..settings import Collected, Measured, Settings

ROUNDS = 30
TO_CALLER = "from cancel() to RunCancelled at who waits for the result"
TO_TOOL = "from cancel() to the end of a blocked tool on a worker"
BLOCKED_S = 0.05


class Blocking:
    """The body of a tool that blocks until it is cancelled, and records when it began and ended."""

    def __init__(self) -> None:
        self.entered, self.left, self.left_at = asyncio.Event(), asyncio.Event(), 0.0

    async def __call__(self) -> str:
        """Block until cancelled."""
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left_at = time.perf_counter()
            self.left.set()
        return ""


async def measure(settings: Settings) -> Measured:
    """Cancel runs whose tool blocks on a worker."""
    found, blocking = Collected(), Blocking()

    @tool(effect="pure")
    async def block() -> str:
        """Block until cancelled."""
        return await blocking()

    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "block.json"
        turn = {"tool_calls": [{"id": "c", "name": "block", "arguments": {}}]}
        script.write_text(json.dumps({"turns": [turn]}))
        agent: Agent[str] = Agent("blocker", model=f"scripted:{script}", tools=[block])
        served = Registry(agents=[agent])
        async with (
            EphemeralServer() as server,
            JetStreamLog.open(server.url) as log,
            Runtime.open(log=log, registry=served) as runtime,
        ):
            worker = Worker(Host(log=log, registry=served, worker="bench"))
            serving = asyncio.create_task(worker.serve())
            settings.say("cancelling a blocked tool")
            for _ in range(settings.rounds_of(ROUNDS)):
                await _cancel(found, runtime, agent, blocking)
            worker.stop()
            await serving
    return found.measured()


async def _cancel(found: Collected, runtime: Runtime, agent: Agent[str], blocking: Blocking) -> None:
    blocking.entered.clear()
    blocking.left.clear()
    run = await runtime.start(agent, "question", executor="durable")
    await blocking.entered.wait()
    result = asyncio.ensure_future(run.result())
    await asyncio.sleep(BLOCKED_S)
    begun = time.perf_counter()
    await run.cancel()
    try:
        await result
    except RunCancelled:
        found.add(TO_CALLER, FOLDLOG, "ms", (time.perf_counter() - begun) * 1000)
    await blocking.left.wait()
    found.add(TO_TOOL, FOLDLOG, "ms", (blocking.left_at - begun) * 1000)
