"""The steps of an agent: a model call begins, its reply is stored, and the step ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...eventlog.events import (
    FileMade,
    FinishReason,
    MessageInjected,
    OutputMade,
    OutputRejected,
    Parked,
    Reasoning,
    Status,
    Step,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    Usage,
)
from ...eventlog.parts import FilePart
from ...projections.run_state import RunState
from ..ports.models import ProviderCall
from . import budgets, compaction, model_calls, offloading, outputs
from .approvals import request_approval
from .arguments import schema_problem
from .commands import ModelReplied
from .rules import Rules
from .tool_calls import ID_LENGTH_MAX, approval_needed, called, free_id, refuse
from .turn import Turn

GO_ON = (
    "Your answer was cut at the limit of its length. Go on exactly where it stands: begin with the very next "
    "characters, and repeat nothing."
)
"""The message that asks the model to continue a cut answer."""
CALL_AGAIN = (
    "Your tool call could not be read, and nothing was done. Make it again: one of the tools that you have, with "
    "arguments that are a JSON object and fit its parameters."
)
"""The message to the model after a tool call that its provider could not read."""


def pause(turn: Turn) -> bool:
    """Pause, if a caller requested it."""
    if turn.state.pause_requested:
        turn.add(Status(status="paused", reason="manual"), Parked(reason="manual"))
    return turn.state.paused == "manual"


def begin(turn: Turn) -> None:
    """Begin the next step, or fail the run after its last."""
    state = turn.state
    if state.step >= turn.rules.max_steps:
        limit = turn.rules.max_steps
        turn.fail("max_steps", f"no final answer within {limit} steps", recoverable=False, step=None)
    else:
        turn.add(
            *[MessageInjected(content=each.content, parts=list(each.parts)) for each in list(state.queue)]
        )
        budgets.advise(turn)
        turn.add(Step(step=state.step + 1, status="started", started_at=turn.now))
        model_calls.ask(turn, turn.rules.model)


def go_on_with_model(turn: Turn) -> None:
    """Call the model again when the backoff is over, or give up."""
    state, model = turn.state, turn.state.model
    if not model_calls.is_given_up(state):
        model_calls.ask_again(turn, turn.rules.model)
    elif model.error_type == "context_overflow" and compaction.begin_overflow(turn):
        return
    elif not model_calls.pause(turn):
        recoverable = model.error_type in model_calls.RETRIED_ERRORS
        turn.fail(model.error_type, model.error, recoverable=recoverable, step=state.step)


def model_replied(turn: Turn, reply: ModelReplied) -> None:
    """Store the reply as one commit, in the order of R10."""
    state = turn.state
    if not model_calls.is_current(turn, reply):
        return
    step = state.step
    if reply.reasoning:
        turn.add(Reasoning(step=step, text=reply.reasoning))
    if reply.text:
        turn.add(Text(step=step, text=reply.text))
    turn.add(*[_made(step, file) for file in reply.files])
    model_calls.keep_reply_state(turn, reply, step)
    turn.add(
        Usage(
            step=step,
            usage=reply.usage or TokenUsage(),
            model=reply.model,
            source=reply.usage_source if reply.usage else "estimate",
            cost_usd=reply.cost_usd,
            finish_reason=reply.finish_reason,
        )
    )
    turn.add(*_made_by_provider(state, reply.provider_calls))
    beyond = called(turn, reply.calls, cut=reply.finish_reason == "length")
    accepted = [call for call in state.calls.values() if call is not beyond]
    approvals = [(c, needed) for c in accepted if (needed := approval_needed(turn, c)) is not None]
    for call, needed in approvals:
        request_approval(turn, call, needed.kind, needed.reason)
    if approvals:
        turn.add(Status(status="paused", reason="approval"))
    if beyond is not None:
        refuse(turn, beyond)


def _made(step: int, file: FilePart) -> FileMade:
    return FileMade(
        step=step,
        media_type=file.media_type,
        name=file.name,
        artifact=file.artifact or "",
        bytes=file.bytes,
        tokens=file.tokens,
    )


def _made_by_provider(state: RunState, made: Sequence[ProviderCall]) -> Iterator[ToolCall | ToolResult]:
    """Yield the call and the result of each native tool, in the order in which the provider ran them (R27)."""
    taken = set[str]()
    for number, call in enumerate(made):
        call_id = free_id(
            call.id if len(call.id) <= ID_LENGTH_MAX else "",
            f"provider-{state.step}-{number}",
            lambda given: given in taken or state.knows_call(given),
        )
        taken.add(call_id)
        name, succeeded = call.name[:ID_LENGTH_MAX], call.error is None
        yield ToolCall(
            step=state.step,
            tool_call_id=call_id,
            tool_name=name,
            arguments=call.arguments,
            executed_by="provider",
        )
        yield ToolResult(
            step=state.step,
            tool_call_id=call_id,
            tool_name=name,
            success=succeeded,
            result=call.result,
            error=call.error,
            metadata={"status": "success" if succeeded else "error", "executed_by": "provider"},
            executed_by="provider",
        )


def complete(turn: Turn) -> None:
    """End the step; an answer without calls ends the run, unless the model has to answer again."""
    state, rules = turn.state, turn.rules
    final, cut = not state.calls, state.model.finish_reason
    step_usage = state.model.usage
    offloaded = offloading.offload_event(state)
    turn.add(Step(step=state.step, status="completed", completed_at=turn.now, usage=step_usage))
    if offloaded is not None:
        turn.add(offloaded)
    if cut == "content_filter":
        _end_cut(
            turn,
            "content_filter",
            "the provider's content filter stopped the answer; its text is what came",
        )
    elif not final:
        if state.same_rounds >= rules.loop_threshold > 0:
            times = f"{state.same_rounds} rounds in a row asked for the same tool calls"
            turn.fail("loop_detected", times, recoverable=False, step=None)
    elif cut == "malformed_call":
        turn.add(OutputRejected(message=CALL_AGAIN, reason="call"))
    elif not state.queue or state.step >= rules.max_steps:
        _answered(turn, cut)


def _answered(turn: Turn, cut: FinishReason) -> None:
    """End the run with its final answer, unless the model has to answer again."""
    state, rules = turn.state, turn.rules
    output = outputs.output_of(state)
    problem = schema_problem(output, rules.output_schema)
    verdict = outputs.verdict_of(state)
    if cut == "length" and (rules.on_length != "accept" or problem is not None):
        _go_on_or_end(turn)
    elif problem is not None:
        _refuse_output(turn, f"The answer does not match the required output schema: {problem}", problem)
    elif verdict is not None and verdict.error is not None:
        told = f"the output validator {verdict.name!r} failed: {verdict.error}"
        turn.fail("output_validator_failed", told, recoverable=False, step=None)
    elif verdict is not None:
        _refuse_output(turn, f"The answer was refused: {verdict.value}", str(verdict.value))
    else:
        if output != state.output:
            turn.add(OutputMade(output=output))
        turn.add(Status(status="completed", reason=cut))


def _refuse_output(turn: Turn, message: str, problem: str) -> None:
    """Have the model answer again, as often as the agent says; then end the run."""
    if turn.state.output_rejections >= turn.rules.output_retries:
        turn.fail("output_invalid", problem, recoverable=False, step=None)
    else:
        turn.add(OutputRejected(message=message))


def _go_on_or_end(turn: Turn) -> None:
    """Ask once to continue a final answer that was cut off at its length limit, if the agent is configured so.

    Cut JSON is not continued: the model would start it over, and be cut off at the same place.
    """
    state, rules = turn.state, turn.rules
    goes_on = rules.on_length == "continue" and rules.output_schema is None and state.step < rules.max_steps
    if goes_on and state.output and not state.continued:
        turn.add(OutputRejected(message=GO_ON, reason="length"))
    else:
        _end_cut(turn, "output_truncated", truncation(rules, "the answer"))


def _end_cut(turn: Turn, error_type: str, message: str) -> None:
    """Fail the run; the part of its answer that exists is kept as its output."""
    if turn.state.continued:
        turn.add(OutputMade(output=turn.state.continued + turn.state.output))
    turn.fail(error_type, message, recoverable=False, step=None)


def truncation(rules: Rules, what: str) -> str:
    """Return the error message for text that the provider cut off at its length limit, with the remedy."""
    limit = (
        f"max_tokens is {rules.settings.max_tokens}"
        if rules.settings.max_tokens is not None
        else "the provider's own limit"
    )
    remedy = 'raise max_tokens, or set on_length = "continue" or "accept"'
    return f"{what} was cut at the limit of its length ({limit}); {remedy}"
