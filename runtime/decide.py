"""The core: what happens next, decided from facts alone. No clock, no dice, no I/O.

    decide(state, rules, command, now) -> events   an outcome or a wish becomes facts; () means "already so"
    pending(state, now) -> effects                 what has to be done in the world next

`Turn` is the same for the executor that owns a run: it folds each event in place as it is decided, so that one turn can
take many commands and `advance` over what follows from them. Events of one turn are stored by one append.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import msgspec

from ..eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    CancelRequested,
    ChildFinished,
    ChildStarted,
    Claimed,
    Error,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    ModelRequested,
    OutputRejected,
    Parked,
    PauseRequested,
    Prepared,
    Reasoning,
    Released,
    Status,
    Step,
    StoredEvent,
    Text,
    TimerFired,
    TokenUsage,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStarted,
    Usage,
)
from ..eventlog.names import digest_of
from ..projections.messages import CallRequest
from ..projections.run_state import ApprovalState, CallState, RunState, apply
from .arguments import parse_arguments, schema_problem, split_arguments
from .commands import (
    Cancel,
    ChildEnded,
    ChildSpawned,
    Claim,
    Command,
    Inject,
    ModelCallFailed,
    ModelReplied,
    Pause,
    PreparationFailed,
    Release,
    Resolve,
    Resume,
    Tick,
    TimerDue,
    ToolEmitted,
    ToolReturned,
    ToolsResolved,
)
from .effects import CallModel, CallTool, Effect, Prepare, WaitUntil
from .request import request_digest
from .rules import APPROVAL_EXPIRY_S, PARK_RETRY_S, RETRYABLE_ATTEMPTS, Rules, backoff_s

RETRIED_ERRORS = frozenset({"transient", "rate_limit"})
APPROVAL_TIMER = "approval-"


def decide(state: RunState, rules: Rules, command: Command, now: float) -> tuple[StoredEvent, ...]:
    """The events that a command leads to, with all that follows from them. Leaves `state` alone."""
    turn = Turn(copy.deepcopy(state), rules, now)
    turn.take(command)
    turn.advance()
    return tuple(turn.events)


def pending(state: RunState, now: float) -> tuple[Effect, ...]:
    """What may be done next, derived from facts alone, so it survives any crash."""
    if not state.runnable or state.owner is None:
        return ()
    if not state.prepared:
        return (Prepare(),)
    if not state.step_open:
        return ()
    if not state.model.replied:
        return _pending_model(state)
    ready = [c for c in _startable(state, now) if _tool(state, c).effect != "unsafe" or c.started]
    waits = [c.retry_at for c in state.calls.values() if c.result is None and c.retry_at and c.retry_at > now]
    calls = tuple(CallTool(step=state.step, call_id=c.id, attempt=c.failures + 1) for c in ready)
    return calls + ((WaitUntil(min(waits)),) if waits else ())


def _pending_model(state: RunState) -> tuple[Effect, ...]:
    if state.model.requested:
        return (CallModel(step=state.step, attempt=state.model.attempt),)
    retry_at = state.model.retry_at  # maybe past already: storing the failure took its time
    return (WaitUntil(retry_at),) if retry_at else ()


def unsafe_starts(state: RunState, now: float) -> tuple[ToolStarted, ...]:
    """The `tool_started` that must be stored before their tools may run (protocol rule 20)."""
    if not state.runnable or state.owner is None or not state.model.replied:
        return ()
    calls = [c for c in _startable(state, now) if _tool(state, c).effect == "unsafe" and not c.started]
    return tuple(ToolStarted(step=state.step, tool_call_id=c.id, attempt=c.failures + 1) for c in calls)


def idempotency_key(state: RunState, call: CallState) -> str:
    """The key of a call: the same for every attempt and every owner."""
    return f"{state.run}:{state.step}:{call.index}"


def effective_arguments(state: RunState, call: CallState) -> dict[str, object]:
    """The arguments to run a call with: as edited by whoever approved it, else the model's."""
    for approval in reversed(state.approvals.values()):
        resolution = approval.resolution
        if (
            approval.request.tool_call_id == call.id
            and resolution is not None
            and resolution.arguments is not None
        ):
            return resolution.arguments
    return call.arguments


def tool_of(state: RunState, call: CallState) -> ToolSpec | None:
    """The call's tool, if the run has one of that name."""
    return state.tools.get(call.name)


def _tool(state: RunState, call: CallState) -> ToolSpec:
    return state.tools[call.name]


