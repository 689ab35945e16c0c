"""One run in depth: its timeline, its state at any revision, prompts, messages, evidence, costs, files."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import msgspec
from starlette.responses import Response, StreamingResponse

from ....eventlog.events import Event, ModelFailed, PlannerReplied, SummaryMade, ToolResult, Usage
from ....projections.content_files import files_in
from ....projections.timeline.bars import Bar
from ....projections.timeline.fold import TimelineFold, below
from ....projections.timeline.rows import Level
from ....projections.tokens import message_tokens
from ...http.answers import Refused
from ..patches import patch
from ..routing import Call, Nothing, Route
from ..timeline import TimelineRow, shown
from .runs import revision_of

if TYPE_CHECKING:
    from ....eventlog.ports import Log, Subject
    from ....replay import Point, Trace

T = TypeVar("T")
LEVELS: dict[Level, int] = {"key": 0, "normal": 1, "engine": 2}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TWO = asyncio.Semaphore(2)
SWITCH_S = 0.0005


class TimelineQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The detail that is shown: key events, normal ones too, or all that are stored."""

    level: Literal["key", "normal", "engine"] = "normal"


class Timeline(msgspec.Struct, frozen=True):
    """A run and all runs below it, up to `cursor`, after which the stream goes on."""

    rows: list[TimelineRow]
    bars: list[Bar]
    cursor: str | None


class AtRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A run right after a revision: its state, what was pending, and the use of its budgets."""

    run_id: str
    revision: int
    at: float
    event: dict[str, Any]
    state: dict[str, Any]
    pending: list[Any]
    budgets: list[Any]


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON Patch that turns the state after one revision into that after another."""

    run_id: str
    after: int
    until: int
    patch: list[dict[str, Any]]


class Messages(msgspec.Struct, frozen=True):
    """The messages that the next model call would get."""

    messages: list[Any]


class CallEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence of a call: artifacts with their digests, and the report of each postcondition."""

    run_id: str
    step: int | None
    tool_call_id: str
    tool_name: str
    success: bool
    revision: int | None
    evidence: list[Any]
    postcondition: list[Any]
    files: list[Any]


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model call; `cost_usd` null if its price is unknown, `failed` for an attempt without a reply."""

    run_id: str
    agent: str
    step: int | None
    revision: int | None
    model: str
    phase: str
    failed: bool
    usage: dict[str, int]
    cost_usd: str | None


class Costs(msgspec.Struct, frozen=True):
    """The model calls of a run and of all runs below it, in their order."""

    rows: list[CostRow]


class ExportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `artifacts=1` the large values are included, so that the file is complete."""

    artifacts: bool = False


async def show_timeline(call: Call[TimelineQuery, Nothing]) -> Timeline:
    """Show the events of a run and all below it as rows, and everything that takes time as bars."""
    trace, run = await trace_of_run(call)
    cursor = trace.events[-1].cursor if trace.events else None
    return await apart(lambda: _drawn(run, trace.events, LEVELS[call.query.level], cursor))


def _drawn(run: str, events: Iterable[Event], level: int, cursor: str | None) -> Timeline:
    """Return a timeline whose rows are JSON already: to encode them all at once would hold up the streams."""
    fold = TimelineFold()
    rows = (shown(fold.add(event)[0]) for event in below(run, events))
    encoded = [msgspec.Raw(msgspec.json.encode(row)) for row in rows if LEVELS[row.level] <= level]
    return Timeline(cast("list[TimelineRow]", encoded), fold.bars, cursor)


async def trace_of_run(call: Call[Any, Any]) -> tuple[Trace, str]:
    """Return the family's trace and the id of the run in the path. Raises `RunNotFound`, `LogCorrupted`."""
    run = call.path("run")
    namespace, subject = await call.runtime.place(run)
    return await load_apart(namespace.log, subject), run


