"""Ending a run together with all that it started (W22 to W24)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextvars import ContextVar

from ..eventlog.commits import Chain
from ..eventlog.errors import AppendUnsure, Conflict, LogUnavailable, RunNotFound
from ..eventlog.names import run_subject
from ..eventlog.ports import CommitWrite, Log, Subject, Wakeup, WakeWrite, Write
from .commands import Claim
from .decide import take
from .journal import DECISIONS_MAX, REFUSALS_MAX, STALE_READ_S, Journal, hand_lane_on, through_outages
from .owed import wakeup_for
from .submission import check_text
from .turn import Turn

CLAIM_AFTER_CONFLICTS = 3
BATCH_RUNS_MAX: ContextVar[int] = ContextVar("BATCH_RUNS_MAX", default=500)
"""How many runs one batch cancels. A simulation sets it lower."""
CANCELLER_S = 3.0
"""How long whoever finds a run that is being cancelled leaves its end to the one who cancels it."""


async def cancel_family(log: Log, subject: Subject, reason: str, by: str = "") -> str:
    """Cancel a run and every open run below it; what the run's status was found to be.

    One of cancelled, already_completed, already_error, already_cancelled. Needs no live worker. A family that fits into
    a batch and stands still is cancelled by that one append. Any other is fenced first: one append to the run itself,
    behind which nobody goes on with it; then the runs below are cancelled, children before their parents, and the run
    last. Should the canceller die in between, whoever wakes the run next goes on with the cancel. Raises `RunNotFound`,
    `ConfigError`, `LogUnavailable`.
    """
    check_text("the reason of a cancel", reason)
    check_text("the name of who cancels", by)
    append, at_once = log.clock.new_id(), True
    for conflicts in range(DECISIONS_MAX):
        if conflicts > 1:  # reads may be stale: give them the time to be fresh
            await log.clock.sleep(STALE_READ_S)
        named = await _loaded(log, subject, subject.id, at_once=True)
        if not named.state.exists:
            raise RunNotFound(f"there is no run {subject.id!r} in namespace {log.namespace!r}")
        if named.state.terminal is not None:
            mine = conflicts and await _was_stored(log, subject, append, named.state.head.position)
            return "cancelled" if mine else f"already_{named.state.terminal.status}"
        at_once = at_once and len(named.state.open_children) < BATCH_RUNS_MAX.get()
        if named.state.open_children and not at_once:
            await _fence(named, reason, by, append)
        journals = await _open_family(log, named)
        members = _open_below(journals, subject.id)
        if not named.state.cancelling and len(members) > BATCH_RUNS_MAX.get():
            at_once = False
            continue
        if conflicts >= CLAIM_AFTER_CONFLICTS:
            await _claim_top_down(log, members)
            if any(member.state.over for member in members):  # a claim has read what is newer
                continue
        if members and await _cancel_all(log, journals, members, reason, by, append):
            return "cancelled"
        at_once = False
    raise LogUnavailable(f"run {subject.id} changes faster than it can be cancelled; try again")


async def see_cancel_through(journal: Journal) -> None:
    """Wait for the end of a run that is being cancelled; if its canceller takes too long, go on with the work."""
    state, clock = journal.state, journal.log.clock
    left_s = state.updated_at + CANCELLER_S - clock.now()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(max(left_s, 0.0), CANCELLER_S)):
            await journal.follow_until(lambda state: state.over)
    if not state.over:
        reason, by = state.cancel_reason or "", state.cancel_by
        await through_outages(clock, cancel_family, journal.log, journal.subject, reason, by)
        await journal.follow_until(lambda state: state.over)


async def _open_family(log: Log, named: Journal) -> dict[str, Journal]:
    """The run, its parent, and every open run below it, each as it was at some moment.

    No read is torn for good: a child stands in the batch that announced it (W5).
    """
    subject, journals = named.subject, dict[str, Journal]()
    level = [named]
    while level:
        journals.update({journal.subject.id: journal for journal in level})
        below = [child for journal in level for child in journal.state.open_children]
        level = list(await asyncio.gather(*(_loaded(log, subject, child) for child in below)))
    submitted = named.state.submitted
    if submitted is not None and submitted.parent is not None:
        parent = submitted.parent.run
        journals[parent] = await _loaded(log, subject, parent)
    return journals


async def _loaded(log: Log, relative: Subject, run: str, *, at_once: bool = False) -> Journal:
    """A run of the family, as soon as it is to be seen; `at_once`: it may not exist."""
    journal = Journal(log, run_subject(relative.shard, relative.root, run))
    for _ in range(REFUSALS_MAX):
        if (await journal.load()).exists or at_once:
            return journal
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"the family of {relative.root} cannot be read as a whole; try again")


def _children(journals: dict[str, Journal], run: str) -> list[Journal]:
    return [
        j
        for j in journals.values()
        if j.state.submitted and j.state.submitted.parent and j.state.submitted.parent.run == run
    ]


def _open_below(journals: dict[str, Journal], run: str) -> list[Journal]:
    """The open runs from `run` down, children before their parents."""
    below = [
        member for child in _children(journals, run) for member in _open_below(journals, child.subject.id)
    ]
    return below if journals[run].state.over else [*below, journals[run]]


async def cancels_below(log: Log, subject: Subject, reason: str) -> list[Write]:
    """The writes that cancel every open run below this one, children before their parents.

    Of more than one batch holds, all but the last batch are cancelled here. Raises `Conflict`.
    """
    journals = await _open_family(log, await _loaded(log, subject, subject.id, at_once=True))
    below = [
        member
        for child in _children(journals, subject.id)
        for member in _open_below(journals, child.subject.id)
    ]
    *first, last = _batches([_cancel_write(journal, reason) for journal in below])
    for batch in first:
        await log.events.append(*batch)
    return last


def _batches(writes: Sequence[Write]) -> list[list[Write]]:
    """The writes in their order, cut into as few batches as hold them; at least one."""
    size = BATCH_RUNS_MAX.get()
    return [list(writes[at : at + size]) for at in range(0, len(writes) or 1, size)]


def _cancel_write(journal: Journal, reason: str, by: str = "", append: str | None = None) -> CommitWrite:
    turn = Turn(journal.state, journal.rules, journal.log.clock.now())
    turn.cancel(reason, by)
    return journal.write(turn.events, epoch=0, append=append).write


async def _fence(journal: Journal, reason: str, by: str, append: str) -> None:
    """Store that the run is to be cancelled, with the wake-up of whoever finishes that if the canceller dies."""
    for _ in range(DECISIONS_MAX):
        if journal.state.closed:
            return
        turn = Turn(journal.state, journal.rules, journal.log.clock.now())
        turn.fence(reason, by)
        wakeup = wakeup_for(journal, cause=journal.state.head.rev + len(turn.events))
        if await journal.store(turn.events, epoch=0, extra=[WakeWrite(wakeup)], append=append):
            return


async def _claim_top_down(log: Log, members: Sequence[Journal]) -> None:
    """Fence the executors of a family that changes too fast, so that it stands still for the batch (W23).

    Only runs with an owner: each has a wake-up or a watch, should the canceller die before its batch.
    """
    for journal in reversed([member for member in members if member.state.owner is not None]):
        turn = Turn(journal.state, journal.rules, log.clock.now())
        take(turn, Claim("canceller", 1.0))
        await journal.store(turn.events, epoch=journal.state.epoch)


async def _cancel_all(
    log: Log, journals: dict[str, Journal], members: Sequence[Journal], reason: str, by: str, append: str
) -> bool:
    """Atomic batches, children first, each run under its own condition. False: a conflict; enumerate again.

    More than one only behind a fence. All attempts of one cancel have one append id, so that one which was late is
    found and reported (W2); behind a fence it is the fence's, and its canceller is the one who cancelled.
    """
    last = members[-1]
    fenced = last.state.cancelling
    if fenced:
        reason, by = last.state.cancel_reason or "", last.state.cancel_by
    own = None if fenced else append
    *first, writes = _batches([_cancel_write(journal, reason, by, own) for journal in members])
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
    """After a lost ack: look for the own append id in everything (W2), up to what is known at least."""
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
    """The wake-up that a child's end owes its parent; its cause is the revision of `child_started`."""
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
            )
        )
    ]
