"""The planner: a phase before the first step that asks a model for a plan.

It sees the prepared history and all tool schemas. Tools that are pure and need no approval run; calls of others are
answered with "not available". Readers see none of it: all its events are internal to the engine.
"""

from __future__ import annotations

from ...eventlog.events import PlanMade, PlannerCall, PlannerReplied, PlannerToolReturned, TokenUsage
from ...projections.call_texts import result_text
from ...projections.messages import CallRequest
from ...projections.run_state import CallState, RunState
from ..ports.models import ContextOverflow
from . import compaction, model_calls
from .commands import ModelReplied, ToolReturned
from .effects import CallTool, Effect
from .model_request import PLANNER
from .offloading import artifact_id
from .rules import Rules
from .steps import truncation
from .tool_calls import call_problem, free_id, ruling_of, startable, stored_ruling, written
from .turn import Turn

ROUNDS_MAX = 5
STEP = 0
"""The step number of the planner's calls: before the first step."""
NOT_AVAILABLE = "not available while planning"


def is_due(state: RunState, rules: Rules) -> bool:
    """Return whether the run needs a plan before it goes on."""
    return rules.planning and not state.planning.made and state.step == STEP


def pending(state: RunState, now: float) -> tuple[Effect, ...]:
    """Return the planner's model call, or its tool calls."""
    if not state.model.replied:
        return model_calls.pending(state)
    ready = startable(state, state.planning.calls, now)
    return tuple(CallTool(step=STEP, call_id=call.id, attempt=1) for call in ready)


def go_on(turn: Turn) -> None:
    """Call the planner, wait for it and its tools, and store its last reply as the plan."""
    state, rules = turn.state, turn.rules
    model = rules.planning_model or rules.model
    if state.model.phase != PLANNER:
        model_calls.ask(turn, model, PLANNER)
    elif model_calls.is_given_up(state):
        if _makes_room(turn) or model_calls.pause(turn):
            return
        message = f"the planner failed: {state.model.error_type}: {state.model.error}"
        recoverable = state.model.error_type in model_calls.RETRIED_ERRORS
        turn.fail("planner_failed", message, recoverable=recoverable, step=None)
    elif not state.model.replied:
        model_calls.ask_again(turn, model, PLANNER)
    elif not state.planning.calls and not _has_last_word(state):
        model_calls.ask(turn, model, PLANNER)
    elif _end_cut(turn):
        return
    elif _has_last_word(state):
        turn.add(PlanMade(plan=state.planning.messages[-1].content.strip()))
    else:
        _refuse(turn)


def _makes_room(turn: Turn) -> bool:
    """Return whether the request was too long and a cut of the history has begun."""
    return turn.state.model.error_type == ContextOverflow.error_type and compaction.begin_overflow(turn)


def _has_last_word(state: RunState) -> bool:
    """Return whether the planner is done: its reply has no calls, or it has used up its rounds."""
    last = state.planning.messages[-1]
    return last.role == "assistant" and (not last.tool_calls or state.planning.rounds >= ROUNDS_MAX)


def _end_cut(turn: Turn) -> bool:
    """End the run if the provider cut the plan off and the agent does not accept that; a plan is never continued."""
    cut = turn.state.model.finish_reason
    if cut == "content_filter":
        message = "the provider's content filter stopped the planner's answer"
        turn.fail("content_filter", message, recoverable=False, step=None)
    elif cut == "malformed_call" and _has_last_word(turn.state):
        message = "the planner wrote a tool call that its provider could not read"
        turn.fail("planner_failed", message, recoverable=True, step=None)
    elif cut == "length" and turn.rules.on_length != "accept" and _has_last_word(turn.state):
        turn.fail("output_truncated", truncation(turn.rules, "the plan"), recoverable=False, step=None)
    return turn.state.over


def _refuse(turn: Turn) -> None:
    """Answer the calls that no tool may run for."""
    for call in list(turn.state.planning.calls.values()):
        if call.result is None and (problem := _problem(turn, call)) is not None:
            _returned(turn, call, error=problem)


def _problem(turn: Turn, call: CallState) -> str | None:
    problem = call_problem(turn.state, call)
    if problem is not None:
        return problem
    pure = turn.state.tools[call.name].effect == "pure"
    needs_approval = call.name in turn.rules.hitl_tools or not _allowed(turn, call)
    return NOT_AVAILABLE if needs_approval or not pure else None


def _allowed(turn: Turn, call: CallState) -> bool:
    return ruling_of(turn.state, turn.rules, call).action == "allow"


def replied(turn: Turn, reply: ModelReplied) -> None:
    """Store the planner's reply."""
    if not model_calls.is_current(turn, reply):
        return
    model_calls.keep_reply_state(turn, reply)
    turn.add(
        PlannerReplied(
            round=turn.state.planning.rounds + 1,
            text=reply.text,
            calls=_calls(turn, reply.calls, cut=reply.finish_reason == "length"),
            usage=reply.usage or TokenUsage(),
            model=reply.model,
            source=reply.usage_source if reply.usage else "estimate",
            cost_usd=reply.cost_usd,
            finish_reason=reply.finish_reason,
        )
    )


def _calls(turn: Turn, requests: tuple[CallRequest, ...], *, cut: bool) -> list[PlannerCall]:
    planning, calls = turn.state.planning, list[PlannerCall]()
    taken = set(planning.places)
    for index, request in enumerate(requests):
        executable, injected, raw = written(turn, request, cut=cut and request is requests[-1])
        instead = f"plan-{planning.rounds + 1}-{index}"
        call_id = free_id(
            request.id,
            instead,
            lambda each: each in taken or turn.state.knows_call(each),
        )
        taken.add(call_id)
        calls.append(
            PlannerCall(
                id=call_id,
                tool_name=request.name,
                arguments=executable,
                raw_arguments=raw,
                injected_args=injected,
                policy=stored_ruling(turn, request.name, executable),
            )
        )
    return calls


def returned(turn: Turn, returned: ToolReturned) -> None:
    """Store the result of a planner's tool call."""
    call = turn.state.planning.calls.get(returned.call_id)
    if call is None or call.result is not None or _problem(turn, call) is not None:
        return
    _returned(
        turn,
        call,
        success=returned.status == "success",
        result=returned.result,
        in_parts=returned.in_parts,
        error=returned.error,
    )


def _returned(
    turn: Turn,
    call: CallState,
    *,
    success: bool = False,
    result: object = None,
    in_parts: bool = False,
    error: str | None = None,
) -> None:
    state = turn.state
    text = result_text(result, in_parts=in_parts) if success else ""
    turn.add(
        PlannerToolReturned(
            tool_call_id=call.id,
            tool_name=call.name,
            success=success,
            result=result,
            in_parts=in_parts and success,
            error=error,
            offloaded_artifact_id=artifact_id(state, turn.rules, call.name, text),
        )
    )
