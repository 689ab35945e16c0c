"""The planner, which runs before the first step."""

from __future__ import annotations

from ...eventlog.events import PlanMade, PlannerReplied, PlannerToolReturned, ToolResult
from ..call_texts import answers, asking
from ..retrieval import OFFLOADED
from ..run_state import CallState, ModelCallState, PlanningState, RunState
from .calls import offer_retrieval
from .conversation import update_system_message
from .counting import count_usage


def planner_replied(state: RunState, event: PlannerReplied) -> None:
    """Store a reply of the planner, with its tool calls."""
    count_usage(state, event)
    planning, known = state.planning, len(state.planning.places)
    state.model = ModelCallState(
        phase=event.phase,
        attempt=state.model.attempt,
        replied=True,
        text=event.text,
        reply_state=state.model.reply_state,
        finish_reason=event.finish_reason,
    )
    planning.rounds = event.round
    planning.calls = {
        call.id: CallState(
            id=call.id,
            index=known + number,
            name=call.tool_name,
            arguments=call.arguments,
            raw_arguments=call.raw_arguments,
            injected_args=call.injected_args,
            policy=call.policy,
            count=state.tool_counts.get(call.tool_name, 0),
            cut=event.finish_reason,
        )
        for number, call in enumerate(event.calls)
    }
    planning.places |= {call.id: (event.round, number) for number, call in enumerate(event.calls)}
    planning.messages.append(asking(state.model, planning.calls.values()))


def planner_tool_returned(state: RunState, event: PlannerToolReturned) -> None:
    """Store the result of one of these calls; after the last one, all become messages."""
    planning = state.planning
    call = planning.calls.get(event.tool_call_id or "")
    if call is None:
        return
    artifact = event.offloaded_artifact_id
    call.result = ToolResult(
        tool_name=event.tool_name,
        success=event.success,
        result=event.result,
        in_parts=event.in_parts,
        error=event.error,
        metadata={} if artifact is None else {OFFLOADED: artifact},
    )
    offer_retrieval(state, call.result)
    if all(each.result is not None for each in planning.calls.values()):
        planning.messages += answers(planning.calls.values())
        planning.calls = {}


def make_plan(state: RunState, event: PlanMade) -> None:
    """Put the plan into the system message, and drop the planner's conversation."""
    state.planning, state.model = PlanningState(made=True, plan=event.plan), ModelCallState()
    update_system_message(state)
