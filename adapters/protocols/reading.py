"""Read the events of a run that the log has now, as its stream shows them, without waiting for more."""

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
"""The number of reads of a replica that lags; an approval that was revoked is never seen answered."""


class Snapshot:
    """The stored events of a run and of the runs below it."""

    def __init__(self, runtime: Runtime, run_id: str) -> None:
        self.waits = False
        """Once read: true if the run, or one below it, is in a pause that only another party ends."""
        self._runtime, self._run_id = runtime, run_id

    async def events(self) -> AsyncGenerator[Event]:
        """Yield all of them. Raises `RunNotFound`, `LogCorrupted`."""
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
    """Yield the detailed events of a run up to its end, or to a pause that is open once these approvals are answered.

    A replica that lags shows the pause that was just answered: it is read again, from where it was left.
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
