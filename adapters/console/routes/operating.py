"""The namespace as its operators see it: who waits for what, who works, what it cost, and whether it is right."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from ....eventlog.commits import decode
from ....eventlog.ports import Log, Selector, Shard
from ....projections.operating.costs import By, CostSum
from ....projections.run_list import OPEN, RunRow
from ....runtime.operating.budget_list import name_of_budget
from ....runtime.operating.rows import AgentRow, BreakerRow, BudgetRow, LaneRow, SlotRow
from ...http.answers import Refused
from ..holders import Workers, workers_of
from ..paging import Rows, parse_place, place_of
from ..routing import Call, Nothing, Page, Route
from .looking import apart

if TYPE_CHECKING:
    from ....eventlog.ports import Stored
    from ....projections.projector import RunIndex
    from ....replay import Watch

WAITING_MAX = 500
COSTS_DAYS = 30
BUDGETS_KEPT_S = 60.0
"""How long later pages are served from what the first page read, which may be a register for each user."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class WaitingRun(msgspec.Struct, frozen=True, kw_only=True):
    """An open run that waits, and why."""

    row: RunRow
    why: Any


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The agents with open runs or workers, and at most 500 runs that wait, newest first."""

    agents: list[AgentRow]
    waiting: list[WaitingRun]


class Lanes(msgspec.Struct, frozen=True):
    """The lanes with open runs."""

    rows: list[LaneRow]


class Slots(msgspec.Struct, frozen=True):
    """The slots that are held or waited for."""

    rows: list[SlotRow]


class Breakers(msgspec.Struct, frozen=True):
    """The circuit breakers that have counted failures."""

    rows: list[BreakerRow]


class CostsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key by which costs are grouped, from a day on (UTC, `2026-11-24`; default: 30 days ago) and before one."""

    by: By = "day"
    since: str = msgspec.field(default="", name="from")
    until: str = msgspec.field(default="", name="to")


class CostSums(msgspec.Struct, frozen=True):
    """The groups, in the order of their keys."""

    rows: list[CostSum]


class ProjectionRow(msgspec.Struct, frozen=True):
    """A projection, and the number of commits that it does not have yet."""

    name: str
    version: int
    lag: int


class MonitorQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run whose family is checked; all runs without it."""

    run: str = ""


class Monitored(msgspec.Struct, frozen=True, kw_only=True):
    """The violations of the ordering rules among the events that were judged, the first of which is of `since`."""

    events: int
    commits: int
    since: float | None
    violations: list[dict[str, Any]]


async def show_queue(call: Call[Nothing, Nothing]) -> Queue:
    """Show who waits for what."""
    index, operations = await call.door.index(), call.runtime.operations
    rows = [row for status in OPEN for row in await index.runs(WAITING_MAX, status=status)]
    whys = await operations.why(rows)
    waiting = [WaitingRun(row=row, why=whys[row.run_id]) for row in rows if row.run_id in whys]
    return Queue(agents=await operations.agents(), waiting=waiting[:WAITING_MAX])


async def list_lanes(call: Call[Nothing, Nothing]) -> Lanes:
    """List the lanes of sessions: who runs, and who waits in which order."""
    return Lanes(await call.runtime.operations.lanes())


async def list_slots(call: Call[Nothing, Nothing]) -> Slots:
    """List the slots: who holds and who waits."""
    return Slots(await call.runtime.operations.slots())


async def list_breakers(call: Call[Nothing, Nothing]) -> Breakers:
    """List the circuit breakers."""
    return Breakers(await call.runtime.operations.breakers())


async def list_budgets(call: Call[Page, Nothing]) -> Rows[BudgetRow]:
    """List the budgets of the namespace: what is spent, what is left, and until when; by their owners."""
    limit, place = call.query.limit, parse_place(call.query.before)
    now = call.runtime.log.clock.monotonic()
    read_at, budgets = call.door.budgets or (-math.inf, None)
    if budgets is None or place is None or now - read_at > BUDGETS_KEPT_S:
        budgets = await call.runtime.operations.budgets(call.runtime.budgets)
        call.door.budgets = now, budgets
    rows = budgets.page(limit + 1, after="" if place is None else place[1])
    page = rows[:limit]
    return Rows(page, place_of(0.0, name_of_budget(page[-1])) if len(rows) > limit else None)


async def list_workers(call: Call[Nothing, Nothing]) -> Workers:
    """List the processes that drive runs, what they hold, and those that were lost."""
    return await workers_of(call.runtime.operations)


async def sum_costs(call: Call[CostsQuery, Nothing]) -> CostSums:
    """Sum up tokens and costs of model calls by day, agent, model, session or user."""
    query = call.query
    for day in filter(None, (query.since, query.until)):
        if not _DAY.fullmatch(day):
            raise Refused(422, f"write a day as 2026-03-01, not {day!r:.40}")
    ago = datetime.fromtimestamp(call.runtime.log.clock.now() - COSTS_DAYS * 86400, UTC)
    since = query.since or f"{ago:%Y-%m-%d}"
    return CostSums(await call.runtime.operations.costs(query.by, since, query.until))


async def check_order(call: Call[MonitorQuery, Nothing]) -> Monitored:
    """Check the stored events against the ordering rules."""
    from ....replay import Watch
    from ....replay.traces.trace import family_of

    log: Log = call.runtime.log
    selectors: list[Selector]
    if call.query.run:
        namespace, subject = await call.runtime.place(call.query.run)
        log, selectors = namespace.log, [family_of(subject)]
    else:
        selectors = [Shard(shard) for shard in range(log.events.shards)]
    watches = [Watch() for _ in selectors]
    violations: list[dict[str, Any]] = []
    begun: list[float] = []
    for selector, watch in zip(selectors, watches, strict=True):
        stored = [each async for each in log.events.read(selector)]
        violations += await apart(partial(_violations, watch, stored))
        begun += [decode(each.data).at for each in stored[:1]]
    return Monitored(
        events=sum(watch.events for watch in watches),
        commits=sum(watch.commits for watch in watches),
        since=min(begun, default=None),
        violations=violations,
    )


def _violations(watch: Watch, commits: list[Stored]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(found) for stored in commits for found in watch.feed(stored)]


async def doctor(call: Call[Nothing, Nothing]) -> list[dict[str, Any]]:
    """Show the findings of `foldlog doctor` on this server."""
    if call.door.doctor is None:
        raise Refused(404, "this server has no doctor: it is mounted in another program")
    return await call.door.doctor()


async def list_projections(call: Call[Nothing, Nothing]) -> list[ProjectionRow]:
    """List the projections with their lag."""
    index = await call.door.index()
    lag = await index.lag()
    return [ProjectionRow(each.name, each.version, lag) for each in index.projections]


async def rebuild_projections(call: Call[Nothing, Nothing]) -> list[ProjectionRow]:
    """Delete the rows of the projections, and fold the log from its beginning."""
    await (await call.door.index()).rebuild()
    return await list_projections(call)


async def metrics(call: Call[Nothing, Nothing]) -> Response:
    """Show gauges in the text format of Prometheus."""
    index = await call.door.index()
    text = "".join(await _gauges(call, index))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _gauges(call: Call[Any, Any], index: RunIndex) -> list[str]:
    counts, waits = await index.count_runs(1_000_000), await index.count_waits()
    name = call.runtime.log.namespace
    lines = ["# HELP foldlog_runs Runs by status.\n", "# TYPE foldlog_runs gauge\n"]
    lines += [f'foldlog_runs{{namespace="{name}",status="{status}"}} {n}\n' for status, n in counts.items()]
    lines += [
        "# HELP foldlog_runs_waiting Open runs by what they wait for.\n",
        "# TYPE foldlog_runs_waiting gauge\n",
    ]
    lines += [
        f'foldlog_runs_waiting{{namespace="{name}",waiting_for="{what}"}} {n}\n' for what, n in waits.items()
    ]
    more = {
        "foldlog_runs_damaged": ("Runs whose logs are damaged.", await index.count_damaged()),
        "foldlog_approvals_pending": ("Approvals that wait for a decision.", len(await index.approvals())),
        "foldlog_projections_lag_commits": ("Commits that the projections lack.", await index.lag()),
        "foldlog_workers": ("Processes that drive runs.", len(await call.runtime.log.leases.present())),
    }
    for gauge, (told, value) in more.items():
        lines.append(f'# HELP {gauge} {told}\n# TYPE {gauge} gauge\n{gauge}{{namespace="{name}"}} {value}\n')
    return lines


def _get(path: str, endpoint: Any, answer: Any, **more: Any) -> Route:
    return Route(method="GET", path=path, role="viewer", endpoint=endpoint, answer=answer, **more)


ROUTES = (
    _get("/queue", show_queue, Queue),
    _get("/lanes", list_lanes, Lanes),
    _get("/slots", list_slots, Slots),
    _get("/breakers", list_breakers, Breakers),
    _get("/budgets", list_budgets, Rows[BudgetRow], query=Page),
    _get("/workers", list_workers, Workers),
    _get("/costs", sum_costs, CostSums, query=CostsQuery, cost="heavy"),
    _get("/monitor", check_order, Monitored, query=MonitorQuery, cost="heavy"),
    _get("/doctor", doctor, list[dict[str, Any]], cost="heavy"),
    _get("/projections", list_projections, list[ProjectionRow]),
    Route(
        method="POST",
        path="/projections/rebuild",
        role="admin",
        endpoint=rebuild_projections,
        body=Nothing,
        answer=list[ProjectionRow],
    ),
    _get("/metrics", metrics, None, media="text/plain"),
)
