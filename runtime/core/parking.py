"""Parking: of a run that only waits for parked children, and of one that a restore holds until a person resumes it.

After a restore it is unknown what a run did after the backup, also whether calls have started since. So it is paused
where it is, not at its next step, and a pause that it had before only turns into this one as it ends (W56).
"""

from __future__ import annotations

from ...eventlog.events import ChildReady as ChildReadyEvent
from ...eventlog.events import Parked, Restored, Status
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
    if state.flow is not None:
        return all(_waits(state, call) for call in state.calls.values())
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


def restored(turn: Turn, at: float) -> None:
    """Note the restore, which ends the claim, and hold the run."""
    if turn.state.held_at != at:
        turn.add(Restored(restored_at=at))
        hold(turn)


def hold(turn: Turn) -> None:
    """Keep a restored run from going on, unless it is parked for an answer, a signal or a pause already."""
    state = turn.state
    if state.held_at is None:
        return
    if state.paused is None:
        turn.add(Status(status="paused", reason="manual"), Parked(reason="manual"))
    elif state.parked is None or state.parked.reason in {"timer", "child"}:
        turn.add(Parked(reason="manual"))
