"""The timeouts of a run and of each of its steps; there are none unless configured.

They count from the first claim of the run and from the start of the step, also while no worker drives the run, and
stop counting while the run is paused. An expired timeout is a fact like any other: an executor reports it (`Expired`)
when its clock says so, and the core fails the run with `timeout`.
"""

from __future__ import annotations

from ...eventlog.events import Error
from ...projections.run_state import RunState
from .effects import Expire, Scope
from .rules import Rules
from .turn import Turn

TIMER = "timeout-"
"""The timer of a parked run whose timeout comes before what it is parked for."""
_SETTINGS: dict[Scope, str] = {"run": "run_timeout_s", "step": "step_timeout_s"}


def expiry(state: RunState, rules: Rules) -> Expire | None:
    """Return the earlier timeout of the run and its open step; null if none counts now."""
    if rules.run_timeout_s is None and rules.step_timeout_s is None:
        return None
    elapsed = state.elapsed
    if state.over or not elapsed.claimed_at or elapsed.paused_at is not None:
        return None
    ends: list[tuple[float, Scope]] = []
    if rules.run_timeout_s is not None:
        ends.append((elapsed.claimed_at + elapsed.paused_s + rules.run_timeout_s, "run"))
    if rules.step_timeout_s is not None and state.step_open:
        ends.append((state.step_started_at + elapsed.step_paused_s + rules.step_timeout_s, "step"))
    if not ends:
        return None
    at, scope = min(ends)
    return Expire(at=at, scope=scope, step=state.step)


def is_over(state: RunState, rules: Rules, now: float) -> Expire | None:
    """Return the timeout that has passed by now, if any."""
    end = expiry(state, rules)
    return end if end is not None and end.at <= now else None


def timer_before(turn: Turn, due_at: float) -> tuple[str, float] | None:
    """Return the timer to park on instead of one due at `due_at`, if a timeout comes first."""
    end = expiry(turn.state, turn.rules)
    if end is None or end.at > due_at:
        return None
    return f"{TIMER}{end.scope}-{end.step}", end.at


def expired(turn: Turn, scope: Scope, step: int) -> None:
    """Fail the run, if this timeout of the run or of the step still applies."""
    state = turn.state
    step_is_over = scope == "step" and (step != state.step or not state.step_open)
    if step_is_over or state.over or state.elapsed.paused_at is not None:
        return
    most_s = turn.rules.step_timeout_s if scope == "step" else turn.rules.run_timeout_s
    if most_s is None:
        return
    what = f"step {step}" if scope == "step" else "the run"
    turn.fail(
        "timeout",
        f"{what} took longer than {_SETTINGS[scope]} allows ({most_s:g} s)",
        recoverable=True,
        step=state.step if state.step_open else None,
    )


def scope_of(error: Error) -> Scope:
    """Return the scope of the timeout that ended a run."""
    return "run" if _SETTINGS["run"] in error.error else "step"


def expired_by_timer(turn: Turn, timer_id: str) -> None:
    """Handle the fired timer of `timer_before`."""
    scope, _, step = timer_id.removeprefix(TIMER).partition("-")
    expired(turn, "step" if scope == "step" else "run", int(step))
