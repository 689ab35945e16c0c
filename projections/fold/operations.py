"""The operations of a workflow: tool calls, child runs, questions, waits and values that its code asked for."""

from __future__ import annotations

from ...eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    ChildFinished,
    ChildReturned,
    ChildStarted,
    Chosen,
    Diverged,
    Marked,
    Memoized,
    OperationSkipped,
    ToolResult,
    WaitEnded,
    WaitStarted,
)
from ..flow_state import Asked, Ended, FlowState
from ..run_state import CallState, RunState


def ask_tool(flow: FlowState, call: CallState) -> None:
    """Add a tool call, whose id is its place."""
    flow.asked[call.id] = Asked("tool", call.name, call.arguments)


def end_call(state: RunState, flow: FlowState, event: ToolResult) -> None:
    """Store what came of a tool call, which is then no longer open."""
    place = event.tool_call_id or ""
    status = str(event.metadata.get("status") or ("success" if event.success else "error"))
    _end(state, flow, place, Ended(status=status, value=event.result, error=event.error or ""))


def keep_value(state: RunState, flow: FlowState, event: Memoized) -> None:
    """Store a value, which was computed once."""
    place = event.tool_call_id or ""
    flow.asked[place] = Asked("memo", event.name, None)
    status = "error" if event.error else "success"
    _end(state, flow, place, Ended(status=status, value=event.value, error=event.error))


def open_wait(state: RunState, event: WaitStarted) -> None:
    """Add a wait as an open call, which has nothing but this wait."""
    if state.flow is not None and event.place:
        state.flow.asked[event.place] = Asked(event.kind, event.name, event.asked)
        _open(state, event.place, event.kind, event.name)


def close_wait(state: RunState, event: WaitEnded, sent_at: float | None) -> None:
    """Store what a wait came to."""
    if state.flow is not None:
        ended = Ended(
            status=event.outcome,
            value=event.data,
            error=state.flow.failures.pop(event.place, ""),
            key=event.key,
            by=event.by,
            sent_at=sent_at or 0.0,
        )
        _end(state, state.flow, event.place, ended)


def open_question(state: RunState, event: ApprovalRequested) -> None:
    """Add a question as an open call."""
    if state.flow is not None and event.place:
        name = str(event.arguments.get("name", ""))
        request = [event.arguments.get("message"), event.arguments.get("schema")]
        state.flow.asked[event.place] = Asked("ask", name, request)
        _open(state, event.place, "ask", name)


def answer_question(state: RunState, place: str, event: ApprovalResolved) -> None:
    """Store the answer to a question."""
    if state.flow is not None:
        ended = Ended(status=event.decision, value=event.arguments, by=event.by, note=event.note)
        _end(state, state.flow, place, ended)


def withdraw_question(state: RunState, event: ApprovalRevoked) -> None:
    """Close a question whose branch has lost its race; the approvals of calls are closed with their calls."""
    approval = state.approvals.get(event.approval_id)
    if state.flow is not None and approval is not None and approval.request.place:
        _end(state, state.flow, approval.request.place, Ended(status="cancelled"))


def start_child(state: RunState, event: ChildStarted) -> None:
    """Add a child run."""
    if state.flow is not None:
        state.flow.asked[event.place] = Asked("agent", event.name, event.asked)
        state.flow.children[event.child_run] = event.place


def return_child(state: RunState, event: ChildReturned) -> None:
    """Keep the output of a child run until it has ended."""
    if state.flow is not None and event.child_run in state.flow.children:
        state.flow.returned[event.child_run] = event


def finish_child(state: RunState, event: ChildFinished) -> None:
    """Store what came of a child run."""
    flow = state.flow
    if flow is None or event.child_run not in flow.children:
        return
    returned = flow.returned.pop(event.child_run, None)
    ended = Ended(
        status="success" if event.status == "completed" else event.status,
        value=returned.output if returned is not None else "",
        error=returned.error if returned is not None else "",
    )
    _end(state, flow, flow.children[event.child_run], ended)


def choose(state: RunState, event: Chosen) -> None:
    """Store which branch won a race; what the others asked for is not asked for again."""
    if state.flow is not None:
        state.flow.chosen[event.place] = event.index
        state.flow.lost |= dict.fromkeys(event.lost)


def mark(state: RunState, event: Marked) -> None:
    """Store a value that the code got."""
    if state.flow is not None:
        state.flow.marks[event.place] = event.value


def skip(state: RunState, event: OperationSkipped) -> None:
    """Store that a step of a table is not run."""
    if state.flow is not None:
        state.flow.skipped[event.place] = Ended(
            status="failed" if event.failed else "skipped", error=event.why, at=state.updated_at
        )


def diverge(state: RunState, event: Diverged) -> None:
    """Store how the code no longer fits the log."""
    if state.flow is not None:
        state.flow.diverged = event


def _open(state: RunState, place: str, kind: str, name: str) -> None:
    number = len(state.flow.asked) - 1 if state.flow is not None else 0
    state.calls[place] = CallState(id=place, index=number, name=name, arguments={}, kind=kind)


def _end(state: RunState, flow: FlowState, place: str, ended: Ended) -> None:
    state.calls.pop(place, None)
    if place not in flow.ended:
        at = ended_before(state, len(flow.order))
        flow.order.append(place)
        flow.ended[place] = Ended(
            status=ended.status,
            value=ended.value,
            error=ended.error,
            key=ended.key,
            by=ended.by,
            note=ended.note,
            sent_at=ended.sent_at,
            at=state.updated_at if at is None else at,
        )


def ended_before(state: RunState, number: int) -> float | None:
    """Return when the operation that ended as this one (from 0 on) did so before the run was forked; null after it."""
    fork = state.submitted.fork if state.submitted is not None else None
    times = fork.code.times if fork is not None and fork.code is not None else []
    return times[number + 1] if number + 1 < len(times) else None


def code_began_at(state: RunState) -> float:
    """Return when the code of a workflow began, in the run that was forked first."""
    fork = state.submitted.fork if state.submitted is not None else None
    return fork.code.times[0] if fork is not None and fork.code is not None else state.elapsed.claimed_at
