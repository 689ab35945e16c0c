"""A session's lane after runs of it were erased: its first commits, which name nothing else, go too (W53)."""

from __future__ import annotations

from collections.abc import Iterator

from ...eventlog.events import LaneUpdated, StoredEvent, Unknown
from ...eventlog.names import lane_subject, run_subject
from ...eventlog.ports import Log
from ..journal.lanes import lane_commits
from .family import tombstone_of


async def trim_lane(log: Log, lane: str) -> int:
    """Purge the lane's commits up to the first that names a run which is not erased; return how many went.

    The last commit stays, because it is the queue.
    """
    subject = lane_subject(lane, log.events.shards)
    erased: dict[str, bool] = {}
    gone, last = 0, 0
    async for recorded in lane_commits(log, subject):
        for run in _named(recorded.commit.events):
            if run not in erased:
                root = run_subject(subject.shard, run, run)
                erased[run] = await log.events.head(root) is None or await tombstone_of(log, root) is not None
            if not erased[run]:
                await log.events.purge({subject: recorded.position})
                return gone
        gone, last = gone + 1, recorded.position
    await log.events.purge({subject: last})
    return max(0, gone - 1)


def _named(events: tuple[StoredEvent | Unknown, ...]) -> Iterator[str]:
    for event in events:
        if isinstance(event, LaneUpdated):
            yield from (entry.run for entry in event.queue)
            yield from (*event.dropped, *event.purged, *event.imported)
