"""The rows of a family's timeline: what each stored event says, in a few words."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgspec

from ...eventlog.events import (
    ENGINE,
    TERMINAL_STATUSES,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    Budget,
    CancelRequested,
    ChildFinished,
    ChildReturned,
    ChildStarted,
    Claimed,
    Context,
    Custom,
    Error,
    Event,
    FileMade,
    KeyRecorded,
    LaneUpdated,
    LateOutcome,
    LeftToOthers,
    McpProgress,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    OperationSkipped,
    Parked,
    PauseRequested,
    Prepared,
    RalphIteration,
    RalphStop,
    Reasoning,
    Released,
    Restored,
    ResultRecorded,
    SignalReceived,
    Status,
    Step,
    Submitted,
    Text,
    TimerFired,
    ToolAttemptFailed,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolStarted,
    Usage,
    WaitEnded,
    WaitStarted,
)
from ..call_texts import PARTIAL, made_file
from ..content_files import files_in
from .words import CUT_OFF, cut_words, engine_words, file_words, result_words, token_words, value_words

Level = Literal["key", "normal", "engine"]
Tone = Literal["", "dim", "strong", "call", "good", "bad", "ask"]
_KEY = (
    Submitted,
    Status,
    Text,
    ToolCall,
    ToolResult,
    ApprovalRequested,
    ApprovalResolved,
    Error,
    ChildStarted,
    ChildFinished,
    MessageInjected,
)
_REPEATED = (ApprovalRevoked, ChildReturned, KeyRecorded, LaneUpdated, TimerFired)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event: `what` it says, and its text, which is untrusted and of any length.

    `at` and `until` are Unix seconds; `took_s` is set if the beginning is known. `value` is the JSON at the end of
    `detail`, if a person decides about it. `agent` is the last name of `agent_path`, numbered if a run started several
    of it. `child` is the child run that the row is about. What is `repeated` is said by other rows, too.
    """

    revision: int | None
    cursor: str | None
    at: float
    run_id: str
    agent_path: str
    agent: str
    step: int | None
    type: str
    level: Level
    what: str
    detail: str = ""
    value: Any = None
    until: float | None = None
    took_s: float | None = None
    tone: Tone = ""
    child: str = ""
    repeated: bool = False


class Labels:
    """The labels of child runs: their names, numbered if a run has several of one agent: writer, writer#2."""

    def __init__(self) -> None:
        self._copies: dict[tuple[str, str], list[str]] = {}
        self._labels: dict[str, str] = {}

    def add(self, event: ChildStarted) -> str:
        """Add a child run that was started, and return its label."""
        copies = self._copies.setdefault((event.run_id, event.name), [])
        if event.child_run not in copies:
            copies.append(event.child_run)
        number = copies.index(event.child_run) + 1
        label = event.name if number == 1 else f"{event.name}#{number}"
        self._labels[event.child_run] = label
        return label

    def of(self, run: str, otherwise: str) -> str:
        """Return the label of a run."""
        return self._labels.get(run, otherwise)


@dataclasses.dataclass(kw_only=True)
class _RunSoFar:
    """State of a run so far, which its later rows need."""

    path: str
    begun: float
    owner: str = ""
    step_at: float = 0.0
    model_at: float = 0.0
    attempt: int = 1
    paused_at: float = 0.0
    tools: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Said:
    what: str
    detail: str = ""
    took_s: float | None = None
    tone: Tone = ""
    value: Any = None
    until: float | None = None
    child: str = ""
    repeated: bool = False


class RowFold:
    """A fold of the events of a family, or of a run and the runs below it, in log order."""

    def __init__(self) -> None:
        self._runs: dict[str, _RunSoFar] = {}
        self._labels = Labels()

    def add(self, event: Event) -> Row:
        """Return the row of an event."""
        run = self._runs.get(event.run_id)
        if run is None:
            run = self._runs[event.run_id] = _RunSoFar(path=event.agent_path, begun=event.at)
        said = self._child(event) if isinstance(event, ChildStarted | ChildFinished) else _said(event, run)
        name = event.agent_path.rpartition("/")[2]
        return Row(
            revision=event.revision,
            cursor=event.cursor,
            at=event.at,
            run_id=event.run_id,
            agent_path=event.agent_path,
            agent=self._labels.of(event.run_id, name) if event.agent_path == run.path else name,
            step=event.step,
            type=event.type,
            level=_level(event),
            what=said.what,
            detail=said.detail,
            value=said.value,
            until=said.until,
            took_s=said.took_s,
            tone=said.tone,
            child=said.child,
            repeated=said.repeated or isinstance(event, _REPEATED),
        )

    def _child(self, event: ChildStarted | ChildFinished) -> _Said:
        if isinstance(event, ChildStarted):
            label, came_to = self._labels.add(event), "started"
        else:
            label, came_to = self._labels.of(event.child_run, "child"), event.status
        return _Said(what=f"↳ {label}", detail=came_to, child=event.child_run, tone="dim")


def _level(event: Event) -> Level:
    if isinstance(event, _KEY):
        return "key"
    return "engine" if isinstance(event, ENGINE) else "normal"


