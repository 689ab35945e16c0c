"""Changes of registers: decided again after a conflict, and by reads that a lagging replica does not decide."""

from __future__ import annotations

import asyncio

import pytest
from foldlog.eventlog import MemoryLog
from foldlog.eventlog.clock import SystemClock
from foldlog.eventlog.faults import FaultyLog, LostAck, SpuriousConflict, StaleRead
from foldlog.projections.call_texts import recording_key
from foldlog.runtime.journal.outages import DECISIONS_MAX, FRESH_CONFLICTS, STALE_READ_S, Decisions
from foldlog.runtime.shared.approved_calls import ApprovedCalls, id_of
from foldlog.runtime.shared.kept_answers import KeptAnswers

pytestmark = pytest.mark.anyio
PAY, REFUND = recording_key("pay", {"eur": 5}), recording_key("refund", {"eur": 5})


class NotedClock(SystemClock):
    """A clock that notes how long it is asked to sleep, and lets others run instead."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def test_attempts_at_a_change_are_quick_at_first_then_paced_and_end() -> None:
    clock = NotedClock()
    assert [before async for before in Decisions(clock)] == list(range(DECISIONS_MAX))
    assert clock.slept == [STALE_READ_S] * (DECISIONS_MAX - 1 - FRESH_CONFLICTS)


def lagging(log: MemoryLog) -> FaultyLog:
    """A log whose reads show nothing of `log` until it is released."""
    return FaultyLog(log, [StaleRead(1, "events.head", 0)])


async def caught_up(log: FaultyLog, clock: NotedClock) -> None:
    """Let the replica catch up once the writer has begun to wait for it."""
    async with asyncio.timeout(120):
        while not clock.slept:  # noqa: ASYNC110 - the clock is what notices it
            await asyncio.sleep(0)
    await log.release()


async def test_a_call_is_approved_for_good_through_a_replica_that_lags() -> None:
    clock = NotedClock()
    log = MemoryLog(clock=clock)
    await ApprovedCalls(log).add(PAY, "ann")
    behind = lagging(log)
    adding = asyncio.create_task(ApprovedCalls(behind).add(REFUND, "bo"))
    await caught_up(behind, clock)
    await adding
    assert [(each.tool, each.by) for each in await ApprovedCalls(log).read()] == [
        ("pay", "ann"),
        ("refund", "bo"),
    ]


async def test_a_call_is_forgotten_though_a_replica_does_not_know_it_yet() -> None:
    clock = NotedClock()
    log = MemoryLog(clock=clock)
    await ApprovedCalls(log).add(PAY, "ann")
    (known,) = await ApprovedCalls(log).read()
    behind = lagging(log)
    removing = asyncio.create_task(ApprovedCalls(behind).remove(id_of(known)))
    await caught_up(behind, clock)
    assert await removing
    assert await ApprovedCalls(log).read() == []


async def test_a_call_is_approved_again_though_a_replica_does_not_know_that_it_was_forgotten() -> None:
    clock = NotedClock()
    log = MemoryLog(clock=clock)
    await ApprovedCalls(log).add(PAY, "ann")
    (known,) = await ApprovedCalls(log).read()
    (position,) = [each.position async for each in log.events.read(ApprovedCalls(log)._subject)]
    await ApprovedCalls(log).remove(id_of(known))
    behind = FaultyLog(log, [StaleRead(1, "events.head", position)])
    adding = asyncio.create_task(ApprovedCalls(behind).add(PAY, "bo"))
    await caught_up(behind, clock)
    await adding
    assert [each.by for each in await ApprovedCalls(log).read()] == ["bo"]


async def test_the_first_answer_is_found_through_a_replica_that_lags() -> None:
    clock = NotedClock()
    log = MemoryLog(clock=clock)
    await KeptAnswers(log).keep("ann", "k", "POST /runs", 201, "first")
    behind = lagging(log)
    keeping = asyncio.create_task(KeptAnswers(behind).keep("ann", "k", "POST /runs", 201, "second"))
    await caught_up(behind, clock)
    assert (await keeping).body == "first"


@pytest.mark.parametrize("fault", [LostAck(1), SpuriousConflict(1)], ids=lambda each: type(each).__name__)
async def test_an_append_without_an_answer_approves_a_call_once(fault: LostAck | SpuriousConflict) -> None:
    log = MemoryLog()
    faulty = FaultyLog(log, [fault])
    await ApprovedCalls(faulty).add(PAY, "ann")
    assert faulty.fired == [fault]
    assert [each.tool for each in await ApprovedCalls(log).read()] == ["pay"]
    assert len([each async for each in log.events.read(ApprovedCalls(log)._subject)]) == 1
