"""The timeline of a family: a row for each stored event, and bars for everything that takes time.

A pure fold of events as they are read, in log order, the same for a stored run and for one that is followed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...eventlog.events import (
    ENGINE,
    TERMINAL_STATUSES,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    Budget,
    ChildFinished,
    ChildStarted,
    Claimed,
    Error,
    Event,
    McpProgress,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    Parked,
    Prepared,
    Reasoning,
    Released,
    Status,
    Step,
    Submitted,
    Text,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    Usage,
    WaitEnded,
    WaitStarted,
)

Level = Literal["key", "normal", "engine"]
LANES = Literal["worker", "run", "step", "model", "tool", "child"]
TEXT_MAX = 300
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


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event: what it says in a few words, and its text, cut. `depth` is the level below the root."""

    revision: int | None
    cursor: str | None
    at: float
    run_id: str
    agent: str
    depth: int
    step: int | None
    type: str
    level: Level
    what: str
    detail: str = ""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes time, from `start` to `end` (null: it is under way). Both are Unix seconds.

    `state` is empty, or failed, lost (its worker was), cancelled, or what it waits for: paused, queued, parked,
    approval, waiting.
    """

    id: str
    lane: LANES
    name: str
    start: float
    end: float | None = None
    state: str = ""
    detail: str = ""
    revision: int | None = None
    run_id: str = ""


class TimelineFold:
    """The bars of a family so far, by their ids.

    What changes its state goes on as another bar, so that its waits stay visible.
    """

    def __init__(self) -> None:
        self.bars: dict[str, Bar] = {}
        self._open: dict[str, None] = {}
        self._now: dict[tuple[str, ...], str] = {}
        """The bar of a run's worker, of the run itself, and of each of its calls, as it is now."""
        self._asks: dict[str, str] = {}

    def add(self, event: Event) -> tuple[TimelineRow, list[Bar]]:
        """Return the row of an event, and the bars that it begins or changes."""
        what, detail = _words(event)
        row = TimelineRow(
            revision=event.revision,
            cursor=event.cursor,
            at=event.at,
            run_id=event.run_id,
            agent=event.agent,
            depth=event.agent_path.count("/"),
            step=event.step,
            type=event.type,
            level=_level(event),
            what=what,
            detail=detail[:TEXT_MAX],
        )
        changed = self._bars(event)
        for bar in changed:
            self.bars[bar.id] = bar
            if bar.end is None:
                self._open[bar.id] = None
            else:
                self._open.pop(bar.id, None)
        return row, changed

    def _bars(self, event: Event) -> list[Bar]:  # noqa: C901, PLR0912 - one case each
        run, at = event.run_id, event.at
        match event:
            case Submitted():
                return self._become(event, ("run", run), "run", "queued", "queued")
            case Claimed():
                lost = self._end(self._now.get(("worker", run), ""), at, "lost")
                begun = self._become(
                    event, ("worker", run), "worker", event.worker, detail=f"epoch {event.epoch}"
                )
                waited = self._state_of(run) in {"queued", "parked"}
                driven = self._become(event, ("run", run), "run", "driven") if waited else []
                return [*lost, *begun, *driven]
            case Released() | Parked():
                ended = self._end(self._now.pop(("worker", run), ""), at)
                if isinstance(event, Parked) and self._state_of(run) == "":
                    return [
                        *ended,
                        *self._become(event, ("run", run), "run", f"parked: {event.reason}", "parked"),
                    ]
                return ended
            case Status(status="paused"):
                return self._become(event, ("run", run), "run", f"paused: {event.reason}", "paused")
            case Status(status="resumed"):
                return self._become(event, ("run", run), "run", "driven")
            case Status() if event.status in TERMINAL_STATUSES:
                state = {"error": "failed", "cancelled": "cancelled"}.get(event.status, "")
                return self._end_run(run, at, state)
            case Step(status="started"):
                return [self._new(event, f"step:{run}:{event.step}", "step", f"step {event.step}")]
            case Step():
                return self._end(f"step:{run}:{event.step}", at)
            case ModelRequested():
                name = f"model:{run}:{event.step}:{event.phase}:{event.attempt}"
                return [self._new(event, name, "model", event.model, detail=f"attempt {event.attempt}")]
            case ModelFailed():
                return self._end(f"model:{run}:{event.step}:{event.phase}:{event.attempt}", at, "failed")
            case Usage():
                return self._end_all(f"model:{run}:{event.step}:", at)
            case ChildStarted():
                return [
                    self._new(event, f"child:{event.child_run}", "child", event.name, detail=event.child_run)
                ]
            case ChildFinished():
                state = {"error": "failed", "cancelled": "cancelled"}.get(event.status, "")
                return self._end(f"child:{event.child_run}", at, state)
            case _:
                return self._call_bars(event)

    def _call_bars(self, event: Event) -> list[Bar]:  # noqa: C901 - one case each
        """Return the bars of tool calls: attempts that failed, and waits, are bars of their own."""
        run, call = event.run_id, ("tool", event.run_id, event.tool_call_id or "")
        tool = self.bars.get(self._now.get(call, ""))
        name = tool.name if tool is not None else ""
        match event:
            case ToolCall():
                return self._become(event, call, "tool", event.tool_name)
            case ToolAttemptFailed() if tool is not None:
                failed = self._end(tool.id, event.at, "failed")
                return [
                    *failed,
                    *self._become(event, call, "tool", name, detail=f"attempt {event.attempt + 1}"),
                ]
            case ToolResult():
                return self._end(self._now.get(call, ""), event.at, "" if event.success else "failed")
            case ApprovalRequested() if tool is not None:
                self._asks[event.approval_id] = event.tool_call_id or ""
                if tool.start == event.at:
                    return [msgspec.structs.replace(tool, state="approval")]
                return self._become(event, call, "tool", name, "approval")
            case ApprovalResolved() | ApprovalRevoked():
                call = ("tool", run, self._asks.get(event.approval_id, ""))
                asked = self.bars.get(self._now.get(call, ""))
                if asked is None or asked.end is not None:
                    return []
                if isinstance(event, ApprovalResolved) and event.decision == "approved":
                    return self._become(event, call, "tool", asked.name)
                return self._end(asked.id, event.at)
            case WaitStarted() if tool is not None:
                return self._become(
                    event, call, "tool", f"{name} waits for {event.name or event.kind}", "waiting"
                )
            case WaitEnded() if tool is not None:
                return self._become(event, call, "tool", name.partition(" waits for ")[0])
            case _:
                return []

    def _state_of(self, run: str) -> str:
        bar = self.bars.get(self._now.get(("run", run), ""))
        return bar.state if bar is not None and bar.end is None else "over"

    def _become(
        self,
        event: Event,
        what: tuple[str, ...],
        lane: LANES,
        told: str,
        state: str = "",
        detail: str = "",
    ) -> list[Bar]:
        """End the bar of something as it was, and begin another one of it."""
        ended = self._end(self._now.get(what, ""), event.at)
        name = ":".join((*what, str(event.revision)))
        self._now[what] = name
        return [*ended, self._new(event, name, lane, told, state, detail)]

    def _new(self, event: Event, name: str, lane: LANES, told: str, state: str = "", detail: str = "") -> Bar:
        return Bar(
            id=name,
            lane=lane,
            name=told,
            start=event.at,
            state=state,
            detail=detail,
            revision=event.revision,
            run_id=event.run_id,
        )

    def _end(self, name: str, at: float, state: str = "") -> list[Bar]:
        bar = self.bars.get(name)
        if bar is None or bar.end is not None:
            return []
        return [msgspec.structs.replace(bar, end=at, state=state or bar.state)]

    def _end_all(self, beginning: str, at: float) -> list[Bar]:
        found = [name for name in self._open if name.startswith(beginning)]
        return [bar for name in found for bar in self._end(name, at)]

    def _end_run(self, run: str, at: float, state: str) -> list[Bar]:
        mine = [name for name in self._open if self.bars[name].run_id == run]
        return [
            bar for name in mine for bar in self._end(name, at, "" if name.startswith("worker:") else state)
        ]


