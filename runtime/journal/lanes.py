"""Lanes: the runs of one session go one after the other (W6).

A lane is a register: one subject whose newest commit holds the queue, head first. A run enters it in the batch that
stores the run, and leaves it in the batch of its terminal, which also wakes the next. So the log shows no run without
its place in line, and no place without its run, except that of a run that was purged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from ...eventlog.commits import Head
from ...eventlog.errors import AppendUnsure, Conflict
from ...eventlog.events import LaneEntry, LaneUpdated
from ...eventlog.names import lane_subject, run_subject
from ...eventlog.ports import CommitWrite, Log, Subject, Wakeup, WakeWrite, Write
from .outages import STALE_READ_S
from .register import read_register, register_write

logger = logging.getLogger("foldlog.journal")

PURGED_LOOKS = 7


async def read_lane(log: Log, lane: str) -> tuple[Subject, Head, list[LaneEntry]]:
    """The lane's subject, where it stands, and its queue, head first."""
    subject = lane_subject(lane, log.events.shards)
    head, events = await read_register(log, subject)
    queue = [entry for event in events if isinstance(event, LaneUpdated) for entry in event.queue]
    return subject, head, queue


async def _lane_write(
    log: Log, lane: str, change: Callable[[list[LaneEntry]], list[LaneEntry]]
) -> tuple[CommitWrite, list[LaneEntry], list[LaneEntry], int]:
    subject, head, before = await read_lane(log, lane)
    after = change(before)
    return register_write(log, subject, head, LaneUpdated(queue=after)), before, after, head.rev + 1


async def purged(log: Log, runs: Sequence[Subject]) -> list[Subject]:
    """Those of these runs, which were stored once, that are not in the log any more.

    A read may be stale, so it takes six seconds to say so of a run.
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
    """Take the run at the head out of its lane if it was purged, and wake the next; whether the lane has changed.

    A run enters its lane in the batch that stores it, so one that is not there was purged.
    """
    subject, head, queue = await read_lane(log, lane)
    if not queue or not await purged(log, [run_subject(subject.shard, queue[0].run, queue[0].run)]):
        return False
    gone, *after = queue
    event = LaneUpdated(queue=after, purged=[gone.run])
    wakes = [WakeWrite(_wakeup_of(after[0], subject.shard, head.rev + 1))] if after else []
    with contextlib.suppress(Conflict, AppendUnsure):  # somebody else has changed it: it is read again
        await log.events.append(register_write(log, subject, head, event), *wakes)
        logger.warning("run %s was purged while it was open: it has left the lane %r", gone.run, lane)
    return True


def _wakeup_of(entry: LaneEntry, shard: int, lane_revision: int) -> Wakeup:
    return Wakeup(
        shard=shard,
        agent=entry.agent,
        root=entry.run,
        run=entry.run,
        cause=entry.revision,
        lane_cause=lane_revision,
    )


async def hand_lane_on(log: Log, lane: str, run: str) -> list[Write]:
    """The writes that take a run out of its lane and wake the next one, if the run was at its head.

    A run that is not over is in its lane: where it is not seen there, the read is stale and the write conflicts.
    """
    write, before, after, revision = await _lane_write(log, lane, lambda q: [e for e in q if e.run != run])
    if before and before[0].run == run and after:
        return [write, WakeWrite(_wakeup_of(after[0], write.subject.shard, revision))]
    return [write]


async def join_lane(log: Log, lane: str, entry: LaneEntry) -> tuple[CommitWrite, bool, int]:
    """The write that puts a run at the end of its lane; whether it is at the head then, and the lane's revision."""
    while await drop_purged_head(log, lane):
        pass
    write, _before, after, revision = await _lane_write(log, lane, lambda q: [*q, entry])
    return write, after[0].run == entry.run, revision


async def at_head_of_lane(log: Log, lane: str, run: str, lane_cause: int) -> bool | None:
    """Return whether it is this run's turn; None when the read is older than `lane_cause` and decides nothing (W10)."""
    _subject, head, queue = await read_lane(log, lane)
    if head.rev < lane_cause:
        return None
    if queue and queue[0].run != run and await drop_purged_head(log, lane):
        return await at_head_of_lane(log, lane, run, lane_cause)
    return bool(queue) and queue[0].run == run
