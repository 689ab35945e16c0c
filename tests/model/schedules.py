"""An explicit-state model of schedules (W37 to W39): each time starts one run, and an active schedule is never stuck.

Parties: two workers, an editor who pauses and resumes, and the timers of the log. One action is one atomic step of
one party. A worker that has a wake-up reads the register, starts the run of the time that is due, stores the next
state, and acknowledges; before each step it may die, or stall until the wake-up is delivered again. Every reachable
state is visited.

What must hold:
  twice    a time starts at most one run
  undone   no worker undoes what an editor has stored
  passed   a time that the register has left behind has its run
  ends     from every state an active schedule comes to its last time without further faults and edits
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore

TIMES = 3
"""The number of times of the schedule."""


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    keyed: bool = True
    """A time has a key, under which its run is started once (W39)."""
    run_first: bool = True
    """The run is started before the next state is stored (W39)."""
    one_batch: bool = True
    """A worker stores the next state together with its timer (W38)."""
    edit_in_one_batch: bool = True
    """So does an editor (W38)."""
    condition: bool = True
    """The next state is stored under the register's position."""
    fresh: bool = True
    """A read that is older than the cause decides nothing (W37)."""


class Message(NamedTuple):
    """A wake-up: the revision that set its timer, and whether a worker has it."""

    number: int
    cause: int
    taken: bool = False


class Worker(NamedTuple):
    """A worker at its next step: `read`, `start`, `store`, `arm` or `ack`; idle with an empty one."""

    step: str = ""
    message: int = 0
    cause: int = 0
    rev: int = 0
    time: int = 0
    active: bool = True


class Read(NamedTuple):
    """The register: its revision, its first undecided time, and whether it is active."""

    rev: int = 1
    time: int = 0
    active: bool = True


class State(NamedTuple):
    """The register as in `Read`, and before its last change, its timer (0: none), the wake-ups, and the parties."""

    rev: int = 1
    time: int = 0
    active: bool = True
    timer: int = 1
    messages: tuple[Message, ...] = ()
    sent: int = 0
    runs: tuple[int, ...] = (0,) * TIMES
    workers: tuple[Worker, ...] = (Worker(), Worker())
    arms: int = 0
    """The revision for which the editor has yet to set the timer."""
    before: Read = Read()
    wish: bool = True
    """True if the editor wants it active."""
    edits: int = 2
    faults: int = 2

    @property
    def bad(self) -> str:
        """The broken property; empty for none."""
        if any(begun > 1 for begun in self.runs):
            return "twice"
        if self.active != self.wish:
            return "undone"
        if any(worker.step for worker in self.workers) or self.arms:
            return ""
        return "passed" if not all(self.runs[: self.time]) else ""


def _timers(state: State) -> Iterator[State]:
    if state.timer:
        message = Message(state.sent, state.timer)
        yield state._replace(timer=0, messages=(*state.messages, message), sent=state.sent + 1)


def _with(state: State, number: int, worker: Worker) -> State:
    """Change one worker. Workers are interchangeable, so states are normalized by sorting them."""
    workers = state.workers
    return state._replace(workers=tuple(sorted((*workers[:number], worker, *workers[number + 1 :]))))


def _given_back(state: State, worker: Worker) -> State:
    back = tuple(m._replace(taken=False) if m.number == worker.message else m for m in state.messages)
    return state._replace(messages=back, faults=state.faults - 1)


def _owes(state: State) -> bool:
    return state.active and state.time < TIMES


def _steps(state: State, number: int, rules: Rules) -> Iterator[State]:
    worker = state.workers[number]
    if not worker.step:
        for message in state.messages:
            if not message.taken:
                taken = tuple(m._replace(taken=True) if m is message else m for m in state.messages)
                at = Worker("read", message.number, message.cause)
                yield _with(state._replace(messages=taken), number, at)
        return
    match worker.step:
        case "read":
            for read in dict.fromkeys((Read(state.rev, state.time, state.active), state.before)):
                yield _judged(state, number, worker, read, rules)
        case "start":
            runs = list(state.runs)
            if not (rules.keyed and runs[worker.time]):
                runs[worker.time] += 1
            after = worker._replace(step="store" if rules.run_first else "ack")
            yield _with(state._replace(runs=tuple(runs)), number, after)
        case "store":
            yield _stored(state, number, worker, rules)
        case "arm":
            yield _with(state._replace(timer=worker.rev), number, worker._replace(step="ack"))
        case _:
            left = tuple(m for m in state.messages if m.number != worker.message)
            yield _with(state._replace(messages=left), number, Worker())


def _judged(state: State, number: int, worker: Worker, read: Read, rules: Rules) -> State:
    """Judge the wake-up by what was read, which may be the register before its last change."""
    if read.rev < worker.cause and rules.fresh:
        back = tuple(m._replace(taken=False) if m.number == worker.message else m for m in state.messages)
        return _with(state._replace(messages=back), number, Worker())
    moot = read.rev > worker.cause or not read.active or read.time >= TIMES
    first = "start" if rules.run_first else "store"
    judged = worker._replace(rev=read.rev, time=read.time, active=read.active)
    return _with(state, number, judged._replace(step="ack" if moot else first))


def _stored(state: State, number: int, worker: Worker, rules: Rules) -> State:
    if rules.condition and state.rev != worker.rev:
        return _with(state, number, worker._replace(step="read"))
    after = _changed(state, worker.time + 1, active=worker.active)
    if rules.one_batch:
        after = after._replace(timer=after.rev if _owes(after) else 0)
    step = ("ack" if rules.one_batch or not _owes(after) else "arm") if rules.run_first else "start"
    return _with(after, number, worker._replace(step=step, rev=after.rev))


def _changed(state: State, time: int, *, active: bool) -> State:
    before = Read(state.rev, state.time, state.active)
    return state._replace(rev=state.rev + 1, time=time, active=active, before=before)


def _edited(state: State, rules: Rules) -> Iterator[State]:
    """An editor pauses or resumes the schedule."""
    if state.edits and not state.arms:
        after = _changed(state, state.time, active=not state.active)
        after = after._replace(wish=after.active, edits=state.edits - 1)
        if rules.edit_in_one_batch:
            yield after._replace(timer=after.rev if _owes(after) else 0)
        else:
            yield after._replace(arms=after.rev)


def _next(state: State, rules: Rules) -> Iterator[State]:
    yield from _timers(state)
    for number in range(len(state.workers)):
        yield from _steps(state, number, rules)
    if state.arms:
        yield state._replace(timer=state.rev if _owes(state) else 0, arms=0)


def _troubles(state: State, rules: Rules) -> Iterator[State]:
    """A worker dies or stalls, or the editor edits."""
    yield from _edited(state, rules)
    if not state.faults:
        return
    for number, worker in enumerate(state.workers):
        if worker.step:
            yield _with(_given_back(state, worker), number, Worker())  # it dies
            yield _given_back(state, worker)  # it stalls, and goes on later
    if state.arms:
        yield state._replace(arms=0, faults=state.faults - 1)


def check(rules: Rules, *, faults: int = 2) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(faults=faults),
        lambda state: _next(state, rules),
        lambda state: _troubles(state, rules),
        lambda state: not _owes(state),
    )
