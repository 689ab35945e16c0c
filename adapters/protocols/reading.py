"""Read a run's stored events as its stream would show them, without waiting for more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection
from typing import Any

from ...eventlog.events import ApprovalResolved, DetailedEvent, Event
from ...eventlog.ports import Family
from ...runtime import Runtime
from ...runtime.handle import RunHandle
from ...runtime.journal.journal import restored
from ...runtime.journal.outages import STALE_READ_S
from ...runtime.stream import FamilyView

READS_MAX = 50
"""How often a lagging replica is read. There must be a limit: a revoked approval is never seen answered."""


class Snapshot:
    """The stored events of a run and of the runs below it."""

    def __init__(self, runtime: Runtime, run_id: str) -> None:
        self.waits = False
        """Set by `events`: true if the run or one below it is in a pause that only another party can end."""
        self._runtime, self._run_id = runtime, run_id

    async def events(self) -> AsyncGenerator[Event]:
        """Yield all stored events, in the order of the log. Raises `RunNotFound`, `LogCorrupted`."""
        place, subject = await self._runtime.place(self._run_id)
        view = FamilyView(subject)
        async for stored in place.log.events.read(Family(subject.shard, subject.root)):
            recorded = view.verify(stored)
            for event in view.commit(await restored(recorded, place.log)) if recorded is not None else ():
                yield event
        self.waits = view.pauses.open and not view.over


async def going_on(
    run: RunHandle[Any], answered: Collection[str] = (), after: str | None = None
) -> AsyncGenerator[DetailedEvent]:
    """Yield the detailed events of a run after the cursor `after`, until it ends or waits for another party.

    `answered` are approvals that were just answered. A replica that lags may still show the pause for them, so the
    stream is read again, from the last cursor, until their answers have been seen.
    """
    missing, over = set(answered), False
    for _ in range(READS_MAX):
        async with contextlib.aclosing(run.until_waiting(after, detailed=True)) as events:
            async for event in events:
                if isinstance(event, ApprovalResolved):
                    missing.discard(event.approval_id)
                after, over = event.cursor or after, event.is_end
                yield event
        if over or not missing:
            return
        await asyncio.sleep(STALE_READ_S)
