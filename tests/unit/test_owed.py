"""What a run that rests owes before its wake-up may go: a timer for each wait, with what it must be judged by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from foldlog.eventlog.events import ApprovalRequested, ApprovalResolved, Claimed, Parked
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Subject, Timer
from foldlog.runtime.journal.family import pay_owed_below
from foldlog.runtime.journal.timers import news_or_timer, owed_timers

from .test_core import NOW, given_events

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


def test_every_pending_approval_has_a_timer_that_names_it_and_is_no_older_than_what_asks() -> None:
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


async def test_a_timer_below_a_run_that_rests_is_judged_by_nobody_who_does_not_see_it_rest() -> None:
    root, child = journal_of(*WAITING, revision=12), journal_of(*WAITING, revision=5)
    await pay_owed_below(root, {"child": child})
    assert [(timer.wakeup.root_cause, timer.wakeup.cause) for timer in root.log.timers.told] == [(12, 5)] * 2
