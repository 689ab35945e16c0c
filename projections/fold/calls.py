"""The tool calls of the open step, and the approvals that they wait for."""

from __future__ import annotations

from typing import Any

from ...eventlog.events import (
    QUESTION,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    Custom,
    McpProgress,
    Memoized,
    ResultRecorded,
    TokenIssued,
    TokenRevoked,
    ToolAttemptFailed,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolStarted,
)
from ..call_texts import memo_mark, question_mark, recording_key
from ..money import plus_cost
from ..retrieval import RETRIEVE, is_offloaded, retrieval_spec
from ..run_state import TODO_SOURCE, ApprovalState, CallbackState, CallState, RunState, SpentState, Todo
from . import operations
from .conversation import count_tools
from .counting import count_retry

_UNTIL_ANY = frozenset({"approval", "unverifiable", "budget", "wait", "child"})
"""Reasons of a parked run that goes on with the first answer, or the first end of a wait."""


def call_tool(state: RunState, event: ToolCall) -> None:
    """Add a tool call that the model requested; one that the provider ran leaves only its id taken."""
    call_id, flow = event.tool_call_id or "", state.flow
    if event.executed_by:
        state.call_places.setdefault(call_id, (state.step, -1))
        return
    if flow is None:
        state.place_call(call_id, (state.step, len(state.calls)))
    count = state.tool_counts.get(event.tool_name, 0)
    state.tool_counts[event.tool_name] = count + 1
    state.calls[call_id] = CallState(
        id=call_id,
        index=len(state.calls if flow is None else flow.asked),
        name=event.tool_name,
        arguments=event.arguments,
        raw_arguments=event.raw_arguments,
        injected_args=event.injected_args,
        policy=event.policy,
        rules=event.rules,
        count=count,
        cut=state.model.finish_reason,
    )
    if flow is not None:
        operations.ask_tool(flow, state.calls[call_id])


def start_call(state: RunState, event: ToolStarted) -> None:
    """Note the start of an unsafe attempt, which must not be repeated without a decision."""
    in_call(state, event.tool_call_id).started = event.attempt


def fail_attempt(state: RunState, event: ToolAttemptFailed) -> None:
    """Note a failed attempt that will be retried."""
    call = in_call(state, event.tool_call_id)
    call.started, call.retry_at = 0, event.retry_at
    call.failures += 1
    count_retry(state, "tool_failure")


def return_result(state: RunState, event: ToolResult) -> None:
    """Store the result of a call."""
    if event.executed_by:
        return
    call = in_call(state, event.tool_call_id)
    call.result, call.started, call.orphaned = event, 0, False
    if call.callbacks:  # what answered one that the call never waited for is of no use to another call
        state.signals = [each for each in state.signals if each.event.tool_call_id != call.id]
    _keep_todos(state, call, event)
    offer_retrieval(state, event)
    if "recorded_from" in event.metadata:
        state.recorded.get(recording_key(call.name, call.arguments), [])[:1] = []
    if state.flow is not None:
        operations.end_call(state, state.flow, event)


def keep_part(state: RunState, event: Memoized) -> None:
    """Store the value of a memoized part of the call, or of the workflow itself; its callbacks have none."""
    if state.flow is not None and event.tool_call_id not in state.calls:
        operations.keep_value(state, state.flow, event)
        return
    call = in_call(state, event.tool_call_id)
    call.memos[event.name] = event.value
    if state.flow is not None and event.error:
        state.flow.failures[call.id] = event.error
    if event.evidence:
        call.memo_evidence[event.name] = event.evidence
    call.marks[memo_mark(event.name)] = call.emitted, len(call.children)


def count_event(state: RunState, event: McpProgress | Custom) -> None:
    """Count an event that the call has emitted."""
    count_emitted(state, event.tool_call_id)


def keep_partial(state: RunState, event: ToolPartial) -> None:
    """Count the event, and keep the call's newest partial result."""
    count_emitted(state, event.tool_call_id)
    call = in_call(state, event.tool_call_id)
    call.partials, call.partial = call.partials + 1, event.value


def keep_recorded(state: RunState, event: ResultRecorded) -> None:
    """Store a recorded result, which a call of the fork or of a node below it may use."""
    if event.below:
        state.recorded_below.append(event)
        return
    state.recorded.setdefault(recording_key(event.tool_name, event.arguments), []).append(event)


def count_emitted(state: RunState, call_id: str | None) -> None:
    """Count one more stored event of the call; a repeated attempt skips as many."""
    in_call(state, call_id).emitted += 1


