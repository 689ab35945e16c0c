"""Measure a thousand schedules that are due at the same moment, and ten thousand that are not due."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import RunHandle, Runtime, Schedule

from .. import notes
from ..contestants import cpu_s, worker_process
from ..models import noting, registry_of
from ..settings import Collected, Measured, Settings

ROUNDS = 3
DUE, IDLE = 1000, 10_000
AT_ONCE = 50
DRAIN_S = 300.0
SETTLE_S = 2.0
IDLE_S = 10.0
ALL_STARTED = "from the moment at which all are due to the last one's model call"
SCHEDULES, BY_HAND = "schedules", "as many calls of start(), fifty at once"
WORKER_CPU = "CPU of the worker while no schedule is due, of a core"
SERVER_CPU = "CPU of the server while no schedule is due, of a core"
NONE = "no schedules"
SOON_S = 20.0
"""How far ahead the schedules are due, since applying a thousand takes about five seconds on two cores."""
REGISTRY = "benchmarks.models:registry"


async def measure(settings: Settings) -> Measured:
    """Measure each round with a new server and worker."""
    found, rounds = Collected(), settings.rounds_of(ROUNDS)
    for number in range(1, rounds + 1):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "notes"
            async with (
                EphemeralServer() as server,
                Runtime.open(server.url, registry=registry_of()) as runtime,
                worker_process(server.url, REGISTRY, **{notes.VARIABLE: str(path)}) as worker,
            ):
                settings.say(f"round {number} of {rounds}: runs that are due at one moment")
                await runtime.run(noting, "warm", executor="durable")
                await _due(found, runtime, path, settings)
                await _idle(found, runtime, worker.pid, server.pid, number, rounds, settings)
    return found.measured()


async def _due(found: Collected, runtime: Runtime, path: Path, settings: Settings) -> None:
    """Measure the same number of runs started by `start()` and by schedules."""
    count = settings.count(DUE, 10)
    begun = time.time_ns()
    names = iter([f"hand-{number}" for number in range(count)])
    handles = list[RunHandle[str]]()

    async def start(name: str) -> None:
        handles.append(await runtime.start(noting, name, executor="durable"))

    await _side_by_side(start, names)
    for handle in handles:
        await handle.result()
    found.add(ALL_STARTED, BY_HAND, "s", (_last(path, "hand-") - begun) / 1e9, x=count)

    due_at = datetime.now(UTC) + timedelta(seconds=settings.count(int(SOON_S), 3))

    async def apply(name: str) -> None:
        given = Schedule(name, noting, name, every="30d", from_=due_at.isoformat())
        await runtime.schedules.apply(given)

    await _side_by_side(apply, iter([f"due-{number}" for number in range(count)]))
    if datetime.now(UTC) > due_at:
        raise RuntimeError("the schedules were due before all of them were applied: this machine is too busy")
    async with asyncio.timeout(DRAIN_S):
        while sum(each.startswith("asked due-") for each in notes.notes_of(path)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.25)
    late_s = _last(path, "due-") / 1e9 - due_at.timestamp()
    found.add(ALL_STARTED, SCHEDULES, "s", late_s, x=count)


async def _idle(
    found: Collected,
    runtime: Runtime,
    worker: int,
    server: int,
    number: int,
    rounds: int,
    settings: Settings,
) -> None:
    """Measure the idle CPU time of worker and server, without schedules and with many."""
    count = settings.count(IDLE, 20)
    for row in await runtime.schedules.list():
        await runtime.schedules.delete(row.name)
    await _spent(found, worker, server, NONE, settings)
    settings.say(f"round {number} of {rounds}: {count:,} schedules that are not due")
    later = (datetime.now(UTC) + timedelta(days=20)).isoformat()

    async def apply(name: str) -> None:
        await runtime.schedules.apply(Schedule(name, noting, every="30d", from_=later))

    await _side_by_side(apply, iter([f"idle-{number}" for number in range(count)]))
    await _spent(found, worker, server, f"{count:,} schedules", settings)


async def _spent(found: Collected, worker: int, server: int, who: str, settings: Settings) -> None:
    await asyncio.sleep(SETTLE_S)
    spent, begun = (cpu_s([worker]), cpu_s([server])), time.perf_counter()
    await asyncio.sleep(settings.count(int(IDLE_S), 1))
    idle_s = time.perf_counter() - begun
    found.add(WORKER_CPU, who, "%", (cpu_s([worker]) - spent[0]) / idle_s * 100)
    found.add(SERVER_CPU, who, "%", (cpu_s([server]) - spent[1]) / idle_s * 100)


def _last(path: Path, names: str) -> int:
    return max(at_ns for what, at_ns in notes.notes_of(path).items() if what.startswith(f"asked {names}"))


async def _side_by_side(do: Callable[[str], Awaitable[None]], names: Iterator[str]) -> None:
    async def lane() -> None:
        for name in names:
            await do(name)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(AT_ONCE):
            lanes.create_task(lane())
