"""An explicit-state model of hooks on the ends of runs (W41, W56): the end of a run starts one other run.

Parties: two workers that follow the log, runs that end, and a restore from a backup. A worker reads the hook's place,
or stores one if there is none, and follows the ends after it: it starts a run for each, then moves on in memory, and
stores at times how far it has come. Before each step it may die; it then begins again with a read, which may be stale.
Every reachable state is visited.

Ends have the positions 1, 2 and so on; a place says up to which of them all were looked at.

What must hold:
  twice    the end of a run starts at most one run, also if the log was restored meanwhile
  early    what had ended before the hook existed starts nothing
  ends     from every state each end comes to its run without further faults, unless a restore passes over it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore

ENDS = 3
"""The number of runs that end."""
NONE = -1
"""The place of a hook that nobody has followed yet."""


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    keyed: bool = True
    """The run is started under a key that names the run that ended (W26)."""
    run_first: bool = True
    """The place is moved on after the run was started."""
    begins_stored: bool = True
    """A new hook stores where it begins before it follows."""
    from_its_place: bool = True
    """A worker goes on from the stored place, and not from the end of the log."""
    condition: bool = True
    """The place is stored under the register's position."""
    moved_by_restore: bool = True
    """A restore moves the place to the end of the log (W56)."""


class Worker(NamedTuple):
    """A worker at its next step: `read` or `create`, then `follow`, with `start` and `pass` for an end."""

    step: str = "read"
    place: int = 0
    """Up to here it has looked at the ends."""
    rev: int = 0
    """The register's revision, as it has read it."""


class Register(NamedTuple):
    """The hook's register."""

    rev: int = 0
    place: int = NONE


class State(NamedTuple):
    """The ends in the log, the hook's register and before its last change, and the runs that were started.

    `log_runs` are those that the log knows; `all_runs` also those that a restore has taken from it.
    """

    ends: int = 1
    register: Register = Register()
    before: Register = Register()
    begun: int = NONE
    """The number of ends when the hook's first place was stored."""
    passed: int = 0
    """The ends up to this one were there when the log was restored: they may start nothing more."""
    log_runs: tuple[int, ...] = (0,) * ENDS
    all_runs: tuple[int, ...] = (0,) * ENDS
    backup: tuple[int, Register, int, tuple[int, ...]] | None = None
    restored: bool = False
    workers: tuple[Worker, ...] = (Worker(), Worker())
    faults: int = 2

    @property
    def bad(self) -> str:
        """The broken property; empty for none."""
        if any(started > 1 for started in self.all_runs):
            return "twice"
        if self.begun != NONE and any(self.all_runs[: self.begun]):
            return "early"
        return ""


def _is_done(state: State) -> bool:
    """Return whether each end since the hook was created has started its run."""
    first = max(state.begun, state.passed)
    return state.ends == ENDS and state.begun != NONE and all(state.log_runs[first:])


def _with(state: State, number: int, worker: Worker) -> State:
    """Change one worker. Workers are interchangeable, so states are normalized by sorting them."""
    workers = state.workers
    return state._replace(workers=tuple(sorted((*workers[:number], worker, *workers[number + 1 :]))))


def _stored(state: State, place: int) -> State:
    register = Register(state.register.rev + 1, place)
    begun = place if state.begun == NONE else state.begun
    return state._replace(register=register, before=state.register, begun=begun)


def _begun(state: State, number: int, read: Register, rules: Rules) -> State:
    """Continue from the place that was read, or create the register."""
    if read.place == NONE and rules.begins_stored:
        return _with(state, number, Worker("create", rev=read.rev))
    if read.place == NONE:
        begun = state.ends if state.begun == NONE else state.begun
        return _with(state._replace(begun=begun), number, Worker("follow", state.ends, read.rev))
    place = read.place if rules.from_its_place else state.ends
    return _with(state, number, Worker("follow", place, read.rev))


def _steps(state: State, number: int, rules: Rules) -> Iterator[State]:
    worker = state.workers[number]
    match worker.step:
        case "read":
            for read in dict.fromkeys((state.register, state.before)):
                yield _begun(state, number, read, rules)
        case "create":
            if rules.condition and worker.rev != state.register.rev:
                yield _with(state, number, Worker())
            else:
                yield _with(_stored(state, state.ends), number, Worker("follow", state.ends))
        case "follow" if worker.place < state.ends:
            if rules.run_first:
                yield _with(state, number, worker._replace(step="start"))
            else:
                yield _with(state, number, worker._replace(step="start", place=worker.place + 1))
        case "start":
            yield _started(state, number, rules)
        case _:
            pass
    yield from _kept(state, worker)


def _started(state: State, number: int, rules: Rules) -> State:
    worker = state.workers[number]
    end = worker.place if rules.run_first else worker.place - 1
    known, made = list(state.log_runs), list(state.all_runs)
    if not (rules.keyed and known[end]):
        known[end] += 1
        made[end] += 1
    after = worker._replace(step="follow", place=end + 1)
    return _with(state._replace(log_runs=tuple(known), all_runs=tuple(made)), number, after)


def _kept(state: State, worker: Worker) -> Iterator[State]:
    """Store how far a worker has come, beside what it does; not if another one was further."""
    if worker.step in {"follow", "start"} and worker.place > state.register.place:
        yield _stored(state, worker.place)


def _next(state: State, rules: Rules) -> Iterator[State]:
    for number in range(len(state.workers)):
        yield from _steps(state, number, rules)
    if state.ends < ENDS:
        yield state._replace(ends=state.ends + 1)


def _troubles(state: State, rules: Rules) -> Iterator[State]:
    """A worker dies; a backup is taken, and the log is restored from it."""
    if state.faults:
        for number in range(len(state.workers)):
            yield _with(state._replace(faults=state.faults - 1), number, Worker())
    if state.backup is None and not state.restored:
        yield state._replace(backup=(state.ends, state.register, state.begun, state.log_runs))
    if state.backup is not None:
        yield _restored(state, rules)


def _restored(state: State, rules: Rules) -> State:
    """Put the log back, where nobody else writes; what was started after the backup has been done all the same."""
    assert state.backup is not None
    ends, register, begun, runs = state.backup
    back = state._replace(
        ends=ends,
        register=register,
        before=register,
        begun=begun,
        log_runs=runs,
        all_runs=tuple(made if at < ends else 0 for at, made in enumerate(state.all_runs)),
        backup=None,
        restored=True,
        passed=ends,
        workers=(Worker(), Worker()),
    )
    if register.place == NONE or not rules.moved_by_restore:
        return back
    moved = _stored(back, ends)
    return moved._replace(before=moved.register)


def check(rules: Rules, *, faults: int = 2) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(faults=faults),
        lambda state: _next(state, rules),
        lambda state: _troubles(state, rules),
        _is_done,
    )
