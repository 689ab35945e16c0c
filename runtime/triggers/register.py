"""The register of a schedule: its whole state is its last commit, stored in one batch with its timer (W38).

The timer becomes a wake-up for whichever worker serves the agent. Its cause is the revision that set it, so it is moot
as soon as the schedule has changed, by any process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...eventlog.commits import Head
from ...eventlog.events import ScheduleUpdated
from ...eventlog.ports import Log, Subject, Timer, TimerWrite, Wakeup, Write
from ..journal.register import each_register, read_register, register_write
from .judging import wakes_at

TIMER = "next"


async def read_schedule(log: Log, subject: Subject) -> tuple[Head, ScheduleUpdated | None]:
    """Return the head and the state of a schedule; null before its first commit. May be stale."""
    head, events = await read_register(log, subject)
    return head, next((event for event in events if isinstance(event, ScheduleUpdated)), None)


def read_schedules(log: Log) -> AsyncIterator[ScheduleUpdated]:
    """Yield all schedules of the namespace, also deleted ones."""
    return each_register(log, "sched", ScheduleUpdated)


async def store_schedule(log: Log, subject: Subject, head: Head, after: ScheduleUpdated) -> None:
    """Store the next state with the timer that it owes. Raises `Conflict`, `LogUnavailable`."""
    writes: list[Write] = [register_write(log, subject, head, after)]
    at = wakes_at(after, log.clock.now())
    if at is not None:
        writes.append(TimerWrite(Timer(id=TIMER, due_at=at, wakeup=wakeup_of(subject, after, head.rev + 1))))
    await log.events.append(*writes)


def wakeup_of(subject: Subject, schedule: ScheduleUpdated, revision: int) -> Wakeup:
    """Return the wake-up that leads to a schedule at this revision."""
    return Wakeup(
        shard=subject.shard,
        agent=str(schedule.spec["agent"]),
        root=subject.id,
        run=subject.id,
        kind="schedule",
        cause=revision,
        ref=schedule.name,
    )
