"""Who holds a slot and waits, in its family, for slots that are held in the same way: one gives way.

Runs with limits that start runs of each other get there, and calls that hold the slot of their tool while they start
runs which need one. A holder waits for what is below it; and after a takeover, when its call has to get its slot again,
for what drives it from above. Nothing in the log says so by itself: it is found out by who has waited for a while and
seen no change. All who look find the same; what was submitted last gives way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import msgspec

from ...eventlog.events import SlotHolder, SlotsUpdated
from ...eventlog.names import run_subject
from ...eventlog.ports import Log
from ...projections.run_state import RunState
from ...projections.slots import next_in_line
from ..journal.family import family_of
from ..journal.journal import Journal

Held = Mapping[str, Iterable[frozenset["Waiting"]]]
"""By the name of the slots, for each that holds one, or could: what has to get a slot before it can go on."""


class Waiting(msgspec.Struct, frozen=True, order=True):
    """A run in line for its agent's slots, or a call (`call` not empty) for its tool's: it waits for `slots`."""

    submitted_at: float
    run: str
    call: str
    slots: str


def slots_name(agent: str) -> str:
    """The name of an agent's slots."""
    return f"agent:{agent}"


def call_slots_name(slot: str) -> str:
    """The name of the slots behind a tool's `slot`."""
    return f"call:{slot}"


def calls_that_need(state: RunState) -> Iterator[tuple[str, str]]:
    """The open calls of a run whose tools name a slot: the call's id, and the slot."""
    for call in () if state.over else (*state.calls.values(), *state.planning.calls.values()):
        spec = state.tools.get(call.name)
        if call.result is None and spec is not None and spec.slot is not None:
            yield call.id, spec.slot


def stuck(name: str, held: Held) -> frozenset[Waiting]:
    """What waits for ever, if these slots are never free again; empty if they may be.

    Slots move that somebody holds who needs none, or slots only that move.
    """
    moving: set[str] = set()
    while more := {slots for slots in held.keys() - moving if _moves(held[slots], moving)}:
        moving |= more
    if name in moving:
        return frozenset()
    waits = (each for slots in held.keys() - moving for needed in held[slots] for each in needed)
    return frozenset(each for each in waits if each.slots not in moving)


def _moves(holders: Iterable[frozenset[Waiting]], moving: set[str]) -> bool:
    return any(all(each.slots in moving for each in needed) for needed in holders)


class Search:
    """One look at who waits for whom: the slots that can be reached from some, each read once."""

    def __init__(self, log: Log, read: Callable[[str], Awaitable[tuple[int, SlotsUpdated]]]) -> None:
        """`read` gives the position of slots, and what they hold."""
        self._log, self._read_slots = log, read
        self._slots: dict[str, SlotsUpdated] = {}
        self.positions: dict[str, int] = {}

    async def look(self, name: str) -> frozenset[Waiting]:
        """What waits for ever for these slots, and those behind them (`stuck`). Raises `LogUnavailable`."""
        held: dict[str, list[frozenset[Waiting]]] = {}
        todo = [name]
        while todo:
            slots = todo.pop()
            if slots not in held:
                held[slots] = await self._holders(slots)
                todo += [each.slots for needed in held[slots] for each in needed]
        return stuck(name, held)

    async def _holders(self, slots: str) -> list[frozenset[Waiting]]:
        now = await self._read(slots)
        if next_in_line(now) or not now.holders:
            return [frozenset()]
        return [await self._waits_of(holder) for holder in now.holders]

    async def _waits_of(self, holder: SlotHolder) -> frozenset[Waiting]:
        root = holder.root or holder.run
        family = await family_of(Journal(self._log, run_subject(holder.shard, root, root)))
        return frozenset(
            [
                Waiting(journal.state.submitted_at, run, call, slots)
                for run, journal in family.items()
                for call, slots in _lines(journal)
                if _needs(holder, family, run, call)
                if await self._stands_in_line(run, call, slots)
            ]
        )

    async def _stands_in_line(self, run: str, call: str, slots: str) -> bool:
        return any((each.run, each.call) == (run, call) for each in (await self._read(slots)).waiting)

    async def _read(self, slots: str) -> SlotsUpdated:
        if slots not in self._slots:
            self.positions[slots], self._slots[slots] = await self._read_slots(slots)
        return self._slots[slots]


def _lines(journal: Journal) -> Iterator[tuple[str, str]]:
    """Where the run may stand in line: its call, empty for itself, and the name of the slots."""
    state = journal.state
    if state.runnable and state.owner is None and journal.rules.runs_max is not None:
        yield "", slots_name(state.agent)
    for call, slot in calls_that_need(state):
        yield call, call_slots_name(slot)


def _needs(holder: SlotHolder, family: Mapping[str, Journal], run: str, call: str) -> bool:
    """Return whether the holder goes on only when this run or call does: it is below it, or drives it from above."""
    if any(above == holder.run and holder.call in {"", by} for above, by in _way_up(family, run)):
        return True
    if call and (run, "") == (holder.run, holder.call):
        return True
    above = _way_up(family, holder.run)
    return (run, call) in above if call else run in {each for each, _ in above}


def _way_up(family: Mapping[str, Journal], run: str) -> list[tuple[str, str]]:
    """The runs above a run, the nearest first, each with the call that leads to it, empty for a node."""
    found: list[tuple[str, str]] = []
    while run in family and (submitted := family[run].state.submitted) and (parent := submitted.parent):
        found.append((parent.run, parent.tool_call_id or ""))
        run = parent.run
    return found
