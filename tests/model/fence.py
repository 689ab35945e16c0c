"""An explicit-state model of the fence: how a family is cancelled that one batch does not hold.

A family: the root, its child (run 0) and its grandchild (run 1). Parties: the driver, which executes all of them; the
canceller; and a worker, which takes the wake-up once nobody holds it. One action is one atomic step of one party; a
read, a decision and an append under the condition of one subject are one action, as a conflict only leads back to the
read. Reading the family and cancelling its runs are separate actions, one run at a time, each under the condition of
the revision that was read. Every state that can be reached is visited.

The cancel: fence the root, with a wake-up in the same append; read the family; cancel the runs below, children before
their parents; end the root. A process that finds the root fenced continues in the same way from the second step.

What must hold:
  closed    nothing is stored in the root between its fence and its end
  order     no run below stores anything behind the end of the run above it
  honest    the canceller is told `cancelled` if and only if its cancel ended the root
  whole     where the canceller has cancelled a run below, the root does not complete
  ends      from every state the root comes to its end without further faults; once fenced, as cancelled
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore

CHILD, GRANDCHILD = 0, 1
STEPS_MAX = 2
"""Number of commits that the driver makes in each run below."""


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    fence: bool = True
    """The root is fenced before anything is cancelled."""
    wake: bool = True
    """The fence carries a wake-up."""
    condition: bool = True
    """The driver's appends to the root have a condition, so that the fence refuses them."""
    children_first: bool = True
    others_finish: bool = True
    """A driver or worker that finds the root fenced goes on with the cancel."""
    conditions_below: bool = True
    """A run below is cancelled under the condition of the revision that was read."""


class Run(NamedTuple):
    """A run below the root: none, open, done or cancelled; and how many commits it has."""

    status: str = "none"
    revision: int = 0

    @property
    def over(self) -> bool:
        return self.status in {"done", "cancelled"}


class State(NamedTuple):
    """`root`: open, fenced, done or cancelled. `driver`: up, rests, or dead. `wakeup`: free, held or done.

    What a party does for the cancel is None (nothing), `fence`, `read`, or the runs it still has to cancel, each with
    the revision it was read at.
    """

    root: str
    runs: tuple[Run, Run]
    driver: str
    wakeup: str
    canceller: object
    finisher: object
    faults: int
    told: str = ""
    bad: str = ""


def initial(*, rests: bool, faults: int) -> State:
    """A family that is driven; or one that rests, which nobody has a wake-up of."""
    runs = (Run("open", 1), Run("open", 1)) if rests else (Run(), Run())
    return State("open", runs, "rests" if rests else "up", "done" if rests else "held", "fence", None, faults)


def _bad(state: State, why: str) -> State:
    return state._replace(bad=state.bad or why)


def _store(state: State, number: int, status: str) -> State:
    """A commit of a run below."""
    above_over = state.root in {"done", "cancelled"} if number == CHILD else state.runs[CHILD].over
    run = Run(status, state.runs[number].revision + 1)
    runs = (run, state.runs[1]) if number == CHILD else (state.runs[0], run)
    after = state._replace(runs=runs)
    return _bad(after, "order") if above_over else after


def _open_below(state: State, rules: Rules) -> tuple[tuple[int, int], ...]:
    order = (GRANDCHILD, CHILD) if rules.children_first else (CHILD, GRANDCHILD)
    return tuple((n, state.runs[n].revision) for n in order if state.runs[n].status == "open")


# --- who does what ------------------------------------------------------------------------------------------------


def _driver(state: State, rules: Rules) -> Iterator[State]:
    """It starts runs, goes on with them and ends them; it hears of the fence at any time, or never."""
    if state.driver != "up":
        return
    yield from _drive_root(state, rules)
    child, grandchild = state.runs
    if child.status == "open" and grandchild.status == "none":
        yield _store(_store(state, CHILD, "open"), GRANDCHILD, "open")
    for number, run in enumerate(state.runs):
        if run.status == "open" and run.revision <= STEPS_MAX:
            yield _store(state, number, "open")
        if run.status == "open" and (number == GRANDCHILD or grandchild.over):
            yield _store(state, number, "done")
    if state.root == "fenced":  # it hears of it, stops, and goes on with the cancel
        yield state._replace(driver="rests", finisher="read" if rules.others_finish else None)
    if state.root == "cancelled":
        yield state._replace(driver="rests", wakeup="done")


