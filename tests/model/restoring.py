"""An explicit-state model of a restore: what was open in the backup does nothing before a person says so.

The world outside went on after the backup, so a run that is open in it may have paid since. Parties: a restorer, and
another one after it dies; a worker that has waited for the namespace, with the wake-up that came back with it; a
submitter with the run's key; a person, who looks at what was done outside and then lets the run go on. One action is
one atomic step of one party. The restorer and the worker may die at any step. Every reachable state is visited.

A restorer: remove what another one has left; load the streams behind a gate; hold the open run; record its key, which
the backup may lack; open the gate. A read of the restorer may come from a replica that shows nothing yet.

What must hold:
  twice     what was paid after the backup is not paid again unasked, and the key starts no second run
  ends      from every state, without further faults, the namespace is open, and the run is over
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    gate: bool = True
    """Nobody else can write before the gate is open."""
    hold_first: bool = True
    """The run is held before the gate is opened."""
    key_first: bool = True
    """The key is recorded before the gate is opened."""
    read_to_end: bool = True
    """A read counts only if it shows all that was restored."""
    leftovers: bool = True
    """The remains of a restorer that died are removed, and everything is done again."""


class State(NamedTuple):
    """`run`: absent, open, held, resumed, over. `step`: the restorer's next one. `paid`: how often, outside."""

    run: str = "absent"
    key: bool = False
    gate: str = "none"
    step: str = "begin"
    worker: str = "idle"
    submits: int = 1
    paid: int = 1
    looked: bool = False
    faults: int = 2
    bad: str = ""


def _restorer(state: State, rules: Rules) -> Iterator[State]:
    match state.step:
        case "begin" if state.run != "absent" and not rules.leftovers:
            yield state._replace(step="open")  # it takes them for a namespace that is restored
        case "begin":
            yield state._replace(run="absent", key=False, gate="none", worker="idle", step="load")
        case "load":
            first = "hold" if rules.hold_first else "open"
            yield state._replace(run="open", gate="shut" if rules.gate else "open", step=first)
        case "hold":
            if not rules.read_to_end:
                yield state._replace(step="key")  # a replica shows no run to hold
            held = "held" if state.run in {"open", "resumed"} else state.run
            yield state._replace(run=held, step="key" if rules.key_first else "open")
        case "key":
            yield state._replace(key=True, step="open" if rules.hold_first and rules.key_first else "done")
        case "open":
            late = "hold" if not rules.hold_first else "key" if not rules.key_first else "done"
            yield state._replace(gate="open", step=late)
        case _:
            pass


def _others(state: State) -> Iterator[State]:
    is_open = state.gate == "open"
    if state.worker == "idle" and is_open and state.run in {"open", "resumed"}:
        yield state._replace(worker="pay")
    if state.worker == "pay":
        if state.run == "resumed" and state.looked:  # who looked has settled the call: it is done
            yield state._replace(worker="end")
        else:
            yield state._replace(worker="end", paid=state.paid + 1, bad=state.bad or "twice")
    if state.worker == "end":
        yield state._replace(worker="idle", run="over" if is_open else state.run)
    if state.run == "held" and is_open:
        yield state._replace(run="resumed", looked=True)
    if state.submits and is_open:
        found = state.key
        yield state._replace(submits=state.submits - 1, bad=state.bad if found else state.bad or "twice")


def _faults(state: State) -> Iterator[State]:
    if not state.faults:
        return
    less = state._replace(faults=state.faults - 1)
    if state.step not in {"begin", "done"}:
        yield less._replace(step="begin" if state.gate != "open" else "done")
    if state.worker != "idle":
        yield less._replace(worker="idle")


def check(rules: Rules) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(),
        lambda state: [*_restorer(state, rules), *_others(state)],
        _faults,
        lambda state: state.step == "done" and state.run == "over" and state.worker == "idle",
    )
