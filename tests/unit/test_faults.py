"""Planned faults happen where they are planned, and nowhere else."""

import math

import anyio
import pytest
from foldlog.eventlog import (
    NEW,
    AppendUnsure,
    Conflict,
    DraftPiece,
    Lease,
    Log,
    LogUnavailable,
    MemoryLog,
    Stored,
    SystemClock,
    Timer,
    Wakeup,
)
from foldlog.eventlog.conformance.suite import Writer, everything, run_in, wakeup_for
from foldlog.eventlog.faults import (
    Crash,
    CrashAt,
    Delay,
    DuplicateDelivery,
    Fault,
    FaultyLog,
    LateAppend,
    LostAck,
    Outage,
    Refused,
    SpuriousConflict,
    StaleRead,
    plan_of,
)
from foldlog.eventlog.ports import Presence


class SteppedClock(SystemClock):
    """Time passes only by sleeping, and then at once."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, delay_s: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.time += max(0.0, delay_s)


def faulty(*faults: Fault) -> FaultyLog:
    return FaultyLog(MemoryLog(clock=SteppedClock()), faults)


async def stored_below(log: FaultyLog, writer: Writer) -> list[Stored]:
    return await everything(log.inner.events.read(writer.subject))


async def test_a_lost_ack_is_unsure_and_stored() -> None:
    log = faulty(LostAck(2))
    run = run_in(log)
    await run.append("first")
    with pytest.raises(AppendUnsure):
        await run.append("second")
    assert len(await stored_below(log, run)) == 2
    assert log.fired == [LostAck(2)]


async def test_a_late_append_is_unsure_and_stored_when_it_is_released() -> None:
    log = faulty(LateAppend(1))
    run = run_in(log)
    with pytest.raises(AppendUnsure):
        await run.append("late")
    assert await stored_below(log, run) == []
    await log.release()
    assert len(await stored_below(log, run)) == 1


async def test_a_late_append_that_lost_its_race_is_refused_like_any_other() -> None:
    log = faulty(LateAppend(1))
    run = run_in(log)
    with pytest.raises(AppendUnsure):
        await run.append("late")
    await run.append("in time")
    await log.release()
    assert await stored_below(log, run) == run.stored


async def test_a_refused_append_is_unsure_and_never_stored() -> None:
    log = faulty(Refused(1))
    run = run_in(log)
    with pytest.raises(AppendUnsure):
        await run.append("refused")
    await log.release()
    assert await stored_below(log, run) == []


async def test_a_request_other_than_an_append_is_unavailable_when_its_answer_is_lost() -> None:
    log = faulty(LostAck(1, "wakeups.send"), Refused(2, "wakeups.send"))
    for cause in (1, 2):
        with pytest.raises(LogUnavailable):
            await log.wakeups.send(wakeup_for("a", cause))
    await log.wakeups.send(wakeup_for("a", 3))
    async with log.wakeups.pull(frozenset({"a"})) as deliveries:
        assert [(await anext(deliveries)).wakeup.cause for _ in range(2)] == [1, 3]


async def test_a_spurious_conflict_stores_nothing_and_the_same_append_then_succeeds() -> None:
    log = faulty(SpuriousConflict(1))
    run = run_in(log)
    with pytest.raises(Conflict):
        await run.append("again")
    await run.append("again")
    assert await stored_below(log, run) == run.stored


@pytest.mark.parametrize(("after", "stored_meanwhile"), [(False, 0), (True, 1)])
async def test_a_delay_holds_back_the_effect_or_the_answer(after: bool, stored_meanwhile: int) -> None:
    seen: list[int] = []

    class Watching(SteppedClock):
        async def sleep(self, delay_s: float) -> None:
            await super().sleep(delay_s)
            seen.append(len([s async for s in inner.events.read(run.subject)]))

    inner = MemoryLog(clock=Watching())
    log = FaultyLog(inner, [Delay(1, delay_s=7.0, after=after)])
    run = run_in(log)
    await run.append()
    assert seen == [stored_meanwhile]
    assert log.clock.monotonic() == 1007.0


async def test_an_outage_lets_nothing_through_until_it_is_released() -> None:
    log = faulty(Outage(2))
    run = run_in(log)
    await run.append("before")
    for _ in range(3):
        with pytest.raises(LogUnavailable):
            await run.append("during")
        with pytest.raises(LogUnavailable):
            await everything(log.events.read(run.subject))
    await log.release()
    await run.append("after")
    assert await stored_below(log, run) == run.stored


async def test_an_outage_ends_by_itself_after_its_time() -> None:
    log = faulty(Outage(1, duration_s=10.0))
    run = run_in(log)
    with pytest.raises(LogUnavailable):
        await run.append()
    await log.clock.sleep(9.0)
    with pytest.raises(LogUnavailable):
        await run.append()
    await log.clock.sleep(1.0)
    await run.append()


@pytest.mark.parametrize("duration_s", [None, 30.0])
async def test_a_follower_waits_through_an_outage_and_misses_nothing(duration_s: float | None) -> None:
    log = faulty(Outage(1, "events.find", duration_s=duration_s))
    run = Writer(log.inner, run_in(log).subject)
    commits = log.events.follow(run.subject)
    await run.append()
    assert await anext(commits) == run.stored[0]
    with pytest.raises(LogUnavailable):
        await log.events.find(0, "x")
    await run.append()
    taken: list[Stored] = []

    async def take() -> None:
        taken.append(await anext(commits))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        if duration_s is None:
            await anyio.wait_all_tasks_blocked()
            assert taken == []
            await log.release()
    assert taken == run.stored[1:]


async def test_a_stale_reader_knows_no_commit_after_a_position_until_it_is_released() -> None:
    log = faulty(StaleRead(1, position=1))
    old, new = run_in(log), run_in(log)
    await old.append()
    await old.append()
    await new.append()
    assert await everything(log.events.read(old.subject)) == old.stored[:1]
    assert await log.events.head(old.subject) == old.stored[0]
    assert await log.events.find(0, old.subject.id) == old.subject
    assert await everything(log.events.read(new.subject)) == []
    assert await log.events.head(new.subject) is None
    assert await log.events.find(0, new.subject.id) is None
    with pytest.raises(Conflict):
        await log.events.append(new.write(expected=NEW))
    await log.release()
    assert await everything(log.events.read(old.subject)) == old.stored
    assert await log.events.head(new.subject) == new.stored[0]
    assert await log.events.find(0, new.subject.id) == new.subject


async def test_a_duplicate_delivery_comes_twice() -> None:
    log = faulty(DuplicateDelivery(2))
    for cause in (1, 2, 3):
        await log.wakeups.send(wakeup_for("a", cause))
    async with log.wakeups.pull(frozenset({"a"})) as deliveries:
        assert [(await anext(deliveries)).wakeup.cause for _ in range(4)] == [1, 2, 2, 3]


@pytest.mark.parametrize(("after", "stored"), [(False, 1), (True, 2)])
async def test_a_crash_comes_before_or_after_the_effect_and_ends_the_incarnation(
    after: bool, stored: int
) -> None:
    log = faulty(CrashAt(2, after=after))
    run = run_in(log)
    await run.append("first")
    for _ in range(2):
        with pytest.raises(Crash):
            await run.append("second")
    with pytest.raises(Crash):
        await log.wakeups.ack("1.1")
    with pytest.raises(Crash):
        await anext(log.events.follow(run.subject))
    assert log.crashed
    assert len(await stored_below(log, run)) == stored
    assert len(await everything(FaultyLog(log.inner).events.read(run.subject))) == stored


async def test_a_crash_after_an_operation_comes_also_if_that_was_refused() -> None:
    log = faulty(CrashAt(1, after=True))
    run = run_in(log)
    await Writer(log.inner, run.subject).append()
    with pytest.raises(Crash):
        await run.append()


async def test_an_operation_that_is_under_way_at_the_crash_is_never_answered() -> None:
    log = faulty(Delay(1, delay_s=5.0, after=True), CrashAt(1, "events.head"))
    run = run_in(log)
    crashes: list[str] = []

    async def append() -> None:
        try:
            await run.append()
        except Crash:
            crashes.append("append")

    async def head() -> None:
        try:
            await log.events.head(run.subject)
        except Crash:
            crashes.append("head")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append)
        tasks.start_soon(head)
    assert sorted(crashes) == ["append", "head"]
    assert len(await stored_below(log, run)) == 1


async def test_a_crashed_worker_says_no_goodbye() -> None:
    memory = MemoryLog()
    worker, other = FaultyLog(memory), FaultyLog(memory)
    lease = Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="w")
    async with other.leases.deaths() as deaths:
        async with worker.leases.presence(Presence(worker="w")):
            await worker.leases.vouch(lease, 30)
            worker.crash()
        assert await other.leases.live("r", "w", 1)
        memory.disconnect("w")
        assert await anext(deaths) == lease
    assert not await other.leases.live("r", "w", 1)


async def do_everything(log: Log, done: list[str]) -> None:
    """Do everything a log can do, one operation after the other, and name each when it is done."""
    run = run_in(log)
    wakeup = Wakeup(shard=0, agent="a", root=run.subject.root, run=run.subject.id)
    timer = Timer(id="t", due_at=math.inf, wakeup=wakeup)
    lease = Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="w")
    await run.append()
    done.append("events.append")
    await everything(log.events.read(run.subject))
    done.append("events.read")
    await log.events.head(run.subject)
    done.append("events.head")
    await log.events.find(0, run.subject.id)
    done.append("events.find")
    await anext(log.events.follow(run.subject))
    done.append("events.follow")
    await log.wakeups.send(wakeup)
    done.append("wakeups.send")
    async with log.wakeups.pull(frozenset({"a"})) as deliveries:
        token = (await anext(deliveries)).token
    done.append("wakeups.pull")
    await log.wakeups.extend(token)
    done.append("wakeups.extend")
    await log.wakeups.nak(token)
    done.append("wakeups.nak")
    await log.wakeups.ack(token)
    done.append("wakeups.ack")
    await log.timers.set(timer)
    done.append("timers.set")
    await log.timers.cancel(timer)
    done.append("timers.cancel")
    await log.leases.vouch(lease, 30)
    done.append("leases.vouch")
    await log.leases.live("r", "w", 1)
    done.append("leases.live")
    await log.leases.end(lease)
    done.append("leases.end")
    piece = DraftPiece(run="r", step=1, attempt=1, epoch=1, channel="text", offset=0, text="x")
    await log.drafts.publish("r", piece)
    done.append("drafts.publish")
    async with log.drafts.follow("r") as pieces:
        await anext(pieces)
    done.append("drafts.follow")
    digest = await log.artifacts.of("r").put(b"x")
    done.append("artifacts.put")
    await log.artifacts.of("r").get(digest)
    done.append("artifacts.get")


async def test_a_test_can_crash_at_every_operation() -> None:
    undisturbed, names = faulty(), list[str]()
    await do_everything(undisturbed, names)
    assert undisturbed.operations == {**dict.fromkeys(names, 1), "*": len(names)}
    assert len(names) == 19
    for point in range(1, len(names) + 1):
        log, done = faulty(CrashAt(point)), list[str]()
        with pytest.raises(Crash):
            await do_everything(log, done)
        assert done == names[: point - 1]
        assert log.fired == [CrashAt(point)]


async def test_a_plan_can_be_drawn_while_it_runs() -> None:
    drawn: list[tuple[str, int, int]] = []

    def draw(operation: str, call: int, number: int) -> Fault | None:
        drawn.append((operation, call, number))
        return SpuriousConflict(call) if number == 3 else None

    log = FaultyLog(MemoryLog(), draw)
    run = run_in(log)
    await run.append()
    await log.events.head(run.subject)
    with pytest.raises(Conflict):
        await run.append()
    assert drawn == [("events.append", 1, 1), ("events.head", 1, 2), ("events.append", 2, 3)]


def test_two_faults_at_one_place_are_refused() -> None:
    with pytest.raises(ValueError, match=r"call 1 of events\.append"):
        plan_of([LostAck(1), Refused(1)])


async def test_a_waiter_for_the_crash_of_an_incarnation_is_notified() -> None:
    log = FaultyLog(MemoryLog(), [CrashAt(1)])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.wait_until_crashed)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(Crash):
                await log.events.find(0, "run")
    await log.wait_until_crashed()