async def load_apart(log: Log, subject: Subject) -> Trace:
    """Load a trace as `load_trace` does, but verify and decode the commits in a thread."""
    from ....replay.traces.trace import read_family, restored, trace_of

    stored = await read_family(log, subject)
    return await restored(await apart(lambda: trace_of(stored)), log)


async def apart(work: Callable[[], T]) -> T:
    """Run an expensive computation in a thread, at most two at a time, and return its result.

    While it runs, the interpreter switches threads more often, so that streams are not delayed.
    """
    async with _TWO:
        sys.setswitchinterval(SWITCH_S)
        return await asyncio.to_thread(work)


async def show_at(call: Call[Nothing, Nothing]) -> AtRevision | Patch:
    """Show a run as it was right after a revision; `{a}..{b}`: what changed between two, as a JSON Patch."""
    from ....replay import state_at

    trace, run = await trace_of_run(call)
    first, dots, last = call.path("rev").partition("..")
    if dots:
        a, b = revision_of(first), revision_of(last)
        before = await apart(lambda: _state(state_at(trace, a, run)) if a else {})
        found = await apart(lambda: list(patch(before, _state(state_at(trace, b, run)))))
        return Patch(run_id=run, after=a, until=b, patch=found)
    revision = revision_of(first)
    point = await apart(lambda: state_at(trace, revision, run))
    return AtRevision(
        run_id=run,
        revision=point.revision,
        at=point.at,
        event=_plain(point.event),
        state=_state(point),
        pending=[{"effect": type(each).__name__, **_plain(each)} for each in point.pending],
        budgets=[_plain(each) for each in point.budgets],
    )


def _state(point: Point) -> dict[str, Any]:
    return _plain(point.state)


def _plain(value: Any) -> dict[str, Any]:
    """Return a struct as JSON has it."""
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_other, str_keys=True)
    return found


def _other(value: Any) -> Any:
    if hasattr(value, "__iter__"):
        return list(value)
    return repr(value)


async def show_prompt(call: Call[Nothing, Nothing]) -> dict[str, Any]:
    """Show the prompt of a model request as it was sent, with the proof: the digest rebuilt from the log."""
    trace, run = await trace_of_run(call)
    revision = revision_of(call.path("rev"))
    return await apart(lambda: _sent(trace, revision, run))


def _sent(trace: Trace, revision: int, run: str) -> dict[str, Any]:
    from ....replay import prompt_at

    sent = prompt_at(trace, revision, run)
    tokens = [message_tokens(message) for message in sent.messages]
    return {**_plain(sent), "message_tokens": tokens, "proven": sent.proven}


async def list_messages(call: Call[Nothing, Nothing]) -> Messages:
    """List the messages that a run's next model call would get."""
    return Messages(msgspec.to_builtins(await call.run.history()))


async def list_evidence(call: Call[Nothing, Nothing]) -> list[CallEvidence]:
    """List the artifacts and postconditions of each call, in the order of the results."""
    trace, run = await trace_of_run(call)
    return await apart(lambda: _evidence(run, trace.events))


