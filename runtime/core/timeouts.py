"""The time that a run, and each of its steps, may take; none unless the configuration says so.

It runs from the first claim of the run and from the start of the step, also while nobody drives the run, and stands
still while the run is paused. That it is over is a fact like any other: an executor reports it (`Expired`) when it is
due by its clock, and the core ends the run with `timeout`.
"""

from __future__ import annotations

from ...eventlog.events import Error
from ...projections.run_state import RunState
from .effects import Expire, Scope
from .rules import Rules
from .turn import Turn

TIMER = "timeout-"
"""The timer of a parked run whose time is over before what it waits for."""
_SETTINGS: dict[Scope, str] = {"run": "run_timeout_s", "step": "step_timeout_s"}


def expiry(state: RunState, rules: Rules) -> Expire | None:
    """When the time of the run, or of its open step, is over, whichever comes first; null for never or not now."""
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
    """What is over by now, if anything is."""
    end = expiry(state, rules)
    return end if end is not None and end.at <= now else None


def timer_before(turn: Turn, due_at: float) -> tuple[str, float] | None:
    """The timer to park on instead of one that is due at `due_at`, if the time is over before."""
    end = expiry(turn.state, turn.rules)
    if end is None or end.at > due_at:
        return None
    return f"{TIMER}{end.scope}-{end.step}", end.at


def expired(turn: Turn, scope: Scope, step: int) -> None:
    """The time of the run, or of this step, is over."""
    state = turn.state
    gone = scope == "step" and (step != state.step or not state.step_open)
    if gone or state.over or state.elapsed.paused_at is not None:
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
    """What the time-out bounded that ended a run."""
    return "run" if _SETTINGS["run"] in error.error else "step"


def expired_by_timer(turn: Turn, timer_id: str) -> None:
    """The timer of `timer_before` is due."""
    scope, _, step = timer_id.removeprefix(TIMER).partition("-")
    expired(turn, "step" if scope == "step" else "run", int(step))