def in_call(state: RunState, call_id: str | None) -> CallState:
    """Return the call; for an unknown id a throw-away one, because the fold is total."""
    return state.calls.get(call_id or "") or CallState(id="", index=0, name="", arguments={})


def request_approval(state: RunState, event: ApprovalRequested) -> None:
    """Add an approval, about a call or about the run."""
    state.approvals[event.approval_id] = ApprovalState(request=event)
    operations.open_question(state, event)
    call = in_call(state, event.tool_call_id or event.place)
    call.approval_id = event.approval_id
    if event.kind == QUESTION:  # a question ends the attempt
        call.asks += 1
        call.started, call.retry_at = 0, None
        call.marks[question_mark(str(event.arguments.get("name")))] = call.emitted, len(call.children)
    elif event.kind == "unverifiable":  # the attempt has ended, an operator decides how
        call.started, call.retry_at = 0, None


def resolve_approval(state: RunState, event: ApprovalResolved) -> None:
    """Store the decision on an approval; the first one counts."""
    approval = state.approvals.get(event.approval_id)
    if approval is None or not approval.pending:
        return
    approval.resolution = event
    unpark(state)
    if approval.request.kind == "budget" and event.decision == "approved":
        _raise_ceiling(state.spent, approval.request.arguments.get("budget"), event.arguments)
    if approval.request.place:
        operations.answer_question(state, approval.request.place, event)
    call = state.calls.get(event.tool_call_id or "")
    if event.always:
        arguments = approval.request.arguments if event.arguments is None else event.arguments
        state.always[event.approval_id] = recording_key(approval.request.tool_name, arguments)
    if call is not None:  # after the calls that were released earlier
        call.turn = max(each.turn for each in state.calls.values()) + 1
    if call is not None and approval.request.kind == "unverifiable" and event.outcome == "retry":
        call.started, call.orphaned = 0, False
        call.doubts += 1


def unpark(state: RunState) -> None:
    """Let a run go on that is parked on answers and waits, of which one has come."""
    if state.parked is not None and state.parked.reason in _UNTIL_ANY:
        state.parked = None


def revoke_approval(state: RunState, event: ApprovalRevoked) -> None:
    """Revoke an approval; it needs no decision any more."""
    if event.approval_id in state.approvals:
        state.approvals[event.approval_id].revoked = True
        operations.withdraw_question(state, event)


def issue_token(state: RunState, event: TokenIssued) -> None:
    """Add a token, which permits its holder to decide, or to answer a callback."""
    if event.wait_id:
        made = in_call(state, event.tool_call_id).callbacks
        made.setdefault(event.wait_id, CallbackState(event.expires_at)).tokens.append(event.sha256)
    if event.approval_id in state.approvals:
        state.approvals[event.approval_id].tokens.append(event)


def revoke_token(state: RunState, event: TokenRevoked) -> None:
    """Remove a revoked resume token."""
    if event.approval_id in state.approvals:
        tokens = state.approvals[event.approval_id].tokens
        tokens[:] = [token for token in tokens if token.sha256 != event.sha256]


def _raise_ceiling(spent: SpentState, ceiling: object, answer: dict[str, Any] | None) -> None:
    amount = plus_cost(spent.raised.get(str(ceiling), "0"), str((answer or {}).get("raise", 0)))
    if amount is not None:
        spent.raised[str(ceiling)] = amount


def offer_retrieval(state: RunState, event: ToolResult) -> None:
    """Add the retrieval tool when the model is shown a shortened result, unless the run has it already."""
    if not is_offloaded(event.metadata) or RETRIEVE in state.tools:
        return
    config = state.submitted.config if state.submitted is not None else {}
    state.tools[RETRIEVE] = retrieval_spec(config.get("injected_tool_args") or {})
    if state.context.window_tokens is not None:
        count_tools(state.context, state.tools.values())


def _keep_todos(state: RunState, call: CallState, event: ToolResult) -> None:
    tool = state.tools.get(call.name)
    if not event.success or tool is None or tool.source != TODO_SOURCE:
        return
    arguments = event.metadata.get("edited_arguments", call.arguments)
    given = arguments if isinstance(arguments, dict) else {}
    if call.name == "add_todo":
        state.todos.append(Todo(id=f"{state.step}.{call.index}", text=str(given.get("text", ""))))
    elif call.name == "complete_todo":
        for todo in state.todos:
            todo.done = todo.done or todo.id == given.get("id")
