"""Look up the surroundings of waiting runs: their lanes, all slots and breakers, leases, and the agents served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from ...eventlog.errors import RunGone
from ...eventlog.events import BreakerUpdated, SlotsUpdated
from ...eventlog.names import run_subject
from ...eventlog.ports import Log, RegisterKind, served
from ...projections.operating.board import Before, Below, Board, Sign, Waiter
from ...projections.run_list import RunRow
from ...projections.run_state import RunState
from ..journal.journal import Journal
from ..journal.lanes import read_lane
from ..journal.register import each_register

UpdatedT = TypeVar("UpdatedT", SlotsUpdated, BreakerUpdated)
Standing = Callable[[str], Awaitable[Before]]
"""Returns the status of a run by its id."""
Executors = tuple[frozenset[str], frozenset[str]]
"""The names of the executors that drive runs in the process that started them, and of those on workers."""


async def board_for(
    log: Log,
    runs: Sequence[Waiter],
    below: dict[str, tuple[Below, ...]],
    standing: Standing,
    executors: Executors,
) -> Board:
    """Return the surroundings of open runs, reading no more than they need. Raises `LogUnavailable`."""
    in_process, on_workers = executors
    driven = any(run.driven for run in runs)
    retrying = any(run.waits.retry is not None for run in runs)
    lanes = [run for run in runs if run.lane is not None and not run.epoch and not run.driven]
    present = await log.leases.present()
    return Board(
        now=log.clock.now(),
        before=await _before(log, lanes, standing),
        slots=await registers(log, "slots", SlotsUpdated) if runs else {},
        breakers=await registers(log, "breaker", BreakerUpdated) if retrying else {},
        below=below,
        signs=await _signs(log) if driven else {},
        served=served(present),
        present=frozenset(each.worker for each in present),
        in_process=in_process,
        on_workers=on_workers,
    )


async def registers(log: Log, kind: RegisterKind, event_type: type[UpdatedT]) -> dict[str, UpdatedT]:
    """Return the values of all registers of a kind, by their names; one that cannot be read is left out."""
    return {event.name: event async for event in each_register(log, kind, event_type)}


async def _before(log: Log, runs: Iterable[Waiter], standing: Standing) -> dict[str, tuple[Before, ...]]:
    found: dict[str, tuple[Before, ...]] = {}
    queues: dict[str, list[str]] = {}
    known: dict[str, Before] = {}
    for run in runs:
        lane = run.lane or ""
        if lane not in queues:
            queues[lane] = [entry.run for entry in (await read_lane(log, lane))[2]]
        queue = queues[lane]
        ahead = queue[: queue.index(run.run_id)] if run.run_id in queue else []
        for each in ahead[:1]:
            known[each] = known.get(each) or await standing(each)
        found[run.run_id] = tuple(known.get(each) or _unread(each) for each in ahead)
    return found


def _unread(run_id: str) -> Before:
    return Before(run_id=run_id, status="queued", since=0.0)


async def _signs(log: Log) -> dict[str, Sign]:
    found: dict[str, Sign] = {}
    for held in await log.leases.held():
        known = found.get(held.lease.root)
        if known is None or held.renewed_at > known.at:
            found[held.lease.root] = Sign(worker=held.lease.worker, at=held.renewed_at)
    return found


# --- from the states of runs ------------------------------------------------------------------------------------------


async def below_of_state(log: Log, state: RunState, shard: int) -> tuple[Below, ...]:
    """Return the open runs directly below a run, read one by one."""
    states = [await _state(log, shard, state.root, child) for child in state.open_children]
    return tuple(
        Below(run_id=each.run, agent=each.agent, status=each.status, reason=each.paused or "")
        for each in states
        if each.exists and not each.over
    )


async def standing_of_state(log: Log, shard: int, run_id: str) -> Before:
    """Return the status of a root run of a shard."""
    state = await _state(log, shard, run_id, run_id)
    since = state.elapsed.paused_at or state.elapsed.claimed_at or state.submitted_at
    return Before(run_id=run_id, status=state.status, since=since)


async def _state(log: Log, shard: int, root: str, run_id: str) -> RunState:
    try:
        return await Journal(log, run_subject(shard, root, run_id)).load()
    except RunGone:
        return RunState()


# --- from the run list ------------------------------------------------------------------------------------------------


def below_of_rows(rows: Iterable[RunRow]) -> dict[str, tuple[Below, ...]]:
    """Return the open runs directly below each run, of whole families."""
    found: dict[str, tuple[Below, ...]] = {}
    for row in rows:
        if row.parent is not None and not row.over:
            reason = row.waits.paused
            below = Below(run_id=row.run_id, agent=row.agent, status=row.status, reason=reason)
            found[row.parent] = (*found.get(row.parent, ()), below)
    return found


def standing_of_row(row: RunRow) -> Before:
    """Return the status of a run."""
    since = row.waits.paused_at or row.waits.claimed_at or row.submitted_at
    return Before(run_id=row.run_id, status=row.status, since=since)
