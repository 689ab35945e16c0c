"""Spans of runs: a pure fold from stored events to finished spans.

Times are those of the events, and ids are derived from the run and the place of the span in it. So a span that is
computed twice, by two exporters or after a restart, is the same span. A run is a span (`invoke_agent`, or
`invoke_workflow` for a run that only coordinates others); each attempt of a model call (`chat`) and each tool call
(`execute_tool`) is a span below it; a child run is below the call that started it. Claims, takeovers, pauses,
approvals and waits are events of a span. A fork is a trace of its own, with a link to its origin.

The fold holds only open spans, and nothing of a run that has ended. A run whose submission the fold has not seen has
no spans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ...eventlog.events import (
    PROGRAM,
    ApprovalRequested,
    ApprovalResolved,
    Claimed,
    Error,
    Event,
    LeftToOthers,
    ModelFailed,
    ModelRequested,
    Parked,
    Reasoning,
    Released,
    Status,
    Submitted,
    Text,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    Usage,
    WaitEnded,
    WaitStarted,
)
from ...eventlog.names import TRACEPARENT, trace_id_of
from . import conventions as names

Value = str | int | float | bool | list[str]
SpanKind = Literal["internal", "client"]

_NOTES_MAX = 128
"""The limit of events in a span, the same as OpenTelemetry's default. Only the first ones are kept."""


class SpanLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a span of another trace. Ids are hexadecimal."""

    trace_id: str
    span_id: str
    attributes: dict[str, Value] = {}


class SpanNote(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a span, `at` Unix seconds."""

    name: str
    at: float
    attributes: dict[str, Value] = {}


class Note(SpanNote, frozen=True, kw_only=True):
    """A note for a log record, with the ids of its span. `uid` is derived from the event's place in the log."""

    uid: str
    trace_id: str
    span_id: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span, open or finished. Times are Unix seconds; ids are hexadecimal; `parent_id` is empty for a trace's root.

    `remote`: the parent is a span of the caller, from its traceparent. `error` is empty unless the operation failed.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str = ""
    remote: bool = False
    kind: SpanKind = "internal"
    started_at: float
    ended_at: float = 0.0
    attributes: dict[str, Value] = {}
    notes: list[SpanNote] = []
    links: list[SpanLink] = []
    error: str = ""


class _OpenRun(msgspec.Struct, kw_only=True):
    """An open run: its trace, the worker of its current claim, its last model call, and its open spans by place."""

    path: str
    trace_id: str
    agent: str
    worker: str = ""
    model: str = ""
    failure: str = ""
    texts: list[str] = []
    spans: dict[str, Span] = {}


