"""When an unsafe call may start: under a lease that held since the log showed the run to be its driver's (W20)."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from foldlog.eventlog.events import CancelRequested, Claimed, Released, Status, StoredEvent, ToolStarted
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Stored, Subject
from foldlog.runtime.core.turn import Turn
from foldlog.runtime.driving.driver import Driver
from foldlog.runtime.journal.journal import Journal

from .test_core import NOW, RULES, SUBMITTED, given_events


class Guard:
    """The driver of the run above, whose lease covers this one."""

    def __init__(self, below: Standing, renew: Any, lease: int, answer: bool) -> None:
        self.below, self.renew, self.lease_in_force, self.answer = below, renew, lease, answer

    async def is_in_force(self) -> bool:
        return await self.below._says("above", self.answer)


class Standing:
    """A driver's knowledge of its run; `looks` counts the reads of the log."""

    def __init__(self, *, own: bool = True, above: bool = True, beats: bool = True, lease: int = 1) -> None:
        self.looks: list[str] = []
        self.clock = SimpleNamespace(monotonic=lambda: 100.0)
        self.state = SimpleNamespace(head=SimpleNamespace(position=5))
        self._news_position, self._proven_position = 5, 5
        self._proven_at, self._proven_under = 100.0, lease

        async def renew() -> None:
            self.looks.append("lease")

        self.guard = Guard(self, renew if beats else None, lease, above)
        self.own = own

    async def _says(self, what: str, answer: bool) -> bool:
        self.looks.append(what)
        return answer

    def _ending(self) -> None:
        return None

    async def is_in_force(self) -> bool:
        return await self._says("own", self.own)

    async def _prove(self) -> bool:
        self._proven_position = self._news_position
        return await Driver._prove(self)  # type: ignore[arg-type] # as much of a driver as it needs

    def notify(self, position: int) -> None:
        self._news_position = position


async def may_start(standing: Any) -> bool:
    return await Driver._may_start(standing)


async def test_a_proof_that_is_fresh_needs_no_look() -> None:
    standing = Standing()
    assert await may_start(standing)
    assert standing.looks == []


async def test_a_driver_that_knows_more_than_the_proof_has_seen_reads_again() -> None:
    standing = Standing()
    standing.notify(6)
    assert await may_start(standing)
    assert standing.looks == ["above", "own"]


async def test_a_lease_that_is_let_go_is_renewed_before_the_look() -> None:
    standing = Standing(lease=0)

    async def renew() -> None:
        standing.looks.append("lease")
        standing.guard.lease_in_force = 1

    standing.guard.renew = renew
    assert await may_start(standing)
    assert standing.looks == ["lease", "above", "own"]


@pytest.mark.parametrize("beats", [True, False])
@pytest.mark.parametrize(("own", "above"), [(False, True), (True, False)])
async def test_neither_a_run_nor_what_covers_it_may_be_another_ones(
    own: bool, above: bool, beats: bool
) -> None:
    standing = Standing(own=own, above=above, beats=beats)
    standing._proven_at = -1e9
    before = standing._proven_at
    assert not await may_start(standing)
    assert standing._proven_at == before, "what was not shown is believed by the next call"


async def test_a_proof_is_worth_nothing_under_another_lease_than_the_one_it_was_given_under() -> None:
    standing = Standing(lease=2)
    standing._proven_under = 1
    assert await may_start(standing)
    assert standing.looks == ["above", "own"]
    assert standing._proven_under == 2


async def test_a_proof_counts_from_before_the_log_was_asked() -> None:
    now = SimpleNamespace(s=100.0)
    standing = Standing()
    standing.clock = SimpleNamespace(monotonic=lambda: now.s)

    async def slow(_what: str, _answer: bool) -> bool:
        now.s += 0.2
        return True

    standing._says = slow  # type: ignore[method-assign] # as the log is slow to answer
    assert await standing._prove()
    assert standing._proven_at == 100.0


