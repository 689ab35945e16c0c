"""The timeline of a family, from its events in log order: one fold, of a stored run and of one that is followed."""

from __future__ import annotations

from collections.abc import Iterable

from ...eventlog.events import Event, Submitted
from .bars import Bar, BarFold
from .rows import Row, RowFold


class TimelineFold:
    """The rows and bars of a family, event by event."""

    def __init__(self) -> None:
        self._rows, self._bars = RowFold(), BarFold()

    def add(self, event: Event) -> tuple[Row, list[Bar]]:
        """Return the row of an event, and the bars that it begins or changes."""
        return self._rows.add(event), self._bars.add(event)

    @property
    def bars(self) -> list[Bar]:
        """All bars so far, in the order in which they began."""
        return list(self._bars.bars.values())


def below(run: str, events: Iterable[Event]) -> list[Event]:
    """Return the events of a family that belong to a run or to a run below it."""
    members, kept = {run}, []
    for event in events:
        if isinstance(event, Submitted) and event.parent is not None and event.parent.run in members:
            members.add(event.run_id)
        if event.run_id in members:
            kept.append(event)
    return kept