def _drive_root(state: State, rules: Rules) -> Iterator[State]:
    """It starts the child, or completes the root; the fence moves the root on, so that the append is refused."""
    if state.root != "open" and (state.root != "fenced" or rules.condition):
        return
    child = state.runs[CHILD]
    if child.status == "none":
        started = _store(state, CHILD, "open")
        yield _bad(started, "closed") if state.root == "fenced" else started
    if child.over:
        ended = state._replace(root="done", driver="rests", wakeup="done")
        if state.root == "fenced":
            ended = _bad(ended, "closed")
        yield _bad(ended, "whole") if any(run.status == "cancelled" for run in state.runs) else ended


def _worker(state: State, rules: Rules) -> Iterator[State]:
    """It takes a wake-up that nobody holds, and judges it by what the log says."""
    if state.wakeup != "free" or state.finisher is not None:
        return
    if state.root == "open":
        yield state._replace(wakeup="held", driver="up")
    elif state.root == "fenced" and rules.others_finish:
        yield state._replace(wakeup="held", finisher="read")
    else:
        yield state._replace(wakeup="done")


def _cancel(state: State, rules: Rules, party: str) -> Iterator[State]:
    """The next step of a party that cancels."""
    at = getattr(state, party)
    if at is None:
        return
    if state.root in {"done", "cancelled"}:
        yield _leave(state, party, f"already_{state.root}")
    elif at == "fence":
        fenced = state._replace(root="fenced" if rules.fence else "open", canceller="read")
        free = rules.fence and rules.wake and state.wakeup == "done"
        yield fenced._replace(wakeup="free") if free else fenced
    elif at == "read":
        yield state._replace(**{party: _open_below(state, rules)})
    elif at:
        (number, revision), *rest = at
        run = state.runs[number]
        if run.over or (rules.conditions_below and run.revision != revision):
            yield state._replace(**{party: "read"})
        else:
            yield _store(state, number, "cancelled")._replace(**{party: tuple(rest)})
    elif rules.conditions_below and _open_below(state, rules):  # a run was started behind the read
        yield state._replace(**{party: "read"})
    else:
        yield _leave(state._replace(root="cancelled"), party, "cancelled")


def _leave(state: State, party: str, answer: str) -> State:
    if party == "finisher":
        return state._replace(finisher=None, wakeup="done")
    if answer == "already_cancelled" and state.root == "cancelled":  # its own fence is found in the log
        answer = "cancelled"
    left = state._replace(canceller=None, told=answer)
    return _bad(left, "honest") if answer.removeprefix("already_") != state.root else left


def _faults(state: State) -> Iterator[State]:
    if not state.faults:
        return
    less = state._replace(faults=state.faults - 1)
    if state.canceller is not None:
        yield less._replace(canceller=None, told="nobody knows")
    if state.driver == "up":
        yield less._replace(driver="dead", wakeup="free")
    if state.finisher is not None:
        yield less._replace(finisher=None, wakeup="free")


# --- every state --------------------------------------------------------------------------------------------------


def check(rules: Rules, *, rests: bool = False, faults: int = 2) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    # A run that rests, and that is not being cancelled, has nothing to do.
    last = {"done", "cancelled", "open"} if rests else {"done", "cancelled"}

    return explore(
        initial(rests=rests, faults=faults),
        lambda state: [
            *_driver(state, rules),
            *_worker(state, rules),
            *_cancel(state, rules, "canceller"),
            *_cancel(state, rules, "finisher"),
        ],
        _faults,
        lambda state: state.root in last and state.canceller is None,
    )
