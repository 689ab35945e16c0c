"""Runs: the list, one run with its events, and what is done to it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ....eventlog.commits import Chain, as_read
from ....eventlog.errors import ConfigError, NotRegistered
from ....eventlog.events import ENGINE, Event, Trigger
from ....eventlog.names import check_name, digest_of, trace_id_of
from ....eventlog.priorities import Priority
from ....projections.family_totals import FamilyTotals
from ....projections.operating.why import Why
from ....projections.pending import Pending
from ....projections.run_list import RunRow
from ....runtime.agents.kinds import runnable_of
from ....runtime.journal.journal import restored
from ....runtime.ports.suggestions import nearest
from ....runtime.stream import is_shown
from ...http.answers import Refused
from ...http.identifiers import traceparent
from ..listed import ListedRun, listed_runs
from ..paging import parse_place, place_of
from ..queries import COUNTED_MAX, RunQuery
from ..routing import Answered, Call, Nothing, Page, Route
from ..streaming.lists import places_text

CHILDREN_MAX = 1000
EVENTS_MAX = 1000


class RunsQuery(RunQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of runs, and the page of the list."""

    order: Literal["submitted", "updated"] = "submitted"
    limit: int = 50
    before: str = ""

    def __post_init__(self) -> None:
        Page(limit=self.limit)


class RunDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `totals` are those of the run and all runs below it; `owner` is the process that drives it.

    `config` is the configuration that it was submitted with; `forks` are the runs forked from it, at most 1,000;
    `trace_id` is that of its spans.
    """

    row: RunRow
    totals: FamilyTotals
    input: str
    output: str
    error: str
    pending: Pending
    why: Why | None
    owner: str | None
    config: dict[str, Any]
    fork: dict[str, Any] | None
    trace_id: str
    children: list[RunRow]
    forks: list[str]


class Runs(msgspec.Struct, frozen=True):
    """A page of runs. `next` is the `before` of the page after it; a stream of this list goes on from `cursor`.

    `damaged` are the runs of the namespace whose logs are damaged, at most 100, whatever the filters: their rows end
    before the damage, and may belong elsewhere.
    """

    rows: list[ListedRun]
    next: str | None
    cursor: str
    damaged: list[RunRow]


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events after a revision; with `engine=1` also the bookkeeping of the executors."""

    after: int = 0
    limit: int = 500
    engine: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= EVENTS_MAX:
            raise ValueError(f"limit is from 1 to {EVENTS_MAX}, not {self.limit}")


class EventRows(msgspec.Struct, frozen=True):
    """Events of a run as they are read, in order. `next`: the `after` of the next page, null at the end.

    `head` is the last revision of the run.
    """

    rows: list[dict[str, Any]]
    next: int | None
    head: int


