"""Deadlocks of slots: holders that wait, directly or not, for each other's slots.

A run that holds a slot waits for the runs below it. If one of those needs a slot that is held by a family waiting for
this one, neither can go on. This happens when agents with limits start runs of each other, and when calls hold the slot
of their tool while they start runs that need it. A holder may also wait for what is above it: after a takeover its call
has to get its slot back before the driver runs it again.

The log does not record a deadlock. A waiter that has seen no change for some time searches for it: from the slots it
waits for, through their holders, to the slots that those wait for (`Search`). Slots are live if a holder needs nothing,
or only live slots; all others wait for ever (`stuck`). Every waiter that searches finds the same set, so they agree
without talking: the one that was submitted last gives way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import msgspec

from ...eventlog.events import SlotHolder, SlotsUpdated
from ...eventlog.names import run_subject
from ...eventlog.ports import Log
from ...projections.run_state import RunState
from ...projections.slots import next_in_line
from ..core.limits import limits_of
from ..journal.family import family_of
from ..journal.journal import Journal

Held = Mapping[str, Iterable[frozenset["Waiting"]]]
"""For each slots name, one entry per holder (or future holder): the slots it has to get before it can go on."""


class Waiting(msgspec.Struct, frozen=True, order=True):
    """A run waiting for its agent's slots, or a call (`call` not empty) waiting for its tool's: it needs `slots`."""

    submitted_at: float
    run: str
    call: str
    slots: str


def slots_name(agent: str) -> str:
    """Return the name of an agent's slots."""
    return f"agent:{agent}"


def call_slots_name(slot: str) -> str:
    """Return the name of the slots for a tool's `slot`."""
    return f"call:{slot}"


def limit_name(limit: str) -> str:
    """Return the name of the slots of a limit, such as `tool:print`."""
    return f"limit:{limit}"


def calls_that_need(state: RunState) -> Iterator[tuple[str, str]]:
    """Yield the slots that the open calls of a run may need, by the tool's `slot` and by limits: the call, the name."""
    for call in () if state.over else (*state.calls.values(), *state.planning.calls.values()):
        spec = state.tools.get(call.name)
        if call.result is not None or spec is None:
            continue
        if spec.slot is not None:
            yield call.id, call_slots_name(spec.slot)
        for limit in limits_of(spec):
            yield call.id, limit_name(limit)


def stuck(name: str, held: Held) -> frozenset[Waiting]:
    """Return everything that waits for ever because these slots are never freed; empty if they may be freed.

    Slots are live if one of their holders needs no slot, or only slots that are live themselves.
    """
    live: set[str] = set()
    while more := {slots for slots in held.keys() - live if _is_live(held[slots], live)}:
        live |= more
    if name in live:
        return frozenset()
    waits = (each for slots in held.keys() - live for needed in held[slots] for each in needed)
    return frozenset(each for each in waits if each.slots not in live)


def _is_live(holders: Iterable[frozenset[Waiting]], live: set[str]) -> bool:
    return any(all(each.slots in live for each in needed) for needed in holders)


class Search:
    """One search for a deadlock: the slots that can be reached from some, each read once."""

    def __init__(self, log: Log, read: Callable[[str], Awaitable[tuple[int, SlotsUpdated]]]) -> None:
        """`read` returns the position of slots, and their state."""
        self._log, self._read_slots = log, read
        self._slots: dict[str, SlotsUpdated] = {}
        self.positions: dict[str, int] = {}

    async def look(self, name: str) -> frozenset[Waiting]:
        """Return what waits for ever for these slots and those they lead to (`stuck`). Raises `LogUnavailable`."""
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
                if await self._is_in_line(run, call, slots)
            ]
        )

    async def _is_in_line(self, run: str, call: str, slots: str) -> bool:
        return any((each.run, each.call) == (run, call) for each in (await self._read(slots)).waiting)

    async def _read(self, slots: str) -> SlotsUpdated:
        if slots not in self._slots:
            self.positions[slots], self._slots[slots] = await self._read_slots(slots)
        return self._slots[slots]


def _lines(journal: Journal) -> Iterator[tuple[str, str]]:
    """Yield the places where the run may wait in line: its call, empty for the run itself, and the slots' name."""
    state = journal.state
    if state.runnable and state.owner is None and journal.rules.runs_max is not None:
        yield "", slots_name(state.agent)
    yield from calls_that_need(state)


def _needs(holder: SlotHolder, family: Mapping[str, Journal], run: str, call: str) -> bool:
    """Return whether the holder waits for this run or call: it is below the holder, or drives it from above."""
    if any(above == holder.run and holder.call in {"", by} for above, by in _way_up(family, run)):
        return True
    if call and (run, "") == (holder.run, holder.call):
        return True
    above = _way_up(family, holder.run)
    return (run, call) in above if call else run in {each for each, _ in above}


def _way_up(family: Mapping[str, Journal], run: str) -> list[tuple[str, str]]:
    """Return the runs above a run, nearest first, each with the call that leads to it, empty for a node."""
    found: list[tuple[str, str]] = []
    while run in family and (submitted := family[run].state.submitted) and (parent := submitted.parent):
        found.append((parent.run, parent.tool_call_id or ""))
        run = parent.run
    return found
