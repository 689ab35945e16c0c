"""Further actions on runs: retry, drive, forks with their plans, and one action for many runs."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from ....eventlog.errors import ApprovalError, FoldlogError
from ....eventlog.events import Trigger
from ....projections.run_list import is_meant
from ....runtime import PlannedCall, PlannedNode, RunHandle
from ....runtime.shared.kept_answers import KeptAnswers
from ...http.answers import Refused
from ...http.identifiers import traceparent
from ..problems import Problem, status_of
from ..queries import RunQuery
from ..routing import Answered, Call, Nothing, Route
from .runs import Done, Started

BATCH_MAX = 1000
BatchAction = Literal["cancel", "pause", "resume", "retry", "approve", "reject"]


class RetryRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A retry of a run that is over; `from_failure`: from before what failed, with the recorded results."""

    from_failure: bool = False
    number: int | None = None
    executor: str | None = None


class DriveRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The executor that is to continue a run; null for that of the run."""

    executor: str | None = None


class RefreshTools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MCP servers to add, and tools to remove."""

    mcp_servers: dict[str, dict[str, Any]] | None = None
    remove: list[str] = []


class ForkRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fork of the history up to revision `at`. `plan` is the digest of the plan that was shown."""

    at: int
    model: str | None = None
    input: str | None = None
    tools: Literal["ask", "run", "replay"] = "ask"
    executor: str | None = None
    fork_id: str | None = None
    plan: str = ""


class ShownPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a fork, and the digest that agrees to it at the start. `calls` are those open there, and later."""

    digest: str
    run: str
    at: int
    shared: int
    steps: int
    model: str
    model_was: str
    first: str
    replaces_input: bool
    calls: list[PlannedCall]
    nodes: list[PlannedNode]


class Batch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One action for many: `ids` of runs (or approvals), or a `filter` of runs with the `count` of its dry run.

    A filter selects only runs that the action can be for: open ones to cancel, paused ones to resume, and failed and
    cancelled ones to retry, unless it names the status. One that names nothing needs `all`.
    """

    action: BatchAction
    ids: list[str] = []
    filter: RunQuery | None = None
    all: bool = False
    count: int | None = None
    dry_run: bool = False
    note: str = ""


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one of them: `status` 200, or that of the problem in `detail`. `told` is the answer in short."""

    id: str
    status: int
    told: str = ""
    detail: str = ""


class BatchDone(msgspec.Struct, frozen=True):
    """The number of runs that were meant, and a result for each; none of a dry run."""

    count: int
    results: list[BatchResult]


async def retry_run(call: Call[Nothing, RetryRun]) -> Answered:
    """Retry a run that is over, as a new run of the same job."""
    given = call.body
    run: RunHandle[Any] = await call.runtime.retry(
        call.path("run"),
        from_failure=given.from_failure,
        number=await _number(call),
        executor=given.executor,
        by=call.author,
    )
    return Answered(Started(run.run_id, run.is_new), 201 if run.is_new else 200)


async def _number(call: Call[Nothing, RetryRun]) -> int | None:
    """Return the number of the retry. It is stored for an Idempotency-Key, since a server may die before it answers."""
    given = call.body
    if given.number is not None or not call.key:
        return given.number
    kept, name = KeptAnswers(call.runtime.log), f"{call.key}\0number"
    found = await kept.find(call.actor.name, name)
    if found is None:
        number = await call.runtime.next_retry(call.path("run"), from_failure=given.from_failure)
        found = await kept.keep(call.actor.name, name, call.digest, 0, str(number))
    if found.request != call.digest:
        raise Refused(422, "this Idempotency-Key belongs to another request: use a new one")
    return int(found.body)


async def drive_run(call: Call[Nothing, DriveRun]) -> Done:
    """Get a run that no process drives driven on, here or by a worker."""
    state = await call.run.state()
    executor = call.body.executor or (state.submitted.executor if state.submitted is not None else "durable")
    await call.runtime.drive(call.path("run"), executor)
    return Done(call.path("run"), await call.run.status())


async def refresh_tools(call: Call[Nothing, RefreshTools]) -> Done:
    """List a run's tools again before its next step."""
    await call.run.refresh_tools(call.body.mcp_servers, remove=call.body.remove, by=call.actor.name)
    return Done(call.path("run"), await call.run.status())


async def plan_fork(call: Call[Nothing, ForkRun]) -> ShownPlan:
    """Show what a fork would do, and store nothing."""
    return await _plan(call)


async def _plan(call: Call[Nothing, ForkRun]) -> ShownPlan:
    asked = call.body
    plan = await call.runtime.plan_fork(
        call.path("run"), at=asked.at, model=asked.model, input=asked.input, tools=asked.tools
    )
    # The origin may be running: its progress is not part of what was agreed to.
    agreed = msgspec.structs.replace(plan, status="", revisions=0)
    return ShownPlan(
        digest=hashlib.sha256(msgspec.json.encode(agreed)).hexdigest(),
        run=plan.run,
        at=plan.revision,
        shared=plan.shared,
        steps=plan.steps,
        model=plan.model,
        model_was=plan.model_was,
        first=plan.first,
        replaces_input=plan.replaces_input,
        calls=[*plan.open, *plan.behind],
        nodes=list(plan.nodes),
    )


