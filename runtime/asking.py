"""A model call, of a step or of a phase besides the steps: asked for, tried again, given up.

Retries are the same for all. Attempts are counted on through all calls of a step, whatever their phase, so that no two
are ever taken for one.
"""

from __future__ import annotations

from ..eventlog.events import ModelFailed, ModelRequested, Parked
from ..projections.run_state import RunState
from .commands import ModelCallFailed, ModelReplied
from .effects import CallModel, Effect, WaitUntil
from .request import request_digest
from .rules import PARK_RETRY_S, backoff_s
from .turn import Turn

RETRIED_ERRORS = frozenset({"transient", "rate_limit"})


def pending(state: RunState) -> tuple[Effect, ...]:
    """The model call, or the wait for its next attempt."""
    if state.model.requested:
        return (CallModel(step=state.step, attempt=state.model.attempt, phase=state.model.phase),)
    retry_at = state.model.retry_at  # maybe past already: storing the failure took its time
    return (WaitUntil(retry_at),) if retry_at else ()


def ask(turn: Turn, model: str, phase: str = "") -> None:
    """Decide on the next attempt."""
    state = turn.state
    turn.add(
        ModelRequested(
            step=state.step if state.step_open else None,
            attempt=state.model.attempt + 1,
            digest=request_digest(state, turn.rules, model, phase),
            model=model,
            phase=phase,
        )
    )


def is_given_up(state: RunState) -> bool:
    """Whether the last attempt failed and there is no next."""
    model = state.model
    return bool(model.error_type) and model.retry_at is None and model.failures > 0 and not model.requested


def ask_again(turn: Turn, model: str, phase: str = "") -> None:
    """The next attempt, when the wait is over; a long wait parks the run."""
    call = turn.state.model
    if call.requested:
        return
    if call.retry_at is None or call.retry_at <= turn.now:
        ask(turn, model, phase)
    elif call.retry_at - turn.now > PARK_RETRY_S:
        name = f"{phase}-{call.attempt}" if phase else str(call.failures)
        timer_id = f"model-{turn.state.step}-{name}"
        turn.add(Parked(reason="timer", timer_id=timer_id, due_at=call.retry_at))


def is_current(turn: Turn, outcome: ModelReplied | ModelCallFailed) -> bool:
    """An outcome that is stored already, or of an attempt that was repeated since, yields nothing (rule 21)."""
    state, model = turn.state, turn.state.model
    asked = (state.step, model.attempt, model.phase)
    return (
        model.requested
        and (state.step_open or bool(model.phase))
        and (outcome.step, outcome.attempt, outcome.phase) == asked
    )


def failed(turn: Turn, failure: ModelCallFailed) -> None:
    """A failed attempt, with the time of the next if there is one."""
    state, retry = turn.state, turn.rules.retry
    if not is_current(turn, failure):
        return
    failures = state.model.failures + 1
    retry_at = None
    if failure.error_type in RETRIED_ERRORS and failures < retry.attempts:
        wait_s = max(backoff_s(retry, failures, f"{state.run}:{state.step}"), failure.retry_after_s or 0.0)
        retry_at = turn.now + wait_s
    turn.add(
        ModelFailed(
            step=state.step if state.step_open else None,
            attempt=failure.attempt,
            error_type=failure.error_type,
            error=failure.message,
            retry_at=retry_at,
            phase=failure.phase,
        )
    )
