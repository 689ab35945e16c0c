"""An explicit-state model of erasing a run: first a copy, if one is wanted, then a tombstone, then the purge.

Parties: two reapers, which erase an ended run; a submitter with the run's key; a reader of the session; a timer, which
becomes a wake-up for a worker. One action is one atomic step of one party; an append carries the position that was read
as its condition. Any party may die at any step. Every reachable state is visited.

A reaper: read; store the copy, unless it exists, and read it back; append `buried` at the position of the last commit,
together with a timer; purge what is before it; cancel the timer. A worker with the timer's wake-up purges, then
acknowledges. The key's record says that the run was stored; it is dropped when the tombstone is old.

What must hold:
  twice     the run is executed once, however often its submission is repeated
  lost      nothing is purged without a copy and a tombstone
  wedged    the session's reader always finds the run or its tombstone
  ends      from every state, without further faults, everything before the tombstone is purged
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    tombstone_first: bool = True
    """The tombstone is stored before anything is purged, and the purge ends below it."""
    copy_first: bool = True
    """The copy is stored, and was read back, before the tombstone."""
    key_kept: bool = True
    """The key's record stays when its run is purged."""
    condition: bool = True
    """The tombstone is appended at the position that was read."""
    timer: bool = True
    """A timer is stored together with the tombstone."""


class State(NamedTuple):
    """`log`: the run's last commit: terminal, buried, new (executed again), none. `below`: is there more before it."""

    log: str = "terminal"
    below: bool = True
    copy: bool = False
    key: bool = True
    timer: str = "none"
    reapers: tuple[str, ...] = ("idle", "idle")
    worker: str = "idle"
    submitter: str = "idle"
    executed: int = 1
    submits: int = 2
    tries: int = 3
    faults: int = 2
    bad: str = ""


def _reapers(state: State, rules: Rules) -> Iterator[State]:
    for number, at in enumerate(state.reapers):
        for after, step in _reaper(state, at, rules):
            reapers = (*state.reapers[:number], step, *state.reapers[number + 1 :])
            yield after._replace(reapers=reapers)


def _reaper(state: State, at: str, rules: Rules) -> Iterator[tuple[State, str]]:  # noqa: C901 - one case each
    first = "copy" if rules.copy_first else "bury"
    if not rules.tombstone_first:
        first = "purge all"
    match at:
        case "idle" if state.tries and state.log == "terminal":
            yield state._replace(tries=state.tries - 1), first
        case "idle" if state.tries and state.log == "buried" and state.below:
            yield state._replace(tries=state.tries - 1), "purge"
        case "copy":
            yield state._replace(copy=True), "bury"
        case "bury" if state.log == "terminal" or (state.log == "buried" and not rules.condition):
            doubled = "twice" if state.log == "buried" else ""
            timer = "set" if rules.timer else "none"
            yield state._replace(log="buried", timer=timer, bad=state.bad or doubled), "purge"
        case "bury":  # a conflict: read again
            yield state, "idle"
        case "purge":
            yield _purged(state, rules), "copy late" if not rules.copy_first else "cancel"
        case "copy late":
            yield state, "cancel"  # there is nothing left to copy
        case "cancel":
            yield state._replace(timer="none" if state.timer == "set" else state.timer), "idle"
        case "purge all":
            gone = "none" if state.log == "terminal" else state.log
            yield _purged(state, rules)._replace(log=gone), "bury at 0"
        case "bury at 0":
            yield state._replace(log="buried" if state.log == "none" else state.log), "idle"
        case _:
            pass


def _purged(state: State, rules: Rules) -> State:
    lost = "lost" if state.below and not state.copy else ""
    key = state.key and rules.key_kept
    return state._replace(below=False, key=key, bad=state.bad or lost)


def _others(state: State, rules: Rules) -> Iterator[State]:
    if state.timer == "set":
        yield state._replace(timer="due")
    if state.timer == "due" and state.worker == "idle":
        yield state._replace(timer="held", worker="purge")
    if state.worker == "purge":
        yield _purged(state, rules)._replace(worker="ack")
    if state.worker == "ack":
        yield state._replace(timer="none", worker="idle")
    if state.log == "none":
        yield state._replace(
            bad=state.bad or "wedged"
        )  # the session's reader finds neither run nor tombstone
    yield from _submitter(state)


def _submitter(state: State) -> Iterator[State]:
    if state.submitter == "idle" and state.submits:
        less = state._replace(submits=state.submits - 1)
        # without a record the key is new, and so is the run's id
        yield less._replace(submitter="find" if state.key else "start")
    if state.submitter == "find":
        if state.log == "none":  # the id is free: it is stored at 0
            yield state._replace(submitter="start")
        else:  # the run, or its tombstone
            yield state._replace(submitter="idle")
    if state.submitter == "start":
        executed = state.executed + 1
        yield state._replace(submitter="idle", executed=executed, bad=state.bad or "twice")


def _faults(state: State) -> Iterator[State]:
    """A party dies: a wake-up that it held is delivered again, and the party starts again."""
    if not state.faults:
        return
    less = state._replace(faults=state.faults - 1)
    for number, at in enumerate(state.reapers):
        if at != "idle":
            reapers = (*state.reapers[:number], "idle", *state.reapers[number + 1 :])
            yield less._replace(reapers=reapers, tries=state.tries)
    if state.worker != "idle":
        yield less._replace(worker="idle", timer="due")
    if state.submitter != "idle":
        yield less._replace(submitter="idle")


def check(rules: Rules) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(),
        lambda state: [*_reapers(state, rules), *_others(state, rules)],
        _faults,
        lambda state: state.reapers == ("idle", "idle") and not (state.log == "buried" and state.below),
    )
