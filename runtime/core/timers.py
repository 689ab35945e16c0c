"""The timers of a run: retries and time-outs that it is parked on, and the ends of its approvals and waits."""

from __future__ import annotations

from ...eventlog.events import TimerFired
from ...projections.run_state import RunState
from . import approvals, timeouts, waits
from .effects import AwaitTimer
from .turn import Turn


def open_timers(state: RunState) -> list[tuple[str, float]]:
    """Return the id of each timer that the run waits for, and when it is due, in Unix seconds."""
    parked = state.parked
    timers = approvals.timers_of(state) + waits.timers_of(state)
    if parked is not None and parked.reason == "timer" and parked.due_at is not None:
        timers.append((parked.timer_id, parked.due_at))
    return timers


def next_timer(state: RunState) -> AwaitTimer | None:
    """Return the timer that is due first while a driver goes on with the run; null if there is none."""
    timers = open_timers(state)
    if not timers:
        return None
    due_at, timer_id = min((due_at, timer_id) for timer_id, due_at in timers)
    return AwaitTimer(at=due_at, timer_id=timer_id)


def due(turn: Turn, timer_id: str) -> None:
    """Decide what follows from a timer that is due; nothing if the run waits for it no more."""
    parked = turn.state.parked
    if parked is not None and parked.reason == "timer" and parked.timer_id == timer_id:
        turn.add(TimerFired(timer_id=timer_id))
        if timer_id.startswith(timeouts.TIMER):
            timeouts.expired_by_timer(turn, timer_id)
    elif timer_id.startswith(waits.WAIT_TIMER):
        waits.timer_due(turn, timer_id)
    else:
        approvals.timer_due(turn, timer_id)
