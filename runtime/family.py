"""Ending a run together with all that it started (protocol.md section F)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..eventlog.commits import Chain
from ..eventlog.errors import AppendUnsure, Conflict, LogUnavailable, RunNotFound
from ..eventlog.names import run_subject
from ..eventlog.ports import CommitWrite, Log, Subject, Wakeup, WakeWrite, Write
from .commands import Claim
from .decide import take
from .journal import DECISIONS_MAX, REFUSALS_MAX, STALE_READ_S, Journal, hand_lane_on
from .submission import check_text
from .turn import Turn

CLAIM_AFTER_CONFLICTS = 3
BATCH_RUNS_MAX = 500


async def cancel_family(log: Log, subject: Subject, reason: str, by: str = "") -> str:
    """Cancel a run and every open run below it, whole or not at all; what the run's status was found to be.

    One of cancelled, already_completed, already_error, already_cancelled. Needs no live worker. Raises `RunNotFound`,
    `ConfigError`, `LogUnavailable`.
    """
    check_text("the reason of a cancel", reason)
    check_text("the name of who cancels", by)
    append = log.clock.new_id()
    for conflicts in range(DECISIONS_MAX):
        if conflicts > 1:  # reads may be stale: give them the time to be fresh
            await log.clock.sleep(STALE_READ_S)
        journals = await _open_family(log, subject)
        named = journals[subject.id]
        if not named.state.exists:
            raise RunNotFound(f"there is no run {subject.id!r} in namespace {log.namespace!r}")
        if named.state.terminal is not None:
            mine = conflicts and await _was_stored(log, subject, append, named.state.head.position)
            return "cancelled" if mine else f"already_{named.state.terminal.status}"
        members = _open_below(journals, subject.id)
        if len(members) > BATCH_RUNS_MAX:
            for child in _children(journals, subject.id):
                await cancel_family(log, child.subject, reason, by)
            continue
        if conflicts >= CLAIM_AFTER_CONFLICTS:
            await _claim_top_down(log, members)
            if any(member.state.over for member in members):  # a claim has read what is newer
                continue
        if await _cancel_all(log, journals, members, reason, by, append):
            return "cancelled"
    raise LogUnavailable(f"run {subject.id} changes faster than it can be cancelled; try again")


async def _open_family(log: Log, subject: Subject) -> dict[str, Journal]:
    """The run, its parent, and every open run below it, each as it was at some moment.

    No read is torn for good: a child stands in the batch that announced it (rule 5).
    """
    journals: dict[str, Journal] = {}
    level = [await _loaded(log, subject, subject.id, at_once=True)]
    while level:
        journals.update({journal.subject.id: journal for journal in level})
        below = [child for journal in level for child in journal.state.open_children]
        level = list(await asyncio.gather(*(_loaded(log, subject, child) for child in below)))
    submitted = journals[subject.id].state.submitted
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
    """The writes that cancel every open run below this one, children before their parents."""
    journals = await _open_family(log, subject)
    below = [
        member
        for child in _children(journals, subject.id)
        for member in _open_below(journals, child.subject.id)
    ]
    return [_cancel_write(journal, reason) for journal in below]


def _cancel_write(journal: Journal, reason: str, by: str = "", append: str | None = None) -> CommitWrite:
    turn = Turn(journal.state, journal.rules, journal.log.clock.now())
    turn.cancel(reason, by)
    return journal.write(turn.events, epoch=0, append=append).write


async def _claim_top_down(log: Log, members: Sequence[Journal]) -> None:
    """Fence the executors of a family that changes too fast, so that it stands still for the batch (rule 23).

    Only runs with an owner: each has a wake-up or a watch, should the canceller die before its batch.
    """
    for journal in reversed([member for member in members if member.state.owner is not None]):
        turn = Turn(journal.state, journal.rules, log.clock.now())
        take(turn, Claim("canceller", 1.0))
        await journal.store(turn.events, epoch=journal.state.epoch)


async def _cancel_all(
    log: Log, journals: dict[str, Journal], members: Sequence[Journal], reason: str, by: str, append: str
) -> bool:
    """One atomic batch, children first, each run under its own condition. False: a conflict; enumerate again.

    All attempts of one cancel have one append id, so that one which was late is found and reported (rule 2).
    """
    writes: list[Write] = [_cancel_write(journal, reason, by, append) for journal in members]
    last = members[-1]
    submitted = last.state.submitted
    if submitted is not None and submitted.lane is not None:
        writes += await hand_lane_on(log, submitted.lane, last.subject.id)
    if submitted is not None and submitted.parent is not None:
        writes += parent_wakeup(journals[submitted.parent.run], last.subject.id)
    try:
        await log.events.append(*writes)
    except Conflict:
        return False
    except AppendUnsure:
        return await _was_stored(log, last.subject, append)
    return True


async def _was_stored(log: Log, subject: Subject, append: str, known: int = 0) -> bool:
    """After a lost ack: look for the own append id in everything (protocol rule 2), up to what is known at least."""
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
