"""An explicit-state model of spending a budget of the namespace, by two runs of one shard (W65).

Each run's worker reads what is spent, sends a request if anything is left, and stores the reply together with the new
sum, at the position of the register that it has read, possibly from a replica that is behind. A worker may die
anywhere; another one starts again from the log.

What must hold:
  miscounted  in the end each stored reply is counted exactly once
  overspent   no request is sent after the stored replies have used up the budget
  ends        from every state both runs end without further faults
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.explore import explore

REPLIES = 2
"""The replies that each run needs."""


class Rules(NamedTuple):
    """The rules of the protocol. A mutation changes one of them."""

    one_batch: bool = True
    """The sum is stored in the batch of the reply."""
    condition: bool = True
    """A batch is only taken if the register is as it was read."""
    asks_first: bool = True
    """The spending is read before a request is sent."""
    budget: int = 3
    """The replies that the budget is enough for."""


class Worker(NamedTuple):
    """The worker of a run: what it does next, and how often the register had changed when it was read."""

    step: str = "ask"
    seen: int = 0


class State(NamedTuple):
    """The stored replies of each run, the register with its sum after each change, and the workers."""

    replies: tuple[int, int] = (0, 0)
    register: tuple[int, ...] = (0,)
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    faults: int = 0
    bad: str = ""


def _with(state: State, number: int, worker: Worker) -> State:
    workers = list(state.workers)
    workers[number] = worker
    after = state._replace(workers=(workers[0], workers[1]))
    over = all(each.step == "done" for each in workers)
    return after._replace(bad="miscounted") if over and sum(state.replies) != state.register[-1] else after


def _replied(state: State, number: int) -> State:
    replies = list(state.replies)
    replies[number] += 1
    return state._replace(replies=(replies[0], replies[1]))


def _steps(state: State, number: int, rules: Rules) -> Iterator[State]:
    worker, register = state.workers[number], state.register
    match worker.step:
        case "ask" if state.replies[number] == REPLIES or (rules.asks_first and register[-1] >= rules.budget):
            yield _with(state, number, Worker("done"))
        case "ask":
            spent = sum(state.replies) >= rules.budget
            yield _with(state, number, Worker("read"))._replace(bad="overspent" if spent else "")
        case "read":  # the reply is there, and a replica may have any part of the register
            for seen in range(1, len(register) + 1):
                yield _with(state, number, Worker("append", seen))
        case "append" if rules.condition and worker.seen != len(register):
            yield _with(state, number, Worker("read"))
        case "append" if rules.one_batch:
            counted = state._replace(register=(*register, register[worker.seen - 1] + 1))
            yield _with(_replied(counted, number), number, Worker())
        case "append":
            yield _with(_replied(state, number), number, Worker("count"))
        case "count":
            yield _with(state._replace(register=(*register, register[-1] + 1)), number, Worker())
        case _:
            pass


def _faults(state: State) -> Iterator[State]:
    """A worker dies, and another one starts from the log."""
    if state.faults:
        for number, worker in enumerate(state.workers):
            if worker.step not in {"ask", "done"}:
                yield _with(state._replace(faults=state.faults - 1), number, Worker())


def check(rules: Rules, *, faults: int = 3) -> tuple[str, int]:
    """Return the broken property, empty for none, and the number of states."""
    return explore(
        State(faults=faults),
        lambda state: [each for number in (0, 1) for each in _steps(state, number, rules)],
        _faults,
        lambda state: all(worker.step == "done" for worker in state.workers),
    )
