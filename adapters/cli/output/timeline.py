"""The rows of `foldlog runs show`: what a run did and how long it took, from its stored events.

A pure fold over the events of a run and the runs below it, in log order, engine events (claims and takeovers, attempts,
parking) included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from ....eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    CancelRequested,
    ChildFinished,
    ChildStarted,
    Claimed,
    Error,
    Event,
    FileMade,
    LateOutcome,
    LeftToOthers,
    McpProgress,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    OperationSkipped,
    Parked,
    PauseRequested,
    Prepared,
    Reasoning,
    Released,
    Restored,
    SignalReceived,
    Status,
    Step,
    Submitted,
    Text,
    ToolAttemptFailed,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolStarted,
    Usage,
    WaitEnded,
    WaitStarted,
)
from ....projections.call_texts import made_file
from ....projections.content_files import files_in
from .content import told_files, told_result
from .escaping import exact, one_line, shown
from .times import moment
from .views import ASK, BAD, CALL, DIM, GOOD, Labels, detail_parts, engine_row, tokens, told_cut


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that happened, `at_s` seconds after the run was submitted; `took_s` is set if its beginning is known.

    `revision` is that of its event, in its run. `value` is the JSON at the end of `detail`, if an operator decides
    about it. `agent` is the last name of `agent_path`, numbered if a run started several of it, and `depth` the number
    of levels below the run shown. `child` is the child run that the row is about.
    """

    at_s: float
    agent_path: str
    run_id: str = ""
    agent: str = ""
    depth: int = 0
    child: str = ""
    revision: int | None = None
    what: str
    detail: str = ""
    took_s: float | None = None
    style: str = ""
    value: Any = None


@dataclasses.dataclass
class _RunSoFar:
    """State of a run so far, which its later rows need."""

    path: str = ""
    owner: str = ""
    step_at: float = 0.0
    model_at: float = 0.0
    attempt: int = 1
    paused_at: float = 0.0
    tools: dict[str, str] = dataclasses.field(default_factory=dict)


def timeline(events: Iterable[Event]) -> list[Row]:
    """Return the rows for the events of a run and all runs below it, in log order."""
    rows: list[Row] = []
    begun: float | None = None
    top = 0
    runs: dict[str, _RunSoFar] = {}
    labels = Labels()
    for event in events:
        if begun is None:
            begun, top = event.at, event.agent_path.count("/")
        so_far = runs.setdefault(event.run_id, _RunSoFar(path=event.agent_path))
        row = _row(event, event.at - begun, so_far)
        if row is not None and isinstance(event, ChildStarted | ChildFinished):
            child = (
                labels.add(event) if isinstance(event, ChildStarted) else labels.of(event.child_run, "child")
            )
            came_to = event.status if isinstance(event, ChildFinished) else "started"
            row = dataclasses.replace(
                row,
                what=f"↳ {one_line(child)}",
                detail=f"{came_to}  {event.child_run}",
                child=event.child_run,
            )
        if row is not None:
            name = event.agent_path.rpartition("/")[2]
            agent = labels.of(event.run_id, name) if event.agent_path == so_far.path else name
            depth = event.agent_path.count("/") - top
            rows.append(
                dataclasses.replace(
                    row, run_id=event.run_id, agent=agent, depth=depth, revision=event.revision
                )
            )
    return rows


def below(run: str, events: Iterable[Event]) -> list[Event]:
    """Return the events of a family that belong to a run or to a run below it."""
    members, kept = {run}, []
    for event in events:
        if isinstance(event, Submitted) and event.parent is not None and event.parent.run in members:
            members.add(event.run_id)
        if event.run_id in members:
            kept.append(event)
    return kept


