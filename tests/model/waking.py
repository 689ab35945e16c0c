"""An explicit-state model of a run that waits for a budget while workers that know a larger one start (W65).

A worker with the old amount drives the run, parks it, and sets its timer, for a time too far away to be of help. Two
workers with the larger amount start meanwhile, and each looks for such timers: once at its start, and for the last time
when the old worker is gone. Each may die anywhere; a new one is started in its place, and the old one is not.

What must hold:
  twice  a run that waits is resumed once
  ends   from every state the run comes to its end without further faults, and without its timer
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore


class Rules(NamedTuple):
    """The protocol; a mutation changes one of these."""

    wakes: bool = True
    """A worker that starts sends a wake-up to each run that has the timer of a budget."""
    looks_again: bool = True
    """It does so once more when the old worker is gone."""
    timer_first: bool = True
    """The wake-up of a run is acknowledged once its timer is set."""
    condition: bool = True
    """A run is resumed only if it is as it was read."""
    wake_in_batch: bool = True
    """The batch that resumes a run has a wake-up."""


class Worker(NamedTuple):
    """What it does next, the revision that it has read, and the looks that it still makes."""

    step: str = "idle"
    seen: int = 0
    looks: int = 0


class State(NamedTuple):
    """The revision of the run, which waits at the odd ones; its timer, its wake-ups; the workers, the old one first."""

    revision: int = 0
    over: bool = False
    timer: bool = False
    wakeups: int = 1
    workers: tuple[Worker, ...] = ()
    faults: int = 0
    bad: str = ""


OLD = 0
_HOLDS = {"judge", "park", "end", "resume", "timer"}
"""The steps of a worker that holds a wake-up."""


def _with(state: State, number: int, worker: Worker) -> State:
    workers = list(state.workers)
    workers[number] = worker
    return state._replace(workers=tuple(workers))


def _steps(state: State, number: int, rules: Rules) -> Iterator[State]:  # noqa: C901 - one case each
    worker, revision = state.workers[number], state.revision
    idle, again = worker._replace(step="idle"), worker._replace(step="judge", seen=revision)
    match worker.step:
        case "idle":
            yield from _begun(state, number, rules)
        case "look":  # it has read that the timer is set
            yield _with(state, number, idle)._replace(wakeups=state.wakeups + 1)
        case "judge" if state.over:
            yield _with(state, number, idle)
        case "judge" if worker.seen % 2:
            yield _with(state, number, worker._replace(step="timer" if number == OLD else "resume"))
        case "judge":
            yield _with(state, number, worker._replace(step="park" if number == OLD else "end"))
        case "park" | "end" if worker.seen != revision:
            yield _with(state, number, again)
        case "resume" if rules.condition and worker.seen != revision:
            yield _with(state, number, again)
        case "park":
            after = "timer" if rules.timer_first else "late"
            yield _with(state, number, Worker(after, looks=worker.looks))._replace(revision=revision + 1)
        case "end":
            yield _with(state, number, idle)._replace(over=True)
        case "resume":
            resumed = _with(state, number, idle)._replace(wakeups=state.wakeups + rules.wake_in_batch)
            waits = revision % 2 and not state.over
            yield resumed._replace(revision=revision + 1, bad="" if waits else "twice")
        case "timer" | "late":
            yield _with(state, number, idle)._replace(timer=True)
        case _:
            pass


def _begun(state: State, number: int, rules: Rules) -> Iterator[State]:
    """An idle worker takes a wake-up, looks for timers, or leaves if it is the old one."""
    worker = state.workers[number]
    if state.wakeups:
        taken = _with(state, number, worker._replace(step="judge", seen=state.revision))
        yield taken._replace(wakeups=state.wakeups - 1)
    if number == OLD:
        yield _with(state, number, Worker("gone"))
    last = worker.looks == 1 and rules.looks_again
    if worker.looks and not (last and state.workers[OLD].step != "gone"):
        step = "look" if state.timer and rules.wakes else "idle"
        yield _with(state, number, worker._replace(step=step, looks=worker.looks - 1))


def _faults(state: State, rules: Rules) -> Iterator[State]:
    """A worker dies, and its wake-up is delivered again."""
    if state.faults:
        for number, worker in enumerate(state.workers):
            if worker.step not in {"idle", "gone"}:
                after = Worker("gone") if number == OLD else _started(rules)
                again = state.wakeups + (worker.step in _HOLDS)
                yield _with(state, number, after)._replace(faults=state.faults - 1, wakeups=again)


def _started(rules: Rules) -> Worker:
    return Worker(looks=1 + rules.looks_again)


def check(rules: Rules, *, faults: int = 1) -> tuple[str, int]:
    """Return what is broken, empty for nothing, and the number of states."""
    workers = (Worker(), _started(rules), _started(rules))
    return explore(
        State(workers=workers, faults=faults),
        lambda state: [each for number in range(3) for each in _steps(state, number, rules)],
        lambda state: _faults(state, rules),
        lambda state: state.over,
    )
