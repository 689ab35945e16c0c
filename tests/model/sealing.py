"""An explicit-state model of erasing a key: what is sealed under it is unreadable for good, and nothing waits for it.

Parties: two submitters of one owner, each with a run of its own; a worker; a process without the wrapping key; who
erases the key; who rotates the wrapping key; who imports an export of before. One action is one atomic step of one
party; a record of keys is stored at the position that was read. Any party may die at any step, and forget what it has
read. Every reachable state is visited.

A submitter: read the record; make a key if there is none; append the submission under it. The worker: read the run;
open its key, or take it from memory; append the end, under the same key. If the key was erased, it cancels the run from
outside. Who erases: look that no run is open; read the record; store it without the key. Who rotates: read the record;
store the same key again, under another wrapping key. Who imports: store the key of the export where there is no record.

What must hold:
  revived   an erased key is never stored again
  mixed     all of a run is sealed under one key
  clear     nothing is stored that is not sealed
  ends      from every state, without further faults, every run is over
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    condition: bool = True
    """A record is stored at the position that was read."""
    erased_noted: bool = True
    """The record of an erased key stays, without the key."""
    family_key: bool = True
    """A worker that continues a run uses the key with which it began, not the one that its owner has now."""
    cancels: bool = True
    """A worker that is woken for a run whose key was erased cancels it."""
    refuses: bool = True
    """A process without the wrapping key writes nothing."""


class Record(NamedTuple):
    """The owner's record as stored at a position; 0: there is none. `key` 0: none. Keys are counted from 1."""

    position: int = 0
    key: int = 0
    erased: int = 0


class Run(NamedTuple):
    """A run: none, open, over; and the keys under which its commits are sealed."""

    at: str = "none"
    keys: frozenset[int] = frozenset()


class State(NamedTuple):
    """`submitters`, `worker`, `eraser` and `rotator` have what they read, null while idle."""

    record: Record = Record()
    runs: tuple[Run, Run] = (Run(), Run())
    submitters: tuple[Record | None, Record | None] = (None, None)
    worker: tuple[int, int] | None = None
    """The run that it has opened, and the key that it uses for it."""
    eraser: Record | None = None
    rotator: Record | None = None
    gone: int = 0
    """The highest key that was erased."""
    erasures: int = 1
    rotations: int = 1
    imports: int = 1
    faults: int = 2
    bad: str = ""


def _stored(state: State, read: Record, record: Record, rules: Rules) -> State | None:
    """Store a record at the position that was read; null for a conflict."""
    if rules.condition and state.record.position != read.position:
        return None
    revived = "revived" if record.key and record.key <= state.gone else ""
    placed = record._replace(position=state.record.position + 1)
    return state._replace(record=placed, bad=state.bad or revived)


def _with_run(state: State, number: int, run: Run) -> State:
    mixed = "mixed" if len(run.keys) > 1 else ""
    runs = (run, state.runs[1]) if number == 0 else (state.runs[0], run)
    return state._replace(runs=runs, bad=state.bad or mixed)


def _submitters(state: State, rules: Rules) -> Iterator[State]:
    for number, read in enumerate(state.submitters):
        others = state.submitters[1 - number]

        def at(
            state: State, read: Record | None, number: int = number, others: Record | None = others
        ) -> State:
            pair = (read, others) if number == 0 else (others, read)
            return state._replace(submitters=pair)

        if state.runs[number].at != "none":
            continue
        if read is None:
            yield at(state, state.record)
        elif not read.key:
            made = _stored(state, read, Record(0, read.erased + 1, read.erased), rules)
            yield at(state, None) if made is None else at(made, made.record)
        else:  # by now another may have erased it
            yield at(_with_run(state, number, Run("open", frozenset({read.key}))), None)


def _worker(state: State, rules: Rules) -> Iterator[State]:
    if state.worker is not None:
        number, key = state.worker
        run = state.runs[number]
        if run.at == "open":
            yield _with_run(state, number, Run("over", run.keys | {key}))._replace(worker=None)
        else:
            yield state._replace(worker=None)
        return
    for number, run in enumerate(state.runs):
        if run.at != "open":
            continue
        key = max(run.keys) if rules.family_key else state.record.key or max(run.keys)
        if key == state.record.key:
            yield state._replace(worker=(number, key))
        elif rules.cancels:  # from outside: nothing of its content is read or written
            yield _with_run(state, number, run._replace(at="over"))


def _stranger(state: State, rules: Rules) -> Iterator[State]:
    """A process without the wrapping key is woken for a run."""
    if not rules.refuses and any(run.at == "open" for run in state.runs):
        yield state._replace(bad=state.bad or "clear")


def _keepers(state: State, rules: Rules) -> Iterator[State]:
    if state.eraser is not None:
        kept = Record(0, 0, state.eraser.key)
        after = _stored(state, state.eraser, kept, rules)
        if after is None:
            yield state._replace(eraser=None)
        else:
            gone = max(state.gone, state.eraser.key)
            record = after.record if rules.erased_noted else Record()
            yield after._replace(record=record, gone=gone, eraser=None, erasures=state.erasures - 1)
    elif state.erasures and state.record.key and all(run.at != "open" for run in state.runs):
        yield state._replace(eraser=state.record)
    if state.rotator is not None:
        after = _stored(state, state.rotator, state.rotator, rules)
        yield (after or state)._replace(rotator=None)
    elif state.rotations and state.record.key:
        yield state._replace(rotator=state.record, rotations=state.rotations - 1)
    if state.imports and not state.record.position:  # the export has the first key
        after = _stored(state, state.record, Record(0, 1, 0), rules)
        if after is not None:
            yield after._replace(imports=0)


def _faults(state: State) -> Iterator[State]:
    """A party dies, and begins again."""
    if not state.faults:
        return
    less = state._replace(faults=state.faults - 1)
    for number, read in enumerate(state.submitters):
        if read is not None:
            others = state.submitters[1 - number]
            yield less._replace(submitters=(None, others) if number == 0 else (others, None))
    if state.worker is not None:
        yield less._replace(worker=None)
    if state.eraser is not None:
        yield less._replace(eraser=None)
    if state.rotator is not None:
        yield less._replace(rotator=None)


def check(rules: Rules) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(),
        lambda state: [
            *_submitters(state, rules),
            *_worker(state, rules),
            *_stranger(state, rules),
            *_keepers(state, rules),
        ],
        _faults,
        lambda state: all(run.at == "over" for run in state.runs),
    )
