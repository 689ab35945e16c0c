"""An explicit-state model of a line for slots in which several priorities have their turns (W64).

The slots change by the functions that workers use. A run comes when its wake-up is delivered: it takes a slot, or a
place in line, and its worker acknowledges. A worker may die before that. A run that ends wakes those for whom there is
room.

What must hold:
  ends     from every state all runs come to an end without further faults, so no free slot is forgotten
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from foldlog.eventlog import SlotsUpdated, SlotWaiter
from foldlog.eventlog.priorities import Priority
from foldlog.projections.slots import is_waiting, next_in_line, with_taken, with_waiting, without

from tests.model.explore import explore


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    ends_wake: bool = True
    """A run that ends wakes those for whom there is room now."""


SLOTS = 2
RUNS: dict[str, Priority] = {
    "b1": "background",
    "u1": "urgent",
    "u2": "urgent",
    "n1": "normal",
}
"""The runs, in the order of their submission."""
_DECODER, _ENCODER = msgspec.msgpack.Decoder(SlotsUpdated), msgspec.msgpack.Encoder(order="sorted")


class State(NamedTuple):
    """The slots; the runs that are not submitted yet; those with a wake-up; and those that are over."""

    slots: bytes
    later: frozenset[str] = frozenset(RUNS)
    woken: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()
    faults: int = 0
    bad: str = ""


def _waiter(run: str) -> SlotWaiter:
    at = float(list(RUNS).index(run))
    return SlotWaiter(
        run=run, shard=0, revision=1, agent="a", runs_max=SLOTS, submitted_at=at, priority=RUNS[run]
    )


def _next(slots: SlotsUpdated) -> frozenset[str]:
    return frozenset(each.run for each in next_in_line(slots))


def _steps(state: State, rules: Rules) -> Iterator[State]:
    yield from (
        state._replace(later=state.later - {run}, woken=state.woken | {run}) for run in sorted(state.later)
    )
    yield from (_come(state, run, dies=False) for run in sorted(state.woken))
    slots = _DECODER.decode(state.slots)
    for holder in slots.holders:
        after = without(slots, holder, 2)
        woken = state.woken | (_next(after) if rules.ends_wake else frozenset())
        yield state._replace(
            slots=_ENCODER.encode(after), woken=woken - {holder.run}, over=state.over | {holder.run}
        )


def _faults(state: State) -> Iterator[State]:
    if not state.faults:
        yield from (_come(state, run, dies=True)._replace(faults=1) for run in sorted(state.woken))


def _come(state: State, run: str, *, dies: bool) -> State:
    """Return the state after a wake-up of the run, whose worker may die before it acknowledges."""
    slots, who = _DECODER.decode(state.slots), _waiter(run)
    if run not in state.over:
        after = with_taken(slots, who)
        if after is None:
            after = slots if is_waiting(slots, who) else with_waiting(slots, who)
        assert after is not None
        slots = after
    return state._replace(slots=_ENCODER.encode(slots), woken=state.woken if dies else state.woken - {run})


def check(rules: Rules, owed: dict[Priority, int]) -> tuple[str, int]:
    """Return the property that is broken, empty for none, and the number of states.

    `owed` is what the priorities are owed at first, from runs that came before.
    """
    return explore(
        State(_ENCODER.encode(SlotsUpdated(name="agent:a", turns=owed))),
        lambda state: _steps(state, rules),
        _faults,
        lambda state: len(state.over) == len(RUNS),
    )
