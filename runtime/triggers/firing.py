"""A schedule that is due: its runs are started, then its next state and timer are stored, then the wake-up is settled.

The order is that of W39. A worker that dies after starting a run leaves the wake-up to be redelivered, and the run is
found by its key; one that is slow conflicts, and has started nothing that another one has not.
"""

from __future__ import annotations

import logging
from typing import Literal

from ...eventlog.errors import (
    Conflict,
    FoldlogError,
    KeyMissing,
    LogUnavailable,
    RunConflict,
    RunGone,
    RunNotFound,
    RunPurged,
)
from ...eventlog.events import Occurrence, ScheduleUpdated, Trigger, WantedTime
from ...eventlog.names import key_subject, run_subject, shard_in
from ...eventlog.ports import Delivery, Log, Subject
from ..core.templates import Filled, Missing
from ..journal.cancel import cancel_family
from ..journal.journal import Journal
from .calendar import local, written
from .judging import decided, due, wakes_at
from .register import read_schedule, store_schedule
from .schedule import INPUT_NAMES, Schedule, schedule_of
from .starting import Start, Starter

logger = logging.getLogger("foldlog.schedules")

Settlement = tuple[Literal["ack", "nak"], float]
STALE_DELAY_S = 0.1
EARLY_DELAY_MAX_S = 5.0
EARLY_WAIT_MAX_S = 1.0
"""A wake-up that is early by no more than that is waited for: one that is given back finds its worker full of the runs
that others of the same moment have started."""
MISSING_ATTEMPTS_MAX = 30
"""A wake-up is dropped if its register has not appeared after so many deliveries: it was purged."""
START_ATTEMPTS = 6
"""So often another worker may try to start a run that this one cannot start, before its time is skipped."""
NEW_S = 60.0
"""A run that was started in the last so many seconds, and is not seen, is taken for open: the read is stale."""
REASON_MAX = 300


class Firing:
    """Judges the wake-ups of schedules, for a worker."""

    def __init__(self, log: Log, starter: Starter) -> None:
        self._log, self._starter = log, starter

    async def judge(self, delivery: Delivery) -> Settlement:
        """Handle one wake-up, and return how it is settled. Raises `LogUnavailable`."""
        wakeup = delivery.wakeup
        subject = Subject(wakeup.shard, "sched", "", wakeup.run)
        head, schedule = await read_schedule(self._log, subject)
        if schedule is None and delivery.attempt > MISSING_ATTEMPTS_MAX:
            return "ack", 0.0
        if schedule is None or head.rev < wakeup.cause:  # the read is too old (W10)
            return "nak", min(2.0, STALE_DELAY_S * delivery.attempt)
        if head.rev > wakeup.cause:  # the process that changed it has set another timer (W37)
            return "ack", 0.0
        now = self._log.clock.now()
        found = due(schedule, now)
        if not found.start and not found.missed:
            return await self._early(delivery, wakes_at(schedule, now), now)
        occurrences: list[Occurrence] = []
        last = schedule.last
        for number, wanted in enumerate(found.start):
            try:
                occurrence = await self._occur(schedule, last, wanted, now, by_hand=number < found.by_hand)
            except (LogUnavailable, KeyMissing):  # who lacks a key leaves it to others (W60)
                raise
            except (FoldlogError, Missing) as error:
                if delivery.attempt < START_ATTEMPTS:
                    return "nak", STALE_DELAY_S * 2**delivery.attempt
                logger.warning(
                    "schedule %s: no run was started for %s: %s", schedule.name, written(wanted.due_at), error
                )
                reason = f"it could not be started: {error}"[:REASON_MAX]
                occurrence = _skipped(wanted, reason, now)
            last = occurrence if occurrence.outcome == "started" else last
            occurrences.append(occurrence)
        try:
            await store_schedule(self._log, subject, head, decided(schedule, found, occurrences, now))
        except Conflict:  # it was edited meanwhile, or another worker was first: read it again
            return "nak", 0.0
        return "ack", 0.0

    async def _early(self, delivery: Delivery, at: float | None, now: float) -> Settlement:
        """Settle a wake-up before whose time nothing is due."""
        if at is None:
            return "ack", 0.0
        early_s = max(0.0, at - now) + 0.01
        if early_s > EARLY_WAIT_MAX_S:
            return "nak", min(EARLY_DELAY_MAX_S, early_s)
        await self._log.clock.sleep(early_s)
        return await self.judge(delivery)

    async def _occur(
        self,
        schedule: ScheduleUpdated,
        last: Occurrence | None,
        wanted: WantedTime,
        now: float,
        *,
        by_hand: bool,
    ) -> Occurrence:
        """Start the run of one time, or skip it."""
        spec = schedule_of(schedule.name, schedule.spec)
        wish = _wish(spec, last, wanted, now)
        looks = not by_hand and spec.overlap in {"skip", "cancel"} and last is not None
        if (
            looks
            and last is not None
            and await self._is_open(last, now)
            and not await self._has_begun(wish.key)
        ):
            if spec.overlap == "skip":
                return _skipped(wanted, f"run {last.run} is still open", now)
            await self._cancel(last.run, schedule.name)
        try:
            run = await self._starter.start(wish)
        except RunConflict as conflict:  # the same time, before the schedule's agent or input was changed
            run = conflict.run_id
        except (RunGone, RunPurged) as gone:  # it ran, and was deleted since
            run = gone.run_id
        logger.info("schedule %s: run %s for %s", schedule.name, run, written(wanted.due_at))
        return Occurrence(due_at=wanted.due_at, outcome="started", run=run, at=now, by=wanted.by)

    async def _is_open(self, last: Occurrence, now: float) -> bool:
        journal = Journal(self._log, _run(last.run))
        try:
            state = await journal.load()
        except RunGone:
            return False
        return not state.over if state.exists else now - last.at < NEW_S

    async def _has_begun(self, key: str) -> bool:
        """Return whether the run of this key was started, by a worker that died before it could say so."""
        return await self._log.events.head(key_subject(f"key:{key}", self._log.events.shards)) is not None

    async def _cancel(self, run: str, name: str) -> None:
        try:
            await cancel_family(self._log, _run(run), "its schedule starts the next run", f"schedule:{name}")
        except RunNotFound:
            logger.info("schedule %s: its last run %s is no longer there", name, run)


def _run(run: str) -> Subject:
    return run_subject(shard_in(run) or 0, run, run)


def _skipped(wanted: WantedTime, reason: str, now: float) -> Occurrence:
    return Occurrence(due_at=wanted.due_at, outcome="skipped", reason=reason, at=now, by=wanted.by)


def _wish(spec: Schedule, last: Occurrence | None, wanted: WantedTime, now: float) -> Start:
    """Return the run to start for a time; its key names the time, so that it is started once."""
    names = {
        "due_at": local(wanted.due_at, spec.tz),
        "last_run": last.run if last is not None else "",
        "schedule": spec.name,
    }
    key = f"schedule:{spec.name}:{written(wanted.due_at)}"
    return Start(
        agent=spec.agent_name,
        input=Filled(spec.input, "input", INPUT_NAMES).fill(names),
        key=key,
        trigger=Trigger(kind="cron", name=spec.name, key=key, due_at=wanted.due_at, fired_at=now),
        lane=f"schedule:{spec.name}" if spec.overlap == "queue" else None,
        user=spec.user,
        metadata=spec.metadata,
        priority=spec.priority,
    )
