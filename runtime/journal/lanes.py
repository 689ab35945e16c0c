"""Lanes: the runs of one session execute one after another (W6).

A lane is a register: one subject whose newest commit holds the queue, head first. A run joins it in the batch that
stores the run, and leaves it in the batch of its terminal, which also wakes the next run. So the log never shows a run
without its place in the queue, nor a place without its run, unless that run was purged.

Only the head may be claimed. A read of the queue may be stale, so the wake-up of a run carries the lane revision that
made it the head (`lane_cause`): an older read decides nothing (W10). A purged run would block its lane for ever, and so
would one that is over, if a stranger removed the lane's last commit. A process that finds one at the head removes it,
after looking long enough to rule out a stale read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from ...eventlog.commits import Head, Recorded, before, decode, head_of, verify
from ...eventlog.errors import AppendUnsure, Conflict
from ...eventlog.events import Buried, LaneEntry, LaneUpdated, is_terminal
from ...eventlog.names import lane_subject, run_subject
from ...eventlog.ports import CommitWrite, Log, Subject, Wakeup, WakeWrite, Write
from .outages import STALE_READ_S
from .register import read_register, register_write

logger = logging.getLogger("foldlog.journal")

PURGED_LOOKS = 7


async def read_lane(log: Log, lane: str) -> tuple[Subject, Head, list[LaneEntry]]:
    """Return the lane's subject, its head revision, and its queue, head first."""
    subject = lane_subject(lane, log.events.shards)
    head, events = await read_register(log, subject)
    queue = [entry for event in events if isinstance(event, LaneUpdated) for entry in event.queue]
    return subject, head, queue


async def lane_commits(log: Log, subject: Subject) -> AsyncIterator[Recorded]:
    """Yield the commits of a lane, verified; those before the first run that was not erased may be gone (W53)."""
    head: Head | None = None
    async for stored in log.events.read(subject):
        recorded = verify(stored, head or before(stored))
        head = head_of(recorded)
        yield recorded


async def _lane_write(
    log: Log, lane: str, change: Callable[[list[LaneEntry]], list[LaneEntry]]
) -> tuple[CommitWrite, list[LaneEntry], list[LaneEntry], int]:
    subject, head, before = await read_lane(log, lane)
    after = change(before)
    return register_write(log, subject, head, LaneUpdated(queue=after)), before, after, head.rev + 1


async def purged(log: Log, runs: Sequence[Subject]) -> list[Subject]:
    """Return the runs that are no longer in the log; all of them were stored once.

    A read may be stale, so it takes six seconds to conclude that a run is missing.
    """
    missing = list(runs)
    for look in range(PURGED_LOOKS):
        if look:
            await log.clock.sleep(STALE_READ_S * 2 ** (look - 1))
        heads = await asyncio.gather(*(log.events.head(run) for run in missing))
        missing = [run for run, head in zip(missing, heads, strict=True) if head is None]
        if not missing:
            break
    return missing


async def drop_purged_head(log: Log, lane: str) -> bool:
    """Remove a run that is purged or over from the head of its lane, and wake the next; return whether it has changed.

    A run joins its lane in the batch that stores it, so a run that is not in the log was purged; and leaves it in the
    batch that ends it, so if it is over, either the read of the lane was stale or that commit of the lane is lost.
    """
    subject, head, queue = await read_lane(log, lane)
    if not queue:
        return False
    first, *after = queue
    run = run_subject(subject.shard, first.run, first.run)
    if is_over := await _is_over(log, run):
        await log.clock.sleep(STALE_READ_S)
        if (await read_lane(log, lane))[1] != head:
            return True
    elif not await purged(log, [run]):
        return False
    event = LaneUpdated(queue=after, purged=[] if is_over else [first.run])
    wakes = [WakeWrite(_wakeup_of(after[0], subject.shard, head.rev + 1))] if after else []
    with contextlib.suppress(Conflict, AppendUnsure):  # another writer has changed it: it is read again
        await log.events.append(register_write(log, subject, head, event), *wakes)
        why = "is over, and its end is missing in the lane" if is_over else "was purged while it was open"
        logger.warning("run %s %s: it was removed from lane %r", first.run, why, lane)
    return True


async def _is_over(log: Log, run: Subject) -> bool:
    """Return whether the run's last commit ends it, or is its tombstone. May be stale: an end stays true."""
    last = await log.events.head(run)
    if last is None:
        return False
    try:
        events = decode(last.data).events
    except ValueError:  # reported to readers of the run
        return False
    return any(is_terminal(event) or isinstance(event, Buried) for event in events)


def _wakeup_of(entry: LaneEntry, shard: int, lane_revision: int) -> Wakeup:
    return Wakeup(
        shard=shard,
        agent=entry.agent,
        root=entry.run,
        run=entry.run,
        cause=entry.revision,
        lane_cause=lane_revision,
        priority=entry.priority,
    )


async def hand_lane_on(log: Log, lane: str, run: str) -> list[Write]:
    """Return the writes that remove a run from its lane, and wake the next one if the run was at the head.

    A run that is not over is in its lane: if it is not seen there, the read is stale and the write conflicts.
    """
    write, before, after, revision = await _lane_write(log, lane, lambda q: [e for e in q if e.run != run])
    if before and before[0].run == run and after:
        return [write, WakeWrite(_wakeup_of(after[0], write.subject.shard, revision))]
    return [write]


async def join_lane(log: Log, lane: str, entry: LaneEntry) -> tuple[CommitWrite, bool, int]:
    """Return the write that adds a run to its lane, whether it is then at the head, and the lane revision."""
    while await drop_purged_head(log, lane):
        pass
    write, _before, after, revision = await _lane_write(log, lane, lambda q: [*q, entry])
    return write, after[0].run == entry.run, revision


async def at_head_of_lane(log: Log, lane: str, run: str, lane_cause: int) -> bool | None:
    """Return whether it is this run's turn; None if the read is older than `lane_cause` and decides nothing (W10)."""
    _subject, head, queue = await read_lane(log, lane)
    if head.rev < lane_cause:
        return None
    if queue and queue[0].run != run and await drop_purged_head(log, lane):
        return await at_head_of_lane(log, lane, run, lane_cause)
    return bool(queue) and queue[0].run == run
