"""Snapshots of runs, taken next to the driving: they never delay a run, and no run depends on one.

A snapshot is a cache of the fold, so anything about it may fail. It is taken from the log and not from the driver's
state, which may be ahead of the log by events that are about to be stored. A `Journal` that loads one trusts it only
if it was made by the same code, its checksum is right, and the log has the very commit at which it was taken, at its
position and with its digest. The commits after it are folded from the log, with the hash chain verified as always. If
any of this fails, the run is read from its beginning, which also finds out what is damaged.
"""

from __future__ import annotations

import asyncio
import logging
import os

from ...eventlog.errors import ConfigError, FoldlogError
from ...eventlog.sealing.log import sealed_bytes
from ...projections.snapshot import encode_state
from .journal import Journal, snapshot_place

logger = logging.getLogger("foldlog.snapshots")

SNAPSHOT_EVENTS = 500
"""The number of events between two snapshots of a run: a load reads little more than this many."""
GRACE_S = 1.0
"""The time that a driver which leaves a run waits for its snapshot."""


def snapshot_setting() -> int:
    """Return `FOLDLOG_SNAPSHOT_EVENTS`, or its default. Raises `ConfigError`."""
    given = os.environ.get("FOLDLOG_SNAPSHOT_EVENTS") or str(SNAPSHOT_EVENTS)
    if not given.isdecimal():
        raise ConfigError(
            f"FOLDLOG_SNAPSHOT_EVENTS is {given!r}; it must be a number of events, or 0 for no snapshots"
        )
    return int(given)


class SnapshotTaker:
    """Stores a snapshot each time the run of a journal has grown by `events`; 0 for never."""

    def __init__(self, journal: Journal, events: int) -> None:
        self._journal, self._events = journal, events
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Start a snapshot if one is due."""
        rev = self._journal.state.head.rev
        if not self._events or rev - self._journal.snapshot_rev < self._events:
            return
        if self._task is None or self._task.done():
            self._journal.snapshot_rev = rev  # even if it fails: the next is due that many events later
            self._task = asyncio.create_task(self._take())

    async def end(self, grace_s: float) -> None:
        """Stop, after waiting this long for a snapshot under way, and for one that became due meanwhile."""
        if await self._finished(grace_s) and grace_s > 0:
            self.look()
            await self._finished(grace_s)

    async def _finished(self, grace_s: float) -> bool:
        """Wait this long for the snapshot under way; false if there is none."""
        if self._task is None or self._task.done():
            return False
        await asyncio.wait({self._task}, timeout=grace_s)
        self._task.cancel()
        await asyncio.wait({self._task})
        return True

    async def _take(self) -> None:
        """Store a snapshot of a fresh read of the log: the driver's state may be ahead by events not stored yet."""
        log, subject = self._journal.log, self._journal.subject
        fresh = Journal(log, subject)
        try:
            state = await fresh.load()
            if state.head.rev > fresh.snapshot_rev:
                data = encode_state(state)
                sealed = await sealed_bytes(data, log.artifacts.of(subject.root), snapshot_place(subject))
                await log.snapshots.put(subject.id, sealed)
        except FoldlogError as error:
            logger.info("run %s: no snapshot: %s", subject.id, error)
        except Exception:
            logger.warning("run %s: a bug, no snapshot", subject.id, exc_info=True)
