"""Model calls, of steps and of the phases outside of steps: requests, retries, fallbacks, giving up.

All of them retry and fall back alike: every model has its own attempts, and the next call begins with the first model
again. Attempts are numbered through all calls of a step, in any phase, so that no two can be confused.
"""

from __future__ import annotations

from ...eventlog.events import ModelFailed, ModelRequested, Parked, ReplyState, Status
from ...projections.run_state import RunState
from ..ports.models import BudgetSpent, CircuitOpen, RateLimited, TransientModelError
from . import timeouts
from .commands import ModelCallFailed, ModelReplied
from .effects import CallModel, Effect, WaitUntil
from .model_request import request_digest
from .rules import PARK_RETRY_S, backoff_s
from .shared_budgets import is_of_a_model
from .turn import Turn

BUDGET_SPENT = BudgetSpent.error_type
CIRCUIT_OPEN = CircuitOpen.error_type
BUDGET_PAUSE = "budget"
BUDGET_TIMER = "budget"
"""The timer of all runs that wait for a budget of the namespace, so that they are found without reading every run."""
RETRIED_ERRORS = frozenset({TransientModelError.error_type, RateLimited.error_type, CIRCUIT_OPEN})


def pending(state: RunState) -> tuple[Effect, ...]:
    """Return the model call, or the wait for its next attempt."""
    if state.model.requested:
        return (CallModel(step=state.step, attempt=state.model.attempt, phase=state.model.phase),)
    retry_at = state.model.retry_at  # may have passed already while the failure was being stored
    return (WaitUntil(retry_at),) if retry_at else ()


def ask(turn: Turn, model: str, phase: str = "") -> None:
    """Request the next attempt."""
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
    """Return whether the last attempt failed and neither a retry nor a fallback follows."""
    model = state.model
    failed = bool(model.error_type) and not model.requested
    return failed and model.retry_at is None and not model.next_model


def ask_again(turn: Turn, model: str, phase: str = "") -> None:
    """Request the next attempt after its backoff; a long backoff parks the run. `model` is the first to call.

    A run that waited for the next period of a budget begins with its first model again.
    """
    call = turn.state.model
    if call.requested:
        return
    if call.retry_at is None or call.retry_at <= turn.now:
        if waits_for_budget(turn.state):
            turn.add(Status(status="resumed", reason=BUDGET_PAUSE))
            call = turn.state.model
        ask(turn, call.next_model or call.model or model, phase)
    elif call.error_type == BUDGET_SPENT:
        if turn.state.paused is None:  # a restored run is paused already
            turn.add(Status(status="paused", reason=BUDGET_PAUSE, message=call.error))
        turn.add(Parked(reason="timer", timer_id=BUDGET_TIMER, due_at=call.retry_at))
    elif call.retry_at - turn.now > PARK_RETRY_S:
        name = f"{phase}-{call.attempt}" if phase else str(call.attempt)
        retry = f"model-{turn.state.step}-{name}", call.retry_at
        timer_id, due_at = timeouts.timer_before(turn, call.retry_at) or retry
        turn.add(Parked(reason="timer", timer_id=timer_id, due_at=due_at))


def waits_for_budget(state: RunState) -> bool:
    """Return whether the run is paused until the next period of a budget of the namespace."""
    return state.paused == BUDGET_PAUSE and state.model.error_type == BUDGET_SPENT


def waits_on_timer(state: RunState) -> bool:
    """Return whether a run waits for a budget and for nothing else: a restored one is held besides."""
    parked = state.parked
    return waits_for_budget(state) and parked is not None and parked.timer_id == BUDGET_TIMER


def is_current(turn: Turn, outcome: ModelReplied | ModelCallFailed) -> bool:
    """Return whether the outcome belongs to the open attempt; stored or superseded outcomes add nothing (W21)."""
    state, model = turn.state, turn.state.model
    current = (state.step, model.attempt, model.phase)
    return (
        model.requested
        and (state.step_open or bool(model.phase))
        and (outcome.step, outcome.attempt, outcome.phase) == current
    )


def keep_reply_state(turn: Turn, reply: ModelReplied, step: int | None = None) -> None:
    """Store the state that the provider wants back with its reply, if any."""
    if not reply.reply_items:
        return
    provider, _, model = (turn.state.model.model or turn.rules.model).partition(":")
    turn.add(ReplyState(step=step, provider=provider, model=model, items=list(reply.reply_items)))


def failed(turn: Turn, failure: ModelCallFailed) -> None:
    """Store a failed attempt, with the time of its retry if there is one."""
    state, retry = turn.state, turn.rules.retry
    if not is_current(turn, failure):
        return
    failures, retry_at = state.model.failures + 1, None
    falls_back = failure.error_type in RETRIED_ERRORS or is_of_a_model(failure.budget)
    if failure.error_type == BUDGET_SPENT:
        if failure.retry_after_s is not None and not (falls_back and _fallback(turn)):
            retry_at = turn.now + failure.retry_after_s
    elif failures < retry.attempts and _may_try_again(turn, failure.error_type):
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
            window_tokens=failure.window_tokens,
            request_tokens=failure.request_tokens,
            next_model=_fallback(turn) if falls_back and retry_at is None else "",
            usage=failure.usage,
            cost_usd=failure.cost_usd,
            budget=failure.budget,
        )
    )


def _may_try_again(turn: Turn, error_type: str) -> bool:
    """Return whether the same model may be retried. An open breaker is not waited for if there is a fallback."""
    if error_type == CIRCUIT_OPEN and _fallback(turn):
        return False
    return error_type in RETRIED_ERRORS and not is_quota_used_up(turn, error_type)


def _fallback(turn: Turn) -> str:
    """Return the first fallback model that has not been given up in this call; empty if none is left."""
    call = turn.state.model
    tried = {*call.given_up, call.model}
    return next((model for model in turn.rules.fallback_models if model not in tried), "")


def is_quota_used_up(turn: Turn, error_type: str) -> bool:
    """Return whether the run has used up its retries for errors of this type."""
    most = turn.rules.retry.quota.get(error_type)
    return most is not None and turn.state.retries.get(error_type, 0) >= most


def pause(turn: Turn) -> bool:
    """Pause the run instead of failing it, if the configuration says so, until an operator resumes it."""
    call = turn.state.model
    if turn.rules.retry.exhausted != "pause" or call.error_type not in RETRIED_ERRORS:
        return False
    turn.add(
        Status(status="paused", reason="policy", message=f"{call.error_type}: {call.error}"),
        Parked(reason="policy"),
    )
    return True
