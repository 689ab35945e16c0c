"""The life of a run: submitted, prepared, claimed, parked, paused, over."""

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
    Restored,
    Status,
    Submitted,
    TimerFired,
    ToolsRefreshFailed,
    ToolsRefreshRequested,
    Unknown,
)
from ..flow_state import FlowState
from ..messages import Message
from ..run_state import ElapsedState, RunState
from .conversation import add_message, learn_window, update_system_message
from .steps import restart_model_call


def submit(state: RunState, event: Submitted) -> None:
    """Create the run with its input and the messages before it."""
    state.submitted = event
    if event.kind == "workflow":
        state.flow = FlowState()
    state.mcp_servers = dict(event.config.get("mcp_servers") or {})
    state.context.shows_budget = event.config.get("budget_awareness") == "per-message"
    update_system_message(state)
    for item in event.messages:
        message = msgspec.convert(item, Message)
        for call in message.tool_calls:
            state.place_call(call.id, (0, len(state.call_places)))
        add_message(state, message)
    state.history_count = len(state.messages)
    add_message(state, Message(role="user", content=event.input, parts=tuple(event.parts)))


def request_refresh(state: RunState, event: ToolsRefreshRequested) -> None:
    """Note that the tools must be listed again before the next step."""
    state.refresh = event
    state.refreshes += 1


def fail_refresh(state: RunState, _event: ToolsRefreshFailed) -> None:
    """End a refresh that failed; the tools stay the same."""
    state.refresh = None


def prepare(state: RunState, event: Prepared) -> None:
    """Store the tools of the run."""
    state.prepared = True
    if state.refresh is not None:
        state.mcp_servers = state.mcp_servers | state.refresh.mcp_servers
        state.removed_tools = list(dict.fromkeys([*state.removed_tools, *state.refresh.remove]))
        state.refresh = None
    state.tools = {tool.name: tool for tool in event.tools}
    if event.instructions or event.standing_plan:
        state.instructions = event.instructions or state.instructions
        state.standing_plan = event.standing_plan or state.standing_plan
        update_system_message(state)
    learn_window(state, event)


def claim(state: RunState, event: Claimed) -> None:
    """Make a worker the owner under a new epoch; unsafe calls that the former owner had started are in doubt."""
    state.epoch, state.owner, state.owner_lease_s = event.epoch, event.worker, event.lease_s
    state.left = {}
    state.elapsed.claimed_at = state.elapsed.claimed_at or state.updated_at
    state.model.requested = False
    for call in state.calls.values():
        call.orphaned = call.orphaned or (call.started > 0 and call.result is None)


def leave(state: RunState, event: LeftToOthers) -> None:
    """Store why a worker cannot drive the run."""
    state.left = {event.reason: event.worker, **state.left}


def restore(state: RunState, event: Restored) -> None:
    """Remove the owner, and hold the run: it is paused at once, or as soon as its present pause ends."""
    state.owner, state.held_at, state.pause_requested = None, event.restored_at, True


def release(state: RunState, _event: Released) -> None:
    """Remove the owner."""
    state.owner = None


def park(state: RunState, event: Parked) -> None:
    """Remove the owner, and park the run."""
    state.owner, state.parked = None, event


def fire_timer(state: RunState, _event: TimerFired) -> None:
    """End the wait for a timer. The event decides, not a clock, which may be behind it."""
    state.parked = None
    if state.model.retry_at is not None:
        state.model.retry_at = 0.0


def set_status(state: RunState, event: Status) -> None:
    """Set the status that callers see."""
    _stop_the_clock(state.elapsed, event, state.updated_at)
    if event.status == "paused":
        state.paused = event.reason
        if event.reason == "manual":  # a pause request during an approval stays open until its own pause
            state.pause_requested = False
    elif event.status == "resumed":
        if state.flow is not None:
            state.flow.diverged = None
        if state.paused == "policy" or state.model.budget:  # all models had failed, and are called again
            restart_model_call(state)
        if (
            event.reason in {"manual", "policy", "takeover"} and state.held_at is not None
        ):  # a person lets it go on
            state.held_at, state.pause_requested = None, False
        state.paused = state.parked = None
        state.pause_by = ""
        if state.flow is not None and event.reason == "manual":
            state.paused = _still_waits_for(state)
    elif event.status in TERMINAL_STATUSES:
        state.terminal, state.owner, state.parked, state.paused = event, None, None, None


def _still_waits_for(state: RunState) -> str | None:
    """Return what a workflow waits for under a pause of another kind, which is over; null for nothing."""
    kinds = {approval.request.kind for approval in state.pending_approvals}
    if kinds:
        return "unverifiable" if "unverifiable" in kinds else "approval"
    return "wait" if state.waiting_calls else None


def _stop_the_clock(elapsed: ElapsedState, event: Status, at: float) -> None:
    if event.status == "paused" and elapsed.paused_at is None:
        elapsed.paused_at = at
    elif event.status == "resumed" and elapsed.paused_at is not None:
        paused_s = max(0.0, at - elapsed.paused_at)
        elapsed.paused_s += paused_s
        elapsed.step_paused_s += paused_s
        elapsed.paused_at = None


def request_pause(state: RunState, event: PauseRequested) -> None:
    """Note the request of a pause, or its withdrawal, which ends a hold, too."""
    state.pause_requested = not event.withdrawn
    state.pause_by = event.by
    if event.withdrawn and state.held_at is not None:
        state.held_at = None
        if state.parked is not None and state.parked.reason == "manual":
            state.parked = None


def request_cancel(state: RunState, event: CancelRequested) -> None:
    """Remove the owner; the run now waits only for its end."""
    state.cancel_reason, state.cancel_by = event.reason, event.by
    state.owner = state.parked = state.paused = None


def fail(state: RunState, event: Error) -> None:
    """Store the error with which the run will end."""
    state.error = event


def meet_unknown(state: RunState, event: Unknown) -> None:
    """Note an event of an unknown type; this code must not drive the run."""
    state.unknown_type = state.unknown_type or event.original_type
