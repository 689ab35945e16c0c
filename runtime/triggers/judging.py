"""Decisions about a schedule, as values: which times start a run now, which are missed, and when to look again.

Pure: the register, the calendar and the time are arguments. The same holds for the changes that users make.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import Occurrence, ScheduleCounts, ScheduleUpdated, WantedTime
from .calendar import Calendar, jitter_of
from .schedule import Missed, Schedule, schedule_of

ALL_MAX = 100
"""The most times that are made up for with `missed = "all"`; older ones are missed."""
ON_TIME_S = 60.0
"""With `missed = "skip"`, a time that passed longer ago than this is missed: no timer is that late by itself."""
AT_ONCE_MAX = 20
"""The most runs that one wake-up starts; the register then sends the next."""
WANTED_MAX = 1000
"""The most times that may be asked for by hand and not started yet."""
RECENT_MAX = 20
_STEPS_MAX = 20_000
"""The most times before the catch-up window that are counted one by one; beyond that, the count is a lower bound."""

_KEPT_MAX: dict[Missed, int] = {"last": 1, "skip": 1, "all": ALL_MAX}


class Due(msgspec.Struct, frozen=True):
    """The decision about a schedule at a time.

    `start`: for these times, in order, a run is started. `missed` times are over, the last of which was `missed_at`.
    `next_at` is the first time that is undecided, `wanted` are the times asked for by hand that are left over.
    """

    start: tuple[WantedTime, ...]
    by_hand: int
    """The number of those in `start`, from the first, that were asked for by hand."""
    missed: int
    missed_at: float
    next_at: float | None
    wanted: list[WantedTime]


def due(schedule: ScheduleUpdated, now: float) -> Due:
    """Return what is due now."""
    by_hand = schedule.wanted[:AT_ONCE_MAX]
    found = Due(tuple(by_hand), len(by_hand), 0, 0.0, schedule.next_at, schedule.wanted[AT_ONCE_MAX:])
    if schedule.paused or schedule.deleted:
        return found
    spec = schedule_of(schedule.name, schedule.spec)
    passed = _passed(spec, spec.calendar, schedule.next_at, now)
    room = AT_ONCE_MAX - len(by_hand)
    left = passed.kept[room:]
    return msgspec.structs.replace(
        found,
        start=(*by_hand, *(WantedTime(due_at=at) for at in passed.kept[:room])),
        missed=passed.missed,
        missed_at=passed.missed_at,
        next_at=left[0] if left else passed.next_at,
    )


class _Passed(msgspec.Struct, frozen=True):
    kept: list[float]
    missed: int
    missed_at: float
    next_at: float | None


def _passed(spec: Schedule, calendar: Calendar, first: float | None, now: float) -> _Passed:
    """Sort the times up to now into those that start a run and those that are missed."""
    window_s = ON_TIME_S if spec.missed == "skip" else max(spec.catchup_s, ON_TIME_S)
    kept: deque[float] = deque()
    missed, missed_at, at = 0, 0.0, first
    while at is not None and at + jitter_of(spec.name, at, spec.jitter_s) <= now:
        kept.append(at)
        if at < now - window_s - spec.jitter_s or len(kept) > _KEPT_MAX[spec.missed]:
            missed, missed_at = missed + 1, kept.popleft()
        far = missed >= _STEPS_MAX and not kept
        at = calendar.after(max(at, now - window_s - spec.jitter_s - 1) if far else at)
    return _Passed(list(kept), missed, missed_at, at)


def wakes_at(schedule: ScheduleUpdated, now: float) -> float | None:
    """Return when the schedule must be looked at again: `now` if something is left to do; null for never."""
    if schedule.wanted:
        return now
    if schedule.deleted or schedule.paused or schedule.next_at is None:
        return None
    jitter_s = float(schedule.spec.get("jitter_s", 0.0))
    return schedule.next_at + jitter_of(schedule.name, schedule.next_at, jitter_s)


def decided(
    schedule: ScheduleUpdated, found: Due, occurrences: Sequence[Occurrence], now: float
) -> ScheduleUpdated:
    """Return the register's next state, once each time in `found.start` has its outcome in `occurrences`."""
    told = list(occurrences)
    if found.missed:
        reason = "no worker started it in time"
        told.insert(
            0,
            Occurrence(due_at=found.missed_at, outcome="missed", reason=reason, at=now, count=found.missed),
        )
    started = [each for each in occurrences if each.outcome == "started"]
    return msgspec.structs.replace(
        schedule,
        next_at=found.next_at,
        wanted=found.wanted,
        last=started[-1] if started else schedule.last,
        recent=[*schedule.recent, *told][-RECENT_MAX:],
        counts=_counted(schedule.counts, told),
    )


def _counted(counts: ScheduleCounts, occurrences: Sequence[Occurrence]) -> ScheduleCounts:
    def of(outcome: str) -> int:
        return sum(each.count for each in occurrences if each.outcome == outcome)

    return ScheduleCounts(
        started=counts.started + of("started"),
        skipped=counts.skipped + of("skipped"),
        missed=counts.missed + of("missed"),
    )


# --- changes by users: the next state, or null if it is already so ----------------------------------------------------


