"""Parking of a run whose open work only waits for parked children: it needs no worker until one of them is ready."""

from __future__ import annotations

from ...eventlog.events import ChildReady as ChildReadyEvent
from ...eventlog.events import Parked
from ...projections.run_state import CallState, RunState
from . import timeouts
from .turn import Turn


def may_park(turn: Turn) -> bool:
    """Return whether everything open in the run could be resumed by another worker.

    An open call must be safe to repeat, and have no timeout of its own, which would start over.
    """
    state = turn.state
    if not state.runnable or state.owner is None or not state.open_children:
        return False
    if timeouts.expiry(state, turn.rules) is not None:
        return False
    return state.kind != "agent" or (
        state.step_open
        and state.model.replied
        and all(_waits(state, call) for call in state.calls.values() if call.result is None)
    )


def _waits(state: RunState, call: CallState) -> bool:
    approval = state.approvals.get(call.approval_id or "")
    if call.open_wait is not None or (approval is not None and approval.pending):
        return True
    tool = state.tools.get(call.name)
    again = tool is not None and tool.effect != "unsafe" and tool.timeout_s is None
    return again and any(child in state.open_children for child in call.children)


def park(turn: Turn) -> None:
    """Park until a run below is ready."""
    if may_park(turn):
        turn.add(Parked(reason="child"))


def ready(turn: Turn, child_run: str) -> None:
    """Unpark: a run at or below this child can go on."""
    parked = turn.state.parked
    if parked is not None and parked.reason == "child" and child_run in turn.state.open_children:
        turn.add(ChildReadyEvent(child_run=child_run))


def waits_for_people(state: RunState) -> bool:
    """Return whether a resting run, or one below it, waits for a person and not for a timer."""
    return state.paused is not None or is_parked_on_child(state)


def is_parked_on_child(state: RunState) -> bool:
    """Return whether the run is parked for a child."""
    return state.parked is not None and state.parked.reason == "child"
