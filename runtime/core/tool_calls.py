"""The tool calls of a step: requested, cleared to run, started, settled.

A call of an unsafe tool runs at most once. Its `tool_started` is stored before the tool runs (`unsafe_starts`). If a
claim finds one without a result, that worker died or lost the run in between, and the call is an orphan: nothing else
happens in the run until each orphan is settled, by its postcondition (`to_verify`) or by an approval of kind
`unverifiable` (`park_orphans`). Calls of pure and idempotent tools simply run again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from ...eventlog.events import (
    QUESTION,
    ApprovalRequested,
    ApprovalResolved,
    ChildFinished,
    ChildStarted,
    Memoized,
    Parked,
    PolicyAction,
    PolicyRuling,
    ResultRecorded,
    Status,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStarted,
)
from ...eventlog.offload import ASIDE_BYTES_MIN
from ...eventlog.ports import COMMIT_BYTES_MAX
from ...projections.call_texts import PARTIAL, recording_key, result_text
from ...projections.messages import CallRequest
from ...projections.retrieval import OFFLOADED, of_others
from ...projections.run_state import CallState, RunState
from ..ports.schema_problems import value_problem
from . import waits
from .approvals import UNVERIFIABLE, approval_metadata, awaits_approval, policy_call, request_approval
from .arguments import parse_arguments, split_arguments
from .commands import (
    CallbackIssued,
    ChildEnded,
    ChildSpawned,
    MemoMade,
    ToolAsked,
    ToolEmitted,
    ToolReturned,
    ToolWaits,
)
from .effects import CallTool, Effect, VerifyCall, WaitUntil
from .model_calls import is_quota_used_up
from .offloading import artifact_id
from .policy import ruling_on
from .postconditions import problem, verdict
from .rules import RETRYABLE_ATTEMPTS, Rules, backoff_s
from .turn import Turn

CALLS_BYTES_MAX = COMMIT_BYTES_MAX * 7 // 8
"""The part of a commit that the calls of one reply may take, with their approvals."""
APPROVAL_BYTES = 256
"""The size of an approval beyond that of its call."""
ID_LENGTH_MAX = 256
"""A longer id is replaced by one of our own; a longer name is cut, and no tool has it."""


class ApprovalNeeded(NamedTuple):
    """The approval that a call needs, of kind tool or policy, and the rule that requires it."""

    kind: str
    reason: str = ""


def idempotency_key(state: RunState, call: CallState) -> str:
    """Return the idempotency key of a call: the same for every attempt and every owner."""
    return f"{state.run}:{state.step}:{call.index}" if state.flow is None else f"{state.run}:{call.id}"


def call_of(state: RunState, effect: CallTool) -> CallState:
    """Return the call that the effect runs: one of the step, or one of the planner."""
    planning = not effect.step and state.flow is None
    return state.planning.calls[effect.call_id] if planning else state.calls[effect.call_id]


def tool_of(state: RunState, call: CallState) -> ToolSpec | None:
    """Return the call's tool, with the rules of its step, if the run has one of that name."""
    return spec_of(state, call) if call.name in state.tools else None


def spec_of(state: RunState, call: CallState) -> ToolSpec:
    """Return the tool of a call that has one, with the rules of its step."""
    spec, rules = state.tools[call.name], call.rules
    if rules is None:
        return spec
    return msgspec.structs.replace(
        spec,
        timeout_s=spec.timeout_s if rules.timeout_s is None else rules.timeout_s,
        max_attempts=spec.max_attempts if rules.attempts is None else rules.attempts,
        postcondition=[*spec.postcondition, *rules.postcondition],
    )


def startable(state: RunState, calls: Mapping[str, CallState], now: float) -> Iterable[CallState]:
    """Yield the calls that may run now: cleared, due, and at the front of their read-write lock.

    The order is that of the reply; but a call that was approved comes after those that could run before it.
    """
    waiting: dict[str, bool] = {}
    for call in sorted(calls.values(), key=lambda call: call.turn):
        if call.result is not None or not _cleared(state, call):
            continue
        spec = spec_of(state, call)
        lock = spec.lock
        if lock is not None:
            held_exclusively = waiting.get(lock)
            waiting[lock] = bool(held_exclusively) or spec.exclusive
            if held_exclusively or (held_exclusively is not None and spec.exclusive):
                continue
        if call.retry_at is None or call.retry_at <= now:
            yield call


