"""Decisions about a workflow's run: what its code or table asks for becomes facts, and what is open is settled.

The calls, waits, questions and approvals of a workflow are those of agents: the same events, decided by the same
modules. Only who asks for them differs: not a model's reply, but `CodeAdvanced`, which the driver posts after it has
let the code go on (`agents/workflow/program.py`).
"""

from __future__ import annotations

from ....eventlog.events import (
    QUESTION,
    ApprovalRequested,
    ApprovalRevoked,
    Chosen,
    Diverged,
    Marked,
    Memoized,
    OperationSkipped,
    Parked,
    Prepared,
    Status,
    ToolCall,
)
from ....eventlog.names import digest_of
from ....projections.flow_state import FlowState
from ....projections.run_state import CallState, RunState
from .. import tool_calls, waits
from ..approvals import UNVERIFIABLE, awaits_approval, request_approval
from ..commands import CodeAdvanced, CodeDiverged, MemoMade, ToolWaits
from ..effects import CancelChild, Effect
from ..turn import Turn
from .facts import AskPerson, AskTool, AskWait, Choose, Fact, Mark, Skip

LOST = "its branch lost the race"


def pending(state: RunState, now: float) -> tuple[Effect, ...]:
    """Return the calls to run or to verify, and the children of branches that lost a race, to be cancelled."""
    flow = state.flow
    lost = [
        run for run in state.open_children if flow is not None and flow.has_lost(flow.children.get(run, ""))
    ]
    return (*tool_calls.pending(state, now), *(CancelChild(child_run=run) for run in lost))


def advance(turn: Turn) -> None:
    """Settle the calls that need no tool, and pause if that was requested and nothing is at work."""
    state = turn.state
    tool_calls.settle_each(turn)
    at_work = any(not _waits(turn, call) for call in state.calls.values())
    if state.pause_requested and not state.open_children and not at_work:
        turn.add(Status(status="paused", reason="manual"), Parked(reason="manual"))


def code_advanced(turn: Turn, went: CodeAdvanced) -> None:
    """Store what the code asks for, in its order, each with the approval that it needs; then its end."""
    flow = turn.state.flow
    if flow is None or flow.diverged is not None or turn.state.owner is None:
        return
    known = len(flow.order)
    for fact in went.facts:
        _store(turn, flow, fact)
    if went.end is not None and went.end.error_type:
        turn.fail(went.end.error_type, went.end.message, recoverable=False, step=None)
    elif went.end is not None:
        turn.complete(went.end.output)
    elif went.idle and len(flow.order) == known:  # else the code goes on with what has ended at once
        _park(turn)


def diverged(turn: Turn, found: CodeDiverged) -> None:
    """Park the run: its code asks for something else than the log has."""
    state = turn.state
    if state.flow is None or state.flow.diverged is not None:
        return
    turn.add(
        Diverged(place=found.place, recorded=found.recorded, asked=found.asked),
        Status(status="paused", reason="takeover"),
        Parked(reason="takeover"),
    )


def memo_made(turn: Turn, made: MemoMade) -> None:
    """Store a value that the code of the workflow computed, or that a callback is told or could not be told.

    Idempotent: a stored value is never replaced.
    """
    flow, call = turn.state.flow, turn.state.calls.get(made.call_id)
    if flow is None or made.call_id in flow.ended or (call is not None and not is_to_tell(call)):
        return
    turn.add(Memoized(tool_call_id=made.call_id, name=made.name, value=made.value, error=made.error))
    if call is not None and made.error:
        waits.cancel(turn, call)


def is_own(state: RunState, made: MemoMade) -> bool:
    """Return whether the workflow itself made it, and not one of its tool calls."""
    call = state.calls.get(made.call_id)
    return state.flow is not None and (call is None or call.kind != "tool")


def is_to_tell(call: CallState) -> bool:
    """Return whether this is a callback whose token was not told yet."""
    return call.kind == "callback" and call.open_wait is not None and not call.memos


