"""The namespace as its operators see it: who waits for what, who works, what it cost, and whether it is right."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import Response

from ....eventlog.commits import decode
from ....eventlog.events import TokenUsage
from ....eventlog.ports import Presence, RegisterKind, Shard, served
from ....projections.money import plus_cost
from ....projections.run_list import OPEN, RunRow
from ...http.answers import Refused
from ..routing import Call, Nothing, Route
from .looking import apart

if TYPE_CHECKING:
    from ....eventlog.ports import Stored
    from ....projections.projector import RunIndex
    from ....replay import Watch

WAITING_MAX = 500


class WaitingRun(msgspec.Struct, frozen=True, kw_only=True):
    """An open run that waits, and why."""

    row: RunRow
    why: Any


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Open runs by agent and status, the agents that workers serve, and at most 500 runs that wait, newest first."""

    agents: dict[str, dict[str, int]]
    served: list[str]
    waiting: list[WaitingRun]


class Registers(msgspec.Struct, frozen=True):
    """The registers of one kind: each as its last event says."""

    rows: list[dict[str, Any]]


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process that drives runs, and the open runs that it has claimed."""

    present: Presence
    runs: list[str]


class Workers(msgspec.Struct, frozen=True):
    """The processes that are present."""

    rows: list[WorkerRow]


class CostsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What costs are grouped by, for runs that were submitted from a time on (default: 30 days ago) and before one."""

    by: Literal["day", "agent", "model", "session", "user"] = "day"
    since: float | None = msgspec.field(default=None, name="from")
    until: float | None = msgspec.field(default=None, name="to")


class CostGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a group: their tokens, their cost as far as prices are known, and how many runs have unknown ones."""

    key: str
    runs: int = 0
    usage: TokenUsage = TokenUsage()
    cost_usd: str | None = "0"
    unpriced: int = 0


class CostGroups(msgspec.Struct, frozen=True):
    """The groups, in the order of their keys."""

    rows: list[CostGroup]


class ProjectionRow(msgspec.Struct, frozen=True):
    """A projection, and the number of commits that it does not have yet."""

    name: str
    version: int
    lag: int


class MonitorQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run whose family is checked; all runs without it."""

    run: str = ""


class Monitored(msgspec.Struct, frozen=True, kw_only=True):
    """The violations of the ordering rules among the events that were judged."""

    events: int
    commits: int
    violations: list[dict[str, Any]]


async def show_queue(call: Call[Nothing, Nothing]) -> Queue:
    """Show who waits for what."""
    index = await call.door.index()
    rows = [row for status in OPEN for row in await index.runs(WAITING_MAX, status=status)]
    agents: dict[str, dict[str, int]] = {}
    for row in rows:
        of_agent = agents.setdefault(row.agent, dict.fromkeys(OPEN, 0))
        of_agent[row.status] += 1
    whys = await call.runtime.operations.why(rows)
    waiting = [WaitingRun(row=row, why=whys[row.run_id]) for row in rows if row.run_id in whys]
    present = await call.runtime.log.leases.present()
    return Queue(agents=agents, served=sorted(served(present)), waiting=waiting[:WAITING_MAX])


async def list_lanes(call: Call[Nothing, Nothing]) -> Registers:
    """List the lanes of sessions: who runs, and who waits in which order."""
    return await _registers(call, "lane")


async def list_slots(call: Call[Nothing, Nothing]) -> Registers:
    """List the slots: who holds and who waits."""
    return await _registers(call, "slots")


async def list_breakers(call: Call[Nothing, Nothing]) -> Registers:
    """List the circuit breakers."""
    return await _registers(call, "breaker")


async def _registers(call: Call[Any, Any], kind: RegisterKind) -> Registers:
    log, rows = call.runtime.log, list[dict[str, Any]]()
    for shard in range(log.events.shards):
        async for stored in log.events.heads(shard, kind):
            commit = decode(stored.data)
            rows += [{**msgspec.to_builtins(event), "at": commit.at} for event in commit.events]
    return Registers(rows)


async def list_workers(call: Call[Nothing, Nothing]) -> Workers:
    """List the processes that drive runs, and what they hold."""
    index = await call.door.index()
    rows: list[WorkerRow] = []
    for present in await call.runtime.log.leases.present():
        held = [
            row.run_id
            for status in ("running", "paused")
            for row in await index.runs(WAITING_MAX, worker=present.worker, status=status)
            if row.driven
        ]
        rows.append(WorkerRow(present=present, runs=held))
    return Workers(rows)


async def group_costs(call: Call[CostsQuery, Nothing]) -> CostGroups:
    """Sum up tokens and costs of runs by day, agent, model, session or user."""
    index, query = await call.door.index(), call.query
    since = query.since if query.since is not None else call.runtime.log.clock.now() - 30 * 86400
    rows = await index.runs(-1, since=since, until=query.until)
    return CostGroups(await apart(lambda: _grouped(rows, query.by)))


def _grouped(rows: list[RunRow], by: str) -> list[CostGroup]:
    groups: dict[str, CostGroup] = {}
    for row in rows:
        if by == "day":
            key = datetime.fromtimestamp(row.submitted_at, UTC).strftime("%Y-%m-%d")
        else:
            key = getattr(row, by) or ""
        group = groups.get(key) or CostGroup(key=key)
        groups[key] = msgspec.structs.replace(
            group,
            runs=group.runs + 1,
            usage=group.usage + row.usage,
            cost_usd=group.cost_usd if row.cost_usd is None else plus_cost(group.cost_usd, row.cost_usd),
            unpriced=group.unpriced + (row.cost_usd is None),
        )
    return [groups[key] for key in sorted(groups)]


async def check_order(call: Call[MonitorQuery, Nothing]) -> Monitored:
    """Check the stored events against the ordering rules."""
    from ....replay import Watch
    from ....replay.traces.trace import family_of

    log = call.runtime.log
    if call.query.run:
        selectors: list[Any] = [family_of(await call.runtime.locate(call.query.run))]
    else:
        selectors = [Shard(shard) for shard in range(log.events.shards)]
    watches = [Watch() for _ in selectors]
    violations: list[dict[str, Any]] = []
    for selector, watch in zip(selectors, watches, strict=True):
        stored = [each async for each in log.events.read(selector)]
        violations += await apart(partial(_violations, watch, stored))
    return Monitored(
        events=sum(watch.events for watch in watches),
        commits=sum(watch.commits for watch in watches),
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
    _get("/lanes", list_lanes, Registers),
    _get("/slots", list_slots, Registers),
    _get("/breakers", list_breakers, Registers),
    _get("/workers", list_workers, Workers),
    _get("/costs", group_costs, CostGroups, query=CostsQuery, cost="heavy"),
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