def _level(event: Event) -> Level:
    if isinstance(event, ENGINE):
        return "key" if isinstance(event, _KEY) else "engine"
    return "key" if isinstance(event, _KEY) else "normal"


def _words(event: Event) -> tuple[str, str]:  # noqa: C901, PLR0912 - one case each
    """Return what an event says in a few words, and the text of it."""
    match event:
        case Submitted():
            return f"submitted on {event.executor}", event.input
        case Claimed():
            return f"claimed by {event.worker}", f"epoch {event.epoch}"
        case Released():
            return "released", event.reason
        case Parked():
            return f"parked: {event.reason}", ""
        case Status():
            return event.status, event.reason or event.message
        case Step():
            return f"step {event.step} {event.status}", ""
        case ModelRequested():
            return f"asks {event.model}", f"attempt {event.attempt}"
        case ModelFailed():
            return f"the model failed: {event.error_type}", event.error
        case Text():
            return "says", event.text
        case Reasoning():
            return "thinks", event.text
        case Usage():
            return "usage", f"{event.usage.total_tokens:,} tokens"
        case ToolCall():
            return f"calls {event.tool_name}", msgspec.json.encode(event.arguments).decode()
        case ToolAttemptFailed():
            return f"attempt {event.attempt} failed", event.error
        case ToolResult():
            return f"{event.tool_name} {'returned' if event.success else 'failed'}", _text(event.result)
        case ApprovalRequested():
            return f"asks for an approval: {event.kind}", event.tool_name
        case ApprovalResolved():
            return f"{event.decision} by {event.by or 'nobody named'}", event.note
        case MessageQueued() | MessageInjected():
            return "message", event.content
        case ChildStarted() | ChildFinished():
            return event.type.replace("_", " "), event.child_run
        case Error():
            return f"error: {event.error_type}", event.error
        case McpProgress():
            total = "" if event.total is None else f" of {event.total:g}"
            return f"progress {event.progress:g}{total}", event.message
        case Prepared():
            return "prepared", ", ".join(tool.name for tool in event.tools)
        case Budget():
            return f"budget of {event.scope}: {event.kind}", f"{event.used:,} of {event.limit:,}"
        case _:
            return event.type.replace("_", " "), ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
