"""The steps of an agent: a model round begins, its answer comes or fails, and the step ends."""

from __future__ import annotations

from ..eventlog.events import (
    MessageInjected,
    ModelFailed,
    ModelRequested,
    OutputRejected,
    Parked,
    Reasoning,
    Status,
    Step,
    Text,
    TokenUsage,
    Usage,
)
from ..projections.run_state import RunState
from .approving import request_approval
from .arguments import schema_problem
from .calls import approval_needed, called
from .commands import ModelCallFailed, ModelReplied
from .effects import CallModel, Effect, WaitUntil
from .request import request_digest
from .rules import APPROVAL_EXPIRY_S, PARK_RETRY_S, backoff_s
from .turn import Turn

RETRIED_ERRORS = frozenset({"transient", "rate_limit"})


def pending(state: RunState) -> tuple[Effect, ...]:
    """The model call, or the wait for its next attempt."""
    if state.model.requested:
        return (CallModel(step=state.step, attempt=state.model.attempt, phase=state.model.phase),)
    retry_at = state.model.retry_at  # maybe past already: storing the failure took its time
    return (WaitUntil(retry_at),) if retry_at else ()


def begin(turn: Turn) -> None:
    """Begin the next step, pause, or end the run at its last."""
    state = turn.state
    if state.pause_requested:
        turn.add(Status(status="paused", reason="manual"), Parked(reason="manual"))
    elif state.step >= turn.rules.max_steps:
        limit = turn.rules.max_steps
        turn.fail("max_steps", f"no final answer within {limit} steps", recoverable=False, step=None)
    else:
        turn.add(*[MessageInjected(content=content) for content in list(state.queue)])
        turn.add(Step(step=state.step + 1, status="started", started_at=turn.now))
        _request_model(turn)


def _request_model(turn: Turn) -> None:
    state = turn.state
    turn.add(
        ModelRequested(
            step=state.step,
            attempt=state.model.attempt + 1,
            digest=request_digest(state, turn.rules),
            model=turn.rules.model,
        )
    )


def go_on_with_model(turn: Turn) -> None:
    """Ask the model again when the wait is over, or give up."""
    model = turn.state.model
    if model.requested:
        return
    if model.error_type and model.retry_at is None and model.failures:
        recoverable = model.error_type in RETRIED_ERRORS
        turn.fail(model.error_type, model.error, recoverable=recoverable, step=turn.state.step)
    elif model.retry_at is None or model.retry_at <= turn.now:
        _request_model(turn)
    elif model.retry_at - turn.now > PARK_RETRY_S:
        timer_id = f"model-{turn.state.step}-{model.failures}"
        turn.add(Parked(reason="timer", timer_id=timer_id, due_at=model.retry_at))


def model_replied(turn: Turn, reply: ModelReplied) -> None:
    """The answer's commit, in the order of R10."""
    state = turn.state
    if not is_current_model_call(turn, reply):
        return
    step = state.step
    if reply.reasoning:
        turn.add(Reasoning(step=step, text=reply.reasoning))
    if reply.text:
        turn.add(Text(step=step, text=reply.text))
    turn.add(
        Usage(
            step=step,
            usage=reply.usage or TokenUsage(),
            model=reply.model,
            source="provider" if reply.usage else "estimate",
            cost_usd=reply.cost_usd,
        )
    )
    for request in reply.calls:
        called(turn, request)
    approvals = [(c, kind) for c in state.calls.values() if (kind := approval_needed(turn, c)) is not None]
    for call, kind in approvals:
        request_approval(turn, call, kind, turn.now + APPROVAL_EXPIRY_S)
    if approvals:
        turn.add(Status(status="paused", reason="approval"))


def is_current_model_call(turn: Turn, outcome: ModelReplied | ModelCallFailed) -> bool:
    """An outcome that is stored already, or of an attempt that was repeated since, yields nothing (rule 21)."""
    state, model = turn.state, turn.state.model
    asked = (state.step, model.attempt, model.phase)
    return (
        model.requested
        and (state.step_open or bool(model.phase))
        and (outcome.step, outcome.attempt, outcome.phase) == asked
    )


def model_failed(turn: Turn, failure: ModelCallFailed) -> None:
    """A failed attempt, with the time of the next if there is one."""
    state, retry = turn.state, turn.rules.retry
    if not is_current_model_call(turn, failure):
        return
    failures = state.model.failures + 1
    retry_at = None
    if failure.error_type in RETRIED_ERRORS and failures < retry.attempts:
        wait_s = max(backoff_s(retry, failures, f"{state.run}:{state.step}"), failure.retry_after_s or 0.0)
        retry_at = turn.now + wait_s
    turn.add(
        ModelFailed(
            step=state.step,
            attempt=failure.attempt,
            error_type=failure.error_type,
            error=failure.message,
            retry_at=retry_at,
            phase=failure.phase,
        )
    )


def complete(turn: Turn) -> None:
    """End the step; an answer without calls ends the run, unless it has to be given again."""
    state, rules = turn.state, turn.rules
    final = not state.calls
    step_usage = state.model.usage
    turn.add(Step(step=state.step, status="completed", completed_at=turn.now, usage=step_usage))
    if not final:
        if state.same_rounds >= rules.loop_threshold > 0:
            times = f"{state.same_rounds} rounds in a row asked for the same tool calls"
            turn.fail("loop_detected", times, recoverable=False, step=None)
        return
    if state.queue:
        return
    problem = schema_problem(state.output, rules.output_schema)
    if problem is None:
        turn.add(Status(status="completed"))
    elif state.output_rejections:
        turn.fail("output_invalid", problem, recoverable=False, step=None)
    else:
        turn.add(OutputRejected(message=f"The answer does not match the required output schema: {problem}"))