def _said(event: Event, so_far: _RunSoFar) -> _Said:  # noqa: C901, PLR0912 - one case each
    match event:
        case Submitted():
            session = f", session {event.session}" if event.session else ""
            files = file_words(files_in(event))
            told = f"executor {event.executor}{session}: {event.input}{files}"
            return _Said(what="submitted", detail=told)
        case Claimed() | Released() | Parked() | LeftToOthers() | Restored():
            return _driver(event, so_far)
        case Prepared():
            tools = ", ".join(tool.name for tool in event.tools) or "no tools"
            return _Said(what="prepared", detail=tools, tone="dim")
        case Step(status="started"):
            so_far.step_at = event.at
            return _Said(what=f"step {event.step}", tone="strong")
        case Step():
            return _Said(what=f"step {event.step} completed", took_s=event.at - so_far.step_at)
        case ModelRequested() | ModelFailed() | Usage():
            return _model(event, so_far)
        case Text():
            return _Said(what="text", detail=event.text)
        case FileMade():
            return _Said(what="file", detail=str(made_file(event)))
        case Reasoning():
            return _Said(what="reasoning", detail=event.text, tone="dim")
        case Status():
            return _status(event, so_far)
        case Error():
            return _Said(what="error", detail=f"{event.error_type}: {event.error}", tone="bad")
        case MessageQueued():
            told = f"{event.content}{file_words(files_in(event))}".strip()
            by = _actor(event)
            return _Said(what="message queued", detail=f"{by}: {told}" if by else told)
        case MessageInjected():
            return _Said(what="message", detail=f"{event.content}{file_words(files_in(event))}".strip())
        case PauseRequested():
            what = "pause withdrawn" if event.withdrawn else "pause requested"
            return _Said(what=what, detail=_actor(event))
        case CancelRequested():
            return _Said(
                what="cancel requested", detail=_actor(event), tone="bad", repeated=not _actor(event)
            )
        case SignalReceived():
            by = f" by {event.by}" if event.by else ""
            if event.tool_call_id is not None:
                return _Said(what="callback", detail=f"{event.name}{by}", tone="ask")
            return _Said(what="signal", detail=f"{event.name} {event.key}".strip(), tone="ask")
        case _:
            return _call(event, so_far) or _other(event)


def _driver(event: Claimed | Released | Parked | LeftToOthers | Restored, so_far: _RunSoFar) -> _Said:
    match event:
        case Claimed():
            taken = f" from {so_far.owner}" if so_far.owner else ""
            so_far.owner = event.worker
            build = f", build {event.build}" if event.build else ""
            told = f"by {event.worker}{taken} (epoch {event.epoch}{build})"
            if taken:
                return _Said(what="takeover", detail=told, tone="ask")
            return _Said(what="claimed", detail=told, tone="dim")
        case LeftToOthers():
            return _Said(what="left", detail=f"by {event.worker}: {event.reason}", tone="ask")
        case Restored():
            so_far.owner = ""
            return _Said(what="restored", detail="from a backup: held until it is resumed", tone="ask")
        case Released():
            so_far.owner = ""
            return _Said(what="released", detail=event.reason, tone="dim")
        case Parked():
            so_far.owner = ""
            told_by_pause = event.reason not in {"timer", "child"}
            return _Said(what="parked", detail=event.reason, tone="dim", repeated=told_by_pause)


def _model(event: ModelRequested | ModelFailed | Usage, so_far: _RunSoFar) -> _Said:
    match event:
        case ModelRequested():
            so_far.model_at, so_far.attempt = event.at, event.attempt
            told = f"{event.model}, attempt {event.attempt}"
            return _Said(what="model asked", detail=told, tone="dim", repeated=True)
        case ModelFailed():
            then = f"; next: {event.next_model}" if event.next_model else ""
            told = f"attempt {event.attempt}: {event.error_type}: {event.error}{then}"
            return _Said(what="model failed", detail=told, took_s=event.at - so_far.model_at, tone="bad")
        case Usage():
            tried = f", attempt {so_far.attempt}" if so_far.attempt > 1 else ""
            return _Said(
                what="model",
                detail=f"{event.model}: {token_words(event.usage)}{tried}{cut_words(event.finish_reason)}",
                took_s=event.at - so_far.model_at if so_far.model_at else None,
                tone="bad" if event.finish_reason else "",
            )


def _status(event: Status, so_far: _RunSoFar) -> _Said:
    if event.status == "paused":
        so_far.paused_at = event.at
        return _Said(what="paused", detail=event.reason, tone="ask")
    if event.status == "resumed":
        took_s = event.at - so_far.paused_at if so_far.paused_at else None
        return _Said(what="resumed", detail=_actor(event), took_s=took_s)
    if event.status in TERMINAL_STATUSES:
        tone: Tone = "good" if event.status == "completed" else "bad"
        return _Said(what=event.status, detail=event.reason, took_s=event.at - so_far.begun, tone=tone)
    return _Said(what=event.status, detail=event.reason, tone="dim", repeated=event.status == "starting")