def _call(turn: Turn, fact: AskTool) -> None:
    """Call a tool; the first call of each fixes its specification for the run."""
    known = turn.state.tools
    if fact.spec is not None and fact.name not in known:
        turn.add(Prepared(tools=[*known.values(), fact.spec]))
    turn.add(
        ToolCall(
            tool_call_id=fact.place,
            tool_name=fact.name,
            arguments=fact.arguments,
            policy=tool_calls.stored_ruling(turn, fact.name, fact.arguments),
            rules=fact.rules,
        )
    )
    call = turn.state.calls[fact.place]
    need = tool_calls.approval_needed(turn, call)
    if need is not None:
        request_approval(turn, call, need.kind, need.reason)
        if turn.state.paused is None:
            turn.add(Status(status="paused", reason="approval"))


def _store(turn: Turn, flow: FlowState, fact: Fact) -> None:
    match fact:
        case AskTool() if fact.place not in flow.asked:
            _call(turn, fact)
        case AskWait() if fact.place not in flow.asked:
            _start_wait(turn, fact)
        case AskPerson() if fact.place not in flow.asked:
            _ask(turn, fact)
        case Choose() if fact.place not in flow.chosen:
            turn.add(Chosen(place=fact.place, index=fact.index, lost=list(fact.lost)))
            _cancel_lost(turn, flow)
        case Mark() if fact.place not in flow.marks:
            turn.add(Marked(place=fact.place, name=fact.name, value=fact.value))
        case Skip() if fact.place not in flow.skipped:
            turn.add(OperationSkipped(place=fact.place, why=fact.why, failed=fact.failed))
        case _:
            pass


def _start_wait(turn: Turn, fact: AskWait) -> None:
    wait = ToolWaits(
        step=0,
        call_id=fact.place,
        attempt=1,
        wait_id=fact.place,
        kind=fact.kind,
        name=fact.name,
        until=turn.now + fact.after_s if fact.until is None and fact.after_s is not None else fact.until,
        form=fact.form,
    )
    call = CallState(id=fact.place, index=0, name=fact.name, arguments={}, kind=fact.kind)
    waits.start(turn, call, wait, asked=fact.asked)


def _ask(turn: Turn, fact: AskPerson) -> None:
    turn.add(
        ApprovalRequested(
            approval_id=f"ap-{digest_of(turn.state.run, fact.place, QUESTION)[:16]}",
            kind=QUESTION,
            arguments={"name": fact.name, "message": fact.message, "schema": fact.form},
            expires_at=turn.now + turn.rules.approval_timeout_s,
            place=fact.place,
        )
    )
    if turn.state.paused is None:
        turn.add(Status(status="paused", reason="approval"))


def _cancel_lost(turn: Turn, flow: FlowState) -> None:
    """End what the other branches still wait for; a started unsafe call and a child run end by themselves."""
    for call in [call for place, call in turn.state.calls.items() if flow.has_lost(place)]:
        approval = turn.state.approvals.get(call.approval_id or "")
        if call.orphaned or (approval is not None and approval.request.kind == UNVERIFIABLE):
            continue  # it may have been done: only its settlement ends it
        if approval is not None and approval.pending:
            turn.add(ApprovalRevoked(approval_id=approval.request.approval_id))
        if call.open_wait is not None:
            waits.cancel(turn, call)
        elif call.kind == "tool" and not call.started:
            tool_calls.abort(turn, call, LOST)
    waits.resume(turn)


def _park(turn: Turn) -> None:
    """Park if all that is open waits; a child that waits parks the run when its driver says so."""
    state = turn.state
    if not state.calls or state.open_children or state.parked is not None:
        return
    if all(_waits(turn, call) for call in state.calls.values()):
        turn.add(Parked(reason=tool_calls.parking_reason(state)))


def _waits(turn: Turn, call: CallState) -> bool:
    return (call.open_wait is not None and not is_to_tell(call)) or awaits_approval(turn, call)
