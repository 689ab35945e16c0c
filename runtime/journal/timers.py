"""Timers that must be set before a parked run's wake-up is acknowledged (W8, W12). Setting them is idempotent."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from ...eventlog.ports import Log, Timer, TimerWrite, Wakeup, Write
from ..core.commands import TimerDue
from ..core.timers import open_timers
from .journal import Journal
from .outages import through_outages

WATCH = "watch"


def wakeup_for(journal: Journal, **changes: object) -> Wakeup:
    """Return a wake-up of this run whose cause is the head that this journal has seen."""
    state = journal.state
    fields = {
        "shard": journal.subject.shard,
        "agent": state.served_as,
        "root": state.root,
        "run": state.run,
        "cause": state.head.rev,
        "priority": state.priority,
    }
    return Wakeup(**{**fields, **changes})  # type: ignore[arg-type] # the fields of Wakeup


def owed_timers(journal: Journal) -> list[Timer]:
    """Return the timers that a run waits for: its retry, and the ends of its approvals and waits."""
    state = journal.state
    return [] if state.over else [_timer(journal, timer_id, at) for timer_id, at in open_timers(state)]


def _timer(journal: Journal, timer_id: str, due_at: float) -> Timer:
    return Timer(id=timer_id, due_at=due_at, wakeup=wakeup_for(journal, kind="timer", ref=timer_id))


def start_timer(journal: Journal, revision: int) -> list[Write]:
    """Return the timer of a run that its first commit, which ends at this revision, parks until its start (W5)."""
    replace = msgspec.structs.replace
    return [
        TimerWrite(replace(each, wakeup=replace(each.wakeup, cause=revision)))
        for each in owed_timers(journal)
    ]


def watch_timer(journal: Journal, due_at: float, lane_revision: int = 0) -> Timer:
    """Return the watch over a run that a local executor drives: a plain wake-up, unless renewed in time (W18)."""
    return Timer(id=WATCH, due_at=due_at, wakeup=wakeup_for(journal, lane_cause=lane_revision))


async def news_or_timer(journal: Journal) -> TimerDue | None:
    """Wait for news of a waiting run, or until one of its timers is due on this process' clock (W18)."""
    clock = journal.log.clock
    timers = sorted(owed_timers(journal), key=lambda timer: timer.due_at)
    wait_s = max(0.0, timers[0].due_at - clock.now()) if timers else None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await journal.wait_for_news()
    waits = owed_timers(journal) if not journal.state.runnable else []
    due = [timer for timer in waits if timer.due_at <= clock.now()]
    return TimerDue(due[0].id) if due else None


async def set_timers(log: Log, journal: Journal) -> None:
    """Set every timer that the run waits for; through an outage, until the log is back."""
    for timer in owed_timers(journal):
        await through_outages(log.clock, log.timers.set, timer)
