"""Schedules as users command them: each change is one append of the register and its timer (W40)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from ...eventlog.errors import AppendUnsure, ConfigError, Conflict, LogUnavailable, ScheduleNotFound
from ...eventlog.events import Occurrence, ScheduleCounts, ScheduleUpdated
from ...eventlog.names import check_name, schedule_subject
from ...eventlog.ports import Log, Subject
from ..core.submission import check_text
from ..journal.outages import Decisions
from ..ports.suggestions import nearest
from . import judging
from .register import read_schedule, read_schedules, store_schedule
from .schedule import Schedule, checked, schedule_of

COMING_MAX = 5
logger = logging.getLogger("foldlog.schedules")

Change = Callable[[ScheduleUpdated | None, float], ScheduleUpdated | None]
"""Returns the next state at this time (Unix seconds); null if it is already so."""
ChangeOfOne = Callable[[ScheduleUpdated, float], ScheduleUpdated | None]


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as stored. Times are Unix seconds.

    `next_at` is null while it is paused, `coming` are it and the times after it, at most five. `wanted` counts the
    times asked for by hand, or left over by an edit, that are not started yet, `last` is the last time for which a run
    was started, and `recent` are the last decisions, oldest first.
    """

    schedule: Schedule
    next_at: float | None
    coming: tuple[float, ...]
    paused: bool
    wanted: int
    last: Occurrence | None
    recent: tuple[Occurrence, ...]
    counts: ScheduleCounts
    by: str

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self.schedule.name


class Schedules:
    """The schedules of a namespace. All methods raise `LogUnavailable`; those that take `by`, `PayloadTooLarge`."""

    def __init__(self, log: Log, known: frozenset[str]) -> None:
        self._log, self._known = log, known

    async def apply(self, schedule: Schedule, *, by: str = "") -> ScheduleRow:
        """Create or change a schedule; one that is already so is left alone. Raises `ConfigError`.

        Runs that it has started go on. A time that has come and was not decided yet is not passed over.
        """
        given = checked(schedule)
        if self._known and given.agent_name not in self._known:
            logger.warning(
                "schedule %s: the agent %r is not registered in this process; a worker has to serve it",
                given.name,
                given.agent_name,
            )
        return await self._change(given.name, by, lambda before, now: judging.applied(before, given, now, by))

    async def list(self) -> list[ScheduleRow]:
        """Return all schedules by name."""
        found = [_row(each) async for each in read_schedules(self._log) if not each.deleted]
        return sorted(found, key=lambda row: row.name)

    async def get(self, name: str) -> ScheduleRow:
        """Return a schedule. Raises `ScheduleNotFound`."""
        _head, found = await read_schedule(self._log, self._subject(name))
        if found is None or found.deleted:
            raise await self._not_found(name)
        return _row(found)

    async def pause(self, name: str, *, by: str = "") -> ScheduleRow:
        """Start nothing more until it is resumed. Raises `ScheduleNotFound`."""
        return await self._change_one(name, by, lambda before, _: judging.paused(before, by))

    async def resume(self, name: str, *, by: str = "") -> ScheduleRow:
        """Go on with its next time; those that passed meanwhile are skipped and counted. Raises `ScheduleNotFound`."""
        return await self._change_one(name, by, lambda before, now: judging.resumed(before, now, by))

    async def trigger(self, name: str, *, by: str = "") -> ScheduleRow:
        """Start a run now, whatever its overlap policy, also while it is paused. Raises `ScheduleNotFound`.

        The worker that serves the agent starts it. Under `queue` it waits behind the others.
        """
        now = self._log.clock.now()
        return await self._change_one(name, by, lambda before, _: judging.wanted(before, [now], by))

    async def backfill(self, name: str, start: datetime, end: datetime, *, by: str = "") -> ScheduleRow:
        """Start a run for each of its times from `start` up to, and without, `end`, which are over.

        A time whose run was started is not started again. Raises `ScheduleNotFound`, and `ConfigError` for times
        without a zone, for an interval that is empty or not over, or one with more than 1,000 times.
        """
        now = self._log.clock.now()
        moments: list[tuple[str, object]] = [("start", start), ("end", end)]
        for what, moment in moments:
            if not isinstance(moment, datetime) or moment.tzinfo is None:
                raise ConfigError(f"the {what} of a backfill must be an aware datetime, not {moment!r:.60}")
        if not start.timestamp() < end.timestamp() <= now:
            raise ConfigError("a backfill needs a start before its end, and an end that is not in the future")

        def asked(before: ScheduleUpdated, _now: float) -> ScheduleUpdated | None:
            times = judging.times_between(before, start.timestamp(), end.timestamp())
            return judging.wanted(before, times, by)

        return await self._change_one(name, by, asked)

    async def delete(self, name: str, *, by: str = "") -> None:
        """Start nothing more for it, ever; its runs go on. Raises `ScheduleNotFound`."""
        await self._change_one(name, by, lambda before, _: judging.deleted(before, by))

    async def _change_one(self, name: str, by: str, change: ChangeOfOne) -> ScheduleRow:
        def decide(before: ScheduleUpdated | None, now: float) -> ScheduleUpdated | None:
            if before is None or before.deleted:
                raise _Missing
            return change(before, now)

        try:
            return await self._change(name, by, decide)
        except _Missing:
            raise await self._not_found(name) from None

    async def _change(self, name: str, by: str, decide: Change) -> ScheduleRow:
        """Load, decide, append; after a conflict, or an append without an answer, decide again (W1, W2).

        Reads may be stale, so only the last state shows that there is nothing to change, or no such schedule.
        """
        check_text("the name of the actor", by)
        subject, clock = self._subject(name), self._log.clock
        async for _ in Decisions(clock):
            head, before = await read_schedule(self._log, subject)
            try:
                after, found = decide(before, clock.now()), before
            except _Missing:
                after = found = None
            if after is not None:
                with contextlib.suppress(Conflict, AppendUnsure):
                    await store_schedule(self._log, subject, head, after)
                    return _row(after)
            elif await self._log.events.last_position(subject) == head.position:
                if found is None:
                    raise _Missing
                return _row(found)
        raise LogUnavailable(f"the schedule {name!r} cannot be changed: other writers were first each time")

    def _subject(self, name: str) -> Subject:
        return schedule_subject(check_name("the schedule", name), self._log.events.shards)

    async def _not_found(self, name: str) -> ScheduleNotFound:
        known = [row.name for row in await self.list()]
        return ScheduleNotFound(
            f"there is no schedule {name!r} in namespace {self._log.namespace!r}{nearest(name, known)}"
        )


class _Missing(Exception):
    """There is no schedule to change."""


def _row(found: ScheduleUpdated) -> ScheduleRow:
    schedule, next_at = schedule_of(found.name, found.spec), None if found.paused else found.next_at
    return ScheduleRow(
        schedule=schedule,
        next_at=next_at,
        coming=tuple(_coming(schedule, next_at)),
        paused=found.paused,
        wanted=len(found.wanted),
        last=found.last,
        recent=tuple(found.recent),
        counts=found.counts,
        by=found.by,
    )


def _coming(schedule: Schedule, at: float | None) -> Iterator[float]:
    for _ in range(COMING_MAX):
        if at is None:
            return
        yield at
        at = schedule.calendar.after(at)
