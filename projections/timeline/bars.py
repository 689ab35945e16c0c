"""The bars of a family's timeline: everything that takes time, with its waits."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...eventlog.events import (
    TERMINAL_STATUSES,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    ChildFinished,
    ChildStarted,
    Claimed,
    Event,
    ModelFailed,
    ModelRequested,
    Parked,
    Released,
    Status,
    Step,
    Submitted,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    Usage,
    WaitEnded,
    WaitStarted,
)

LANES = Literal["worker", "run", "step", "model", "tool", "child"]


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


class BarFold:
    """The bars of a family so far, by their ids.

    What changes its state goes on as another bar, so that its waits stay visible.
    """

    def __init__(self) -> None:
        self.bars: dict[str, Bar] = {}
        self._open: dict[str, None] = {}
        self._now: dict[tuple[str, ...], str] = {}
        """The bar of a run's worker, of the run itself, and of each of its calls, as it is now."""
        self._asks: dict[str, str] = {}
        self._last: dict[str, float] = {}
        """When each run had its last event."""

    def add(self, event: Event) -> list[Bar]:
        """Return the bars that an event begins or changes."""
        changed = self._bars(event)
        self._last[event.run_id] = event.at
        for bar in changed:
            self.bars[bar.id] = bar
            if bar.end is None:
                self._open[bar.id] = None
            else:
                self._open.pop(bar.id, None)
        return changed

    def _bars(self, event: Event) -> list[Bar]:  # noqa: C901, PLR0912 - one case each
        run, at = event.run_id, event.at
        match event:
            case Submitted():
                return self._become(event, ("run", run), "run", "queued", "queued")
            case Claimed():
                # A lost worker was last seen at the last event; from there to the takeover no worker drove the run.
                seen = self._last.get(run, at)
                lost = self._end(self._now.pop(("worker", run), ""), seen, "lost")
                detail = f"epoch {event.epoch}"
                if lost:
                    detail += f"; {lost[0].name} was lost, this one was there {_gap(at - seen)} later"
                begun = self._become(event, ("worker", run), "worker", event.worker, detail=detail)
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
                failed = self._end(self._now.pop(call, ""), event.at, "failed")
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


def _gap(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"
