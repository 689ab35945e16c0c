"""Measure runs that wait for an approval: their cost for the worker, and for a caller that waits for the results."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import AsyncIterator

from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import RunHandle, Runtime

from ..bounds import FOLDLOG
from ..contestants import cpu_s, rss_bytes, worker_process
from ..models import asking, registry_of
from ..settings import Collected, Measured, Settings

ROUNDS = 3
RUNS, RUNS_MOST = 1000, 10_000
WARM_UP_RUNS, AT_ONCE = 200, 50
IDLE_S = 10.0
SETTLE_S = 1.0
WORKER_RSS = "memory of the worker for a parked run"
CALLER_RSS = "memory of the caller for a run whose result it waits for"
WORKER_CPU = "CPU of the worker while they are parked, of a core"
SERVER_CPU = "CPU of the server while they are parked, of a core"
PARKED_A_SECOND = "runs a second, from their start until they are parked"


async def measure(settings: Settings) -> Measured:
    """Measure a thousand runs."""
    return await _measured(settings, settings.count(RUNS, 20))


async def measure_most(settings: Settings) -> Measured:
    """Measure ten thousand runs."""
    return await _measured(settings, settings.count(RUNS_MOST, 40))


async def _measured(settings: Settings, runs: int) -> Measured:
    """Measure each round with a new server and worker, so that no round reuses memory freed by another."""
    found, rounds = Collected(), settings.rounds_of(ROUNDS)
    for number in range(1, rounds + 1):
        settings.say(f"round {number} of {rounds}: {runs:,} runs")
        async with (
            EphemeralServer() as server,
            Runtime.open(server.url, registry=registry_of()) as runtime,
            worker_process(server.url, "benchmarks.models:registry") as worker,
        ):
            await _round(found, runtime, worker.pid, server.pid, runs, settings)
    return found.measured()


async def _round(
    found: Collected, runtime: Runtime, worker: int, server: int, runs: int, settings: Settings
) -> None:
    await _parked(runtime, settings.count(WARM_UP_RUNS, 5))
    await asyncio.sleep(SETTLE_S)
    before, begun = rss_bytes([worker]), time.perf_counter()
    handles = await _parked(runtime, runs)
    found.add(PARKED_A_SECOND, FOLDLOG, "/s", runs / (time.perf_counter() - begun))
    await asyncio.sleep(SETTLE_S)
    found.add(WORKER_RSS, f"{runs:,} runs", "B", (rss_bytes([worker]) - before) / runs)
    spent, begun = (cpu_s([worker]), cpu_s([server])), time.perf_counter()
    await asyncio.sleep(settings.count(int(IDLE_S), 1))
    idle_s = time.perf_counter() - begun
    found.add(WORKER_CPU, f"{runs:,} runs", "%", (cpu_s([worker]) - spent[0]) / idle_s * 100)
    found.add(SERVER_CPU, f"{runs:,} runs", "%", (cpu_s([server]) - spent[1]) / idle_s * 100)
    gc.collect()
    before = rss_bytes([os.getpid()])
    async with _waiting(handles):
        await asyncio.sleep(SETTLE_S)
        found.add(CALLER_RSS, f"{runs:,} runs", "B", (rss_bytes([os.getpid()]) - before) / runs)


async def _parked(runtime: Runtime, runs: int) -> list[RunHandle[str]]:
    """Start runs, wait until each has requested its approval, and return their handles."""
    handles, left = list[RunHandle[str]](), iter(range(runs))

    async def lane() -> None:
        for _ in left:
            handle = await runtime.start(asking, "question", executor="durable")
            async with contextlib.aclosing(handle.stream()) as events:
                async for event in events:
                    if event.type == "approval_requested":
                        break
            handles.append(handle)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(AT_ONCE):
            lanes.create_task(lane())
    return handles


@contextlib.asynccontextmanager
async def _waiting(handles: list[RunHandle[str]]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(handle.result()) for handle in handles]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
