"""Workers and the server are killed around the times of a schedule: each time starts one run, and none is left out."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psutil
import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Schedule

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, Process

EVERY_S = 1.0
LEASE_S = 2.0
"""A wake-up that was under way to a worker that has died comes again after so long."""
POINTS = [
    f"{side} {what} {number}"
    for what in ("append", "time")
    for number in (1, 2)
    for side in ("before", "after")
]
BY_DAY = {"after append 1", "before time 1"}
"""A run is stored and its schedule does not know of it yet; in the other order a time would be lost."""


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    """One of its own, since it is killed."""
    async with EphemeralServer() as server:
        yield server
        server.kill()


async def put_on(place: Place) -> None:
    given = Schedule("look", workshop.talker, "${due_at}", every="1s", overlap="allow", missed="all")
    await place.runtime.schedules.apply(given, by="ada")


async def decided(place: Place, count: int) -> None:
    """Wait until so many times have come to something."""
    async with asyncio.timeout(PATIENCE_S):
        while (await place.runtime.schedules.get("look")).counts.started < count:  # noqa: ASYNC110 - by others
            await asyncio.sleep(0.05)


async def assert_each_time_has_one_run(place: Place, at_least: int) -> None:
    schedule = await place.runtime.schedules.get("look")
    await place.runtime.schedules.delete("look")
    triggers = [row.trigger for row in await place.runtime.list_runs()]
    known = [t.due_at for t in triggers if t is not None and t.due_at is not None]
    times = sorted(due_at for due_at in known if due_at < (schedule.next_at or 0.0))
    assert len(times) >= at_least
    assert {round(after - before, 3) for before, after in pairwise(times)} == {EVERY_S}
    assert (schedule.counts.started, schedule.counts.missed, schedule.counts.skipped) == (len(times), 0, 0)


@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=[] if p in BY_DAY else pytest.mark.nightly) for p in POINTS]
)
async def test_a_worker_that_is_killed_around_a_time_leaves_one_run_for_it(place: Place, point: str) -> None:
    workers = [await place.worker(serves=["talker"], lease_s=LEASE_S, WORKSHOP_KILL=point) for _ in range(2)]
    await put_on(place)
    await decided(place, 3)
    assert sum(not worker.is_alive() for worker in workers) == 1
    await assert_each_time_has_one_run(place, 3)


Trouble = Callable[[Place, EphemeralServer, list[Process]], Any]


async def kill_the_server(place: Place, server: EphemeralServer, workers: list[Process]) -> None:
    server.kill()
    await asyncio.sleep(EVERY_S)
    await server.restart()


async def kill_all_workers(place: Place, server: EphemeralServer, workers: list[Process]) -> None:
    for number, worker in enumerate(workers):
        with suppress(ProcessLookupError):  # it is dead already
            worker.kill()
        workers[number] = await place.worker(serves=["talker"], lease_s=LEASE_S)


async def kill_everything(place: Place, server: EphemeralServer, workers: list[Process]) -> None:
    server.kill()
    for worker in workers:
        worker.kill()
    await asyncio.sleep(2 * EVERY_S)
    await server.restart()
    await kill_all_workers(place, server, workers)


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", [kill_the_server, kill_all_workers, kill_everything])
@pytest.mark.parametrize("before_s", [0.02, -0.01, -0.05])
async def test_whatever_is_killed_around_a_time_each_has_one_run(
    place: Place, server: EphemeralServer, trouble: Trouble, before_s: float
) -> None:
    """Killed so long before or after it is due, again and again."""
    workers = [await place.worker(serves=["talker"], lease_s=LEASE_S) for _ in range(2)]
    await put_on(place)
    clock = place.log.clock
    for round_ in range(1, 4):
        await decided(place, 2 * round_)
        at = (await place.runtime.schedules.get("look")).next_at
        assert at is not None
        await asyncio.sleep(max(0.0, at - clock.now() - before_s))
        await trouble(place, server, workers)
    await decided(place, 10)
    await assert_each_time_has_one_run(place, 10)


AT_ONCE = 50


async def put_many_on(place: Place, count: int, due_at: datetime) -> None:
    """Apply so many schedules whose next time is this one, some of them side by side."""
    numbers = iter(range(count))

    async def lane() -> None:
        for number in numbers:
            given = Schedule(f"s{number}", workshop.talker, every="30d", from_=due_at.isoformat())
            await place.runtime.schedules.apply(given, by="ada")

    async with asyncio.TaskGroup() as lanes:
        for _ in range(AT_ONCE):
            lanes.create_task(lane())


@pytest.mark.nightly
async def test_a_thousand_schedules_that_are_due_at_one_moment_start_within_a_minute(place: Place) -> None:
    """Unlike elsewhere, the time is what is proven: it takes a quarter of it on two cores."""
    count = 1000
    await place.worker(serves=["talker"])
    due_at = datetime.now(UTC) + timedelta(seconds=60)
    await put_many_on(place, count, due_at)
    assert datetime.now(UTC) < due_at, "they must not be due before the last one is applied"
    async with asyncio.timeout(300):
        while True:  # by another process
            rows = await place.runtime.schedules.list()
            if sum(row.counts.started for row in rows) == count:
                break
            await asyncio.sleep(1)
    assert {(row.counts.started, row.counts.skipped, row.counts.missed) for row in rows} == {(1, 0, 0)}
    found = await place.runtime.list_runs()
    assert len({run.trigger.name for run in found if run.trigger is not None}) == len(found) == count
    late_s = [run.submitted_at - due_at.timestamp() for run in found]
    assert min(late_s) >= 0
    assert max(late_s) <= 60


@pytest.mark.nightly
async def test_ten_thousand_schedules_that_are_not_due_take_no_cpu(
    place: Place, server: EphemeralServer
) -> None:
    """A tenth of a core for either process is far more than they take, and far less than looking at each would."""
    worker = await place.worker(serves=["talker"])
    await put_many_on(place, 10_000, datetime.now(UTC) + timedelta(days=20))
    processes = [psutil.Process(worker.pid), psutil.Process(server.pid)]
    await asyncio.sleep(5)  # what the applying left to do is done

    def spent_s() -> list[float]:
        times = [process.cpu_times() for process in processes]
        return [each.user + each.system for each in times]

    before, begun = spent_s(), time.monotonic()
    await asyncio.sleep(20)
    elapsed_s = time.monotonic() - begun
    shares = [(after - first) / elapsed_s for first, after in zip(before, spent_s(), strict=True)]
    assert max(shares) < 0.1, shares
    assert len(await place.runtime.schedules.list()) == 10_000