def _call(event: Event, so_far: _RunSoFar) -> _Said | None:  # noqa: C901, PLR0912 - one case each
    """Say what happened to a tool call; None for other events."""
    match event:
        case ToolCall():
            so_far.tools[event.tool_call_id or ""] = event.tool_name
            by = f"by the {event.executed_by}" if event.executed_by else _within(event.tool_call_id, event)
            arguments = event.arguments if event.raw_arguments is None else event.raw_arguments
            return _Said(what=f"→ {event.tool_name}", detail=by, tone="call", value=arguments)
        case ToolStarted():
            name = so_far.tools.get(event.tool_call_id or "", "")
            return _Said(what="started", detail=f"{name} attempt {event.attempt}", tone="dim")
        case ToolAttemptFailed():
            return _Said(what="attempt failed", detail=f"{event.attempt}: {event.error}", tone="bad")
        case McpProgress():
            total = "" if event.total is None else f"/{event.total:g}"
            return _Said(what="progress", detail=f"{event.progress:g}{total} {event.message}", tone="dim")
        case ToolPartial():
            return _Said(what="partial", value=event.value, tone="dim")
        case ToolResult():
            return _result(event)
        case ApprovalRequested():
            place = event.tool_call_id if event.tool_call_id is not None else event.place
            told = f"{event.approval_id} ({event.kind}) {event.tool_name} {_within(place, event)}".rstrip()
            return _Said(what="approval", detail=told, tone="ask")
        case ApprovalResolved():
            by = f" {_actor(event)}".rstrip()
            note = f": {event.note}" if event.note else ""
            edited = ", with" if event.arguments is not None else ""
            told = f"{event.approval_id}{by}{note}{edited}"
            return _Said(what=event.decision, detail=told, tone="ask", value=event.arguments)
        case OperationSkipped():
            what = "failed" if event.failed else "skipped"
            return _Said(what=what, detail=f"{event.place} {event.why}", tone="dim")
        case WaitStarted():
            what = "the callback " if event.kind == "callback" else ""
            within = _within(event.place, event)
            told = f"for {what}{event.name or 'a time'}{f', {within}' if within else ''}"
            return _Said(what="waits", detail=told, until=event.until, tone="ask")
        case WaitEnded():
            by = f" by {event.by}" if event.by else ""
            data = ", with" if event.data is not None else ""
            told, what = f"{event.wait_id}{by}{data}", event.outcome.replace("_", " ")
            return _Said(what=what, detail=told, tone="ask", value=event.data)
        case LateOutcome():
            return _Said(what="late outcome", detail=f"{event.kind}: {event.outcome}", tone="dim")
        case ResultRecorded():
            return _Said(what="recorded", detail=event.tool_name, tone="dim", value=event.arguments)
        case _:
            return None


def _within(place: str | None, event: Event) -> str:
    """Return the step or branch of a workflow in which an operation is asked for: `in find`, `in gather#0.1`."""
    branch = (place or "").rpartition("/")[0] if event.step is None else ""
    return f"in {branch}" if branch else ""


def _result(event: ToolResult) -> _Said:
    attempt = event.metadata.get("attempt", 1)
    tried = f"attempt {attempt}: " if attempt != 1 else ""
    told = value_words(result_words(event)) if event.success else event.error or "failed"
    told = CUT_OFF + told if PARTIAL in event.metadata else told
    told += " (postcondition holds)" if event.success and event.metadata.get("postcondition") else ""
    within = _within(event.tool_call_id, event)
    return _Said(
        what=f"← {event.tool_name}",
        detail=(f"{within}: " if within else "") + tried + told,
        took_s=None if event.executed_by else event.duration_ms / 1000,
        tone="good" if event.success else "bad",
    )


def _other(event: Event) -> _Said:
    match event:
        case Context():
            told = f"{event.action}: {event.before_count} → {event.after_count} messages"
            return _Said(what="context", detail=told, tone="dim")
        case Budget():
            told = f"{event.kind} ({event.scope}): {event.used:g} of {event.limit:g}"
            return _Said(what="budget", detail=told, tone="ask")
        case Custom():
            return _Said(what="custom", detail=f"{event.name} {value_words(event.data)}", tone="dim")
        case RalphIteration():
            scores = ", ".join(f"{name} {score:g}" for name, score in event.scores.items())
            return _Said(what=f"iteration {event.iteration}", detail=f"{event.status} {scores}".rstrip())
        case RalphStop():
            return _Said(what="stopped", detail=f"{event.stop_type} {event.reason}", tone="dim")
        case _:
            what, told = engine_words(event) or (event.type.replace("_", " "), "")
            return _Said(what=what, detail=told, tone="dim")


def _actor(event: Status | ApprovalResolved | MessageQueued | PauseRequested | CancelRequested) -> str:
    """Return who did it, and through which door: `by ada (console)`; empty if the author is unknown."""
    door = f" ({event.via})" if event.via else ""
    return f"by {event.by or 'somebody'}{door}" if event.by or event.via else ""
