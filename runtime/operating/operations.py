"""`rt.operations`: questions of operators about a namespace, for consoles and the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from ...eventlog.events import BreakerUpdated, SlotsUpdated
from ...eventlog.ports import Log
from ...projections.jobs import Job
from ...projections.operating.board import Before, waiter_of_row
from ...projections.operating.costs import By, CostSum, sums
from ...projections.operating.why import Why, why
from ...projections.run_list import OPEN
from ..core.shared_budgets import SharedBudget
from ..journal.lanes import read_lane
from ..shared.deadlocks import limit_name
from ..shared.slots import clear_slots
from ..shared.spending import all_spent
from .budget_list import BudgetList
from .rows import (
    AgentRow,
    BreakerRow,
    Drive,
    Holder,
    LaneRow,
    LostWorker,
    SlotRow,
    Standing,
    TakenRun,
    WorkerRow,
)
from .surroundings import Executors, below_of_rows, board_for, registers, standing_of_row

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ...projections.projector import RunFilters, RunIndex
    from ...projections.run_list import RunRow


class Operations:
    """Every answer is of the log as it is now. Raises `LogUnavailable`, `LogCorrupted`."""

    def __init__(
        self,
        log: Log,
        index: Callable[[], Awaitable[RunIndex]],
        executors: Executors,
        limits: Collection[str] = (),
    ) -> None:
        self._log, self._index, self._executors, self._limits = log, index, executors, limits

    async def why(self, rows: Sequence[RunRow], tz: tzinfo | None = None) -> dict[str, Why]:
        """Return why runs of the run list wait, by run id; runs that wait for nothing are left out.

        So are damaged ones: what they wait for is not known. Points in time are told in `tz` (None: the local time of
        this process).
        """
        index = await self._index()
        waiters = [waiter_of_row(row) for row in rows if not row.over and row.damage is None]
        if not waiters:
            return {}
        parents = {run.root_id for run in waiters}
        below = below_of_rows(await index.families(parents))

        async def standing(run_id: str) -> Before:
            return standing_of_row(await index.run(run_id))

        board = await board_for(self._log, waiters, below, standing, self._executors)
        found = {run.run_id: why(run, board, tz) for run in waiters}
        return {run_id: each for run_id, each in found.items() if each is not None}

    async def workers(self) -> list[WorkerRow]:
        """Return the processes that are present, by their names."""
        now = self._log.clock.now()
        held: dict[str, list[Drive]] = {}
        for each in await self._log.leases.held():
            if each.lease.run == each.lease.root:
                drive = Drive(
                    run_id=each.lease.run,
                    epoch=each.lease.epoch,
                    lease_age_s=max(0.0, now - each.renewed_at),
                )
                held.setdefault(each.lease.worker, []).append(drive)
        return [
            WorkerRow(
                worker=each.worker,
                host=each.host,
                pid=each.pid,
                release=each.release,
                build=each.build,
                serves=each.serves,
                concurrency=each.concurrency,
                since=each.since,
                drives=tuple(sorted(held.get(each.worker, ()), key=lambda drive: drive.run_id)),
                silent_s=max((drive.lease_age_s for drive in held.get(each.worker, ())), default=0.0),
                draining=each.draining,
            )
            for each in await self._log.leases.present()
        ]

    async def lost_workers(self, within_s: float = 3600.0) -> list[LostWorker]:
        """Return the processes that are gone and had runs taken over in the last seconds, or have runs left.

        By their names. A local run whose program has ended is left until a process drives it.
        """
        index, now = await self._index(), self._log.clock.now()
        here = {each.worker for each in await self._log.leases.present()}
        taken: dict[str, list[TakenRun]] = {}
        left: dict[str, list[RunRow]] = {}
        for row in await index.taken_since(now - within_s):
            if row.takeover is not None and row.takeover.worker not in here:
                taken.setdefault(row.takeover.worker, []).append(
                    TakenRun(run_id=row.run_id, takeover=row.takeover)
                )
        for row in await self._open():
            if row.driven and row.parent is None and row.worker not in here:
                left.setdefault(row.worker, []).append(row)
        return [
            LostWorker(
                worker=name,
                since=min(
                    [each.takeover.at - each.takeover.silent_s for each in taken.get(name, ())]
                    + [row.updated_at for row in left.get(name, ())]
                ),
                taken=tuple(taken.get(name, ())),
                left=tuple(row.run_id for row in left.get(name, ())),
            )
            for name in sorted({*taken, *left})
        ]

    async def lanes(self) -> list[LaneRow]:
        """Return the lanes with open runs, by their names."""
        rows = {row.run_id: row for row in await self._open() if row.lane is not None}
        found: list[LaneRow] = []
        for lane in sorted({row.lane or "" for row in rows.values()}):
            queue = [entry.run for entry in (await read_lane(self._log, lane))[2]]
            runs = [_standing(rows[run]) for run in queue if run in rows]
            if runs:
                found.append(LaneRow(lane=lane, runs=tuple(runs)))
        return found

    async def slots(self, limits: Collection[str] | None = None) -> list[SlotRow]:
        """Return the slots that are held or waited for, by their names.

        `limits` are those that are configured; by default those of this process, which knows nothing if it has none.
        """
        known = limits if limits is not None else self._limits or None
        configured = None if known is None else {limit_name(limit) for limit in known}
        found = await registers(self._log, "slots", SlotsUpdated)
        return [
            SlotRow(
                name=name,
                places=max((each.runs_max for each in slots.waiting), default=0),
                holders=tuple(Holder(run_id=h.run, call=h.call, since=h.since) for h in slots.holders),
                waiting=tuple(
                    Holder(run_id=w.run, call=w.call, tool=w.tool, since=w.since) for w in slots.waiting
                ),
                configured=None
                if configured is None or not name.startswith(limit_name(""))
                else name in configured,
            )
            for name, slots in sorted(found.items())
            if slots.holders or slots.waiting
        ]

    async def clear_slots(self) -> dict[str, tuple[str, ...]]:
        """Remove the entries of runs that are over from all slots; return those runs by the slots that had any."""
        names = [name for name, _slots in sorted((await registers(self._log, "slots", SlotsUpdated)).items())]
        found = {name: await clear_slots(self._log, name) for name in names}
        return {name: runs for name, runs in found.items() if runs}

    async def budgets(self, budgets: Sequence[SharedBudget]) -> BudgetList:
        """Look what is spent of these budgets now, those of each user once for each user who has spent anything.

        Without any: what other processes count in a period that is not over, with an empty amount.
        """
        now = self._log.clock.now()
        return BudgetList(budgets, await all_spent(self._log), now)

    async def breakers(self) -> list[BreakerRow]:
        """Return the circuit breakers that have counted failures, by their names."""
        found = await registers(self._log, "breaker", BreakerUpdated)
        return [
            BreakerRow(
                name=name,
                state=each.state,
                failures=each.failures,
                until=each.until,
                error_type=each.error_type,
                run_id=each.run,
            )
            for name, each in sorted(found.items())
            if each.failures or each.state != "closed"
        ]

    async def agents(self) -> list[AgentRow]:
        """Return the agents that have open root runs, or workers that take some, by their names."""
        present = [each for each in await self._log.leases.present() if not each.draining]
        counts: dict[str, dict[str, int]] = {agent: {} for each in present for agent in each.serves}
        for row in await self._open():
            if row.parent is None:
                kind = "driven" if row.driven else "queued" if row.status == "queued" else "parked"
                of_agent = counts.setdefault(row.agent, {})
                of_agent[kind] = of_agent.get(kind, 0) + 1
        wakeups = await self._log.wakeups.waiting(frozenset(counts))
        return [
            AgentRow(
                agent=agent,
                **counts[agent],
                wakeups=wakeups.get(agent, 0),
                workers=tuple(each.worker for each in present if agent in each.serves),
            )
            for agent in sorted(counts)
        ]

    async def jobs(
        self, limit: int = -1, *, before: tuple[float, str] | None = None, **filters: Unpack[RunFilters]
    ) -> list[Job]:
        """Return the jobs whose newest run meets the filters, with their rollbacks, newest first; -1 for all.

        `before` is the time of submission and the id of the newest run of the last job of the page before. Raises
        `ConfigError` for an unknown status.
        """
        return await (await self._index()).jobs(limit, before=before, **filters)

    async def job(self, run_id: str) -> Job:
        """Return the job that a run belongs to, a child run with its root. Raises `RunNotFound`."""
        index = await self._index()
        row = await index.run(run_id)
        root = row if row.job_id else await index.run(row.root_id)
        return await index.job(root.job_id)

    async def costs(self, by: By, since: str = "", until: str = "") -> list[CostSum]:
        """Return tokens and dollars by day, agent, model, session or user; days as `2026-11-24`, `until` exclusive."""
        return sums(await (await self._index()).costs(), by, since, until)

    async def _open(self) -> list[RunRow]:
        index = await self._index()
        rows = [row for status in OPEN for row in await index.runs(limit=-1, status=status)]
        return sorted(rows, key=lambda row: (row.submitted_at, row.run_id))


def _standing(row: RunRow) -> Standing:
    found = standing_of_row(row)
    return Standing(run_id=row.run_id, agent=row.agent, status=found.status, since=found.since)