def _cleared(state: RunState, call: CallState) -> bool:
    """Return whether the call waits for nothing but time and locks."""
    if call.orphaned or call.open_wait is not None or call_problem(state, call) is not None:
        return False
    approval = state.approvals.get(call.approval_id or "")
    if approval is None:
        return True
    resolution = approval.resolution
    if approval.request.kind == QUESTION:
        return resolution is not None
    if resolution is None or resolution.decision != "approved":
        return False
    if approval.request.kind == UNVERIFIABLE:
        return resolution.outcome == "retry"
    return resolution.outcome is None  # else a person carried it out by hand


def pending(state: RunState, now: float) -> tuple[Effect, ...]:
    """Return the calls to run now, and the wait for the next retry; before all others the calls to verify."""
    doubtful = to_verify(state)
    if doubtful:
        return tuple(VerifyCall(step=state.step, call_id=c.id, attempt=c.attempt) for c in doubtful)
    ready = [
        c for c in startable(state, state.calls, now) if spec_of(state, c).effect != "unsafe" or c.started
    ]
    waits = [c.retry_at for c in state.calls.values() if c.result is None and c.retry_at and c.retry_at > now]
    starts = tuple(CallTool(step=state.step, call_id=c.id, attempt=c.attempt) for c in ready)
    return starts + ((WaitUntil(min(waits)),) if waits else ())


def unsafe_starts(state: RunState, now: float) -> tuple[ToolStarted, ...]:
    """Return the `tool_started` events that must be stored before their tools may run (W20)."""
    if not (state.model.replied or state.flow is not None) or not state.runnable or state.owner is None:
        return ()
    unsafe = [
        c.id for c in state.calls.values() if c.result is None and not c.started and _is_unsafe(state, c)
    ]
    if not unsafe or to_verify(state):
        return ()
    calls = [c for c in startable(state, state.calls, now) if c.id in unsafe]
    return tuple(ToolStarted(step=state.call_step, tool_call_id=c.id, attempt=c.attempt) for c in calls)


def _is_unsafe(state: RunState, call: CallState) -> bool:
    spec = state.tools.get(call.name)
    return spec is not None and spec.effect == "unsafe"


def called(turn: Turn, requests: Sequence[CallRequest], *, cut: bool = False) -> CallState | None:
    """Add the calls of a reply; return null if all fit into a commit, else the first that does not and is refused.

    Calls after it are left out. The follow-up of each call has to fit, too: its approval or its start, in one commit.
    `cut`: the reply was cut off at its length limit, and its last call with it.
    """
    room = CALLS_BYTES_MAX
    for request in requests:
        event = _tool_call(turn, request, cut=cut and request is requests[-1])
        turn.add(event)
        room -= _bytes_of(event)
        if room < 0:
            return turn.state.calls[event.tool_call_id or ""]
    return None


def _tool_call(turn: Turn, request: CallRequest, *, cut: bool) -> ToolCall:
    state = turn.state
    executable, injected, raw = written(turn, request, cut=cut)
    return ToolCall(
        step=state.step,
        tool_call_id=free_id(
            request.id if len(request.id) <= ID_LENGTH_MAX else "",
            f"call-{state.step}-{len(state.calls)}",
            state.knows_call,
        ),
        tool_name=request.name[:ID_LENGTH_MAX],
        arguments=executable,
        raw_arguments=raw,
        injected_args=injected,
        policy=stored_ruling(turn, request.name, executable),
    )


def stored_ruling(turn: Turn, name: str, arguments: Mapping[str, Any]) -> PolicyRuling | None:
    """Return the ruling that a call carries: one that depends on a condition is made once, and stored."""
    if not turn.rules.policy.is_conditional:
        return None
    return turn.ruling(policy_call(turn.state, name, arguments, turn.state.tool_counts.get(name, 0)))


def ruling_of(state: RunState, rules: Rules, call: CallState) -> PolicyRuling:
    """Return the policy's ruling on a call of the run."""
    if call.policy is not None:
        return call.policy
    return rules.policy.ruling_on_all or ruling_on(
        rules.policy, policy_call(state, call.name, call.arguments, call.count)
    )


def _bytes_of(event: ToolCall) -> int:
    """Return the size of a call with its approval in a commit; large fields of both are offloaded."""
    names = 2 * len((event.tool_call_id or "").encode()) + len(event.tool_name.encode())
    limit = ASIDE_BYTES_MIN + names
    return 2 * min(len(msgspec.json.encode(event)), limit) + APPROVAL_BYTES