class SpanFold(msgspec.Struct, kw_only=True):
    """The fold and its state, which can be stored as JSON. Feed it the events of a namespace in order.

    With `content`, spans have inputs, answers, arguments and results as attributes.
    """

    content: bool = False
    runs: dict[str, _OpenRun] = {}
    news: list[Note] = []
    """The notes since `take_news` was last called, which empties them before the state is stored."""

    def take_news(self) -> list[Note]:
        """Return and remove the notes since the last call."""
        found, self.news = self.news, []
        return found

    def feed(self, event: Event) -> list[Span]:  # noqa: C901, PLR0912 - one case each
        """Fold an event in the form in which readers get it; return the spans that it finishes."""
        if isinstance(event, Submitted):
            self._submitted(event)
            return []
        run = self.runs.get(event.run_id)
        if (
            run is None or event.agent_path != run.path
        ):  # the event was forwarded from an inner agent, which has its own spans
            return []
        call = event.tool_call_id or ""
        match event:
            case Claimed():
                taken = {"from": run.worker} if run.worker else {}
                run.worker = event.worker
                told = {"worker": event.worker, "epoch": event.epoch, **taken}
                self._note(run, "", event, "foldlog.takeover" if taken else "foldlog.claimed", told)
            case Released() | Parked():
                run.worker = ""
            case LeftToOthers():
                self._note(
                    run, "", event, "foldlog.left_to_others", {"worker": event.worker, "reason": event.reason}
                )
            case ModelRequested():
                self._model_requested(run, event)
            case ModelFailed():
                return self._end(run, run.model, event, error=event.error_type)
            case Text() | Reasoning():
                if self.content and isinstance(event, Text):
                    run.texts.append(event.text)
            case Usage():
                return self._model_ended(run, event)
            case ToolCall():
                self._tool_called(run, event)
            case ToolAttemptFailed():
                told = {"attempt": event.attempt, "error": event.error}
                self._note(run, call, event, "foldlog.attempt_failed", told)
            case ToolResult():
                return self._tool_ended(run, event)
            case ApprovalRequested():
                told = {"id": event.approval_id, "kind": event.kind}
                self._note(run, call, event, "foldlog.approval_requested", told)
            case ApprovalResolved():
                told = {"id": event.approval_id, "decision": event.decision, "by": event.by}
                self._note(run, call, event, "foldlog.approval_resolved", told)
            case WaitStarted():
                told = {"kind": event.kind, "name": event.name}
                self._note(run, call, event, "foldlog.wait_started", told)
            case WaitEnded():
                self._note(run, call, event, "foldlog.wait_ended", {"outcome": event.outcome})
            case Error():
                run.failure = event.error_type
            case Status(status="paused" | "resumed"):
                self._note(run, "", event, f"foldlog.{event.status}", {"reason": event.reason})
            case Status(status="completed" | "error" | "cancelled"):
                return self._ended(run, event)
            case _:
                pass
        return []

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _submitted(self, event: Submitted) -> None:
        trigger = event.trigger or PROGRAM
        given = TRACEPARENT.fullmatch(trigger.traceparent)
        trace_id = trace_id_of(event.root_id, trigger.traceparent)
        parent = event.parent
        if parent is not None:
            place = parent.tool_call_id or ""
            parent_id = span_id_of(parent.run, *([place] if place else []))
        else:
            parent_id = given[2] if given else ""
        operation = names.INVOKE_AGENT if event.kind == "agent" else names.INVOKE_WORKFLOW
        fork = event.fork
        agent = event.agent_path.rpartition("/")[2]
        run = _OpenRun(path=event.agent_path, trace_id=trace_id, agent=agent)
        self.runs[event.run_id] = run
        run.spans[""] = Span(
            name=f"{operation} {agent}",
            trace_id=trace_id,
            span_id=span_id_of(event.run_id),
            parent_id=parent_id,
            remote=parent is None and bool(parent_id),
            started_at=event.at,
            attributes=_known(
                {
                    names.OPERATION: operation,
                    names.AGENT: agent,
                    names.CONVERSATION: event.session,
                    names.RUN_ID: event.run_id,
                    names.USER: event.user,
                    names.EXECUTOR: event.executor,
                    names.TRIGGER: trigger.kind,
                    names.REQUEST_ID: trigger.request_id,
                    names.INPUT_MESSAGES: event.input if self.content else None,
                }
            ),
            links=[]
            if fork is None
            else [
                SpanLink(
                    trace_id=trace_id_of(fork.root),
                    span_id=span_id_of(fork.run),
                    attributes={names.FORK_REVISION: fork.revision},
                )
            ],
        )
        self._tell(run, run.spans[""], event, "foldlog.submitted", {names.EXECUTOR: event.executor})

    def _ended(self, run: _OpenRun, event: Status) -> list[Span]:
        completed = event.status == "completed"
        error = "" if completed else run.failure or event.status
        finished = [
            *(
                span
                for place in list(run.spans)
                if place
                for span in self._end(run, place, event, error=event.status)
            ),
            *self._end(run, "", event, {names.STATUS: event.status}, error=error),
        ]
        del self.runs[event.run_id]
        return finished

    # --- model and tool calls -----------------------------------------------------------------------------------------

    def _model_requested(self, run: _OpenRun, event: ModelRequested) -> None:
        provider, _, model = event.model.rpartition(":")
        run.model = f"model/{event.step}/{event.phase}/{event.attempt}/{event.revision}"
        run.texts = []
        operation = names.PLAN if event.phase == "planner" else names.CHAT
        self._begin(
            run,
            run.model,
            event,
            f"{operation} {model}",
            {
                names.OPERATION: operation,
                names.PROVIDER: provider,
                names.REQUEST_MODEL: model,
                names.AGENT: run.agent,
                names.STEP: event.step,
                names.ATTEMPT: event.attempt,
                names.PHASE: event.phase,
                names.REQUEST_DIGEST: event.digest,
            },
            kind="client",
        )

    def _model_ended(self, run: _OpenRun, event: Usage) -> list[Span]:
        usage = event.usage
        told: dict[str, Any] = {
            names.RESPONSE_MODEL: event.model,
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.CACHE_READ_TOKENS: usage.cache_read_tokens or None,
            names.CACHE_WRITE_TOKENS: usage.cache_write_tokens or None,
            names.REASONING_TOKENS: usage.reasoning_tokens or None,
            names.COST_USD: event.cost_usd,
            names.FINISH_REASONS: [event.finish_reason] if event.finish_reason else None,
            names.OUTPUT_MESSAGES: "".join(run.texts) or None,
        }
        return self._end(run, run.model, event, told)

    def _tool_called(self, run: _OpenRun, event: ToolCall) -> None:
        arguments: Any = event.arguments if event.raw_arguments is None else event.raw_arguments
        told: dict[str, Any] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: event.tool_name,
            names.TOOL_CALL_ID: event.tool_call_id,
            names.TOOL_TYPE: "extension" if event.executed_by == "provider" else "function",
            names.AGENT: run.agent,
            names.STEP: event.step,
            names.TOOL_ARGUMENTS: _as_text(arguments) if self.content else None,
        }
        self._begin(run, event.tool_call_id or "", event, f"execute_tool {event.tool_name}", told)

    def _tool_ended(self, run: _OpenRun, event: ToolResult) -> list[Span]:
        attempt = event.metadata.get("attempt")
        told: dict[str, Any] = {
            names.ATTEMPT: attempt if isinstance(attempt, int) else None,
            names.TOOL_RESULT: _as_text(event.result) if self.content and event.success else None,
        }
        failure = event.metadata.get("status")
        error = "" if event.success else failure if isinstance(failure, str) and failure else "error"
        return self._end(run, event.tool_call_id or "", event, told, error=error)

    # --- spans --------------------------------------------------------------------------------------------------------

    def _begin(
        self,
        run: _OpenRun,
        place: str,
        event: Event,
        name: str,
        attributes: dict[str, Any],
        kind: SpanKind = "internal",
    ) -> None:
        run.spans[place] = Span(
            name=name,
            trace_id=run.trace_id,
            span_id=span_id_of(event.run_id, place),
            parent_id=run.spans[""].span_id,
            kind=kind,
            started_at=event.at,
            attributes=_known(attributes),
        )

    def _note(self, run: _OpenRun, place: str, event: Event, name: str, attributes: dict[str, Any]) -> None:
        """Add a note to the span at `place`, or to that of the run if there is none."""
        span = run.spans.get(place) or run.spans.get("")
        if span is None:
            return
        if len(span.notes) < _NOTES_MAX:
            span.notes.append(SpanNote(name=name, at=event.at, attributes=_known(attributes)))
        self._tell(run, span, event, name, attributes)

    def _tell(self, run: _OpenRun, span: Span, event: Event, name: str, attributes: dict[str, Any]) -> None:
        about = {names.RUN_ID: event.run_id, names.AGENT: run.agent, names.STEP: event.step}
        self.news.append(
            Note(
                name=name,
                at=event.at,
                attributes=_known({**about, names.TOOL_CALL_ID: event.tool_call_id, **attributes}),
                uid=f"{event.run_id}/{event.revision}/{name}/{event.tool_call_id or ''}",
                trace_id=span.trace_id,
                span_id=span.span_id,
            )
        )

    def _end(
        self,
        run: _OpenRun,
        place: str,
        event: Event,
        attributes: dict[str, Any] | None = None,
        *,
        error: str = "",
    ) -> list[Span]:
        span = run.spans.pop(place, None)
        if span is None:
            return []
        told = span.attributes | _known(attributes or {}) | ({names.ERROR_TYPE: error} if error else {})
        if not place:
            name = "foldlog.failed" if error and error != "cancelled" else "foldlog.ended"
            self._tell(run, span, event, name, {**(attributes or {}), names.ERROR_TYPE: error})
        elif error:
            self._tell(run, span, event, "foldlog.call_failed", {names.ERROR_TYPE: error, "call": span.name})
        return [
            msgspec.structs.replace(
                span, ended_at=max(event.at, span.started_at), attributes=told, error=error
            )
        ]


def span_id_of(*place: str) -> str:
    """Return the id (16 hex digits) of the span of a run, or of a place in it."""
    return hashlib.sha256("/".join(place).encode()).hexdigest()[:16]


def feed_all(fold: SpanFold, events: Iterable[Event]) -> list[Span]:
    """Fold events; return the spans that they finish."""
    return [span for event in events for span in fold.feed(event)]


def _known(attributes: dict[str, Any]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value not in (None, "")}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