def _evidence(run: str, events: Iterable[Event]) -> list[CallEvidence]:
    return [
        CallEvidence(
            run_id=event.run_id,
            step=event.step,
            tool_call_id=event.tool_call_id or "",
            tool_name=event.tool_name,
            success=event.success,
            revision=event.revision,
            evidence=_listed(event.metadata.get("evidence")),
            postcondition=_listed(event.metadata.get("postcondition")),
            files=[msgspec.to_builtins(file) for file in files_in(event)],
        )
        for event in below(run, events)
        if isinstance(event, ToolResult)
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


async def list_costs(call: Call[Nothing, Nothing]) -> Costs:
    """List the usage of each model call of a run and of all runs below it."""
    trace, run = await trace_of_run(call)
    return Costs(await apart(lambda: _costs(run, trace.events)))


def _costs(run: str, events: Iterable[Event]) -> list[CostRow]:
    rows: list[CostRow] = []
    for event in below(run, events):
        if not isinstance(event, Usage | ModelFailed | PlannerReplied | SummaryMade) or event.usage is None:
            continue
        rows.append(
            CostRow(
                run_id=event.run_id,
                agent=event.agent,
                step=event.step,
                revision=event.revision,
                model=getattr(event, "model", ""),
                phase=getattr(event, "phase", ""),
                failed=isinstance(event, ModelFailed),
                usage=msgspec.to_builtins(event.usage),
                cost_usd=event.cost_usd,
            )
        )
    return rows


async def export_run(call: Call[ExportQuery, Nothing]) -> Response:
    """Download the family of a run as JSON Lines, byte for byte as stored."""
    from ....replay import export

    run = call.path("run")
    namespace, subject = await call.runtime.place(run)
    lines: AsyncIterator[bytes] = export(namespace.log, run, artifacts=call.query.artifacts)
    headers = {"Content-Disposition": f'attachment; filename="{subject.root}.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")


async def import_runs(call: Call[Nothing, bytes]) -> dict[str, Any]:
    """Store the runs of an export, which is verified first. Runs that are there are skipped."""
    from ....replay import import_archive, read_archive

    archive = await apart(lambda: read_archive(call.body))
    found: dict[str, Any] = msgspec.to_builtins(await import_archive(archive, call.runtime.log))
    return found


class ArtifactQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run whose family has the artifact; without it, all families are searched."""

    run: str = ""


async def show_artifact(call: Call[ArtifactQuery, Nothing]) -> Response:
    """Download an artifact by its digest. It is never shown in place: a browser saves it."""
    digest, log = call.path("digest"), call.runtime.log
    if not _DIGEST.fullmatch(digest):
        raise Refused(422, "an artifact is named by the 64 hex digits of its SHA-256")
    try:
        if call.query.run:
            namespace, subject = await call.runtime.place(call.query.run)
            data = await namespace.log.artifacts.of(subject.root).get(digest)
        else:
            data = await log.artifacts.find(digest)
    except KeyError:
        raise Refused(404, f"there is no artifact {digest}") from None
    headers = {
        "Content-Disposition": f'attachment; filename="{digest[:16]}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return Response(data, headers=headers, media_type="application/octet-stream")


_VIEW = "/runs/{run}"
ROUTES = (
    Route(
        method="GET",
        path=f"{_VIEW}/timeline",
        role="viewer",
        endpoint=show_timeline,
        query=TimelineQuery,
        answer=Timeline,
    ),
    Route(
        method="GET",
        path=f"{_VIEW}/at/{{rev}}",
        role="viewer",
        endpoint=show_at,
        answer=(AtRevision, Patch),
        cost="heavy",
    ),
    Route(
        method="GET",
        path=f"{_VIEW}/prompts/{{rev}}",
        role="viewer",
        endpoint=show_prompt,
        answer=dict[str, Any],
        cost="heavy",
    ),
    Route(method="GET", path=f"{_VIEW}/messages", role="viewer", endpoint=list_messages, answer=Messages),
    Route(
        method="GET",
        path=f"{_VIEW}/evidence",
        role="viewer",
        endpoint=list_evidence,
        answer=list[CallEvidence],
    ),
    Route(method="GET", path=f"{_VIEW}/costs", role="viewer", endpoint=list_costs, answer=Costs),
    Route(
        method="GET",
        path=f"{_VIEW}/export",
        role="viewer",
        endpoint=export_run,
        query=ExportQuery,
        media="application/x-ndjson",
    ),
    Route(
        method="POST",
        path="/import",
        role="admin",
        endpoint=import_runs,
        body=bytes,
        answer=dict[str, Any],
        body_bytes_max=256 << 20,
    ),
    Route(
        method="GET",
        path="/artifacts/{digest}",
        role="viewer",
        endpoint=show_artifact,
        query=ArtifactQuery,
        media="application/octet-stream",
    ),
)