def refuse(turn: Turn, call: CallState) -> None:
    """Answer this call with the error that it and all calls after it are too many."""
    problem = (
        "this reply makes more calls than one step can hold: this call and all calls after it were not made; "
        "make them in later steps"
    )
    _result(turn, call, status="error", error=problem)


def written(
    turn: Turn, request: CallRequest, *, cut: bool = False
) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return the executable arguments of a call, the injected ones, and the text if it is not a JSON object.

    A cut call without any text is not a call without arguments: it was cut before their first character.
    """
    if cut and not request.arguments.strip():
        return {}, {}, request.arguments
    tool = turn.state.tools.get(request.name)
    names = of_others(request.name, tool.source if tool is not None else "", turn.rules.injected_tool_args)
    arguments, raw = parse_arguments(request.arguments)
    return *split_arguments(arguments, names), raw


def free_id(given: str, instead: str, is_taken: Callable[[str], bool]) -> str:
    """Return the id from the model, or another one if a call, even of an earlier run, already has it."""
    if given and not is_taken(given):
        return given
    while is_taken(instead):
        instead += "-"
    return instead


def call_problem(state: RunState, call: CallState) -> str | None:
    """Return why no tool can run the call: malformed arguments, an unknown name, or a cut reply."""
    if call.cut == "content_filter":
        return "not run: the provider's content filter stopped the answer that made this call"
    if call.raw_arguments is not None and call.cut == "length":
        return (
            "not run: your answer was cut at the limit of its length before the arguments of this call were complete; "
            "make the call again with shorter arguments, or split it into several calls"
        )
    if call.raw_arguments is not None:
        return "the arguments are not a JSON object"
    if call.name not in state.tools:
        known = ", ".join(sorted(state.tools)) or "none"
        if call.name in state.removed_tools:
            return f"the tool {call.name!r} was removed from this run; known tools: {known}"
        return f"unknown tool {call.name!r}; known tools: {known}"
    return None


def callable_(turn: Turn, call: CallState) -> bool:
    """Return whether the call names a tool of the run and has arguments to run it with."""
    return call_problem(turn.state, call) is None


def recorded_result(
    state: RunState, call: CallState, settled: Container[str | None] = ()
) -> ResultRecorded | None:
    """Return the recorded result that a fork uses instead of running the call: each for one call, in call order.

    `settled` are calls that need none, although their results are not folded yet.
    """
    if not state.recorded or call.result is not None or call.approval_id is not None:
        return None
    key = recording_key(call.name, call.arguments)
    found = state.recorded.get(key, [])
    before = [
        c
        for c in state.calls.values()
        if c.index < call.index and c.result is None and c.approval_id is None and c.id not in settled
    ]
    taken = sum(recording_key(c.name, c.arguments) == key for c in before) if found else 0
    return found[taken] if taken < len(found) else None


def denied(state: RunState, rules: Rules, call: CallState) -> str | None:
    """Return the policy rule that denies the call, as text."""
    ruling = ruling_of(state, rules, call)
    return ruling.why if ruling.action == "deny" else None


def approval_needed(
    turn: Turn, call: CallState, settled: Container[str | None] = ()
) -> ApprovalNeeded | None:
    """Return the approval that a call needs before it runs, if any. `settled` as in `recorded_result`."""
    state, rules = turn.state, turn.rules
    if not callable_(turn, call) or recorded_result(state, call, settled) is not None:
        return None
    return _required_approval(state, rules, call) if unfit(state, rules, call) is None else None


def _required_approval(state: RunState, rules: Rules, call: CallState) -> ApprovalNeeded | None:
    return _approval_by(state, rules, call, ruling_of(state, rules, call))


def _approval_by(
    state: RunState, rules: Rules, call: CallState, ruling: PolicyRuling
) -> ApprovalNeeded | None:
    """Return the approval that a call needs by this ruling.

    A call approved for good needs none of a rule or of `hitl_tools`; the step of a table and a fork ask in any case.
    """
    if ruling.action == "deny":
        return None
    if call.rules is not None and call.rules.approval:
        return ApprovalNeeded(call.rules.approval)
    hitl = call.name in rules.hitl_tools
    if (hitl or ruling.action == "require_approval") and not _is_always_approved(state, rules, call):
        return ApprovalNeeded("tool") if hitl else ApprovalNeeded("policy", ruling.why)
    return ApprovalNeeded("policy") if spec_of(state, call).effect in rules.approved_effects else None


def action_on(state: RunState, rules: Rules, call: CallState, ruling: PolicyRuling) -> PolicyAction:
    """Return what is done with a call that its tool could run, by this ruling and all else that asks for approvals."""
    if ruling.action == "deny":
        return "deny"
    return "allow" if _approval_by(state, rules, call, ruling) is None else "require_approval"


def _is_always_approved(state: RunState, rules: Rules, call: CallState) -> bool:
    """Return whether an operator approved exactly this call for good."""
    if not (state.always or rules.policy.always):
        return False
    key = recording_key(call.name, call.arguments)
    return key in state.always.values() or key in {
        recording_key(each.tool, each.arguments) for each in rules.policy.always
    }


def unfit(state: RunState, rules: Rules, call: CallState) -> str | None:
    """Return what is wrong with the arguments of a call that needs an approval and has not requested it yet.

    A call that could not run goes back to the model instead of to a person. The arguments of a call without an
    approval are checked by its tool.
    """
    if call.approval_id is not None or call.name not in state.tools:
        return None
    if _required_approval(state, rules, call) is None:
        return None
    problem = value_problem(call.arguments, spec_of(state, call).parameters, formats=True)
    return None if problem is None else f"invalid arguments: {problem}"


def emitted(turn: Turn, emitted: ToolEmitted) -> None:
    """Store an event that a running call emitted. Idempotent: its ordinal is stored once."""
    call = _open_call(turn, emitted.step, emitted.call_id)
    if call is None or emitted.ordinal != call.emitted:
        return
    event = msgspec.structs.replace(emitted.event, step=turn.state.call_step, tool_call_id=call.id)
    turn.add(event)  # type: ignore[arg-type] # the shell admits observable events only


def memoized(turn: Turn, made: MemoMade) -> None:
    """Store a memoized value. Idempotent: a stored value is never replaced."""
    call = _open_call(turn, made.step, made.call_id)
    if call is not None and made.name not in call.memos:
        turn.add(
            Memoized(
                step=turn.state.call_step,
                tool_call_id=call.id,
                name=made.name,
                value=made.value,
                evidence=list(made.evidence),
            )
        )


def asked(turn: Turn, question: ToolAsked) -> None:
    """Request an answer to the question that ended an attempt; then the call runs again."""
    call = _open_call(turn, question.step, question.call_id)
    if call is None or call.orphaned or question.attempt != call.attempt:
        return
    arguments: dict[str, object] = {
        "name": question.name,
        "message": question.message,
        "schema": question.form,
    }
    request_approval(turn, call, QUESTION, arguments=arguments)
    if turn.state.paused is None:
        turn.add(Status(status="paused", reason="approval"))


def waits_for(turn: Turn, wait: ToolWaits) -> None:
    """An attempt ended with a wait; the call runs again after it."""
    call = _open_call(turn, wait.step, wait.call_id)
    if call is None or call.orphaned or wait.attempt != call.attempt or wait.wait_id in call.waits:
        return
    waits.start(turn, call, wait)


def callback_issued(turn: Turn, issued: CallbackIssued) -> None:
    """Record a token of a callback, as long as its call runs."""
    call = _open_call(turn, issued.step, issued.call_id)
    if call is not None and not call.orphaned:
        waits.issue(turn, call, issued)


def _open_call(turn: Turn, step: int, call_id: str) -> CallState | None:
    state = turn.state
    is_open = state.flow is not None or (step == state.step and state.step_open)
    call = state.calls.get(call_id) if is_open else None
    return call if call is not None and call.result is None else None


def returned(turn: Turn, returned: ToolReturned) -> None:
    """Store the end of an attempt: a result, or a failure with a retry later."""
    call = _open_call(turn, returned.step, returned.call_id)
    if call is None or call.orphaned is not returned.settles or call.name not in turn.state.tools:
        return
    if returned.attempt != call.attempt:  # the outcome of that attempt is already stored
        return
    if returned.in_doubt or verdict(returned.postcondition) == "unverifiable":
        _unverified(turn, call, returned)
        return
    made = not (returned.breaker or returned.slot_cycle or returned.once)
    if returned.status != "success" and made and _retries(turn, call, returned):
        wait_s = returned.retry_after_s or backoff_s(turn.rules.retry, call.failures + 1, call.id)
        turn.add(
            ToolAttemptFailed(
                step=turn.state.call_step,
                tool_call_id=call.id,
                attempt=call.attempt,
                error=returned.error or "",
                retry_at=turn.now + wait_s,
            )
        )
        return
    partial = _partial(turn, call, returned)
    _result(
        turn,
        call,
        status="success" if partial else returned.status,
        result=call.partial if partial else returned.result,
        in_parts=returned.in_parts and not partial,
        error=None if partial else returned.error,
        started_at=returned.started_at,
        completed_at=returned.completed_at,
        details={
            **({PARTIAL: partial} if partial else {}),
            **({"evidence": list(returned.evidence)} if returned.evidence else {}),
            **({"breaker": returned.breaker} if returned.breaker else {}),
            **({"slot_cycle": returned.slot_cycle} if returned.slot_cycle else {}),
            **({"twin_of": returned.once} if returned.once else {}),
            **({"deduplicated": True} if returned.deduplicated else {}),
            **({"postcondition": list(returned.postcondition)} if returned.postcondition else {}),
        },
    )


def _partial(turn: Turn, call: CallState, returned: ToolReturned) -> int:
    """Return the number of the call's last partial result if that is its result; 0 if not."""
    timed_out = returned.status == "timed_out" and not returned.postcondition
    return call.partials if timed_out and spec_of(turn.state, call).on_timeout == "partial" else 0


