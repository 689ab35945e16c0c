"""Measure the delay of text from the model to a reader in another process, and a worker's death during a stream."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import nats
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Agent, Runtime

from .. import bounds, notes
from ..contestants import worker_process
from ..models import LONG, PACES, Faltering, faltering, registry_of, stamp, talker
from ..reader import Order, Reader, Report
from ..settings import Collected, Measured, Settings

ROUNDS, KILLS = 3, 3
MODES = {
    "steady": "100 a second",
    "fast": "2,000 a second",
    "bursts": "2,000 a second, 200 at once",
}
REGISTRY = "benchmarks.models:registry"
SUBJECT = "bench.bare"
RESUME = "from SIGKILL of a streaming worker to the next piece of text"
HEARD_S = 1.0
"""How long a reader receives text from the first worker before its death, and from the second before the cancel."""


def middle(mode: str) -> str:
    """Return the name of the measure for the median delay of a mode."""
    return f"a piece of text to a reader, {MODES[mode]}: median"


def tail(mode: str) -> str:
    """Return the name of the measure for the 99th percentile of a mode."""
    return f"a piece of text to a reader, {MODES[mode]}: 99th percentile"


async def measure(settings: Settings) -> Measured:
    """Measure every mode in each round, through a run and bare; then kill workers that are streaming text."""
    found, rounds = Collected(), settings.rounds_of(ROUNDS)
    async with _stage() as (server, runtime, reader, path):
        async with worker_process(server.url, REGISTRY, **{notes.VARIABLE: str(path)}):
            await _read(runtime, reader, talker("try"))
            for number, mode in itertools.product(range(1, rounds + 1), MODES):
                settings.say(f"round {number} of {rounds}: {MODES[mode]}")
                pace = "try" if settings.quick else mode
                _add(found, mode, bounds.FOLDLOG, await _read(runtime, reader, talker(pace)))
                _add(found, mode, bounds.BARE, await _bare(server.url, reader, pace))
            for how in Faltering.again:
                report = await _read(runtime, reader, faltering(how))
                found.remarks.append(
                    f"the provider fails in mid-text, and then says the {how}: {_told(report)}"
                )
        report = Report()
        for number in range(1, (kills := settings.rounds_of(KILLS)) + 1):
            settings.say(f"kill {number} of {kills}")
            report = await _resumed(found, server.url, runtime, reader, path)
        found.remarks.append(
            f"the worker is killed in mid-text, the next says something else, and is cancelled: {_told(report)}"
        )
    return found.measured()


@contextlib.asynccontextmanager
async def _stage() -> AsyncIterator[tuple[EphemeralServer, Runtime, Reader, Path]]:
    with tempfile.TemporaryDirectory() as directory:
        async with EphemeralServer() as server, Runtime.open(server.url, registry=registry_of()) as runtime:
            reader = await Reader.start(server.url)
            try:
                yield server, runtime, reader, Path(directory) / "notes"
            finally:
                await reader.close()


def _add(found: Collected, mode: str, who: str, report: Report) -> None:
    delays = report.delays_ms
    found.add(middle(mode), who, "ms", statistics.median(delays))
    found.add(tail(mode), who, "ms", statistics.quantiles(delays, n=100)[98])


async def _read(runtime: Runtime, reader: Reader, agent: Agent[str]) -> Report:
    """Start a run and return what a reader saw. Raises `RuntimeError` if that differs from the text in the log."""
    run = await runtime.start(agent, "question", executor="durable")
    reader.order(Order(run=run.run_id))
    report = await reader.report()
    if report.text != (await run.result()).output:
        raise RuntimeError("a reader that does as it is told has another text than the log")
    return report


async def _bare(url: str, reader: Reader, mode: str) -> Report:
    """Publish the same pieces with nats-py from this process, and return what a reader saw."""
    pace = PACES[mode]
    reader.order(Order(subject=SUBJECT, pieces=pace.pieces))
    await reader.line()
    connection = await nats.connect(url)
    async for together in pace.beats():
        for _ in range(together):
            await connection.publish(SUBJECT, stamp().encode())
    await connection.flush()
    report = await reader.report()
    await connection.close()
    return report


async def _resumed(found: Collected, url: str, runtime: Runtime, reader: Reader, path: Path) -> Report:
    """Kill the worker that streams, and measure the time until a standby worker begins the answer again."""
    environment = {notes.VARIABLE: str(path)}
    path.unlink(missing_ok=True)
    async with worker_process(url, REGISTRY, "--concurrency", "1", **environment) as first:
        run = await runtime.start(talker(LONG), "question", executor="durable")
        reader.order(Order(run=run.run_id))
        await notes.noted(path, lambda note: note.pid == first.pid)
        async with worker_process(url, REGISTRY, **environment):
            await runtime.run(
                talker("try"), "question", executor="durable"
            )  # the second worker runs it, because the first one has no free slot
            await asyncio.sleep(HEARD_S)
            killed = time.time_ns()
            os.kill(first.pid, signal.SIGKILL)
            await notes.noted(path, lambda note: note.at_ns > killed)
            await asyncio.sleep(HEARD_S)
            await run.cancel()
            report = await reader.report()
    since = next((seen.at_ns for seen in report.seen if seen.type == "text_reset"), None)
    if since is None:
        raise RuntimeError("no other worker went on with the text of the killed one")
    found.add(RESUME, bounds.FOLDLOG, "ms", (since - killed) / 1e6)
    return report


def _told(report: Report) -> str:
    """Describe the events that a reader received, in order."""
    kinds = [
        seen.type if seen.type != "text_reset" else f"text_reset to {seen.offset}" for seen in report.seen
    ]
    grouped = [(kind, len(list(same))) for kind, same in itertools.groupby(kinds)]
    told = ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in grouped)
    return f"a reader sees {told}"
