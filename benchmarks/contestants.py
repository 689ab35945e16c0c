"""Contestants: implementations of workload A whose processes and files can be observed from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from . import script

Perform = Callable[[int], Awaitable[None]]
"""Performs one run with the given number of steps."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A request: `runs` runs of `steps` steps, `at_once` of them concurrently. None begins after `within_s` seconds."""

    runs: int
    at_once: int = 1
    steps: int = script.STEPS
    within_s: float = 600.0


class Contestant(msgspec.Struct, kw_only=True):
    """A contestant. `runs` performs what is wanted and returns the number of runs.

    `workers` and `servers` are process ids; `store` is the directory of stored data, None if nothing is stored.
    """

    name: str
    setting: str
    runs: Callable[[Wanted], Awaitable[int]]
    workers: tuple[int, ...]
    servers: tuple[int, ...] = ()
    store: Path | None = None


class Timing(msgspec.Struct, frozen=True):
    """The average cost of a run: wall time and CPU time of workers and servers (milliseconds), and bytes stored."""

    wall_ms: float
    worker_cpu_ms: float
    server_cpu_ms: float
    stored: float

    @property
    def runs_s(self) -> float:
        """The number of runs per second."""
        return 1000 / self.wall_ms


async def timed(contestant: Contestant, wanted: Wanted) -> Timing:
    """Perform the wanted runs, and return the average cost of one."""
    stored = stored_bytes(contestant.store)
    workers, servers = cpu_s(contestant.workers), cpu_s(contestant.servers)
    begun = time.perf_counter()
    count = await contestant.runs(wanted)
    wall = time.perf_counter() - begun
    per_run = 1000 / count
    return Timing(
        wall_ms=wall * per_run,
        worker_cpu_ms=(cpu_s(contestant.workers) - workers) * per_run,
        server_cpu_ms=(cpu_s(contestant.servers) - servers) * per_run,
        stored=(stored_bytes(contestant.store) - stored) / count,
    )


def many(perform: Perform) -> Callable[[Wanted], Awaitable[int]]:
    """Return a `Contestant.runs` that calls `perform` for each run."""

    async def runs(wanted: Wanted) -> int:
        begun, late = 0, time.monotonic() + wanted.within_s

        async def lane() -> None:
            nonlocal begun
            while begun < wanted.runs and time.monotonic() < late:
                begun += 1
                await perform(wanted.steps)

        async with asyncio.TaskGroup() as lanes:
            for _ in range(wanted.at_once):
                lanes.create_task(lane())
        return begun

    return runs


def cpu_s(pids: Sequence[int]) -> float:
    """Return the CPU seconds that live processes have used, on Linux with a resolution of nanoseconds."""
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    if platform.system() == "Linux":
        return time.clock_gettime(
            ~pid << 3 | 2
        )  # the process' CPU clock, computed as clock_getcpuclockid(3) does
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system


def rss_bytes(pids: Sequence[int]) -> int:
    """Return the resident memory of live processes, in bytes."""
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def stored_bytes(store: Path | None) -> int:
    """Return the bytes on disk below a directory, after checkpointing SQLite's write-ahead logs."""
    if store is None:
        return 0
    for log in store.rglob("*-wal"):
        with contextlib.closing(sqlite3.connect(str(log).removesuffix("-wal"), timeout=10)) as database:
            database.execute("pragma wal_checkpoint(truncate)")
    total = 0
    for directory, _, files in os.walk(store):
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(directory) / file).stat().st_size
    return total


@contextlib.asynccontextmanager
async def worker_process(
    url: str, registry: str = "benchmarks.workload:registry", *options: str, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a foldlog worker as a process while open. It may not be ready yet when this yields: warm it up with a run."""
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "foldlog.adapters.cli", "--server", url, "--quiet"),
        *("worker", registry, *options),
        env={**os.environ, **environment},
    )
    try:
        yield worker
    finally:
        await ended(worker)


async def ended(process: asyncio.subprocess.Process, grace_s: float = 10.0) -> None:
    """Terminate a process, kill it after `grace_s` seconds, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), grace_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
