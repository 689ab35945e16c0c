"""A run that waits for nothing but children which wait themselves needs no worker: it parks until one is ready."""

from __future__ import annotations

from ...eventlog.events import ChildReady as ChildReadyEvent
from ...eventlog.events import Parked
from ...projections.run_state import CallState, RunState
from . import timeouts
from .turn import Turn


def may_park(turn: Turn) -> bool:
    """Return whether all that is open in the run could be taken up again by somebody else.

    A call must be one that may be run again, and have no time of its own that would begin again.
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
    if approval is not None and approval.pending:
        return True
    tool = state.tools.get(call.name)
    again = tool is not None and tool.effect != "unsafe" and tool.timeout_s is None
    return again and any(child in state.open_children for child in call.children)


def park(turn: Turn) -> None:
    """Park until something below is ready."""
    if may_park(turn):
        turn.add(Parked(reason="child"))


def ready(turn: Turn, child_run: str) -> None:
    """Something at or below this child can go on."""
    parked = turn.state.parked
    if parked is not None and parked.reason == "child" and child_run in turn.state.open_children:
        turn.add(ChildReadyEvent(child_run=child_run))


def waits_for_people(state: RunState) -> bool:
    """Return whether a run that rests waits for people, itself or below it, and not for a time."""
    return state.paused is not None or is_parked_on_child(state)


def is_parked_on_child(state: RunState) -> bool:
    """Return whether the run waits for a child."""
    return state.parked is not None and state.parked.reason == "child"