def _unverified(turn: Turn, call: CallState, returned: ToolReturned) -> None:
    """Request an approval for a call that neither succeeded nor failed: a person states its outcome."""
    why = (returned.error if returned.in_doubt else problem(returned.postcondition)) or ""
    request_approval(turn, call, UNVERIFIABLE, why, unverified=returned)
    if turn.state.paused is None:
        turn.add(Status(status="paused", reason=UNVERIFIABLE))


def _retries(turn: Turn, call: CallState, returned: ToolReturned) -> bool:
    spec = spec_of(turn.state, call)
    attempts = max(spec.max_attempts, RETRYABLE_ATTEMPTS if returned.retryable else 1)
    may = returned.status != "aborted" and spec.effect != "unsafe"
    may = may and not is_quota_used_up(turn, "tool_failure")
    return may and call.failures + 1 < attempts


def child_spawned(turn: Turn, spawned: ChildSpawned) -> None:
    """Record a child run that a running call starts."""
    call = turn.state.calls.get(spawned.call_id or "")
    if call is None or call.result is not None or spawned.ordinal != len(call.children):
        return
    turn.add(
        ChildStarted(
            step=turn.state.call_step,
            tool_call_id=call.id,
            child_run=spawned.child_run,
            name=spawned.name,
            kind=spawned.kind,
        )
    )


