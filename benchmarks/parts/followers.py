"""Measure a thousand concurrent readers: the delay of the text, and their cost for runs that they do not read."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Runtime

from .. import notes, script
from ..contestants import Contestant, Wanted, many, rss_bytes, timed, worker_process
from ..models import CROWD, asking, registry_of, talker
from ..reader import Order, Reader
from ..settings import Collected, Measured, Settings
from ..workload import agent_of

ROUNDS = 3
READERS = (1, 100, 1000)
ALONE = 20
SETTLE_S = 5.0
OF_A_PROCESS = 1000
"""The limit of readers per process."""
MIDDLE = "a piece of text to its readers: median"
TAIL = "a piece of text to its readers: 99th percentile"
RUN_ALONE = "a run alone beside readers of another run, wall time"
READER_RSS = "memory of their process for a reader"
NOBODY = "no reader"


def named(readers: int) -> str:
    """Return the name of a contestant with this number of readers."""
    return f"{readers:,} reader{'s' if readers > 1 else ''}"


async def measure(settings: Settings) -> Measured:
    """Measure crowds of readers, which share one process: at best it has one of the machine's two cores."""
    found, rounds = Collected(), settings.rounds_of(ROUNDS)
    crowds = (*READERS[:-1], READERS[-1] * settings.times) if not settings.quick else (1, 3)
    async with _stage() as (runtime, url, contestant):
        for number in range(1, rounds + 1):
            alone = await timed(contestant, Wanted(runs=settings.count(ALONE, 2)))
            found.add(RUN_ALONE, NOBODY, "ms", alone.wall_ms)
            for readers in crowds:
                settings.say(f"round {number} of {rounds}: {named(readers)}")
                await _read(found, runtime, url, readers, settings)
            await _beside(found, runtime, url, contestant, crowds[-1], settings)
    return found.measured()


@contextlib.asynccontextmanager
async def _stage() -> AsyncIterator[tuple[Runtime, str, Contestant]]:
    with tempfile.TemporaryDirectory() as directory:
        environment = {notes.VARIABLE: str(Path(directory) / "notes")}
        async with EphemeralServer() as server, Runtime.open(server.url, registry=registry_of()) as runtime:

            async def run(steps: int) -> None:
                await runtime.run(agent_of(steps), script.QUESTION, executor="durable")

            async with worker_process(server.url, "benchmarks.models:registry", **environment) as worker:
                await run(script.STEPS)
                yield (
                    runtime,
                    server.url,
                    Contestant(name="", setting="", runs=many(run), workers=(worker.pid,)),
                )


async def _read(found: Collected, runtime: Runtime, url: str, readers: int, settings: Settings) -> None:
    """Measure the delays while all readers follow one run that streams ten pieces a second."""
    async with _readers(url, readers) as processes:
        agent = talker("try-crowd" if settings.quick else CROWD)
        run = await runtime.start(agent, script.QUESTION, executor="durable")
        _order(processes, run.run_id, readers)
        reports = await asyncio.gather(*(each.report() for each in processes))
    delays = [delay for report in reports for delay in report.delays_ms]
    found.add(MIDDLE, named(readers), "ms", statistics.median(delays))
    found.add(TAIL, named(readers), "ms", statistics.quantiles(delays, n=100)[98])


async def _beside(
    found: Collected, runtime: Runtime, url: str, contestant: Contestant, readers: int, settings: Settings
) -> None:
    """Measure other runs while all readers follow a run that waits for an approval."""
    async with _readers(url, readers) as processes:
        waiting = await runtime.start(asking, script.QUESTION, executor="durable")
        pids = [each.pid for each in processes]
        before = rss_bytes(pids)
        _order(processes, waiting.run_id, readers)
        await asyncio.sleep(settings.count(int(SETTLE_S), 1))
        found.add(READER_RSS, named(readers), "B", (rss_bytes(pids) - before) / readers)
        alone = await timed(contestant, Wanted(runs=settings.count(ALONE, 2)))
        found.add(RUN_ALONE, named(readers), "ms", alone.wall_ms)
        await waiting.cancel()


def _order(processes: Sequence[Reader], run: str, readers: int) -> None:
    for number, process in enumerate(processes):
        process.order(Order(run=run, readers=min(OF_A_PROCESS, readers - number * OF_A_PROCESS)))


@contextlib.asynccontextmanager
async def _readers(url: str, readers: int) -> AsyncIterator[list[Reader]]:
    processes = list[Reader]()
    try:
        while len(processes) * OF_A_PROCESS < readers:
            processes.append(await Reader.start(url))
        yield processes
    finally:
        for process in processes:
            await process.close()
