"""Read the events of a run that the log has now, as its stream shows them, without waiting for more."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ...eventlog.events import Event
from ...eventlog.ports import Family
from ...runtime import Runtime
from ...runtime.journal.journal import restored
from ...runtime.stream import FamilyView


class Snapshot:
    """The stored events of a run and of the runs below it."""

    def __init__(self, runtime: Runtime, run_id: str) -> None:
        self.waits = False
        """Once read: true if the run, or one below it, is in a pause that only somebody else ends."""
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
