"""Runs that hold slots and wait, through those below them, for the slots of each other: one of those below gives way.

Agents with limits that start runs of each other get there. Nothing in the log says so by itself: it is found out by
who has waited for a while and seen no change. All who look find the same runs; the one that was submitted last fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from ..eventlog.events import SlotHolder, SlotsUpdated
from ..eventlog.names import run_subject
from ..eventlog.ports import Log
from ..projections.slots import next_in_line
from .journal import Journal
from .waking import ancestors, family_of


class Waiting(msgspec.Struct, frozen=True, order=True):
    """A run below one that holds a slot: when it was submitted, its id, and the slots that it stands in line for."""

    submitted_at: float
    run: str
    slots: str


class Search:
    """One look at who waits for whom. `waiting` are the runs that were found to wait for what does not move."""

    def __init__(
        self, log: Log, name_of: Callable[[str], str], read: Callable[[str], Awaitable[SlotsUpdated]]
    ) -> None:
        self._log, self._name_of, self._read = log, name_of, read
        self._seen: set[str] = set()
        self.waiting: set[Waiting] = set()

    async def moves(self, slots: str) -> bool:
        """Whether one of these slots is free, or held by a run that does not wait for itself."""
        now = await self._read(slots)
        if list(next_in_line(now)) or not now.holders:
            return True
        for holder in now.holders:
            if holder.run not in self._seen:
                self._seen.add(holder.run)
                if holder.call or await self._goes_on(holder):
                    return True
        return False

    async def _goes_on(self, holder: SlotHolder) -> bool:
        """A run goes on that waits for nothing, or for slots only that move."""
        for each in await self._below(holder):
            if not await self.moves(each.slots):
                self.waiting.add(each)
                return False
        return True

    async def _below(self, holder: SlotHolder) -> list[Waiting]:
        root = holder.root or holder.run
        family = await family_of(Journal(self._log, run_subject(holder.shard, root, root)))
        found: list[Waiting] = []
        for run, journal in family.items():
            state = journal.state
            waits = state.runnable and state.owner is None and journal.rules.runs_max is not None
            if waits and holder.run in ancestors(family, run):
                slots = self._name_of(state.agent)
                if any(each.run == run for each in (await self._read(slots)).waiting):
                    found.append(Waiting(state.submitted_at, run, slots))
        return found
