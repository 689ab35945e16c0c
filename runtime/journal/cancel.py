"""Cancelling a run together with all runs that it started (W22 to W24)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from ...eventlog.commits import Chain
from ...eventlog.errors import AppendUnsure, Conflict, KeyErased, LogUnavailable, RunNotFound
from ...eventlog.events import Actor
from ...eventlog.ports import Log, Subject, Wakeup, WakeWrite, Write
from ..core.commands import Claim
from ..core.decide import take
from ..core.submission import actor_of, check_text
from ..core.turn import Turn
from .journal import Journal
from .lanes import hand_lane_on
from .open_family import BATCH_RUNS_MAX, in_batches, open_family, open_from
from .outages import REFUSALS_MAX, STALE_READ_S, Decisions, through_outages
from .timers import wakeup_for

CLAIM_AFTER_CONFLICTS = 3
CANCELLER_S = 3.0
"""The time that a process finding a run being cancelled gives the canceller to finish."""


async def cancel_family(log: Log, subject: Subject, reason: str, by: str | Actor = "") -> str:
    """Cancel a run and every open run below it, and return the status that the run was found in.

    The result is one of cancelled, already_completed, already_error, already_cancelled. No worker has to be alive. A
    family that fits into a batch and does not change meanwhile is cancelled by that one append. Any other is fenced
    first, by one append to the run itself, after which no executor goes on with it; then the runs below are cancelled,
    children before their parents, and the run last. If the canceller dies in between, the next worker that is woken
    for the run completes the cancel. A run whose key was erased is cancelled like any other.
    Raises `RunNotFound`, `ConfigError`, `LogUnavailable`.
    """
    check_text("the reason of a cancel", reason)
    try:
        return await _cancel_family(log, subject, reason, actor_of(by))
    except KeyErased:
        return await _cancel_family(log, subject, reason, actor_of(by), outside=True)


async def _cancel_family(
    log: Log, subject: Subject, reason: str, actor: Actor, *, outside: bool = False
) -> str:
    append, at_once = log.clock.new_id(), True
    async for conflicts in Decisions(log.clock):
        named = await Journal(log, subject, outside=outside).relative(subject.id, at_once=True)
        if not named.state.exists:
            raise RunNotFound(f"there is no run {subject.id!r} in namespace {log.namespace!r}")
        if named.state.terminal is not None:
            mine = conflicts and await _was_stored(log, subject, append, named.state.head.position)
            return "cancelled" if mine else f"already_{named.state.terminal.status}"
        at_once = at_once and len(named.state.open_children) < BATCH_RUNS_MAX.get()
        if named.state.open_children and not at_once:
            await _fence(named, reason, actor, append)
        journals = await open_family(named, named.relative)
        members = open_from(journals, subject.id)
        if not named.state.cancelling and len(members) > BATCH_RUNS_MAX.get():
            at_once = False
            continue
        if conflicts >= CLAIM_AFTER_CONFLICTS:
            await _claim_top_down(log, members)
            if any(member.state.over for member in members):  # the claim has read newer commits
                continue
        if members and await _cancel_all(log, journals, members, reason, actor, append):
            return "cancelled"
        at_once = False
    raise LogUnavailable(f"run {subject.id} changes faster than it can be cancelled; try again")


async def see_cancel_through(journal: Journal) -> None:
    """Wait for the end of a run that is being cancelled; complete the cancel if its canceller takes too long."""
    state, clock = journal.state, journal.log.clock
    left_s = state.updated_at + CANCELLER_S - clock.now()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(max(left_s, 0.0), CANCELLER_S)):
            await journal.follow_until(lambda state: state.over)
    if not state.over:
        reason, by = state.cancel_reason or "", state.cancel_by
        await through_outages(clock, cancel_family, journal.log, journal.subject, reason, by)
        await journal.follow_until(lambda state: state.over)


async def _fence(journal: Journal, reason: str, actor: Actor, append: str) -> None:
    """Store the request to cancel, with a wake-up for the worker that completes it if the canceller dies."""
    async for _ in Decisions(journal.log.clock):
        if journal.state.closed:
            return
        turn = Turn(journal.state, journal.rules, journal.log.clock.now())
        turn.fence(reason, actor)
        wakeup = wakeup_for(journal, cause=journal.state.head.rev + len(turn.events))
        if await journal.store(turn.events, epoch=0, extra=[WakeWrite(wakeup)], append=append):
            return


async def _claim_top_down(log: Log, members: Sequence[Journal]) -> None:
    """Fence the executors of a family that changes too fast, so that it holds still for the batch (W23).

    Only runs with an owner are claimed: each of them has a wake-up or a watch, should the canceller die before its
    batch.
    """
    for journal in reversed([member for member in members if member.state.owner is not None]):
        turn = Turn(journal.state, journal.rules, log.clock.now())
        take(turn, Claim("canceller", 1.0))
        await journal.store(turn.events, epoch=journal.state.epoch)


async def _cancel_all(
    log: Log, journals: dict[str, Journal], members: Sequence[Journal], reason: str, actor: Actor, append: str
) -> bool:
    """Append the atomic batches, children first, each run under its own condition. False: a conflict; enumerate again.

    There is more than one batch only after a fence. All attempts of one cancel share one append id, so that a late one
    is found and reported (W2); after a fence it is that of the fence, whose canceller gets the credit.
    """
    last = members[-1]
    fenced = last.state.cancelling
    if fenced:
        reason, actor = last.state.cancel_reason or "", Actor(by=last.state.cancel_by)
    own = None if fenced else append
    *first, writes = in_batches([journal.cancel_write(reason, actor, own) for journal in members])
    submitted = last.state.submitted
    if submitted is not None and submitted.lane is not None:
        writes += await hand_lane_on(log, submitted.lane, last.subject.id)
    if submitted is not None and submitted.parent is not None:
        writes += parent_wakeup(journals[submitted.parent.run], last.subject.id)
    try:
        for batch in (*first, writes):
            await log.events.append(*batch)
    except Conflict:
        return False
    except AppendUnsure:
        return not fenced and await _was_stored(log, last.subject, append)
    return not fenced


async def _was_stored(log: Log, subject: Subject, append: str, known: int = 0) -> bool:
    """Look for our append id in the whole run after a lost acknowledgement (W2), up to the known position at least."""
    for _ in range(REFUSALS_MAX):
        chain, position = Chain(), 0
        async for stored in log.events.read(subject):
            position = stored.position
            if chain.verify(stored).commit.append == append:
                return True
        if position >= known:
            break
        await log.clock.sleep(STALE_READ_S)
    return False


def parent_wakeup(parent: Journal, child: str) -> list[Write]:
    """Return the wake-up that a child's end owes its parent; its cause is the revision of `child_started`."""
    state = parent.state
    if state.over:
        return []
    return [
        WakeWrite(
            Wakeup(
                shard=parent.subject.shard,
                agent=state.served_as,
                root=state.root,
                run=state.run,
                kind="child",
                ref=child,
                cause=state.head.rev,
                priority=state.priority,
            )
        )
    ]
