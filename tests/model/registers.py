"""An explicit-state model of what people keep in registers: stored agents (W57), plans (W63) and tokens (W62).

Two writers change one record. Each reads, decides and appends; a read may be of a replica that is behind, an append may
stay without an answer, and a writer may die, after which another repeats its change, which knows only the log. With
`expects`, a change is made from the empty record, as one with `version=0`; without, as the call of a run, which changes
whatever is there. A reader asks whether there is anything.

What must hold:
  lost     no change is stored over one that its writer has not seen
  twice    no change is stored twice
  denied   nobody is refused because of its own change
  unseen   nothing is said not to be there that was there when it was asked for
  ends     from every state all come to an end without further faults
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    condition: bool = True
    """An append is only taken at the position that was read."""
    knows_itself: bool = True
    """A writer looks for its own change before it changes anything."""
    last_position: bool = True
    """Absence is only reported of the last position."""


class Writer(NamedTuple):
    """A writer: what it does next (read, decide, append, done), and how much of the log it has read."""

    step: str = "read"
    seen: int = 0


class State(NamedTuple):
    """`log` are the changes by their writers. `asked` is how much there was when the reader asked; -1: it has not."""

    log: tuple[int, ...] = ()
    writers: tuple[Writer, Writer] = (Writer(), Writer())
    asked: int = -1
    answered: bool = False
    faults: int = 0
    bad: str = ""


def _with(state: State, number: int, writer: Writer) -> State:
    writers = list(state.writers)
    writers[number] = writer
    return state._replace(writers=(writers[0], writers[1]))


def _write(state: State, number: int, rules: Rules, *, expects: bool) -> Iterator[State]:
    writer, log = state.writers[number], state.log
    known = log[: writer.seen]
    match writer.step:
        case "read":  # a replica may have any part of it
            for seen in range(len(log) + 1):
                yield _with(state, number, Writer("decide", seen))
        case "decide" if number in known and rules.knows_itself:
            yield _with(state, number, Writer("done"))
        case "decide" if known and expects:
            yield _with(state, number, Writer("done"))._replace(bad="denied" if number in log else "")
        case "decide":
            yield _with(state, number, Writer("append", writer.seen))
        case "append" if rules.condition and writer.seen != len(log):
            yield _with(state, number, Writer())
        case "append":
            bad = "twice" if number in log else "lost" if writer.seen != len(log) else ""
            stored = state._replace(log=(*log, number), bad=bad)
            yield _with(stored, number, Writer("done"))
        case _:
            pass


def _ask(state: State, rules: Rules) -> Iterator[State]:
    if state.asked < 0:
        yield state._replace(asked=len(state.log))
        return
    if state.answered:
        return
    for seen in range(len(state.log) + 1):
        if seen:
            yield state._replace(answered=True)
        elif not rules.last_position or not state.log:
            yield state._replace(answered=True, bad="unseen" if state.asked else "")


def _faults(state: State) -> Iterator[State]:
    """A writer hears nothing of what it did, or dies: the change is made again, by what the log has."""
    if state.faults:
        for number, writer in enumerate(state.writers):
            if writer.step != "read":
                yield _with(state._replace(faults=state.faults - 1), number, Writer())


def check(rules: Rules, *, expects: bool, faults: int = 3) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""

    def steps(state: State) -> list[State]:
        writes = (each for number in (0, 1) for each in _write(state, number, rules, expects=expects))
        return [*writes, *_ask(state, rules)]

    return explore(
        State(faults=faults),
        steps,
        _faults,
        lambda state: state.answered and all(writer.step == "done" for writer in state.writers),
    )
