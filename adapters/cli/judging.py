"""Check the ordering rules on a log followed from any position: a family's earlier events are read on demand."""

from __future__ import annotations

import contextlib

from ...eventlog.commits import Chain, as_read
from ...eventlog.errors import LogCorrupted, RunNotFound
from ...eventlog.events import Buried, Event
from ...eventlog.offload import outline_of
from ...eventlog.ports import Log
from ...replay import Monitor
from ...replay.traces.trace import family_of, find_run
from ..telemetry import Violated

FINISHED_MAX = 1_000
"""The number of finished families that are remembered."""


class Judge:
    """Checks the events of a namespace, fed in log order. Violations by earlier events are not reported."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._seen: set[str] = set()
        self._monitor = Monitor(FINISHED_MAX, self._seen.discard)

    async def __call__(self, event: Event) -> list[Violated]:
        """Return the rules that the event breaks. Raises `LogUnavailable`."""
        root = event.root_id
        if root not in self._seen and not isinstance(event, Buried):
            self._seen.add(root)
            if event.run_id != root or event.revision != 1:
                with contextlib.suppress(RunNotFound, LogCorrupted):  # erased; or reported elsewhere
                    await self._catch_up(event)
        return [
            Violated(rule=each.rule, message=each.message) for each in self._monitor.feed(outline_of(event))
        ]

    async def _catch_up(self, event: Event) -> None:
        """Feed the events that the family stored before this one."""
        chain = Chain()
        async for stored in self._log.events.read(family_of(await find_run(self._log, event.root_id))):
            for each in as_read(chain.verify(stored)):
                if (each.run_id, each.revision) == (event.run_id, event.revision):
                    return
                self._monitor.feed(outline_of(each))