def _startable(state: RunState, now: float) -> Iterable[CallState]:
    """Calls that may run now: cleared, due, and at the front of their read-write lock in call order."""
    waiting: dict[str, bool] = {}
    for call in state.calls.values():
        if call.result is not None or not _cleared(state, call):
            continue
        spec = _tool(state, call)
        lock = spec.lock
        if lock is not None:
            held_exclusively = waiting.get(lock)
            waiting[lock] = bool(held_exclusively) or spec.exclusive
            if held_exclusively or (held_exclusively is not None and spec.exclusive):
                continue
        if call.retry_at is None or call.retry_at <= now:
            yield call


def _cleared(state: RunState, call: CallState) -> bool:
    """Whether nothing but time and locks stands between the call and its run."""
    if call.orphaned or call.raw_arguments is not None or call.name not in state.tools:
        return False
    approval = state.approvals.get(call.approval_id or "")
    if approval is None:
        return True
    resolution = approval.resolution
    if resolution is None or resolution.decision != "approved":
        return False
    return approval.request.kind != "unverifiable" or resolution.outcome == "retry"


class Turn:
    """One turn at a run: folds in place what it decides, and collects it for one append."""

    def __init__(self, state: RunState, rules: Rules, now: float) -> None:
        self.state, self.rules, self.now = state, rules, now
        self.events: list[StoredEvent] = []

    def add(self, *events: StoredEvent) -> None:
        """Decide these events."""
        for event in events:
            apply(self.state, event, self.now)
            self.events.append(event)

    def take(self, command: Command) -> None:  # noqa: C901, PLR0912 - one case each
        """Turn a command into facts; one that no longer applies into none."""
        state = self.state
        if state.over or not state.exists:
            return
        match command:
            case Claim():
                self.add(Claimed(worker=command.worker, epoch=state.epoch + 1, lease_s=command.lease_s))
            case Release():
                if state.owner is not None:
                    self.add(Released(reason=command.reason))
            case ToolsResolved():
                if not state.prepared:
                    self.add(Prepared(tools=list(command.tools), model=command.model))
            case PreparationFailed():
                self.fail(command.error_type, command.message, recoverable=False, step=None)
            case ModelReplied():
                self._model_replied(command)
            case ModelCallFailed():
                self._model_failed(command)
            case ToolEmitted():
                self._tool_emitted(command)
            case ToolReturned():
                self._tool_returned(command)
            case ChildSpawned():
                self._child_spawned(command)
            case ChildEnded():
                self._child_ended(command)
            case TimerDue():
                self._timer_due(command.timer_id)
            case Tick():
                pass
            case Cancel():
                self.cancel(command.reason, command.by)
            case Inject():
                self.add(MessageQueued(content=command.content))
            case Pause():
                if not state.pause_requested and state.paused != "manual":
                    self.add(PauseRequested(by=command.by))
            case Resume():
                if state.paused == "manual":
                    self.add(Status(status="resumed", reason="manual"))
                elif state.pause_requested:
                    self.add(PauseRequested(withdrawn=True))
            case Resolve():
                self._resolve(command)

    # --- commands -----------------------------------------------------------------------------------------------------

    def cancel(self, reason: str, by: str = "") -> None:
        """End the run as cancelled; pending approvals become void in the same commit."""
        self._revoke_approvals()
        self.add(CancelRequested(reason=reason, by=by), Status(status="cancelled", reason=reason))

    def fail(self, error_type: str, message: str, *, recoverable: bool, step: int | None) -> None:
        """End the run with an error."""
        self._revoke_approvals()
        self.add(
            Error(step=step, error=message, error_type=error_type, recoverable=recoverable),
            Status(status="error", message=message),
        )

    def _revoke_approvals(self) -> None:
        self.add(*[ApprovalRevoked(approval_id=a.request.approval_id) for a in self.state.pending_approvals])

    def _model_replied(self, reply: ModelReplied) -> None:
        state = self.state
        if not self._is_current_model_call(reply.step, reply.attempt):
            return
        step = state.step
        if reply.reasoning:
            self.add(Reasoning(step=step, text=reply.reasoning))
        if reply.text:
            self.add(Text(step=step, text=reply.text))
        self.add(
            Usage(
                step=step,
                usage=reply.usage or TokenUsage(),
                model=reply.model,
                source="provider" if reply.usage else "estimate",
                cost_usd=reply.cost_usd,
            )
        )
        for request in reply.calls:
            self._tool_called(request)
        approvals = [c for c in state.calls.values() if c.name in self.rules.hitl_tools and self._callable(c)]
        for call in approvals:
            self._request_approval(call, "tool", self.now + APPROVAL_EXPIRY_S)
        if approvals:
            self.add(Status(status="paused", reason="approval"))

    def _is_current_model_call(self, step: int, attempt: int) -> bool:
        """An outcome that is stored already, or of an attempt that was repeated since, yields nothing (rule 21)."""
        model = self.state.model
        return (
            self.state.step_open and step == self.state.step and model.requested and attempt == model.attempt
        )

    def _tool_called(self, request: CallRequest) -> None:
        state = self.state
        arguments, raw = parse_arguments(request.arguments)
        executable, injected = split_arguments(arguments, self.rules.injected_tool_args)
        usable = request.id and request.id not in state.call_places
        self.add(
            ToolCall(
                step=state.step,
                tool_call_id=request.id if usable else f"call-{state.step}-{len(state.calls)}",
                tool_name=request.name,
                arguments=executable,
                raw_arguments=raw,
                injected_args=injected,
            )
        )

    def _callable(self, call: CallState) -> bool:
        return call.raw_arguments is None and call.name in self.state.tools

    def _request_approval(self, call: CallState, kind: str, expires_at: float | None) -> None:
        ordinal = sum(1 for a in self.state.approvals.values() if a.request.tool_call_id == call.id)
        approval_id = f"ap-{digest_of(self.state.run, call.id, kind, str(ordinal))[:16]}"
        self.add(
            ApprovalRequested(
                step=self.state.step,
                tool_call_id=call.id,
                approval_id=approval_id,
                kind=kind,
                tool_name=call.name,
                arguments=call.arguments,
                expires_at=expires_at,
            )
        )

    def _model_failed(self, failure: ModelCallFailed) -> None:
        state, retry = self.state, self.rules.retry
        if not self._is_current_model_call(failure.step, failure.attempt):
            return
        failures = state.model.failures + 1
        retry_at = None
        if failure.error_type in RETRIED_ERRORS and failures < retry.attempts:
            wait_s = max(
                backoff_s(retry, failures, f"{state.run}:{state.step}"), failure.retry_after_s or 0.0
            )
            retry_at = self.now + wait_s
        self.add(
            ModelFailed(
                step=state.step,
                attempt=failure.attempt,
                error_type=failure.error_type,
                error=failure.message,
                retry_at=retry_at,
            )
        )

    def _open_call(self, step: int, call_id: str) -> CallState | None:
        call = self.state.calls.get(call_id) if step == self.state.step and self.state.step_open else None
        return call if call is not None and call.result is None else None

    def _tool_emitted(self, emitted: ToolEmitted) -> None:
        call = self._open_call(emitted.step, emitted.call_id)
        if call is None or emitted.ordinal != call.emitted:
            return
        event = msgspec.structs.replace(emitted.event, step=self.state.step, tool_call_id=call.id)
        self.add(event)  # type: ignore[arg-type] # the shell admits observable events only

    def _tool_returned(self, returned: ToolReturned) -> None:
        call = self._open_call(returned.step, returned.call_id)
        if call is None or call.orphaned or call.name not in self.state.tools:
            return
        if returned.attempt != call.failures + 1:  # that attempt's outcome is stored already
            return
        if returned.status != "success" and self._retries(call, returned):
            wait_s = returned.retry_after_s or backoff_s(self.rules.retry, call.failures + 1, call.id)
            self.add(
                ToolAttemptFailed(
                    step=self.state.step,
                    tool_call_id=call.id,
                    attempt=call.failures + 1,
                    error=returned.error or "",
                    retry_at=self.now + wait_s,
                )
            )
            return
        self._result(
            call,
            status=returned.status,
            result=returned.result,
            error=returned.error,
            started_at=returned.started_at,
            completed_at=returned.completed_at,
        )

    def _retries(self, call: CallState, returned: ToolReturned) -> bool:
        spec = _tool(self.state, call)
        attempts = max(spec.max_attempts, RETRYABLE_ATTEMPTS if returned.retryable else 1)
        return spec.effect != "unsafe" and call.failures + 1 < attempts

    def _child_spawned(self, spawned: ChildSpawned) -> None:
        call = self.state.calls.get(spawned.call_id)
        if call is None or call.result is not None or spawned.ordinal != len(call.children):
            return
        self.add(
            ChildStarted(
                step=self.state.step,
                tool_call_id=call.id,
                child_run=spawned.child_run,
                name=spawned.name,
                kind=spawned.kind,
            )
        )

    def _child_ended(self, ended: ChildEnded) -> None:
        if ended.child_run not in self.state.open_children:
            return
        call_id = self.state.open_children[ended.child_run]
        self.add(
            ChildFinished(
                step=self.state.step if call_id else None,
                tool_call_id=call_id,
                child_run=ended.child_run,
                status=ended.status,
                output_digest=ended.output_digest,
            )
        )

    def _timer_due(self, timer_id: str) -> None:
        parked = self.state.parked
        if parked is not None and parked.reason == "timer" and parked.timer_id == timer_id:
            self.add(TimerFired(timer_id=timer_id))
            return
        approval = self.state.approvals.get(timer_id.removeprefix(APPROVAL_TIMER))
        if approval is not None and approval.pending:
            self._resolved(
                approval, ApprovalResolved(approval_id=approval.request.approval_id, decision="timed_out")
            )

    def _resolve(self, answer: Resolve) -> None:
        approval = self.state.approvals.get(answer.approval_id)
        if approval is None or not approval.pending:
            return
        outcome = answer.outcome
        if approval.request.kind == "unverifiable" and outcome is None:
            outcome = "failed" if answer.decision == "rejected" else "retry"
        self._resolved(
            approval,
            ApprovalResolved(
                approval_id=answer.approval_id,
                decision=answer.decision,
                arguments=answer.arguments,
                outcome=outcome,
                result=answer.result,
                by=answer.by,
                note=answer.note,
            ),
        )

    def _resolved(self, approval: ApprovalState, resolution: ApprovalResolved) -> None:
        request = approval.request
        self.add(msgspec.structs.replace(resolution, step=request.step, tool_call_id=request.tool_call_id))
        if not self.state.pending_approvals and self.state.paused in {"approval", "unverifiable"}:
            self.add(Status(status="resumed", reason=self.state.paused))

    # --- what follows by itself ---------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Decide all that follows from the facts without anything happening in the world."""
        while self._advance_once():
            pass

    def _advance_once(self) -> bool:
        state, before = self.state, len(self.events)
        if not state.runnable or state.owner is None or not state.prepared:
            return False
        if self._park_orphans():
            return True
        if not state.step_open:
            self._begin_step()
        elif not state.model.replied:
            self._go_on_with_model()
        else:
            self._go_on_with_calls()
        return len(self.events) > before

    def _park_orphans(self) -> bool:
        """A claim over an open `tool_started` does nothing but settle (protocol rule 20)."""
        orphans = [c for c in self.state.calls.values() if c.orphaned and c.result is None]
        undecided = [c for c in orphans if not self._is_being_settled(c)]
        for call in undecided:
            self._request_approval(call, "unverifiable", None)
        if undecided and self.state.paused is None:
            self.add(Status(status="paused", reason="unverifiable"))
        if any(self.state.approvals[c.approval_id or ""].pending for c in orphans):
            self.add(Parked(reason="unverifiable"))
            return True
        return False

    def _is_being_settled(self, call: CallState) -> bool:
        """Asked already, and not answered by a retry whose start was orphaned in its turn."""
        approval = self.state.approvals.get(call.approval_id or "")
        if approval is None or approval.request.kind != "unverifiable":
            return False
        return approval.resolution is None or approval.resolution.outcome != "retry"

    def _begin_step(self) -> None:
        state = self.state
        if state.pause_requested:
            self.add(Status(status="paused", reason="manual"), Parked(reason="manual"))
        elif state.step >= self.rules.max_steps:
            limit = self.rules.max_steps
            self.fail("max_steps", f"no final answer within {limit} steps", recoverable=False, step=None)
        else:
            self.add(*[MessageInjected(content=content) for content in list(state.queue)])
            self.add(Step(step=state.step + 1, status="started", started_at=self.now))
            self._request_model()

    def _request_model(self) -> None:
        state = self.state
        self.add(
            ModelRequested(
                step=state.step,
                attempt=state.model.attempt + 1,
                digest=request_digest(state, self.rules),
                model=self.rules.model,
            )
        )

    def _go_on_with_model(self) -> None:
        model = self.state.model
        if model.requested:
            return
        if model.error_type and model.retry_at is None and model.failures:
            recoverable = model.error_type in RETRIED_ERRORS
            self.fail(model.error_type, model.error, recoverable=recoverable, step=self.state.step)
        elif model.retry_at is None or model.retry_at <= self.now:
            self._request_model()
        elif model.retry_at - self.now > PARK_RETRY_S:
            timer_id = f"model-{self.state.step}-{model.failures}"
            self.add(Parked(reason="timer", timer_id=timer_id, due_at=model.retry_at))

    def _go_on_with_calls(self) -> None:
        state = self.state
        for call in list(state.calls.values()):
            if call.result is None:
                self._settle(call)
        open_calls = [c for c in state.calls.values() if c.result is None]
        if not open_calls:
            self._complete_step()
        elif all(self._awaits_approval(c) for c in open_calls):
            self.add(Parked(reason="approval"))

    def _awaits_approval(self, call: CallState) -> bool:
        approval = self.state.approvals.get(call.approval_id or "")
        return approval is not None and approval.pending

    def _settle(self, call: CallState) -> None:
        """Give a call its result where that needs no run of its tool."""
        if call.raw_arguments is not None:
            self._result(call, status="error", error="the arguments are not a JSON object")
        elif call.name not in self.state.tools:
            known = ", ".join(sorted(self.state.tools)) or "none"
            self._result(call, status="error", error=f"unknown tool {call.name!r}; known tools: {known}")
        approval = self.state.approvals.get(call.approval_id or "")
        if approval is None or approval.resolution is None or call.result is not None:
            return
        resolution, note = approval.resolution, approval.resolution.note
        if resolution.decision == "timed_out":
            self._result(call, status="timed_out", error="nobody approved the call in time")
        elif approval.request.kind == "unverifiable":
            self._settle_unverifiable(call, resolution)
        elif resolution.decision == "rejected":
            self._result(
                call, status="rejected", error="an operator rejected the call" + (f": {note}" if note else "")
            )

    def _settle_unverifiable(self, call: CallState, resolution: ApprovalResolved) -> None:
        if resolution.outcome == "succeeded":
            self._result(call, status="success", result=resolution.result)
        elif resolution.outcome == "failed":
            self._result(
                call, status="error", error=resolution.note or "an operator marked the call as failed"
            )

    def _result(
        self,
        call: CallState,
        *,
        status: str,
        result: object = None,
        error: str | None = None,
        started_at: float | None = None,
        completed_at: float | None = None,
    ) -> None:
        begun = self.now if started_at is None else started_at
        ended = self.now if completed_at is None else completed_at
        duration_ms = round(max(0.0, ended - begun) * 1000, 3)
        self.add(
            ToolResult(
                step=self.state.step,
                tool_call_id=call.id,
                tool_name=call.name,
                success=status == "success",
                result=result,
                error=error,
                duration_ms=duration_ms,
                metadata={
                    "status": status,
                    "started_at": begun,
                    "completed_at": ended,
                    "execution_time_ms": duration_ms,
                    "attempt": call.failures + 1,
                    "idempotency_key": idempotency_key(self.state, call),
                    **self._approval_metadata(call),
                    **({"injected_args": call.injected_args} if call.injected_args else {}),
                },
            )
        )

    def _approval_metadata(self, call: CallState) -> dict[str, object]:
        """The approval of kind tool; one of kind unverifiable is recovery, and no part of the record."""
        for approval in reversed(self.state.approvals.values()):
            request, resolution = approval.request, approval.resolution
            if request.tool_call_id == call.id and request.kind != "unverifiable" and resolution is not None:
                edited = (
                    {"edited_arguments": resolution.arguments} if resolution.arguments is not None else {}
                )
                return {"approval_status": resolution.decision, "approval_id": request.approval_id, **edited}
        return {"approval_status": "not_required"}

    def _complete_step(self) -> None:
        state, rules = self.state, self.rules
        final = not state.calls
        step_usage = state.model.usage
        self.add(Step(step=state.step, status="completed", completed_at=self.now, usage=step_usage))
        if not final:
            if state.same_rounds >= rules.loop_threshold > 0:
                times = f"{state.same_rounds} rounds in a row asked for the same tool calls"
                self.fail("loop_detected", times, recoverable=False, step=None)
            return
        if state.queue:
            return
        problem = schema_problem(state.output, rules.output_schema)
        if problem is None:
            self.add(Status(status="completed"))
        elif state.output_rejections:
            self.fail("output_invalid", problem, recoverable=False, step=None)
        else:
            self.add(
                OutputRejected(message=f"The answer does not match the required output schema: {problem}")
            )
