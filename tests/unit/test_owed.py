"""Timers of a parked run that must be set before its wake-up is acknowledged, each with its cause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from foldlog.eventlog.events import NOBODY, ApprovalRequested, ApprovalResolved, Claimed, Parked, Status
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Subject, Timer, Wakeup, WakeWrite
from foldlog.runtime.executors.worker import Worker
from foldlog.runtime.journal.cancel import _fence, parent_wakeup
from foldlog.runtime.journal.family import set_timers_below
from foldlog.runtime.journal.timers import news_or_timer, owed_timers

from .test_core import NOW, SUBMITTED, given_events
from .test_proof import stored

ASKED = [
    ApprovalRequested(approval_id=name, kind="tool", tool_name="deploy", expires_at=NOW + due_s)
    for name, due_s in (("late", 90.0), ("soon", 30.0))
]
WAITING = (Claimed(worker="w", epoch=1, lease_s=10.0), *ASKED, Parked(reason="approval"))


class Timers:
    """Remembers what is set."""

    def __init__(self) -> None:
        self.told: list[Timer] = []

    async def set(self, timer: Timer) -> None:
        self.told.append(timer)


def journal_of(*events: Any, revision: int = 7, now: float = NOW) -> Any:
    """A journal of a run that these events have happened to."""
    state = given_events(*events)
    state.head = type(state.head)(rev=revision)

    async def no_news() -> None:
        return None

    clock = SimpleNamespace(now=lambda: now, sleep=MemoryLog().clock.sleep)
    log = SimpleNamespace(clock=clock, timers=Timers())
    return SimpleNamespace(subject=Subject(3, "run", "r", "r"), state=state, log=log, wait_for_news=no_news)


def test_every_pending_approval_has_a_timer_that_names_it_and_is_not_older_than_its_request() -> None:
    journal = journal_of(*WAITING)
    timers = owed_timers(journal)
    assert [(timer.id, timer.due_at) for timer in timers] == [
        ("approval-late", NOW + 90.0),
        ("approval-soon", NOW + 30.0),
    ]
    for timer in timers:
        assert (timer.wakeup.kind, timer.wakeup.ref, timer.wakeup.cause) == ("timer", timer.id, 7)


def test_an_approval_that_is_answered_has_no_timer_any_more() -> None:
    journal = journal_of(*WAITING, ApprovalResolved(approval_id="soon", decision="approved"))
    assert [timer.id for timer in owed_timers(journal)] == ["approval-late"]


async def test_the_timer_that_is_due_is_told_though_one_that_was_asked_for_before_it_is_not() -> None:
    due = await news_or_timer(journal_of(*WAITING, now=NOW + 31.0))
    assert due is not None
    assert due.timer_id == "approval-soon"


async def test_a_timer_below_a_parked_run_decides_nothing_on_a_read_that_does_not_show_the_park() -> None:
    root, child = journal_of(*WAITING, revision=12), journal_of(*WAITING, revision=5)
    await set_timers_below(root, {"child": child})
    assert [(timer.wakeup.root_cause, timer.wakeup.cause) for timer in root.log.timers.told] == [(12, 5)] * 2


# --- no wake-up waits for more than is stored, or is judged by less than it is about ----------------------------------


def test_the_end_of_a_child_wakes_its_parent_by_what_is_stored_of_it() -> None:
    (write,) = parent_wakeup(journal_of(*WAITING, revision=7), "child")
    assert isinstance(write, WakeWrite)
    assert (write.wakeup.kind, write.wakeup.ref, write.wakeup.cause) == ("child", "child", 7)
    assert parent_wakeup(journal_of(*WAITING, Status(status="completed")), "child") == []


async def test_who_wakes_to_a_fence_has_to_see_it() -> None:
    log, subject = MemoryLog(), Subject(0, "run", "r", "r")
    journal = await stored(log, subject, SUBMITTED, epoch=0)
    await _fence(journal, "enough", NOBODY, "append")
    (wakeup,) = log.wakeups.unacknowledged
    assert (wakeup.run, wakeup.cause) == ("r", journal.state.head.rev)
    assert journal.state.cancelling


async def test_who_does_not_see_a_root_rest_yet_leaves_the_timers_below_it() -> None:
    log, root, child = MemoryLog(), Subject(0, "run", "r", "r"), Subject(0, "run", "r", "c")
    above = await stored(log, root, SUBMITTED, *WAITING[:1], epoch=1)
    below = await stored(log, child, SUBMITTED, epoch=0)
    wakeup = Wakeup(shard=0, agent="agent", root="r", run="c", cause=1)
    for root_cause, verdict in ((above.state.head.rev + 1, "nak"), (above.state.head.rev, "ack")):
        judged = msgspec.structs.replace(wakeup, root_cause=root_cause)
        _, (answer, _delay_s) = await Worker._root_of(SimpleNamespace(_log=log), below, judged)  # type: ignore[arg-type, misc] # as much of a worker as it needs
        assert answer == verdict
