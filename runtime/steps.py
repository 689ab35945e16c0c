"""The steps of an agent: a model round begins, its answer comes, and the step ends."""

from __future__ import annotations

from ..eventlog.events import (
    MessageInjected,
    OutputRejected,
    Parked,
    Reasoning,
    Status,
    Step,
    Text,
    TokenUsage,
    Usage,
)
from . import asking, budgeting, compaction, offloading
from .approving import request_approval
from .arguments import schema_problem
from .calls import approval_needed, called
from .commands import ModelReplied
from .turn import Turn


def pause(turn: Turn) -> bool:
    """Pause, if somebody has asked for it."""
    if turn.state.pause_requested:
        turn.add(Status(status="paused", reason="manual"), Parked(reason="manual"))
    return turn.state.paused == "manual"


def begin(turn: Turn) -> None:
    """Begin the next step, or end the run at its last."""
    state = turn.state
    if state.step >= turn.rules.max_steps:
        limit = turn.rules.max_steps
        turn.fail("max_steps", f"no final answer within {limit} steps", recoverable=False, step=None)
    else:
        turn.add(*[MessageInjected(content=content) for content in list(state.queue)])
        budgeting.advise(turn)
        turn.add(Step(step=state.step + 1, status="started", started_at=turn.now))
        asking.ask(turn, turn.rules.model)


def go_on_with_model(turn: Turn) -> None:
    """Ask the model again when the wait is over, or give up."""
    state, model = turn.state, turn.state.model
    if not asking.is_given_up(state):
        asking.ask_again(turn, turn.rules.model)
    elif model.error_type == "context_overflow" and compaction.begin_overflow(turn):
        return
    elif not asking.pause(turn):
        recoverable = model.error_type in asking.RETRIED_ERRORS
        turn.fail(model.error_type, model.error, recoverable=recoverable, step=state.step)


def model_replied(turn: Turn, reply: ModelReplied) -> None:
    """The answer's commit, in the order of R10."""
    state = turn.state
    if not asking.is_current(turn, reply):
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
            source=reply.usage_source if reply.usage else "estimate",
            cost_usd=reply.cost_usd,
        )
    )
    for request in reply.calls:
        called(turn, request)
    approvals = [(c, asks) for c in state.calls.values() if (asks := approval_needed(turn, c)) is not None]
    for call, asks in approvals:
        request_approval(turn, call, asks.kind, asks.reason)
    if approvals:
        turn.add(Status(status="paused", reason="approval"))


def complete(turn: Turn) -> None:
    """End the step; an answer without calls ends the run, unless it has to be given again."""
    state, rules = turn.state, turn.rules
    final = not state.calls
    step_usage = state.model.usage
    offloaded = offloading.told(state)
    turn.add(Step(step=state.step, status="completed", completed_at=turn.now, usage=step_usage))
    if offloaded is not None:
        turn.add(offloaded)
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