def applied(schedule: ScheduleUpdated | None, given: Schedule, now: float, by: str) -> ScheduleUpdated | None:
    """Return the schedule with this specification. A time that has come is not passed over by an edit."""
    spec = given.stored()
    del spec["name"]
    if schedule is None or schedule.deleted:
        kept = schedule or ScheduleUpdated(name=given.name, spec=spec)
        return msgspec.structs.replace(
            kept, spec=spec, next_at=given.calendar.after(now), paused=False, deleted=False, wanted=[], by=by
        )
    if schedule.spec == spec:
        return None
    after = msgspec.structs.replace(schedule, spec=spec, by=by)
    if _times_of(schedule.spec) == _times_of(spec):
        return after
    if schedule.next_at is None or schedule.next_at > now:
        return msgspec.structs.replace(after, next_at=given.calendar.after(now))
    return _with_other_times(schedule, after, given, now)


def _with_other_times(
    schedule: ScheduleUpdated, after: ScheduleUpdated, given: Schedule, now: float
) -> ScheduleUpdated:
    """Return a schedule `after` an edit of its times, when some have come by the old ones and are undecided.

    The new policies decide about them. None of the new times up to now is due.
    """
    if schedule.paused:
        skipped = resumed(schedule, now, after.by) or schedule
        return msgspec.structs.replace(
            after, next_at=given.calendar.after(now), recent=skipped.recent, counts=skipped.counts
        )
    one_at_once = given.overlap in {"skip", "cancel"}  # of several at once, only the last would stay
    policy = msgspec.structs.replace(given, missed="last") if one_at_once and given.missed == "all" else given
    old = schedule_of(schedule.name, schedule.spec).calendar
    passed = _passed(msgspec.structs.replace(policy, jitter_s=0.0), old, schedule.next_at, now)
    if passed.missed:
        after = decided(after, Due((), 0, passed.missed, passed.missed_at, None, after.wanted), (), now)
    if one_at_once and passed.kept:  # it is still to be judged whether a run is open
        return msgspec.structs.replace(after, next_at=passed.kept[-1])
    times = [WantedTime(due_at=at) for at in passed.kept]
    return msgspec.structs.replace(after, next_at=given.calendar.after(now), wanted=[*after.wanted, *times])


def _times_of(spec: dict[str, Any]) -> list[Any]:
    return [spec.get(name) for name in ("cron", "every", "tz", "from")]


def paused(schedule: ScheduleUpdated, by: str) -> ScheduleUpdated | None:
    """Return the schedule paused."""
    return None if schedule.paused else msgspec.structs.replace(schedule, paused=True, by=by)


def resumed(schedule: ScheduleUpdated, now: float, by: str) -> ScheduleUpdated | None:
    """Return the schedule going on with its next time; those that passed meanwhile are counted as skipped."""
    if not schedule.paused:
        return None
    after = msgspec.structs.replace(schedule, paused=False, by=by)
    if schedule.next_at is None or schedule.next_at > now:
        return after
    spec = schedule_of(schedule.name, schedule.spec)
    passed = _passed(
        msgspec.structs.replace(spec, missed="last", jitter_s=0.0), spec.calendar, schedule.next_at, now
    )
    count = passed.missed + len(passed.kept)
    told = Occurrence(
        due_at=(passed.kept or [passed.missed_at])[-1],
        outcome="skipped",
        reason="the schedule was paused",
        at=now,
        count=count,
    )
    return msgspec.structs.replace(
        after,
        next_at=passed.next_at,
        recent=[*schedule.recent, told][-RECENT_MAX:],
        counts=_counted(schedule.counts, [told]),
    )


def deleted(schedule: ScheduleUpdated, by: str) -> ScheduleUpdated | None:
    """Return the schedule without further times. Its register keeps what it has done."""
    if schedule.deleted:
        return None
    return msgspec.structs.replace(schedule, deleted=True, next_at=None, wanted=[], by=by)


def wanted(schedule: ScheduleUpdated, times: Sequence[float], by: str) -> ScheduleUpdated | None:
    """Return the schedule with times that are asked for by hand. Raises `ConfigError` for too many."""
    known = {each.due_at for each in schedule.wanted}
    new = [WantedTime(due_at=at, by=by) for at in times if at not in known]
    if len(known) + len(new) > WANTED_MAX:
        raise ConfigError(
            f"schedule {schedule.name!r} would have more than {WANTED_MAX} times to start by hand: "
            "choose a shorter interval"
        )
    if not new:
        return None
    return msgspec.structs.replace(schedule, wanted=[*schedule.wanted, *new], by=by)


def times_between(schedule: ScheduleUpdated, start: float, end: float) -> list[float]:
    """Return the times from `start` up to, and without, `end`. Raises `ConfigError` for too many."""
    calendar = schedule_of(schedule.name, schedule.spec).calendar
    found: list[float] = []
    at = calendar.after(math.nextafter(start, -math.inf))
    while at is not None and at < end:
        found.append(at)
        if len(found) > WANTED_MAX:
            raise ConfigError(
                f"schedule {schedule.name!r} has more than {WANTED_MAX} times there: choose a shorter interval"
            )
        at = calendar.after(at)
    return found