async def fork_run(call: Call[Nothing, ForkRun]) -> Answered:
    """Start a fork; 409 unless its plan is the one that was shown."""
    asked = call.body
    shown = await _plan(call)
    if asked.plan != shown.digest:
        raise Problem(409, "the plan is not the one that was shown: look at it again", digest=shown.digest)
    trigger = Trigger(kind="api", request_id=call.request_id, traceparent=traceparent(call.request))
    run: RunHandle[Any] = await call.runtime.fork(
        call.path("run"),
        at=asked.at,
        model=asked.model,
        input=asked.input,
        tools=asked.tools,
        executor=asked.executor or call.door.options.executor,
        fork_id=asked.fork_id or _id_of_key(call),
        trigger=trigger,
        by=call.author,
    )
    return Answered(Started(run.run_id, run.is_new), 201 if run.is_new else 200)


def _id_of_key(call: Call[Any, Any]) -> str | None:
    """Return the id of the fork that an Idempotency-Key names; None without one."""
    if not call.key:
        return None
    named = f"{call.actor.name}\0{call.path('run')}\0{call.key}"
    return f"fork-{hashlib.sha256(named.encode()).hexdigest()[:40]}"


async def batch(call: Call[Nothing, Batch]) -> BatchDone:
    """Do one thing to many runs or approvals. Each is a command of its own: one that fails does not stop the others."""
    asked = call.body
    if bool(asked.ids) == (asked.filter is not None):
        raise Refused(422, "give ids, or a filter")
    if asked.filter is not None:
        ids = await _selected(call, asked.filter)
    else:
        ids = list(dict.fromkeys(asked.ids))
    if len(ids) > BATCH_MAX:
        raise Refused(422, f"at most {BATCH_MAX:,} at once, not {len(ids):,}")
    if asked.dry_run:
        return BatchDone(len(ids), [])
    if asked.filter is not None and asked.count != len(ids):
        raise Problem(409, f"the filter now selects {len(ids)}: look at its dry run again", count=len(ids))
    return BatchDone(len(ids), [await _one(call, each) for each in ids])


async def _selected(call: Call[Nothing, Batch], query: RunQuery) -> list[str]:
    if query == RunQuery() and not call.body.all:
        raise Refused(422, "the filter names nothing: give it a field, or `all` to select all runs")
    index = await call.door.index()
    filters = query.filters()
    filters["buried"] = False
    rows = await index.runs(-1, **filters)
    match call.body.action:
        case "approve" | "reject":
            wanted = {row.run_id for row in rows}
            return [row.approval_id for row in await index.approvals() if row.run_id in wanted]
        case "cancel" | "pause" | "resume" | "retry" as action:
            return [row.run_id for row in rows if is_meant(row, action, query.status)]


async def _one(call: Call[Nothing, Batch], name: str) -> BatchResult:
    try:
        return BatchResult(id=name, status=200, told=await _done(call, name))
    except (FoldlogError, Refused) as error:
        return BatchResult(id=name, status=status_of(error), detail=str(error))


async def _done(call: Call[Nothing, Batch], name: str) -> str:
    by, note = call.author, call.body.note
    run = call.runtime.get_run(name)
    match call.body.action:
        case "cancel":
            return await run.cancel(note, by=by)
        case "pause":
            await run.pause(by=by)
        case "resume":
            await run.resume(by=by)
        case "retry":
            return (await call.runtime.retry(name, number=1, by=by)).run_id
        case "approve" | "reject" as action:
            decision: Literal["approved", "rejected"] = "approved" if action == "approve" else "rejected"
            found = [
                row
                for row in await (await call.door.index()).approvals_named(name)
                if row.approval_id == name
            ]
            if not found:
                raise ApprovalError(f"there is no approval {name!r:.80}")
            stored = await call.runtime.get_run(found[0].run_id).resolve(name, decision, note, by=by)
            return stored.decision
    return await run.status()


_RUN = "/runs/{run}"
ROUTES = (
    Route(
        method="POST",
        path=f"{_RUN}/retry",
        role="operator",
        endpoint=retry_run,
        body=RetryRun,
        answer=Started,
        status=201,
        cost="start",
    ),
    Route(
        method="POST", path=f"{_RUN}/drive", role="operator", endpoint=drive_run, body=DriveRun, answer=Done
    ),
    Route(
        method="POST",
        path=f"{_RUN}/refresh-tools",
        role="operator",
        endpoint=refresh_tools,
        body=RefreshTools,
        answer=Done,
    ),
    Route(
        method="POST",
        path=f"{_RUN}/fork/plan",
        role="operator",
        endpoint=plan_fork,
        body=ForkRun,
        answer=ShownPlan,
        cost="heavy",
    ),
    Route(
        method="POST",
        path=f"{_RUN}/fork",
        role="operator",
        endpoint=fork_run,
        body=ForkRun,
        answer=Started,
        status=201,
        cost="start",
    ),
    Route(method="POST", path="/batch", role="operator", endpoint=batch, body=Batch, answer=BatchDone),
)
