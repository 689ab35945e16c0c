"""Recover commands from recorded events: the input that the core must have received from a model, a tool or a caller.

Commands are not stored, only the events decided from them. Most events name their command, because the first event of
an outcome copies its values. Events that the core decides on its own, when it advances, have no command; replay expects
the core to decide them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...eventlog.events import (
    QUESTION,
    Actor,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    CancelRequested,
    ChildFinished,
    ChildReady,
    ChildReturned,
    ChildStarted,
    Claimed,
    Custom,
    Error,
    Evaluated,
    Event,
    FileMade,
    Json,
    KnowledgeFound,
    LeftToOthers,
    McpProgress,
    Memoized,
    MemoryHydrated,
    MessageQueued,
    ModelFailed,
    Parked,
    PauseRequested,
    PlannerCall,
    PlannerReplied,
    PlannerToolReturned,
    Prepared,
    Reasoning,
    Released,
    ReplyState,
    Restored,
    SignalReceived,
    Status,
    SummaryMade,
    Text,
    TimerFired,
    TokenIssued,
    TokenRevoked,
    ToolAttemptFailed,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolsRefreshFailed,
    ToolsRefreshRequested,
    Usage,
    WaitEnded,
    WaitStarted,
    is_by_provider,
)
from ...eventlog.parts import FilePart
from ...projections.call_texts import PARTIAL, made_file
from ...projections.messages import CallRequest, canonical_json
from ...projections.run_state import CallState, RunState
from ...runtime.core.approvals import APPROVAL_TIMER
from ...runtime.core.commands import (
    AnswerCallback,
    BelowReady,
    CallbackIssued,
    Cancel,
    ChildEnded,
    ChildSpawned,
    Claim,
    Command,
    EvaluationReturned,
    Expired,
    Fence,
    Inject,
    IssueToken,
    KnowledgeRead,
    Leave,
    MemoMade,
    ModelCallFailed,
    ModelReplied,
    ParkForChildren,
    Pause,
    PreparationFailed,
    RefreshTools,
    Release,
    Resolve,
    Restore,
    Resume,
    RevokeTokens,
    SendSignal,
    TimerDue,
    ToolAsked,
    ToolEmitted,
    ToolReturned,
    ToolsResolved,
    ToolWaits,
)
from ...runtime.core.model_calls import waits_for_budget
from ...runtime.core.planning import NOT_AVAILABLE
from ...runtime.core.planning import STEP as PLANNER_STEP
from ...runtime.core.rules import rules_of_run
from ...runtime.core.timeouts import scope_of
from ...runtime.core.tool_calls import call_problem, unfit
from ...runtime.core.waits import timer_of
from ...runtime.ports.models import ProviderCall
from .code import workflow_command

EXECUTOR_FAILURES = frozenset(
    {"config_error", "fatal", "payload_too_large", "slot_cycle", "tool_source_unavailable"}
)
"""Errors that the executor reports and that do not follow from any fact of the run."""

_LEAST_S = 1e-9


class Failed(msgspec.Struct, frozen=True):
    """The executor ended the run because of an error in its own process."""

    error: Error


def command_of(state: RunState, events: Sequence[Event], now: float) -> Command | Failed | None:  # noqa: C901, PLR0912
    """Return the command whose outcome begins with `events[0]`; None if the core decided it without one."""
    event = events[0]
    if event.agent_path or isinstance(event, (McpProgress, Custom, ToolPartial)):
        return _emitted(state, event)
    of_workflow = workflow_command(state, events) if state.flow is not None else None
    if of_workflow is not None:
        return of_workflow
    match event:
        case Claimed():
            return Claim(event.worker, event.lease_s, event.build)
        case Released():
            return Release(event.reason)
        case Restored():
            return Restore(event.restored_at)
        case LeftToOthers():
            return Leave(event.worker, event.reason)
        case ToolsRefreshRequested():
            return RefreshTools(event.mcp_servers, tuple(event.remove), event.by)
        case ToolsRefreshFailed():
            return PreparationFailed(event.error_type, event.error, state.refreshes)
        case KnowledgeFound() if state.prepared:
            return KnowledgeRead(event.items)
        case MemoryHydrated() | KnowledgeFound() | Prepared():
            return _prepared(state, events)
        case ReplyState(step=None):
            return _planner_state(state, event, events[1:2])
        case Reasoning() | Text() | FileMade() | ReplyState() | Usage():
            return _replied(state, events)
        case ModelFailed():
            return _model_failed(state, event, now)
        case SummaryMade():
            return _plain_reply(state, event)
        case PlannerReplied():
            return _planner_replied(state, event)
        case PlannerToolReturned():
            return _planner_tool_returned(state, event, now)
        case Memoized():
            return MemoMade(
                step=event.step or 0,
                call_id=event.tool_call_id or "",
                name=event.name,
                value=event.value,
                evidence=tuple(event.evidence),
                error=event.error,
            )
        case ToolAttemptFailed():
            return _attempt_failed(state, event, now)
        case ToolResult():
            return _returned(state, event)
        case ChildStarted():
            return ChildSpawned(
                call_id=event.tool_call_id,
                ordinal=_child_ordinal(state, event),
                child_run=event.child_run,
                name=event.name,
                kind=event.kind,
                place=event.place,
                asked=event.asked,
            )
        case Parked(reason="child"):
            return ParkForChildren()
        case ChildReady():
            return BelowReady(event.child_run)
        case ChildReturned() | ChildFinished():
            return _child_ended(events)
        case Evaluated():
            return EvaluationReturned(
                name=event.name, ordinal=event.ordinal, value=event.value, error=event.error
            )
        case ApprovalRequested(kind=kind) if kind == QUESTION:
            return _asked(state, event)
        case ApprovalRequested(kind="unverifiable") if event.postcondition or not _is_orphaned(state, event):
            return _unverified(state, event, now)
        case ApprovalResolved():
            return _resolved(event)
        case WaitStarted():
            return _waits(state, event)
        case WaitEnded():
            return _time_over(state, event)
        case SignalReceived(tool_call_id=str()):
            return AnswerCallback(sha256=event.key, data=event.data, by=event.by)
        case SignalReceived():
            return SendSignal(name=event.name, data=event.data, key=event.key, by=event.by)
        case TokenIssued(tool_call_id=str()):
            return CallbackIssued(
                step=event.step or 0,
                call_id=event.tool_call_id or "",
                wait_id=event.wait_id,
                sha256=event.sha256,
                until=event.expires_at,
            )
        case TokenIssued():
            return IssueToken(
                approval_id=event.approval_id,
                sha256=event.sha256,
                expires_at=event.expires_at or 0.0,
                by=event.by,
            )
        case TokenRevoked():
            return RevokeTokens(approval_id=event.approval_id, by=event.by)
        case TimerFired():
            return TimerDue(event.timer_id)
        case MessageQueued():
            return Inject(event.content, tuple(event.parts), event.request_key, **_actor(event))
        case PauseRequested():
            return (Resume if event.withdrawn else Pause)(**_actor(event))
        case Status(status="resumed", reason="manual" | "policy" | "takeover"):
            return Resume(**_actor(event))
        case Status(status="resumed") if waits_for_budget(state) and state.parked is not None:
            return Resume(**_actor(event))
        case CancelRequested() | ApprovalRevoked() | Error():
            return _ended(events)
        case Status(status="cancelled") if state.cancelling:
            return Cancel()
        case _:
            return None


def _child_ordinal(state: RunState, event: ChildStarted) -> int:
    if event.tool_call_id is None:
        return len(state.nodes_of(event.name))
    call = state.calls.get(event.tool_call_id)
    return len(call.children) if call is not None else 0


def _child_ended(events: Sequence[Event]) -> ChildEnded | None:
    returned = events[0] if isinstance(events[0], ChildReturned) else None
    finished = events[1] if returned is not None and len(events) > 1 else events[0]
    if not isinstance(finished, ChildFinished):
        return None
    return ChildEnded(
        child_run=finished.child_run,
        status=finished.status,
        output_digest=finished.output_digest,
        returned=returned,
    )


def _emitted(state: RunState, event: Event) -> ToolEmitted:
    call = state.calls.get(event.tool_call_id or "")
    return ToolEmitted(
        step=event.step or 0,
        call_id=event.tool_call_id or "",
        ordinal=call.emitted if call is not None else 0,
        event=event,
    )


def _replied(state: RunState, events: Sequence[Event]) -> ModelReplied | None:
    text = reasoning = ""
    files: list[FilePart] = []
    wanted: tuple[Json, ...] = ()
    usage: Usage | None = None
    requests: list[CallRequest] = []
    made: list[Event] = []
    for event in events:
        match event:
            case Reasoning() if usage is None:
                reasoning += event.text
            case Text() if usage is None:
                text += event.text
            case FileMade() if usage is None:
                files.append(made_file(event))
            case ReplyState() if usage is None:
                wanted = tuple(event.items)
            case Usage() if usage is None:
                usage = event
            case _ if usage is not None and is_by_provider(event):
                made.append(event)
            case ToolCall() if usage is not None:
                requests.append(
                    CallRequest(id=event.tool_call_id or "", name=event.tool_name, arguments=_written(event))
                )
            case _:
                break
    if usage is None:
        return None
    return ModelReplied(
        step=state.step,
        attempt=state.model.attempt,
        text=text,
        reasoning=reasoning,
        files=tuple(files),
        provider_calls=tuple(_provider_calls(made)),
        calls=tuple(requests),
        usage=usage.usage,
        usage_source=usage.source,
        model=usage.model,
        cost_usd=usage.cost_usd,
        finish_reason=usage.finish_reason,
        reply_items=wanted,
    )


def _provider_calls(made: Sequence[Event]) -> Iterator[ProviderCall]:
    """Yield the native tools of a reply, of which `made` are the calls, each followed by its result."""
    for call, result in zip(made[::2], made[1::2], strict=False):
        if isinstance(call, ToolCall) and isinstance(result, ToolResult):
            yield ProviderCall(
                id=call.tool_call_id or "",
                name=call.tool_name,
                arguments=call.arguments,
                result=result.result,
                error=result.error,
            )


def _written(event: ToolCall | PlannerCall) -> str:
    if event.raw_arguments is not None:
        return event.raw_arguments
    return canonical_json({**event.arguments, **event.injected_args}).decode()


def _planner_state(state: RunState, wanted: ReplyState, after: Sequence[Event]) -> ModelReplied | None:
    """Return the reply of a planner whose provider has a state to be sent back with it."""
    match after:
        case [PlannerReplied() as replied]:
            return msgspec.structs.replace(_planner_replied(state, replied), reply_items=tuple(wanted.items))
        case _:
            return None


def _planner_replied(state: RunState, event: PlannerReplied) -> ModelReplied:
    calls = tuple(
        CallRequest(id=call.id, name=call.tool_name, arguments=_written(call)) for call in event.calls
    )
    return msgspec.structs.replace(_plain_reply(state, event), calls=calls)


def _plain_reply(state: RunState, event: PlannerReplied | SummaryMade) -> ModelReplied:
    """Return the reply to a request beside those of the steps, which is one event, without its calls."""
    return ModelReplied(
        step=state.step,
        attempt=state.model.attempt,
        text=event.text,
        usage=event.usage,
        usage_source=event.source,
        model=event.model,
        cost_usd=event.cost_usd,
        phase=event.phase,
        finish_reason=event.finish_reason,
    )


def _prepared(state: RunState, events: Sequence[Event]) -> ToolsResolved | None:
    hydrated: MemoryHydrated | None = None
    for event in events:
        match event:
            case MemoryHydrated():
                hydrated = event
            case Prepared():
                return ToolsResolved(
                    tools=tuple(event.tools),
                    model=event.model,
                    window_tokens=event.window_tokens,
                    refresh=state.refreshes if state.prepared else 0,
                    hydrated=hydrated,
                    instructions=event.instructions,
                    standing_plan=event.standing_plan,
                )
            case _:
                return None
    return None


def _planner_tool_returned(state: RunState, event: PlannerToolReturned, now: float) -> ToolReturned | None:
    call = state.planning.calls.get(event.tool_call_id or "")
    if call is None or call_problem(state, call) is not None or event.error == NOT_AVAILABLE:
        return None
    return ToolReturned(
        step=PLANNER_STEP,
        call_id=call.id,
        attempt=1,
        status="success" if event.success else "error",
        result=event.result,
        in_parts=event.in_parts,
        error=event.error,
        started_at=now,
        completed_at=now,
    )


def _model_failed(state: RunState, event: ModelFailed, now: float) -> ModelCallFailed:
    """Return the failure, with the recorded wait as the one the server requested, which is not stored separately."""
    asked = event.retry_at is not None
    return ModelCallFailed(
        step=state.step,
        attempt=event.attempt,
        error_type=event.error_type,
        message=event.error,
        retry_after_s=max(_LEAST_S, (event.retry_at or now) - now) if asked else None,
        phase=event.phase,
        window_tokens=event.window_tokens,
        request_tokens=event.request_tokens,
        usage=event.usage,
        cost_usd=event.cost_usd,
        budget=event.budget,
    )


def _attempt_failed(state: RunState, event: ToolAttemptFailed, now: float) -> ToolReturned:
    call = state.calls.get(event.tool_call_id or "")
    spec = state.tools.get(call.name) if call is not None else None
    tries = spec.max_attempts if spec is not None else 1
    return ToolReturned(
        step=event.step or 0,
        call_id=event.tool_call_id or "",
        attempt=event.attempt,
        status="error",
        error=event.error,
        retryable=(call.failures + 1 if call is not None else event.attempt) >= tries,
        retry_after_s=max(_LEAST_S, event.retry_at - now),  # the tool may have requested this wait
        started_at=now,
        completed_at=now,
    )


def _returned(state: RunState, event: ToolResult) -> ToolReturned | None:
    call = state.calls.get(event.tool_call_id or "")
    status = event.metadata.get("status")
    settled = "recorded_from" in event.metadata or (call is not None and _is_settled_by_the_core(state, call))
    if settled or status not in {"success", "error", "timed_out", "aborted"}:
        return None
    timed_out = PARTIAL in event.metadata
    return ToolReturned(
        step=event.step or 0,
        call_id=event.tool_call_id or "",
        attempt=int(event.metadata.get("attempt", 0)),
        status="timed_out" if timed_out else status,
        result=None if timed_out else event.result,
        in_parts=event.in_parts,
        error=event.error,
        started_at=float(event.metadata.get("started_at", 0.0)),
        completed_at=float(event.metadata.get("completed_at", 0.0)),
        evidence=tuple(event.metadata.get("evidence", ())),
        breaker=str(event.metadata.get("breaker", "")),
        slot_cycle=str(event.metadata.get("slot_cycle", "")),
        once=str(event.metadata.get("twin_of", "")),
        deduplicated=bool(event.metadata.get("deduplicated", False)),
        postcondition=tuple(event.metadata.get("postcondition", ())),
        settles=call is not None and call.orphaned,
    )


def _is_orphaned(state: RunState, event: ApprovalRequested) -> bool:
    """Return whether a claim found the call without an owner; otherwise one of its attempts ended in doubt."""
    call = state.calls.get(event.tool_call_id or "")
    return call is None or call.orphaned


def _unverified(state: RunState, event: ApprovalRequested, now: float) -> ToolReturned:
    call = state.calls.get(event.tool_call_id or "")
    return ToolReturned(
        step=event.step or 0,
        call_id=event.tool_call_id or "",
        attempt=call.attempt if call is not None else 0,
        status="error",
        result=event.result,
        in_parts=event.in_parts,
        error=event.reason,
        in_doubt=True,
        started_at=now,
        completed_at=now,
        evidence=tuple(event.evidence),
        postcondition=tuple(event.postcondition),
        settles=call is not None and call.orphaned,
    )


def _asked(state: RunState, event: ApprovalRequested) -> ToolAsked:
    call = state.calls.get(event.tool_call_id or "")
    return ToolAsked(
        step=event.step or 0,
        call_id=event.tool_call_id or "",
        attempt=call.attempt if call is not None else 0,
        name=str(event.arguments.get("name", "")),
        message=str(event.arguments.get("message", "")),
        form=event.arguments.get("schema"),
    )


def _waits(state: RunState, event: WaitStarted) -> ToolWaits:
    call = state.calls.get(event.tool_call_id or "")
    return ToolWaits(
        step=event.step or 0,
        call_id=event.tool_call_id or "",
        attempt=call.attempt if call is not None else 0,
        wait_id=event.wait_id,
        kind=event.kind,
        name=event.name,
        until=event.until,
        form=event.schema,
    )


def _time_over(state: RunState, event: WaitEnded) -> TimerDue | None:
    """Return the timer behind the end of a wait; a signal ends one within the commit that stores it."""
    call = state.calls.get(event.tool_call_id or event.place)
    wait = call.open_wait if call is not None else None
    return TimerDue(timer_of(state, call, wait)) if call is not None and wait is not None else None


def _is_settled_by_the_core(state: RunState, call: CallState) -> bool:
    """Return whether the call gets its result without running its tool."""
    if call_problem(state, call) is not None:
        return True
    if state.submitted is not None and unfit(state, rules_of_run(state.submitted), call) is not None:
        return True
    approval = state.approvals.get(call.approval_id or "")
    resolution = approval.resolution if approval is not None else None
    if approval is None or resolution is None:
        return False
    if approval.request.kind == QUESTION:
        return False
    if approval.request.kind == "unverifiable":
        return resolution.outcome != "retry"
    return resolution.decision != "approved" or resolution.outcome is not None


def _resolved(event: ApprovalResolved) -> Command:
    if event.decision == "timed_out":
        return TimerDue(APPROVAL_TIMER + event.approval_id)
    return Resolve(
        approval_id=event.approval_id,
        decision=event.decision,
        note=event.note,
        arguments=event.arguments,
        outcome=event.outcome,
        result=event.result,
        token=event.token,
        always=event.always,
        **_actor(event),
    )


def _actor(
    event: MessageQueued | PauseRequested | Status | CancelRequested | ApprovalResolved,
) -> dict[str, Any]:
    return Actor(by=event.by, via=event.via, request_id=event.request_id).fields


def _ended(events: Sequence[Event]) -> Command | Failed | None:
    rest = [event for event in events if not isinstance(event, ApprovalRevoked)]
    end = rest[0] if rest else None
    match end:
        case CancelRequested():
            return (Cancel if rest[1:] else Fence)(end.reason, **_actor(end))
        case Error() if end.error_type in EXECUTOR_FAILURES:
            return Failed(end)
        case Error(error_type="timeout"):
            return Expired(scope=scope_of(end), step=end.step or 0)
        case _:
            return None
