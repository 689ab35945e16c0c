"""An explicit-state model of one outcome for a key (W43): of two calls with one key, in two runs, one acts.

Each call belongs to a run that a driver drives. A driver reads the register of the key, then the log of the call that
owns it, and decides. One action is one atomic step; reading and appending are separate, and an append carries what was
read as its condition. A driver that dies is replaced by another, which knows only the logs. A run may be cancelled at
any time. An unsafe call stores its start before it acts; a start whose driver died is settled by its result.

What must hold:
  twice    the key is acted on once
  other    a call that gets an outcome gets that of the call that acted
  ends     from every state both calls come to an end without further faults
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    recorded_first: bool = True
    """The key is recorded before the call starts."""
    condition: bool = True
    """The record is stored under the condition of the register that was read."""
    knows_itself: bool = True
    """A driver that finds its own call in the register goes on with it."""
    waits: bool = True
    """A twin of a call that may still start waits for it."""
    sees_starts: bool = True
    """A key is taken over only from a call that never started."""
    takes_over: bool = True
    """A key is taken over from a call that is over without a start."""


class Run(NamedTuple):
    """A run's log: whether its call started, has a result (of which call), and whether it is over."""

    started: bool = False
    result: int | None = None
    over: bool = False
    step: str = "read"
    """The part of the driver that is next: read, look, record, start, act, settle, done."""
    seen: tuple[int, int] = (0, -1)
    """The register as the driver read it: its revision, and the owner; -1 for none."""


class State(NamedTuple):
    """`owner` has the key, at `revision` of the register; `acts` is how often the key was acted on, `actor` by whom."""

    runs: tuple[Run, Run] = (Run(), Run())
    owner: int = -1
    revision: int = 0
    acts: int = 0
    actor: int = -1
    faults: int = 0
    bad: str = ""


def _with(state: State, number: int, **changes: object) -> State:
    runs = list(state.runs)
    runs[number] = runs[number]._replace(**changes)  # type: ignore[arg-type] # the fields of a run
    return state._replace(runs=(runs[0], runs[1]))


def _driver(state: State, number: int, rules: Rules) -> Iterator[State]:
    run = state.runs[number]
    if run.over or run.step == "done":
        return
    match run.step:
        case "read":
            yield _with(state, number, seen=(state.revision, state.owner), step="look")
        case "look":
            yield from _look(state, number, rules)
        case "record":
            yield from _record(state, number, rules)
        case "start":
            yield _with(state, number, started=True, step="act")
        case "act":
            acted = state._replace(acts=state.acts + 1, actor=number, bad="twice" if state.acts else "")
            yield _with(acted, number, step="settle")
        case "settle":
            yield _with(state, number, result=number, step="done")
        case _:
            pass


def _look(state: State, number: int, rules: Rules) -> Iterator[State]:
    """Decide by the register as read, and by the log of the owner as it is now."""
    _revision, owner = state.runs[number].seen
    if owner == -1:
        yield _with(state, number, step="record" if rules.recorded_first else "start")
        return
    if owner == number and rules.knows_itself:
        yield _with(state, number, step="start")
        return
    twin = state.runs[owner]
    if twin.result is not None and twin.started:
        wrong = "" if state.actor in {-1, twin.result} else "other"
        yield _with(state, number, result=twin.result, step="done")._replace(bad=wrong)
    elif (not twin.over and twin.result is None) and rules.waits:
        yield _with(state, number, step="read")
    elif (
        twin.started and rules.sees_starts
    ):  # over in the middle of its attempt: nobody knows, so nobody repeats it
        yield _with(state, number, step="done")
    elif rules.takes_over or not twin.over:
        yield _with(state, number, step="record")
    else:
        yield _with(state, number, step="read")


def _record(state: State, number: int, rules: Rules) -> Iterator[State]:
    revision, _owner = state.runs[number].seen
    if revision != state.revision and rules.condition:
        yield _with(state, number, step="read")
    else:
        stored = state._replace(owner=number, revision=state.revision + 1)
        yield _with(stored, number, step="start" if rules.recorded_first else "done")


def _faults(state: State) -> Iterator[State]:
    """A driver dies, and another begins; or the run is cancelled, whatever its driver was about to do."""
    if not state.faults:
        return
    less = state._replace(faults=state.faults - 1)
    for number, run in enumerate(state.runs):
        if run.over or run.step == "done":
            continue
        yield _with(less, number, over=True)
        yield _with(less, number, step="settle" if run.started else "read")


def check(rules: Rules, *, faults: int = 3) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(faults=faults),
        lambda state: [each for number in (0, 1) for each in _driver(state, number, rules)],
        _faults,
        lambda state: all(run.over or run.step == "done" for run in state.runs),
    )
