"""The run as a whole: submitted, prepared, claimed, parked, paused, over."""

from __future__ import annotations

import msgspec

from ...eventlog.events import (
    TERMINAL_STATUSES,
    CancelRequested,
    Claimed,
    Error,
    LeftToOthers,
    Parked,
    PauseRequested,
    Prepared,
    Released,
    Status,
    Submitted,
    TimerFired,
    ToolsRefreshFailed,
    ToolsRefreshRequested,
    Unknown,
)
from ..messages import Message
from ..run_state import ElapsedState, RunState
from .conversation import add_message, learn_window, tell_system
from .steps import ask_anew


def submit(state: RunState, event: Submitted) -> None:
    """There is a run: its input, and the conversation it follows."""
    state.submitted = event
    state.mcp_servers = dict(event.config.get("mcp_servers") or {})
    state.context.told = event.config.get("budget_awareness") == "per-message"
    tell_system(state)
    for item in event.messages:
        message = msgspec.convert(item, Message)
        for call in message.tool_calls:
            state.place_call(call.id, (0, len(state.call_places)))
        add_message(state, message)
    state.history_count = len(state.messages)
    add_message(state, Message(role="user", content=event.input, parts=tuple(event.parts)))


def request_refresh(state: RunState, event: ToolsRefreshRequested) -> None:
    """The tools are to be listed again before the next step."""
    state.refresh = event
    state.refreshes += 1


def fail_refresh(state: RunState, _event: ToolsRefreshFailed) -> None:
    """They stay as they are."""
    state.refresh = None


def prepare(state: RunState, event: Prepared) -> None:
    """The run has its tools."""
    state.prepared = True
    if state.refresh is not None:
        state.mcp_servers, state.refresh = state.mcp_servers | state.refresh.mcp_servers, None
    state.tools = {tool.name: tool for tool in event.tools}
    learn_window(state, event)


def claim(state: RunState, event: Claimed) -> None:
    """A worker owns the run under a new epoch; what the one before had under way is in doubt."""
    state.epoch, state.owner, state.owner_lease_s = event.epoch, event.worker, event.lease_s
    state.left = {}
    state.elapsed.claimed_at = state.elapsed.claimed_at or state.updated_at
    state.model.requested = False
    for call in state.calls.values():
        call.orphaned = call.orphaned or (call.started > 0 and call.result is None)


def leave(state: RunState, event: LeftToOthers) -> None:
    """A worker said why it cannot drive the run."""
    state.left = {event.reason: event.worker, **state.left}


def release(state: RunState, _event: Released) -> None:
    """Nobody owns the run."""
    state.owner = None


def park(state: RunState, event: Parked) -> None:
    """Nobody owns it, and it waits."""
    state.owner, state.parked = None, event


def fire_timer(state: RunState, _event: TimerFired) -> None:
    """What it waited for has come; the timer's word counts, not a clock that may be behind it."""
    state.parked = None
    if state.model.retry_at is not None:
        state.model.retry_at = 0.0


def set_status(state: RunState, event: Status) -> None:
    """What callers see of all this."""
    _stop_the_clock(state.elapsed, event, state.updated_at)
    if event.status == "paused":
        state.paused = event.reason
        if event.reason == "manual":  # one that was asked for waits behind an approval, and is not forgotten
            state.pause_requested = False
    elif event.status == "resumed":
        if state.paused == "policy":  # all models have failed, and are asked again
            ask_anew(state)
        state.paused = state.parked = None
    elif event.status in TERMINAL_STATUSES:
        state.terminal, state.owner, state.parked, state.paused = event, None, None, None


def _stop_the_clock(elapsed: ElapsedState, event: Status, at: float) -> None:
    if event.status == "paused" and elapsed.paused_at is None:
        elapsed.paused_at = at
    elif event.status == "resumed" and elapsed.paused_at is not None:
        paused_s = max(0.0, at - elapsed.paused_at)
        elapsed.paused_s += paused_s
        elapsed.step_paused_s += paused_s
        elapsed.paused_at = None


def request_pause(state: RunState, event: PauseRequested) -> None:
    """Somebody wants the run to pause, or does not any more."""
    state.pause_requested = not event.withdrawn


def request_cancel(state: RunState, event: CancelRequested) -> None:
    """Nobody owns the run any more, and it waits for nothing but its end."""
    state.cancel_reason, state.cancel_by = event.reason, event.by
    state.owner = state.parked = state.paused = None


def fail(state: RunState, event: Error) -> None:
    """Why it will end."""
    state.error = event


def meet_unknown(state: RunState, event: Unknown) -> None:
    """This code must not drive the run."""
    state.unknown_type = state.unknown_type or event.original_type
