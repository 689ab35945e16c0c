"""Where the time and the memory of a worker go: its functions by what a run takes in them, and what was done."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator

import msgspec
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Runtime

from .. import script
from ..contestants import Wanted, ended, many
from ..settings import Collected, Measured, Settings
from ..workload import agent_of, registry_of

RUNS, RUNS_ALLOCATING, AT_ONCE = 300, 20, 20
SHOWN = 15
LINE_BYTES_MAX = 2**24
OWN_TIME = "a function's own time in a run, profiled"
ALLOCATED = "bytes allocated in a function for a run"
COUNTED = "calls of the allocator in a function for a run"
IDLE = "runners.py run"
"""The loop's own time, of which most is waiting."""

DONE: dict[str, str] = {}
"""What was done about a line of a profile, by the function's name as the profile has it; shown beside it."""

Row = tuple[str, int, float]


async def measure(settings: Settings) -> Measured:
    """Twenty runs at once; a profile makes everything slower, so that only the shares count."""
    found = Collected()
    settings.say("CPU")
    runs, rows = await _rows("cpu", settings)
    busy = [row for row in rows if not row[0].endswith(IDLE)]
    total = sum(own_s for _, _, own_s in busy)
    for function, calls, own_s in _most(busy):
        share = f"{own_s / total:.0%}, {calls / runs:,.1f} calls"
        found.add(OWN_TIME, function, "us", own_s / runs * 1e6, setting=share)
    found.remarks.append(f"all functions together: {total / runs * 1e6:,.0f} us a run, under the profiler")
    if importlib.util.find_spec("memray") is None:
        found.remarks.append(
            "allocations were left out: memray is not installed (`pip install foldlog[bench]`)"
        )
        return found.measured()
    settings.say("allocations")
    runs, rows = await _rows("allocations", settings)
    for function, count, size in _most(rows):
        found.add(ALLOCATED, function, "B", size / runs, setting=f"{count / runs:,.1f} allocations")
    found.remarks.append(
        f"all functions together: {sum(count for _, count, _ in rows) / runs:,.0f} allocations of "
        f"{sum(size for _, _, size in rows) / runs:,.0f} bytes a run"
    )
    return found.measured()


def _most(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row[2])[:SHOWN]


async def _rows(what: str, settings: Settings) -> tuple[int, list[Row]]:
    """How many runs there were, and what the profiled worker saw."""
    runs = settings.count(RUNS if what == "cpu" else RUNS_ALLOCATING, 5)
    async with (
        EphemeralServer() as server,
        Runtime.open(server.url, registry=registry_of()) as runtime,
        _worker(server.url, what) as worker,
    ):

        async def run(steps: int) -> None:
            await runtime.run(agent_of(steps), script.QUESTION, executor="durable")

        perform = many(run)
        await perform(Wanted(runs=settings.count(AT_ONCE, 1), at_once=AT_ONCE))
        _tell(worker)
        await perform(Wanted(runs=runs, at_once=AT_ONCE))
        _tell(worker)
        return runs, msgspec.json.decode(await _said(worker), type=list[Row])


@contextlib.asynccontextmanager
async def _worker(url: str, what: str) -> AsyncIterator[asyncio.subprocess.Process]:
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.profiled", url, what),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )
    try:
        await _said(worker)
        yield worker
    finally:
        await ended(worker)


def _tell(worker: asyncio.subprocess.Process) -> None:
    if worker.stdin is not None:
        worker.stdin.write(b"\n")


async def _said(worker: asyncio.subprocess.Process) -> bytes:
    if worker.stdout is None or not (line := await worker.stdout.readline()):
        raise RuntimeError("the profiled worker has ended")
    return line
