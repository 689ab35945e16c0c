"""How long after `cancel()` returns its caller has the result, and the blocked tool is ended."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
from foldlog.eventlog import RunCancelled
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.drive import Host

RUNS = 30


class Latencies(msgspec.Struct, frozen=True):
    """Milliseconds from the call of `cancel` to the caller's `RunCancelled`, and to the end of the tool's task."""

    caller_ms: list[float]
    tool_ms: list[float]

    @property
    def caller_median_ms(self) -> float:
        """Median."""
        return statistics.median(self.caller_ms)

    @property
    def tool_median_ms(self) -> float:
        """Median."""
        return statistics.median(self.tool_ms)


async def measure() -> Latencies:
    """Cancel runs whose tool blocks, on a worker."""
    entered, left = asyncio.Event(), asyncio.Event()
    left_at = [0.0]

    @tool(effect="pure")
    async def block() -> str:
        """Block until cancelled."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left_at[0] = time.perf_counter()
            left.set()
        return ""

    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "block.json"
        script.write_text(
            json.dumps({"turns": [{"tool_calls": [{"id": "c", "name": "block", "arguments": {}}]}]})
        )
        agent: Agent[str] = Agent("blocker", model=f"scripted:{script}", tools=[block])
        served = Registry(agents=[agent])
        async with (
            EphemeralServer() as server,
            JetStreamLog.open(server.url) as log,
            Runtime.open(log=log, registry=served) as runtime,
        ):
            worker = Worker(Host(log=log, registry=served, worker="bench"))
            serving = asyncio.create_task(worker.serve())
            caller_ms, tool_ms = list[float](), list[float]()
            for _ in range(RUNS):
                entered.clear()
                left.clear()
                run = await runtime.start(agent, "question", executor="durable")
                await entered.wait()
                result = asyncio.ensure_future(run.result())
                await asyncio.sleep(0.05)
                begun = time.perf_counter()
                await run.cancel()
                try:
                    await result
                except RunCancelled:
                    caller_ms.append((time.perf_counter() - begun) * 1000)
                await left.wait()
                tool_ms.append((left_at[0] - begun) * 1000)
            worker.stop()
            await serving
            return Latencies(caller_ms, tool_ms)
