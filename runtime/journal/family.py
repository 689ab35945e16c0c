"""The news that wakes a resting run: its own log, its timers, or a run below it that can go on.

The wake-up of a child goes to the workers that serve its root. Runs that are ready below a run parked on a child are
found by reading the log, so a wake-up that comes too early or too late still finds what has to be done (W11, W12).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec

from ...eventlog.commits import Chain
from ...eventlog.errors import LogUnavailable
from ...eventlog.ports import Family
from ...projections.fold import fold_commit
from ..core.commands import BelowReady, TimerDue
from ..core.parking import is_parked_on_child
from .journal import Journal, restored
from .outages import REFUSALS_MAX, STALE_READ_S, through_outages
from .timers import news_or_timer, owed_timers, set_timers


async def until_ready(journal: Journal) -> TimerDue | BelowReady | None:
    """Wait for news of a resting run; return the outside event that lets it go on, if there is one (W11)."""
    if is_parked_on_child(journal.state):
        return await _family_news(journal)
    return await news_or_timer(journal)


async def waiting_below(journal: Journal, seen: int = 0) -> Mapping[str, Journal]:
    """Return the family of a run that is parked on a child, read as by `family_of`; empty for any other run."""
    return await family_of(journal, seen) if is_parked_on_child(journal.state) else {}


def ready_below(journal: Journal, family: Mapping[str, Journal]) -> BelowReady | None:
    """Return the child that lets a parked run go on; null if all of them wait, or the family is empty."""
    return _ready(family, journal.subject.id, journal.log.clock.now())


async def set_timers_below(journal: Journal, family: Mapping[str, Journal]) -> None:
    """Set the timers of a resting run, and of all runs that wait below it."""
    log = journal.log
    if not family:
        await set_timers(log, journal)
    for each in family.values():
        for timer in owed_timers(each):  # the worker it wakes must see that the root is parked
            wakeup = msgspec.structs.replace(timer.wakeup, root_cause=journal.state.head.rev)
            await through_outages(log.clock, log.timers.set, msgspec.structs.replace(timer, wakeup=wakeup))


async def family_of(journal: Journal, seen: int = 0) -> dict[str, Journal]:
    """Return the whole family, read up to position `seen` and to what is known of this run, so never from a stale read.

    A family is in one stream, so a read that shows a position shows all before it. Raises `LogUnavailable`.
    """
    subject, log = journal.subject, journal.log
    for _ in range(REFUSALS_MAX):
        family = await _read(journal)
        newest = max((each.state.head.position for each in family.values()), default=0)
        if newest >= max(seen, journal.state.head.position):
            return family
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"the family of run {subject.root} cannot be read up to its last known position")


def ancestors(family: Mapping[str, Journal], run: str) -> list[str]:
    """Return the runs above a run of the family, nearest first."""
    found: list[str] = []
    while run in family and (submitted := family[run].state.submitted) and submitted.parent is not None:
        run = submitted.parent.run
        found.append(run)
    return found


async def _read(journal: Journal) -> dict[str, Journal]:
    """Return every run of the family from one read, so that none is older than another."""
    log, chain, journals = journal.log, Chain(), dict[str, Journal]()
    async for stored in log.events.read(Family(journal.subject.shard, journal.subject.root)):
        each = journals.setdefault(stored.subject.id, Journal(log, stored.subject, wait_for_log=True))
        fold_commit(each.state, await restored(chain.verify(stored), log))
    return journals


async def _family_news(journal: Journal) -> TimerDue | BelowReady | None:
    subject, log, seen = journal.subject, journal.log, 0
    while True:
        family = await family_of(journal, seen)
        own = family[subject.id]
        if own.state.head.rev > journal.state.head.rev:
            await journal.catch_up()
            return None
        now = log.clock.now()
        late = [timer.id for timer in owed_timers(own) if timer.due_at <= now]
        found = TimerDue(late[0]) if late else _ready(family, subject.id, now)
        if found is not None:
            return found
        newest = max(each.state.head.position for each in family.values())
        due = [timer.due_at for each in family.values() for timer in owed_timers(each)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(due) - now) if due else None):
                follow = log.events.follow(Family(subject.shard, subject.root), newest)
                async with contextlib.aclosing(follow) as commits:  # type: ignore[type-var] # all are generators
                    seen = (await anext(commits)).position


def _ready(family: Mapping[str, Journal], run: str, now: float) -> BelowReady | None:
    journal = family.get(run)
    children = journal.state.open_children if journal is not None else ()
    return next((BelowReady(child) for child in children if _can_go_on(family, child, now)), None)


def _can_go_on(family: Mapping[str, Journal], run: str, now: float) -> bool:
    journal = family.get(run)
    if journal is None:
        return False  # announced, but not visible yet
    state = journal.state
    if state.over or state.runnable or any(timer.due_at <= now for timer in owed_timers(journal)):
        return True
    return is_parked_on_child(state) and _ready(family, run, now) is not None