def child_ended(turn: Turn, ended: ChildEnded) -> None:
    """Record the end of a child run."""
    if ended.child_run not in turn.state.open_children:
        return
    call_id = turn.state.open_children[ended.child_run]
    if ended.returned is not None:
        output = "" if call_id else ended.returned.output
        turn.add(
            msgspec.structs.replace(
                ended.returned,
                step=turn.state.call_step if call_id else None,
                tool_call_id=call_id,
                child_run=ended.child_run,
                output=output,
            )
        )
    turn.add(
        ChildFinished(
            step=turn.state.call_step if call_id else None,
            tool_call_id=call_id,
            child_run=ended.child_run,
            status=ended.status,
            output_digest=ended.output_digest,
        )
    )


def to_verify(state: RunState) -> list[CallState]:
    """Return the orphaned calls that have a postcondition, which is checked before a person is asked."""
    return [
        c
        for c in state.calls.values()
        if c.orphaned
        and c.result is None
        and (spec := tool_of(state, c)) is not None
        and spec.postcondition
        and not _is_being_settled(state, c)
    ]


def park_orphans(turn: Turn) -> bool:
    """Request approvals for orphaned calls, and park until they are settled: no other work happens before (W20)."""
    orphans = [c for c in turn.state.calls.values() if c.orphaned and c.result is None]
    if not orphans:
        return False
    undecided = [c for c in orphans if not _is_being_settled(turn.state, c)]
    for call in undecided:
        request_approval(turn, call, UNVERIFIABLE)
    if undecided and turn.state.paused is None:
        turn.add(Status(status="paused", reason=UNVERIFIABLE))
    if any(turn.state.approvals[c.approval_id or ""].pending for c in orphans):
        turn.add(Parked(reason=UNVERIFIABLE))
        return True
    return False


def _is_being_settled(state: RunState, call: CallState) -> bool:
    """Return whether the call's outcome has been asked for, and the answer was not a retry that was orphaned again."""
    approval = state.approvals.get(call.approval_id or "")
    if approval is None or approval.request.kind != UNVERIFIABLE:
        return False
    return approval.resolution is None or approval.resolution.outcome != "retry"


