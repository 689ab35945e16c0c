"""An explicit-state model of callbacks (W30): a token that was told is valid until one of its callback is used.

A call makes a callback, tells its token to a stranger, and waits for the answer. Parties: the driver of the call, and
the strangers, each of which uses the token that it was told. One action is one atomic step of one party. Reading and
appending are separate actions; an append carries the revision that was read as its condition. Every reachable state is
visited. Timers and the end of the wait are those of `tests/model/waits.py`; here are only tokens.

A driver that dies begins the call again: it does not know whether the token was told, so it makes a further one. A
stranger that dies, or whose answer is lost, uses its token again.

What must hold:
  refused   a token that was told is only refused if the callback was answered with another one
  twice     a callback is answered once
  lost      a stranger that is told of success finds its answer in the log
  ends      from every state the call gets its answer without further faults
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore

ATTEMPTS_MAX = 3


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    stored_first: bool = True
    """The token is stored before it is told."""
    all_valid: bool = True
    """A further token leaves those before it valid."""
    used_once: bool = True
    """The first token that is used makes the others void."""
    repeatable: bool = True
    """The token that was used may be used again, and changes nothing."""
    buffered: bool = True
    """An answer is kept if the call does not wait yet."""
    condition: bool = True
    """The append of an answer has the revision that was read as its condition."""


class Log(NamedTuple):
    """The log, folded: the tokens that are stored, those that were used, and whether the call waits or has ended."""

    tokens: tuple[int, ...] = ()
    used: tuple[int, ...] = ()
    waits: bool = False
    over: bool = False


class Stranger(NamedTuple):
    """The holder of a token; `read` is the log as it read it, None before."""

    token: int
    read: Log | None = None
    answered: bool = False


class State(NamedTuple):
    """`driver`: the part of the attempt that is next, empty without a driver. `attempt` numbers its token, too."""

    log: Log = Log()
    driver: str = "make"
    attempt: int = 1
    strangers: tuple[Stranger, ...] = ()
    faults: int = 0
    bad: str = ""


def _driver(state: State, rules: Rules) -> Iterator[State]:
    """Make a token, tell it, wait; and go on once the wait is over."""
    log = state.log
    match state.driver:
        case "make":
            stored = state._replace(log=_issued(state, rules))
            told = _told(state)
            yield stored._replace(driver="tell") if rules.stored_first else told._replace(driver="store")
        case "tell":
            yield _told(state)._replace(driver="wait")
        case "store":
            yield state._replace(log=_issued(state, rules), driver="wait")
        case "wait":
            yield state._replace(log=log._replace(waits=not log.used, over=bool(log.used)), driver="")
        case _:
            if not log.waits and not log.over:  # its driver died: a worker begins it again
                yield state._replace(driver="make", attempt=state.attempt + 1)


def _issued(state: State, rules: Rules) -> Log:
    log = state.log
    if log.used:  # nothing is left to tell
        return log
    return log._replace(tokens=(*(log.tokens if rules.all_valid else ()), state.attempt))


def _told(state: State) -> State:
    """Tell a stranger the token; the attempt that finds its callback answered has one that is void."""
    if state.log.used:
        return state
    return state._replace(strangers=(*state.strangers, Stranger(state.attempt)))


def _strangers(state: State, rules: Rules) -> Iterator[State]:
    for number, stranger in enumerate(state.strangers):
        if stranger.answered:
            continue
        if stranger.read is None:
            yield _changed(state, number, stranger._replace(read=state.log))
        elif stranger.read != state.log and rules.condition:
            yield _changed(state, number, stranger._replace(read=None))
        else:
            yield _used(state, number, stranger, stranger.read, rules)


def _changed(state: State, number: int, stranger: Stranger) -> State:
    return state._replace(strangers=(*state.strangers[:number], stranger, *state.strangers[number + 1 :]))


def _used(state: State, number: int, stranger: Stranger, read: Log, rules: Rules) -> State:
    """Store the answer as the log that was read has it, or refuse the token."""
    log, token = state.log, stranger.token
    answered = _changed(state, number, stranger._replace(read=None, answered=True))
    if token in read.used:
        return answered if rules.repeatable else answered._replace(bad="refused")
    if token not in read.tokens or (read.used and rules.used_once):
        return answered if read.used else answered._replace(bad="refused")
    if log.used:
        return answered._replace(bad="twice")
    if not read.waits and not rules.buffered:
        return answered._replace(bad="lost")
    return answered._replace(log=log._replace(used=(*log.used, token), waits=False, over=log.waits))


def _faults(state: State) -> Iterator[State]:
    """A party dies, or the answer to a stranger is lost."""
    if not state.faults:
        return
    less = state._replace(faults=state.faults - 1)
    if state.driver and state.attempt < ATTEMPTS_MAX:
        yield less._replace(driver="")
    for number, stranger in enumerate(state.strangers):
        if stranger.read is not None or stranger.answered:
            yield _changed(less, number, Stranger(stranger.token))


def check(rules: Rules, *, faults: int = 3) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(faults=faults),
        lambda state: [*_driver(state, rules), *_strangers(state, rules)],
        _faults,
        lambda state: state.log.over and all(each.answered for each in state.strangers),
    )