class CommitOf(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that an event was stored with: its place in the chain of the run."""

    position: int
    revision: int
    events: int
    epoch: int
    append: str
    prev: str
    digest: str
    at: float
    bytes: int


class WholeEvent(msgspec.Struct, frozen=True):
    """One event with its commit."""

    event: dict[str, Any]
    commit: CommitOf


class StartRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to start: of a registered agent, a stored one, or one that has run before; workers drive the last two.

    `version` is that of a stored agent; null is its last one.
    """

    agent: str
    version: int | None = None
    input: str
    executor: str | None = None
    session: str | None = None
    lane: str | None = None
    priority: Priority | int | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    messages: list[dict[str, Any]] = []
    run_id: str | None = None
    model: str | None = None


class Started(msgspec.Struct, frozen=True):
    """The run that was started. `is_new` is false if it was there before."""

    run_id: str
    is_new: bool


class CancelRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run is cancelled."""

    reason: str = ""


class Cancelled(msgspec.Struct, frozen=True):
    """The status that the cancel found: cancelled, or already_completed, already_error, already_cancelled."""

    run_id: str
    found: str


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the run's next step."""

    content: str


class Done(msgspec.Struct, frozen=True):
    """A command that is stored. `status` is that of the run after it."""

    run_id: str
    status: str


async def list_runs(call: Call[RunsQuery, Nothing]) -> Runs:
    """List runs, newest first."""
    index, query = await call.door.index(), call.query
    order: Literal["submitted_at", "updated_at"] = (
        "submitted_at" if query.order == "submitted" else "updated_at"
    )
    rows = await index.runs(query.limit + 1, before=parse_place(query.before), order=order, **query.filters())
    page = rows[: query.limit]
    more = len(rows) > query.limit
    following = place_of(getattr(page[-1], order), page[-1].run_id) if more else None
    cursor = places_text(index.reached())  # before anything else is awaited: what comes later is streamed
    return Runs(await listed_runs(index, page), following, cursor, await index.damaged())


async def count_runs(call: Call[RunQuery, Nothing]) -> dict[str, int | str]:
    """Count the runs of each status; a number above 10,000 is the text "10000+"."""
    index = await call.door.index()
    counts = await index.count_runs(COUNTED_MAX + 1, **call.query.filters())
    return {status: f"{COUNTED_MAX}+" if count > COUNTED_MAX else count for status, count in counts.items()}


async def show_run(call: Call[Nothing, Nothing]) -> RunDetail:
    """Show one run: what it was given, what it is at, what came of it."""
    run, index = call.run, await call.door.index()
    state = await run.state()
    row = await index.run(run.run_id)
    submitted = state.submitted
    pending = await run.pending()
    children = await index.runs(CHILDREN_MAX, parent=run.run_id)
    forks = await index.runs(CHILDREN_MAX, forked_from=run.run_id)
    return RunDetail(
        row=row,
        totals=(await index.totals([row]))[row.run_id],
        input=submitted.input if submitted is not None else row.input,
        output=state.output,
        error=state.error.error if state.error is not None else row.error,
        pending=pending,
        why=pending.why,
        owner=state.owner,
        config=submitted.config if submitted is not None else {},
        trace_id=trace_id_of(row.root_id, row.trigger.traceparent if row.trigger is not None else ""),
        fork=msgspec.to_builtins(submitted.fork) if submitted is not None and submitted.fork else None,
        children=children[::-1],
        forks=[each.run_id for each in forks],
    )


async def list_events(call: Call[EventsQuery, Nothing]) -> EventRows:
    """List the stored events of one run in their order, as every reader gets them."""
    namespace, subject = await call.runtime.place(call.path("run"))
    query, chain = call.query, Chain()
    rows: list[dict[str, Any]] = []
    last = 0
    async for stored in namespace.log.events.read(subject):
        recorded = chain.verify(stored)
        last = recorded.last_rev
        if last <= query.after or len(rows) > query.limit:
            continue
        recorded = await restored(recorded, namespace.log)
        rows += [
            msgspec.to_builtins(event)
            for event in as_read(recorded)
            if (event.revision or 0) > query.after and _is_listed(event, engine=query.engine)
        ]
    more = len(rows) > query.limit
    page = rows[: query.limit]
    return EventRows(page, page[-1]["revision"] if more else None, last)


def _is_listed(event: Event, *, engine: bool) -> bool:
    return is_shown(event, detailed=True) or (engine and isinstance(event, ENGINE)) or engine


async def show_event(call: Call[Nothing, Nothing]) -> WholeEvent:
    """Show one event whole, with its commit: position, digest, that of the commit before, and the epoch."""
    namespace, subject = await call.runtime.place(call.path("run"))
    revision, chain = revision_of(call.path("rev")), Chain()
    async for stored in namespace.log.events.read(subject):
        recorded = chain.verify(stored)
        if recorded.last_rev < revision:
            continue
        commit = recorded.commit
        whole = await restored(recorded, namespace.log)
        event = next((each for each in as_read(whole) if each.revision == revision), None)
        if event is None:
            break
        found = CommitOf(
            position=recorded.position,
            revision=commit.rev,
            events=len(commit.events),
            epoch=commit.epoch,
            append=commit.append,
            prev=commit.prev,
            digest=recorded.digest,
            at=commit.at,
            bytes=len(stored.data),
        )
        return WholeEvent(msgspec.to_builtins(event), found)
    raise Refused(404, f"run {call.path('run')} has no revision {revision}")


def revision_of(text: str) -> int:
    """Return a revision in a path. Raises `Refused` (422)."""
    if not text.isascii() or not text.isdecimal() or len(text) > 12:  # noqa: PLR2004 - more than any log holds
        raise Refused(422, f"a revision is a number from 1, not {text!r:.40}")
    return int(text)


async def start_run(call: Call[Nothing, StartRun]) -> Answered:
    """Start a run; with an Idempotency-Key the same request again finds the same run."""
    asked = call.body
    trigger = Trigger(kind="api", request_id=call.request_id, traceparent=traceparent(call.request))
    run = await call.runtime.start(
        await _agent(call, asked.agent, asked.version),
        asked.input,
        executor=asked.executor or call.door.options.executor,
        session=asked.session,
        lane=asked.lane,
        priority=asked.priority,
        user=asked.user,
        metadata=asked.metadata,
        messages=asked.messages,
        run_id=asked.run_id,
        model=asked.model,
        idempotency_key=f"api:{call.actor.name}:{call.key}" if call.key else None,
        trigger=trigger,
        by=call.author,
    )
    where = {"Location": f"{call.door.options.base_path}/api/v1/runs/{run.run_id}"}
    return Answered(Started(run.run_id, run.is_new), 201 if run.is_new else 200, where)


async def _agent(call: Call[Any, Any], name: str, version: int | None) -> Any:
    """Return the registered agent of this name, the stored one, or the one that the newest run was submitted with."""
    known = call.runtime.registry.agents
    if name in known and version is None:
        return known[name]
    check_name("the agent", name)
    if version is not None or await call.runtime.agents.has(name):
        return await call.runtime.agents.load(name, version)
    index = await call.door.index()
    for row in await index.runs(1, agent=name, children=False, buried=False):
        submitted = (await call.runtime.get_run(row.run_id).state()).submitted
        if submitted is not None:
            return runnable_of(submitted.kind, submitted.config)
    raise NotRegistered(
        f"there is no agent {name!r:.80}: neither the registry of this server has it{nearest(name, known)}, "
        "nor a run in the log"
    )


async def cancel_run(call: Call[Nothing, CancelRun]) -> Cancelled:
    """Cancel a run and all runs below it; tells what it found."""
    run = call.run
    return Cancelled(run.run_id, await run.cancel(call.body.reason, by=call.author))


async def pause_run(call: Call[Nothing, Nothing]) -> Done:
    """Pause a run at its next step boundary."""
    await call.run.pause(by=call.author)
    return await _done(call)


async def resume_run(call: Call[Nothing, Nothing]) -> Done:
    """Let a paused run go on."""
    await call.run.resume(by=call.author)
    return await _done(call)


async def send_message(call: Call[Nothing, Message]) -> Done:
    """Queue a message for a run's next step."""
    if not call.body.content:
        raise ConfigError("content: a message must be a non-empty text")
    key = digest_of(call.actor.name, call.key, call.digest) if call.key else ""
    run = call.run
    if (
        not key or key not in (await run.state()).message_keys
    ):  # otherwise a server that died before it answered has queued it
        await run.inject(call.body.content, request_key=key, by=call.author)
    return await _done(call)


async def _done(call: Call[Any, Any]) -> Done:
    return Done(call.path("run"), await call.run.status())


ROUTES = (
    Route(method="GET", path="/runs", role="viewer", endpoint=list_runs, query=RunsQuery, answer=Runs),
    Route(
        method="GET",
        path="/runs/counts",
        role="viewer",
        endpoint=count_runs,
        query=RunQuery,
        answer=dict[str, int | str],
    ),
    Route(
        method="POST",
        path="/runs",
        role="operator",
        endpoint=start_run,
        body=StartRun,
        answer=Started,
        status=201,
        cost="start",
    ),
    Route(method="GET", path="/runs/{run}", role="viewer", endpoint=show_run, answer=RunDetail),
    Route(
        method="GET",
        path="/runs/{run}/events",
        role="viewer",
        endpoint=list_events,
        query=EventsQuery,
        answer=EventRows,
    ),
    Route(
        method="GET", path="/runs/{run}/events/{rev}", role="viewer", endpoint=show_event, answer=WholeEvent
    ),
    Route(
        method="POST",
        path="/runs/{run}/cancel",
        role="operator",
        endpoint=cancel_run,
        body=CancelRun,
        answer=Cancelled,
    ),
    Route(
        method="POST",
        path="/runs/{run}/pause",
        role="operator",
        endpoint=pause_run,
        body=Nothing,
        answer=Done,
    ),
    Route(
        method="POST",
        path="/runs/{run}/resume",
        role="operator",
        endpoint=resume_run,
        body=Nothing,
        answer=Done,
    ),
    Route(
        method="POST",
        path="/runs/{run}/messages",
        role="operator",
        endpoint=send_message,
        body=Message,
        answer=Done,
    ),
)