def settle(turn: Turn) -> bool:
    """Settle calls without running a tool, and park if all others wait for approvals. True: all calls are done."""
    settle_each(turn)
    open_calls = [c for c in turn.state.calls.values() if c.result is None]
    if open_calls and all(c.open_wait is not None or awaits_approval(turn, c) for c in open_calls):
        turn.add(Parked(reason=parking_reason(turn.state)))
    return not open_calls


def settle_each(turn: Turn) -> None:
    """Store the results of all calls that are settled without running a tool."""
    for call in list(turn.state.calls.values()):
        if call.result is None and call.kind == "tool":
            _settle(turn, call)


def abort(turn: Turn, call: CallState, why: str) -> None:
    """Store that a call was given up before it was started, or while it did nothing that matters."""
    _result(turn, call, status="aborted", error=why)


def parking_reason(state: RunState) -> Literal["approval", "unverifiable", "wait"]:
    """Name what the run is paused for first; of several reasons one is enough, since each of them ends the parking."""
    if state.paused == UNVERIFIABLE:
        return UNVERIFIABLE
    return "wait" if state.paused == "wait" else "approval"


def _settle(turn: Turn, call: CallState) -> None:
    """Store the result of a call that is settled without running its tool."""
    problem = call_problem(turn.state, call)
    if problem is not None:
        _result(turn, call, status="error", error=problem)
    elif (denial := denied(turn.state, turn.rules, call)) is not None:
        _result(turn, call, status="rejected", error=f"{denial} denies the call")
    elif (recorded := recorded_result(turn.state, call)) is not None:
        _result(
            turn,
            call,
            status=recorded.status,
            result=recorded.result,
            in_parts=recorded.in_parts,
            error=recorded.error,
            details={"recorded_from": recorded.source, "deduplicated": True},
        )
    elif (misfit := unfit(turn.state, turn.rules, call)) is not None:
        _result(turn, call, status="error", error=misfit)
    approval = turn.state.approvals.get(call.approval_id or "")
    if approval is None or approval.resolution is None or call.result is not None:
        return
    if approval.request.kind == QUESTION:  # the tool itself reads the answer
        return
    resolution, note = approval.resolution, approval.resolution.note
    if resolution.decision == "timed_out":
        _result(turn, call, status="timed_out", error="nobody approved the call in time")
    elif approval.request.kind == UNVERIFIABLE or resolution.outcome is not None:
        _settle_by_answer(turn, call, approval.request, resolution)
    elif resolution.decision == "rejected":
        _result(
            turn,
            call,
            status="rejected",
            error="an operator rejected the call" + (f": {note}" if note else ""),
        )


def _settle_by_answer(
    turn: Turn, call: CallState, request: ApprovalRequested, resolution: ApprovalResolved
) -> None:
    if resolution.outcome == "succeeded":
        result = resolution.result if resolution.result is not None else request.result
        in_parts = request.in_parts and resolution.result is None
        _result(turn, call, status="success", result=result, in_parts=in_parts)
    elif resolution.outcome == "failed":
        _result(turn, call, status="error", error=resolution.note or "an operator marked the call as failed")


def _result(  # noqa: PLR0913 - what a result has
    turn: Turn,
    call: CallState,
    *,
    status: str,
    result: object = None,
    in_parts: bool = False,
    error: str | None = None,
    started_at: float | None = None,
    completed_at: float | None = None,
    details: Mapping[str, object] = MappingProxyType({}),
) -> None:
    begun = turn.now if started_at is None else started_at
    ended = turn.now if completed_at is None else completed_at
    duration_ms = round(max(0.0, ended - begun) * 1000, 3)
    succeeded = status == "success"
    text = result_text(result, in_parts=in_parts) if succeeded else ""
    offloaded = artifact_id(turn.state, turn.rules, call.name, text)
    turn.add(
        ToolResult(
            step=turn.state.call_step,
            tool_call_id=call.id,
            tool_name=call.name,
            success=succeeded,
            result=result,
            in_parts=in_parts and succeeded,
            error=error,
            duration_ms=duration_ms,
            metadata={
                "status": status,
                "started_at": begun,
                "completed_at": ended,
                "execution_time_ms": duration_ms,
                "attempt": call.attempt,
                "idempotency_key": idempotency_key(turn.state, call),
                **approval_metadata(turn, call),
                **({"injected_args": call.injected_args} if call.injected_args else {}),
                **({OFFLOADED: offloaded} if offloaded else {}),
                **details,
            },
        )
    )