def _row(event: Event, at_s: float, so_far: _RunSoFar) -> Row | None:  # noqa: C901, PLR0912, PLR0915 - one case each
    def row(
        what: str, detail: str = "", took_s: float | None = None, style: str = "", value: Any = None
    ) -> Row:
        row = Row(at_s=at_s, agent_path=event.agent_path, what=what, took_s=took_s, style=style, value=value)
        told = detail if value is None else f"{detail} {exact(value)}".lstrip()
        return dataclasses.replace(row, detail=told)

    match event:
        case Submitted():
            session = f", session {event.session}" if event.session else ""
            files = told_files(files_in(event))
            return row("submitted", f"executor {event.executor}{session}: {one_line(event.input)}{files}")
        case Claimed():
            taken = f" from {so_far.owner}" if so_far.owner else ""
            so_far.owner = event.worker
            what = "takeover" if taken else "claimed"
            build = f", build {event.build}" if event.build else ""
            return row(
                what, f"by {event.worker}{taken} (epoch {event.epoch}{build})", style=ASK if taken else DIM
            )
        case Released() | Parked():
            so_far.owner = ""
            told_by_pause = isinstance(event, Parked) and event.reason not in {"timer", "child"}
            return None if told_by_pause else row(event.type, one_line(event.reason), style=DIM)
        case LeftToOthers():
            return row("left", f"by {event.worker}: {one_line(event.reason)}", style=ASK)
        case Restored():
            so_far.owner = ""
            return row("restored", "from a backup: held until it is resumed", style=ASK)
        case Prepared():
            return row("prepared", ", ".join(tool.name for tool in event.tools) or "no tools", style=DIM)
        case Step(status="started"):
            so_far.step_at = event.at
            return row(f"step {event.step}", style="bold")
        case Step():
            return row(f"step {event.step} completed", took_s=event.at - so_far.step_at)
        case ModelRequested():
            so_far.model_at, so_far.attempt = event.at, event.attempt
            return None
        case ModelFailed():
            then = f"; next: {event.next_model}" if event.next_model else ""
            detail = f"attempt {event.attempt}: {event.error_type}: {one_line(event.error)}{then}"
            return row("model failed", detail, event.at - so_far.model_at, BAD)
        case Usage():
            tried = f", attempt {so_far.attempt}" if so_far.attempt > 1 else ""
            took_s = event.at - so_far.model_at if so_far.model_at else None
            return row(
                "model",
                f"{event.model}: {tokens(event.usage)}{tried}{told_cut(event.finish_reason)}",
                took_s,
                BAD if event.finish_reason else "",
            )
        case Text():
            return row("text", one_line(event.text))
        case FileMade():
            return row("file", one_line(str(made_file(event))))
        case Reasoning():
            return row("reasoning", one_line(event.text), style=DIM)
        case ToolCall():
            arguments = event.arguments if event.raw_arguments is None else event.raw_arguments
            so_far.tools[event.tool_call_id or ""] = event.tool_name
            by = f"by the {event.executed_by}" if event.executed_by else ""
            return row("→ " + event.tool_name, by, style=CALL, value=arguments)
        case ToolStarted():
            return row(
                "started",
                f"{so_far.tools.get(event.tool_call_id or '', '')} attempt {event.attempt}",
                style=DIM,
            )
        case ToolAttemptFailed():
            return row("attempt failed", f"{event.attempt}: {one_line(event.error)}", style=BAD)
        case McpProgress():
            total = "" if event.total is None else f"/{event.total:g}"
            return row("progress", f"{event.progress:g}{total} {one_line(event.message)}", style=DIM)
        case ToolPartial():
            return row("partial", style=DIM, value=event.value)
        case ToolResult():
            took_s = None if event.executed_by else event.duration_ms / 1000
            return _result(event, row("← " + event.tool_name, took_s=took_s))
        case ApprovalRequested():
            return row("approval", f"{event.approval_id} ({event.kind}) {event.tool_name}", style=ASK)
        case ApprovalResolved():
            by = f" {_actor(event)}".rstrip()
            note = f": {one_line(event.note)}" if event.note else ""
            edited = ", with" if event.arguments is not None else ""
            return row(
                event.decision, f"{event.approval_id}{by}{note}{edited}", style=ASK, value=event.arguments
            )
        case OperationSkipped():
            return row("failed" if event.failed else "skipped", f"{event.place} {event.why}", style=DIM)
        case WaitStarted():
            until = "" if event.until is None else f" until {moment(event.until)}"
            what = "the callback " if event.kind == "callback" else ""
            return row("waits", f"for {what}{event.name or 'a time'}{until}", style=ASK)
        case WaitEnded():
            by = f" by {event.by}" if event.by else ""
            data = ", with" if event.data is not None else ""
            return row(
                event.outcome.replace("_", " "), f"{event.wait_id}{by}{data}", style=ASK, value=event.data
            )
        case SignalReceived(tool_call_id=str()):
            by = f" by {event.by}" if event.by else ""
            return row("callback", f"{event.name}{by}", style=ASK)
        case SignalReceived():
            return row("signal", f"{event.name} {event.key}".strip(), style=ASK)
        case Status(status="paused"):
            so_far.paused_at = event.at
            return row("paused", event.reason, style=ASK)
        case Status(status="resumed"):
            return row(
                "resumed", _actor(event), took_s=event.at - so_far.paused_at if so_far.paused_at else None
            )
        case Status(status="starting"):
            return None
        case Status():
            style = GOOD if event.status == "completed" else BAD
            return row(event.status, one_line(event.reason), at_s, f"bold {style}")
        case Error():
            return row("error", f"{event.error_type}: {one_line(event.error)}", style=BAD)
        case MessageQueued():
            told = f"{one_line(event.content)}{told_files(files_in(event))}".strip()
            return row("message queued", f"{_actor(event)}: {told}" if _actor(event) else told)
        case PauseRequested():
            return row("pause withdrawn" if event.withdrawn else "pause requested", _actor(event))
        case CancelRequested():
            return row("cancel requested", _actor(event), style=BAD) if _actor(event) else None
        case LateOutcome():
            return row("late outcome", f"{event.kind}: {event.outcome}", style=DIM)
        case _:
            return _other(event, at_s)


def _actor(event: Status | ApprovalResolved | MessageQueued | PauseRequested | CancelRequested) -> str:
    """Return who did it, and through which door: `by ada (console)`; empty if nobody is known."""
    door = f" ({event.via})" if event.via else ""
    return f"by {one_line(event.by) or 'somebody'}{door}" if event.by or event.via else ""


def _result(event: ToolResult, row: Row) -> Row:
    attempt = event.metadata.get("attempt", 1)
    tried = f"attempt {attempt}: " if attempt != 1 else ""
    told = shown(told_result(event)) if event.success else one_line(event.error or "failed")
    told += " (postcondition holds)" if event.success and event.metadata.get("postcondition") else ""
    return dataclasses.replace(row, detail=tried + told, style=GOOD if event.success else BAD)


_HIDDEN = {
    "lane_updated",
    "key_recorded",
    "approval_revoked",
    "timer_fired",
    "child_returned",  # directly before child_finished
}


def _other(event: Event, at_s: float) -> Row | None:
    if event.type in _HIDDEN:
        return None
    what, words = engine_row(event) or (event.type.replace("_", " "), _words(event))
    return Row(at_s=at_s, agent_path=event.agent_path, what=what, detail=words, style=DIM)


def _words(event: Event) -> str:
    return "".join(part if isinstance(part, str) else part[0] for part in detail_parts(event)).strip()
