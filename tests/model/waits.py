"""An explicit-state model of waits and signals: nothing sent is lost, whatever comes first.

A run waits twice for a signal of one name. Parties: the driver, which asks for the waits and parks the run while one is
open; the senders of signals, each with a key; the timer of the open wait; and the workers, which take wake-ups and due
timers that no worker holds. One action is one atomic step of one party. Reading and appending are separate actions; an
append carries the revision that was read as its condition. Every reachable state is visited.

A signal: read; then append `[signal_received]`, with `wait_ended` if a wait is open, and with a wake-up in the same
append if that makes a parked run runnable. A sender that dies sends again with the same key. A wait: append
`wait_started`, with `wait_ended` if a signal is unread; else append `parked`, set the timer, and acknowledge the
wake-up. The due timer becomes `wait_ended(timed_out)` if its wait is still open.

What must hold:
  once      no wait ends twice, and no signal ends two waits
  lost      no wait times out while a signal is unread, and a sender is answered only if its signal is in the log
  order     the oldest unread signal ends the oldest wait
  doubled   a key is stored once
  ends      from every state the run comes to its end without further faults
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore

WAITS = 2


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    buffered: bool = True
    """A signal is stored whether or not a wait is open."""
    settles: bool = True
    """A signal ends the wait that is open, in the same append."""
    unread_first: bool = True
    """A wait that starts looks for an unread signal."""
    wakes: bool = True
    """A signal that makes a parked run runnable carries a wake-up."""
    condition: bool = True
    """An append of a sender or of the due timer has the revision that was read as its condition."""
    keyed: bool = True
    """A key that is in the log is not stored again."""
    timer_first: bool = True
    """The timer is set before the wake-up is acknowledged."""
    oldest_first: bool = True


class Sender(NamedTuple):
    """A sender of the signal with this key; `read` is the log as it read it, None before."""

    key: int
    read: Log | None = None
    answered: bool = False


class Log(NamedTuple):
    """The log of the run, folded. `signals` has the stored keys in order, `unread` those that ended no wait yet."""

    revision: int = 0
    waits: tuple[str, ...] = ()
    """The waits that started: open, received or timed out."""
    signals: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    parked: bool = False
    over: bool = False


class State(NamedTuple):
    """`driver`: the log as the driver knows it, None without a driver. Messages: none, free, held; due: also set."""

    log: Log
    driver: Log | None
    senders: tuple[Sender, ...]
    wakeup: str = "free"
    due: str = "none"
    due_wait: int = 0
    """The wait that the timer is for: 1, 2, ..."""
    due_read: Log | None = None
    faults: int = 0
    bad: str = ""


def _stored(state: State, log: Log, **changes: object) -> State:
    return state._replace(log=log._replace(revision=state.log.revision + 1), **changes)  # type: ignore[arg-type]


def _open(log: Log) -> bool:
    return bool(log.waits) and log.waits[-1] == "open"


def _ended(log: Log, outcome: str) -> Log:
    return log._replace(waits=(*log.waits[:-1], outcome), parked=False)


def _received(state: State, log: Log, rules: Rules) -> State:
    """The open wait takes an unread signal."""
    taken = log.unread[0] if rules.oldest_first else log.unread[-1]
    rest = tuple(key for key in log.unread if key != taken)
    after = state._replace(bad=state.bad or ("order" if taken != log.unread[0] else ""))
    return _stored(after, _ended(log, "received")._replace(unread=rest))


# --- who does what ------------------------------------------------------------------------------------------------


def _driver(state: State, rules: Rules) -> Iterator[State]:
    """Go on with the run as far as it is known; an append that meets another log only leads to a new read."""
    known = state.driver
    if known is None:
        return
    if known != state.log:
        yield state._replace(driver=state.log)
    elif known.over or known.parked:
        yield from _rest(state, rules)
    elif _open(known):
        yield _known(_stored(state, known._replace(parked=True)))
    elif len(known.waits) == WAITS:
        yield _known(_stored(state, known._replace(over=True)))
    else:
        started = known._replace(waits=(*known.waits, "open"))
        if known.unread and rules.unread_first:
            yield _known(_received(state, started, rules))
        else:
            yield _known(_stored(state, started))


def _known(state: State) -> State:
    return state._replace(driver=state.log)


def _rest(state: State, rules: Rules) -> Iterator[State]:
    """Set the timer that a parked run owes, then acknowledge the wake-up; or, in a mutation, the other way round."""
    wait = len(state.log.waits)
    owed = not state.log.over and state.due_wait != wait
    if owed and rules.timer_first:
        yield state._replace(due="set", due_wait=wait, due_read=None)
    elif state.wakeup == "held":
        yield state._replace(wakeup="none", driver=state.driver if owed else None)
    elif owed:
        yield state._replace(due="set", due_wait=wait, due_read=None, driver=None)
    else:
        yield state._replace(driver=None)


def _workers(state: State, rules: Rules) -> Iterator[State]:
    """Take a wake-up that no worker holds; a due timer becomes the end of its wait, or a plain wake-up."""
    if state.wakeup == "free" and state.driver is None:
        yield state._replace(wakeup="held", driver=state.log)
    if state.due == "set":
        yield state._replace(due="free")
    if state.due == "free":
        yield state._replace(due="held", due_read=state.log)
    if state.due == "held" and state.due_read is not None:
        yield from _due(state, state.due_read, rules)


def _due(state: State, read: Log, rules: Rules) -> Iterator[State]:
    if read != state.log and rules.condition:
        yield state._replace(due="free", due_read=None)
        return
    moot = read.over or len(read.waits) != state.due_wait or read.waits[-1] != "open"
    if moot:  # a plain wake-up: whatever made the run runnable has one of its own
        yield state._replace(due="none", due_read=None)
        return
    log = state.log
    bad = "once" if not _open(log) or len(log.waits) != state.due_wait else "lost" if log.unread else ""
    after = _stored(state, _ended(log, "timed out"), due="none", due_read=None)
    # The append claims the run: its driver goes on from here, and the timer's message is its wake-up.
    yield after._replace(bad=state.bad or bad, driver=after.log, wakeup="held")


def _senders(state: State, rules: Rules) -> Iterator[State]:
    for number, sender in enumerate(state.senders):
        if sender.answered:
            continue
        if sender.read is None:
            yield _sender(state, number, sender._replace(read=state.log))
        elif sender.read != state.log and rules.condition:
            yield _sender(state, number, sender._replace(read=None))
        else:
            yield _sent(state, number, sender, sender.read, rules)


def _sender(state: State, number: int, sender: Sender) -> State:
    return state._replace(senders=(*state.senders[:number], sender, *state.senders[number + 1 :]))


def _sent(state: State, number: int, sender: Sender, read: Log, rules: Rules) -> State:
    """Append the signal, as the log that was read has it; and be answered."""
    answered = _sender(state, number, sender._replace(read=None, answered=True))
    if read.over or (rules.keyed and sender.key in read.signals):
        return answered
    if not _open(read) and not rules.buffered:
        return answered._replace(bad=state.bad or "lost")
    log = state.log
    if sender.key in log.signals:
        answered = answered._replace(bad=state.bad or "doubled")
    after = log._replace(signals=(*log.signals, sender.key), unread=(*log.unread, sender.key))
    if not _open(read) or not rules.settles:
        return _stored(answered, after)
    if not _open(log) or len(log.waits) != len(read.waits):
        return _stored(answered, after)._replace(bad=state.bad or "once")
    woken = log.parked and rules.wakes and state.wakeup == "none"
    received = _received(answered, after, rules)
    return received._replace(wakeup="free") if woken else received


def _faults(state: State) -> Iterator[State]:
    """A party dies: a message that it held is delivered again, and a sender begins again."""
    if not state.faults:
        return
    less = state._replace(faults=state.faults - 1)
    if state.driver is not None:
        yield less._replace(driver=None, wakeup="free" if state.wakeup == "held" else state.wakeup)
    if state.due == "held":
        yield less._replace(due="free", due_read=None)
    for number, sender in enumerate(state.senders):
        if sender.read is not None:
            yield _sender(less, number, sender._replace(read=None))
        if sender.answered:  # the answer was lost
            yield _sender(less, number, Sender(sender.key))


# --- every state --------------------------------------------------------------------------------------------------


def check(rules: Rules, keys: tuple[int, ...], *, faults: int = 2) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states. One sender for each of `keys`."""
    return explore(
        State(Log(), None, tuple(Sender(key) for key in keys), faults=faults),
        lambda state: [*_driver(state, rules), *_workers(state, rules), *_senders(state, rules)],
        _faults,
        lambda state: state.log.over and all(sender.answered for sender in state.senders),
    )