@pytest.mark.parametrize("taken", [True, False])
async def test_a_start_that_the_log_takes_proves_what_held_when_it_was_sent(taken: bool) -> None:
    now = SimpleNamespace(s=100.0)

    async def store(_events: object, *, epoch: int) -> bool:
        assert epoch == 3
        now.s += 0.2
        driver.guard.lease_in_force = 8
        return taken

    driver = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: now.s),
        guard=SimpleNamespace(lease_in_force=7),
        journal=SimpleNamespace(store=store),
        turn=lambda: Turn(given_events(), RULES, NOW),
        epoch=3,
        _proven_under=0,
        _proven_at=0.0,
    )
    await Driver._store_starts(driver, [ToolStarted(step=1, tool_call_id="c", attempt=1)])  # type: ignore[arg-type] # see above
    assert (driver._proven_under, driver._proven_at) == ((7, 100.0) if taken else (0, 0.0))


SINCE: dict[str, tuple[StoredEvent, int]] = {
    "its own process claims it again": (Claimed(worker="w", epoch=2, lease_s=10.0), 2),
    "another process claims it": (Claimed(worker="v", epoch=2, lease_s=10.0), 2),
    "it is given back": (Released(reason="leaving"), 1),
    "it is being cancelled": (CancelRequested(reason="enough"), 0),
    "it ends": (Status(status="completed"), 1),
}


@pytest.mark.parametrize("what", ["nothing", *SINCE])
async def test_a_run_is_a_drivers_until_the_log_says_anything_else(what: str) -> None:
    log, subject = MemoryLog(), Subject(0, "run", "r", "r")
    journal = await stored(log, subject, SUBMITTED, Claimed(worker="w", epoch=1, lease_s=10.0), epoch=1)
    known = journal.state.head.position
    if what in SINCE:
        await stored(log, subject, SINCE[what][0], epoch=SINCE[what][1])
    heard: list[int] = []
    driver: Any = SimpleNamespace(
        host=SimpleNamespace(log=log, worker="w"),
        clock=log.clock,
        journal=journal,
        state=journal.state,
        epoch=1,
        notify=heard.append,
        _news_position=known,
    )
    assert await Driver.is_in_force(driver) is (what == "nothing")
    assert heard == [driver._proven_position]
    assert heard[0] == (known if what == "nothing" else known + 1)


class Behind:
    """The events of a log as a replica shows them that is behind."""

    def __init__(self, events: Any, position: float) -> None:
        self._events, self.position = events, position

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def read(self, selector: Subject, after: int = 0) -> AsyncIterator[Stored]:
        async for each in self._events.read(selector, after):
            if each.position <= self.position:
                yield each


@pytest.mark.parametrize("behind_by", [1, 2])
async def test_a_replica_that_is_behind_proves_nothing_until_it_shows_what_is_stored(behind_by: int) -> None:
    log, subject = MemoryLog(), Subject(0, "run", "r", "r")
    await stored(log, subject, SUBMITTED, epoch=0)
    journal = await stored(log, subject, Claimed(worker="w", epoch=1, lease_s=10.0), epoch=1)
    known = journal.state.head.position
    await stored(log, subject, Claimed(worker="v", epoch=2, lease_s=10.0), epoch=2)
    behind: Any = Behind(log.events, known + 1 - behind_by)
    log.events = behind

    async def sleep(_delay_s: float) -> None:
        behind.position = math.inf

    heard: list[int] = []
    driver: Any = SimpleNamespace(
        host=SimpleNamespace(log=log, worker="w"),
        clock=SimpleNamespace(sleep=sleep),
        journal=journal,
        state=journal.state,
        epoch=1,
        notify=heard.append,
        _news_position=known,
    )
    assert not await Driver.is_in_force(driver)
    assert heard == [known + 1]


async def stored(log: MemoryLog, subject: Subject, *events: StoredEvent, epoch: int) -> Journal:
    """Somebody's journal, who has stored these."""
    journal = Journal(log, subject)
    await journal.load()
    turn = Turn(journal.state, journal.rules, NOW)
    turn.add(*events)
    assert await journal.store(turn.events, epoch=epoch)
    return journal
