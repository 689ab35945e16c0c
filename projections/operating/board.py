"""The surroundings of waiting runs: lanes, slots, breakers, workers and runs below, as far as they were looked up."""

from __future__ import annotations

import msgspec

from ...eventlog.events import BreakerUpdated, SlotHolder, SlotsUpdated, SlotWaiter
from ..run_list import WORKER, RunRow
from ..run_state import RunState
from .waits import RunWaits, waits_of

CANCEL = "cancel"


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """A run as far as it matters why it waits. `served_as` is the agent whose workers drive it: that of its root.

    `driven`: a claim is in force in the log. `left` is why the last worker could not drive it. Times are Unix seconds.
    """

    run_id: str
    root_id: str
    agent: str
    served_as: str
    executor: str
    status: str
    submitted_at: float
    updated_at: float
    lane: str | None = None
    driven: bool = False
    worker: str = ""
    epoch: int = 0
    left: str = ""
    cancelling: bool = False
    over: bool = False
    waits: RunWaits = RunWaits()


def waiter_of_row(row: RunRow) -> Waiter:
    """Return a run of the run list."""
    return Waiter(
        run_id=row.run_id,
        root_id=row.root_id,
        agent=row.agent,
        served_as=row.agent_path.partition("/")[0],
        executor=row.executor,
        status=row.status,
        submitted_at=row.submitted_at,
        updated_at=row.updated_at,
        lane=row.lane,
        driven=row.driven,
        worker=row.worker,
        epoch=row.epoch,
        left=row.reason if row.waiting_for == WORKER else "",
        cancelling=row.waiting_for == CANCEL,
        over=row.over,
        waits=row.waits,
    )


def waiter_of_state(state: RunState) -> Waiter:
    """Return a run by its state."""
    submitted = state.submitted
    return Waiter(
        run_id=state.run,
        root_id=state.root,
        agent=state.agent,
        served_as=state.served_as,
        executor=submitted.executor if submitted is not None else "",
        status=state.status,
        submitted_at=state.submitted_at,
        updated_at=state.updated_at,
        lane=submitted.lane if submitted is not None else None,
        driven=state.owner is not None,
        worker=state.owner or "",
        epoch=state.epoch,
        left=next(iter(state.left), ""),
        cancelling=state.cancelling,
        over=state.over,
        waits=waits_of(state),
    )


class Below(msgspec.Struct, frozen=True, kw_only=True):
    """An open run directly below another one."""

    run_id: str
    agent: str
    status: str
    reason: str = ""


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """A run before another one in its lane, and since when it has its status (Unix seconds)."""

    run_id: str
    status: str
    since: float


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a root run: the worker that renewed it last, and when (Unix seconds)."""

    worker: str
    at: float


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """The known surroundings of the runs that were looked up.

    - `before`: the runs before a run in its lane, the current one first, by run.
    - `slots` and `breakers` by their names; `below` and `signs` by run, those of a family under its root.
    - `served`: the agents with workers that are present; `present`: the names of all processes that are.
    - `in_process`, `on_workers`: the names of the executors that drive runs there.
    """

    now: float
    before: dict[str, tuple[Before, ...]] = {}
    slots: dict[str, SlotsUpdated] = {}
    breakers: dict[str, BreakerUpdated] = {}
    below: dict[str, tuple[Below, ...]] = {}
    signs: dict[str, Sign] = {}
    served: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()
    in_process: frozenset[str] = frozenset({"local"})
    on_workers: frozenset[str] = frozenset({"durable"})


def place_in(slots: SlotsUpdated, run_id: str, *, calls: bool) -> tuple[int, SlotWaiter] | None:
    """Return the place (from 1) of a run in the line for slots, or of one of its calls; None if it is not there."""
    for place, each in enumerate(slots.waiting, 1):
        if each.run == run_id and bool(each.call) == calls:
            return place, each
    return None


def first_holder(slots: SlotsUpdated) -> SlotHolder | None:
    """Return the one that holds a slot longest."""
    return min(slots.holders, key=lambda each: each.since, default=None)
