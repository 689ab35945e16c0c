"""A contestant: something that can do workload A, whose processes and files can be looked at from outside."""

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
"""Do one run of so many steps."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """So many runs of so many steps, so many of them at once; none begins after `within_s` seconds."""

    runs: int
    at_once: int = 1
    steps: int = script.STEPS
    within_s: float = 600.0


class Contestant(msgspec.Struct, kw_only=True):
    """`runs` does them and says how many they were; `workers`, `servers` are process ids; `store` has the files."""

    name: str
    setting: str
    runs: Callable[[Wanted], Awaitable[int]]
    workers: tuple[int, ...]
    servers: tuple[int, ...] = ()
    store: Path | None = None


class Timing(msgspec.Struct, frozen=True):
    """Of one of `count` runs: wall time, and the CPU time of workers and of servers, in milliseconds; bytes stored."""

    wall_ms: float
    worker_cpu_ms: float
    server_cpu_ms: float
    stored: float

    @property
    def runs_s(self) -> float:
        """Return the number of runs that end per second."""
        return 1000 / self.wall_ms


async def timed(contestant: Contestant, wanted: Wanted) -> Timing:
    """Have so many runs done, and see what they cost."""
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
    """`runs` made of one run."""

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
    """Seconds of CPU that living processes have used; on Linux to the nanosecond, elsewhere as the system rounds."""
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    if platform.system() == "Linux":
        return time.clock_gettime(~pid << 3 | 2)  # the process' CPU clock, as clock_getcpuclockid(3) makes it
    spent = psutil.Process(pid).cpu_times()
    return spent.user + spent.system


def rss_bytes(pids: Sequence[int]) -> int:
    """Resident memory of living processes."""
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def stored_bytes(store: Path | None) -> int:
    """Return the bytes on disk below a directory, after SQLite's write-ahead logs were written back."""
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
    """A worker of foldlog in a process of its own, ended with the context; the first run tells when it is ready."""
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
    """End a process, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), grace_s)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
