"""Properties of the reference log alone: its clock decides, no task is left, and it replays exactly."""

import asyncio

import anyio
import pytest
from foldlog.eventlog import DraftPiece, Lease, MemoryLog, SystemClock, Timer, WakeWrite
from foldlog.eventlog.conformance.suite import run_in, wakeup_for
from foldlog.eventlog.memory.drafts import KEPT_S, PIECES_KEPT
from foldlog.eventlog.memory.events import SLICE
from foldlog.eventlog.ports import NEW, CommitWrite, Subject


class SteppedClock(SystemClock):
    """Time passes only by sleeping, and then at once. Wall and monotonic time differ."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return 5000.0 + self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, delay_s: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.time += max(0.0, delay_s)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(clock=SteppedClock(), shards=2)


async def test_an_unacknowledged_wake_up_comes_again_when_the_clock_says_so(log: MemoryLog) -> None:
    await log.wakeups.send(wakeup_for("a"))
    async with log.wakeups.pull(frozenset({"a"})) as deliveries:
        times = []
        for _ in range(3):
            await anext(deliveries)
            times.append(log.clock.monotonic())
    assert times == [0.0, 30.0, 60.0]


async def test_a_timer_fires_at_its_wall_time(log: MemoryLog) -> None:
    await log.timers.set(Timer(id="t", due_at=5007.5, wakeup=wakeup_for("a")))
    async with log.wakeups.pull(frozenset({"a"})) as deliveries:
        await anext(deliveries)
    assert log.clock.now() == 5007.5


async def test_other_tasks_have_their_turns_while_a_long_run_is_read(log: MemoryLog) -> None:
    subject = Subject(0, "run", "r", "r")
    await log.events.append(*[CommitWrite(subject, NEW, b"commit") for _ in range(3 * SLICE)])
    turns: list[int] = []
    read = 0

    async def others() -> None:
        while True:
            turns.append(read)
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    async for _ in log.events.read(subject):
        read += 1
    beside.cancel()
    assert read == 3 * SLICE
    assert {SLICE, 2 * SLICE} <= set(turns)


async def test_a_lease_holds_to_the_end_of_its_time_and_no_longer(log: MemoryLog) -> None:
    lease = Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="w")
    await log.leases.vouch(lease, 10)
    await log.clock.sleep(9.9)
    assert await log.leases.live("r", "w", 1)
    await log.clock.sleep(0.1)
    assert not await log.leases.live("r", "w", 1)


async def test_a_lease_that_expired_before_its_worker_died_is_not_reported(log: MemoryLog) -> None:
    old, held = (Lease(shard=0, agent="a", root=r, run=r, epoch=1, worker="w") for r in ("old", "held"))
    async with log.leases.deaths() as deaths:
        await log.leases.vouch(old, 1)
        await log.leases.vouch(held, 30)
        await log.clock.sleep(5)
        log.disconnect("w")
        assert await anext(deaths) == held


async def test_a_death_that_nobody_hears_leaves_the_leases_to_their_time(log: MemoryLog) -> None:
    await log.leases.vouch(Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="w"), 10)
    log.disconnect("w")
    assert await log.leases.live("r", "w", 1)


def piece(number: int) -> DraftPiece:
    return DraftPiece(run="r", step=1, attempt=1, epoch=1, channel="text", offset=number, text="x")


async def offsets(log: MemoryLog, count: int, root: str = "r") -> list[int]:
    async with log.drafts.follow(root) as pieces:
        await log.drafts.publish(root, piece(-1))
        return [(await anext(pieces)).offset for _ in range(count)]


async def test_drafts_are_kept_for_a_while_and_then_forgotten(log: MemoryLog) -> None:
    await log.drafts.publish("r", piece(1))
    await log.clock.sleep(KEPT_S - 1)
    await log.drafts.publish("r", piece(2))
    await log.clock.sleep(2)
    assert await offsets(log, 2) == [2, -1]


async def test_only_the_latest_drafts_are_kept(log: MemoryLog) -> None:
    for number in range(PIECES_KEPT + 3):
        await log.drafts.publish("r", piece(number))
    assert await offsets(log, 2) == [3, 4]


async def test_drafts_of_families_that_fell_silent_take_no_memory(log: MemoryLog) -> None:
    for number in range(10):
        await log.drafts.publish(f"r{number}", piece(number))
    await log.clock.sleep(KEPT_S + 1)
    await log.drafts.publish("other", piece(0))
    assert list(log.drafts._recent) == ["other"]
    async with log.drafts.follow("other"):
        assert list(log.drafts._followers) == ["other"]
    assert list(log.drafts._followers) == []


async def test_everything_stored_in_a_shard_has_a_position_of_its_own(log: MemoryLog) -> None:
    here, there = run_in(log, shard=0), run_in(log, shard=1)
    wake = WakeWrite(wakeup_for("a"))
    assert await log.events.append(here.write(), wake) == (1, 2)
    await log.wakeups.send(wakeup_for("a"))
    assert await log.events.append(there.write()) == (1,)
    assert await log.events.append(run_in(log).write()) == (4,)


async def test_a_shard_that_does_not_exist_is_refused(log: MemoryLog) -> None:
    with pytest.raises(ValueError, match="no shard 2"):
        await log.wakeups.send(wakeup_for("a", shard=2))
    with pytest.raises(ValueError, match="no shard 2"):
        await log.events.append(run_in(log, shard=2).write())


async def test_an_append_that_is_cancelled_before_it_took_effect_has_not_happened(log: MemoryLog) -> None:
    run = run_in(log)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await log.events.append(run.write())
    assert await log.events.head(run.subject) is None


async def test_a_wait_that_is_cancelled_loses_nothing_of_what_comes(log: MemoryLog) -> None:
    run = run_in(log)
    commits = log.events.follow(run.subject)
    async with log.wakeups.pull(frozenset({"a"})) as deliveries, log.drafts.follow("r") as pieces:
        for stream in (commits, deliveries, pieces):
            with anyio.move_on_after(0.001) as scope:
                await anext(stream)
            assert scope.cancelled_caught
        await run.append("x", WakeWrite(wakeup_for("a", 7)))
        await log.drafts.publish("r", piece(1))
        assert await anext(commits) == run.stored[0]
        assert (await anext(deliveries)).wakeup.cause == 7
        assert (await anext(pieces)).offset == 1


async def test_waiting_leaves_no_task_behind() -> None:
    log = MemoryLog()
    before = asyncio.all_tasks()
    async with log.wakeups.pull(frozenset({"a"})) as deliveries:
        await log.timers.set(Timer(id="t", due_at=log.clock.now() + 3600, wakeup=wakeup_for("a")))
        with anyio.move_on_after(0.001):
            await anext(deliveries)
    await anyio.lowlevel.checkpoint()
    assert asyncio.all_tasks() == before


async def test_a_closed_follower_yields_nothing_more(log: MemoryLog) -> None:
    run = run_in(log)
    await run.append()
    commits = log.events.follow(run.subject)
    await commits.aclose()
    assert [stored async for stored in commits] == []


async def test_the_same_calls_give_the_same_deliveries_each_time() -> None:
    async def play() -> list[tuple[str, int, float]]:
        log = MemoryLog(clock=SteppedClock())
        seen: list[tuple[str, int, float]] = []

        async def consume(name: str) -> None:
            async with log.wakeups.pull(frozenset({"a", "b"})) as deliveries:
                for _ in range(12):
                    delivery = await anext(deliveries)
                    seen.append((name, delivery.wakeup.cause, log.clock.monotonic()))
                    await (
                        log.wakeups.nak(delivery.token, 3.0)
                        if len(seen) % 3
                        else log.wakeups.ack(delivery.token)
                    )

        for cause in range(30):
            await log.wakeups.send(wakeup_for("ab"[cause % 2], cause))
        async with anyio.create_task_group() as tasks:
            for name in ("x", "y", "z"):
                tasks.start_soon(consume, name)
        return seen

    first = await play()
    assert len(first) == 36
    assert await play() == first
