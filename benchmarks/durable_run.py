"""A durable run beside a bare loop: nats-py publishing the same bytes in the same number of awaited messages."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import nats
import psutil
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Runtime

from .workload import STEPS, agent, registry, write_script

ROUNDS = 15
RUNS_PER_ROUND = 20
WARM_UP_RUNS = 5
WAKEUP_BYTES = 130


class Round(msgspec.Struct, frozen=True):
    """One round: milliseconds of wall and of the clients' CPU for one run, and for one bare loop beside it."""

    run_ms: float
    run_cpu_ms: float
    bare_ms: float
    bare_cpu_ms: float


class Figures(msgspec.Struct, frozen=True):
    """The rounds, and what one run stores."""

    rounds: list[Round]
    commits: int
    bytes_stored: int

    @property
    def wall_ratio(self) -> float:
        """Run to bare loop, median of the rounds' ratios."""
        return statistics.median(r.run_ms / r.bare_ms for r in self.rounds)

    @property
    def cpu_ratio(self) -> float:
        """The same of CPU time: caller and worker together, the server not counted on either side."""
        return statistics.median(r.run_cpu_ms / r.bare_cpu_ms for r in self.rounds)

    @property
    def commits_per_step(self) -> float:
        """Commits behind the one that submits the run, a step."""
        return (self.commits - 1) / STEPS


async def measure() -> Figures:
    """Run the rounds: a server of their own that syncs everything, one worker process, and this one as the caller."""
    with tempfile.TemporaryDirectory() as directory:
        write_script(Path(directory))
        os.environ["FOLDLOG_SCRIPT_DIR"] = directory
        async with (
            EphemeralServer(sync="always") as server,
            JetStreamLog.open(server.url) as log,
            Runtime.open(log=log, registry=registry) as runtime,
        ):
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "foldlog.adapters.cli", "--server", server.url, "--quiet"),
                *("worker", "benchmarks.workload:registry"),
            )
            try:
                return await _rounds(runtime, server.url, psutil.Process(worker.pid))
            finally:
                worker.terminate()
                await worker.wait()


async def _rounds(runtime: Runtime, url: str, worker: psutil.Process) -> Figures:
    async def run() -> None:
        await runtime.run(agent, "question", executor="durable")

    for _ in range(WARM_UP_RUNS):
        await run()
    commits = await _stored_commits(runtime)
    connection = await nats.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(name="BARE", subjects=["bare.>"])

    async def bare() -> None:
        await stream.publish("bare.wake", b"w" * WAKEUP_BYTES)
        for commit in commits:
            await stream.publish("bare.run", commit)

    await _timed(bare, WARM_UP_RUNS, worker)
    rounds = [
        Round(*await _timed(run, RUNS_PER_ROUND, worker), *await _timed(bare, RUNS_PER_ROUND, worker))
        for _ in range(ROUNDS)
    ]
    await connection.close()
    return Figures(rounds=rounds, commits=len(commits), bytes_stored=sum(map(len, commits)))


async def _stored_commits(runtime: Runtime) -> list[bytes]:
    handle = await runtime.start(agent, "question", executor="durable")
    await handle.result()
    subject = await runtime.locate(handle.run_id)
    return [stored.data async for stored in runtime.log.events.read(subject)]


async def _timed(
    action: Callable[[], Awaitable[None]], times: int, worker: psutil.Process
) -> tuple[float, float]:
    """Milliseconds of wall, and of CPU in this process and the worker, that one of `times` takes."""
    wall, cpu = time.perf_counter(), _cpu_s(worker)
    for _ in range(times):
        await action()
    return (time.perf_counter() - wall) / times * 1000, (_cpu_s(worker) - cpu) / times * 1000


def _cpu_s(worker: psutil.Process) -> float:
    spent = worker.cpu_times()
    return time.process_time() + spent.user + spent.system
