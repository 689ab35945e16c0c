"""The tool calls of a step: asked for, cleared, started, settled."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from ...eventlog.events import (
    QUESTION,
    ApprovalRequested,
    ApprovalResolved,
    ChildFinished,
    ChildStarted,
    Memoized,
    Parked,
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
from ...projections.call_texts import recording_key, result_text
from ...projections.messages import CallRequest
from ...projections.retrieval import OFFLOADED, of_others
from ...projections.run_state import CallState, RunState
from ..ports.schema_problems import value_problem
from .approvals import UNVERIFIABLE, approval_metadata, awaits_approval, request_approval
from .arguments import parse_arguments, split_arguments
from .commands import ChildEnded, ChildSpawned, MemoMade, ToolAsked, ToolEmitted, ToolReturned
from .effects import CallTool, Effect, VerifyCall, WaitUntil
from .model_calls import is_quota_used_up
from .offloading import artifact_id
from .policy import verdict_on
from .postconditions import problem, verdict
from .rules import RETRYABLE_ATTEMPTS, Rules, backoff_s
from .turn import Turn

CALLS_BYTES_MAX = COMMIT_BYTES_MAX * 7 // 8
"""How much of a commit the calls of one answer may take, with what is asked and said of each."""
APPROVAL_BYTES = 256
"""What an approval holds besides the call."""
ID_LENGTH_MAX = 256
"""Of a longer id there is one of our own instead; a longer name is cut, and no tool has it."""


class ApprovalNeeded(NamedTuple):
    """What people are to be asked about a call: an approval of kind tool or policy, and the rule that wants it."""

    kind: str
    reason: str = ""


def idempotency_key(state: RunState, call: CallState) -> str:
    """The key of a call: the same for every attempt and every owner."""
    return f"{state.run}:{state.step}:{call.index}"


def call_of(state: RunState, effect: CallTool) -> CallState:
    """The call that is to be run: of the step, or of the planner."""
    return state.calls[effect.call_id] if effect.step else state.planning.calls[effect.call_id]


def tool_of(state: RunState, call: CallState) -> ToolSpec | None:
    """The call's tool, if the run has one of that name."""
    return state.tools.get(call.name)


def _tool(state: RunState, call: CallState) -> ToolSpec:
    return state.tools[call.name]


def startable(state: RunState, calls: Mapping[str, CallState], now: float) -> Iterable[CallState]:
    """Those that may run now: cleared, due, and at the front of their read-write lock.

    The order is that of the reply; but a call that people answered for comes behind those that could run before.
    """
    waiting: dict[str, bool] = {}
    for call in sorted(calls.values(), key=lambda call: call.turn):
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
    """Return whether nothing but time and locks stands between the call and its run."""
    if call.orphaned or call_problem(state, call) is not None:
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
    return resolution.outcome is None  # else somebody did by hand what it does


def pending(state: RunState, now: float) -> tuple[Effect, ...]:
    """The calls to run now, and the wait for those that are tried again later; before all, those to verify."""
    doubtful = to_verify(state)
    if doubtful:
        return tuple(VerifyCall(step=state.step, call_id=c.id, attempt=c.attempt) for c in doubtful)
    ready = [c for c in startable(state, state.calls, now) if _tool(state, c).effect != "unsafe" or c.started]
    waits = [c.retry_at for c in state.calls.values() if c.result is None and c.retry_at and c.retry_at > now]
    starts = tuple(CallTool(step=state.step, call_id=c.id, attempt=c.attempt) for c in ready)
    return starts + ((WaitUntil(min(waits)),) if waits else ())


def unsafe_starts(state: RunState, now: float) -> tuple[ToolStarted, ...]:
    """The `tool_started` that must be stored before their tools may run (W20)."""
    if not state.model.replied or not state.runnable or state.owner is None:
        return ()
    unsafe = [
        c.id for c in state.calls.values() if c.result is None and not c.started and _is_unsafe(state, c)
    ]
    if not unsafe or to_verify(state):
        return ()
    calls = [c for c in startable(state, state.calls, now) if c.id in unsafe]
    return tuple(ToolStarted(step=state.step, tool_call_id=c.id, attempt=c.attempt) for c in calls)


def _is_unsafe(state: RunState, call: CallState) -> bool:
    spec = state.tools.get(call.name)
    return spec is not None and spec.effect == "unsafe"


def called(turn: Turn, requests: Sequence[CallRequest], *, cut: bool = False) -> CallState | None:
    """The model asked for tools; null if all calls fit, else the first that does not: it is not to be made.

    Those behind it are left out. What comes of a call has to fit, too: an approval or a start of each, in one commit.
    `cut`: the answer was cut at the limit of its length, and so was its last call.
    """
    room = CALLS_BYTES_MAX
    for request in requests:
        event = _asked_for(turn, request, cut=cut and request is requests[-1])
        turn.add(event)
        room -= _bytes_of(event)
        if room < 0:
            return turn.state.calls[event.tool_call_id or ""]
    return None


def _asked_for(turn: Turn, request: CallRequest, *, cut: bool) -> ToolCall:
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
    )


def _bytes_of(event: ToolCall) -> int:
    """What a call takes of a commit, with an approval of it; what is large of both lies beside the log."""
    names = 2 * len((event.tool_call_id or "").encode()) + len(event.tool_name.encode())
    beside = ASIDE_BYTES_MIN + names
    return 2 * min(len(msgspec.json.encode(event)), beside) + APPROVAL_BYTES


def refuse(turn: Turn, call: CallState) -> None:
    """Tell the model that this call and all behind it are too many."""
    told = (
        "this answer asks for more than one step can hold: neither this call nor any behind it was made; "
        "ask for them in later steps"
    )
    _result(turn, call, status="error", error=told)


def written(
    turn: Turn, request: CallRequest, *, cut: bool = False
) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """The executable arguments of a call, the injected ones, and the text of what is no JSON object.

    A cut call without any arguments is not a call without arguments: the cut came before their first character.
    """
    if cut and not request.arguments.strip():
        return {}, {}, request.arguments
    tool = turn.state.tools.get(request.name)
    names = of_others(request.name, tool.source if tool is not None else "", turn.rules.injected_tool_args)
    arguments, raw = parse_arguments(request.arguments)
    return *split_arguments(arguments, names), raw


def free_id(given: str, instead: str, is_taken: Callable[[str], bool]) -> str:
    """The id that the model gave, or another one if a call has it already, be it of an earlier run."""
    if given and not is_taken(given):
        return given
    while is_taken(instead):
        instead += "-"
    return instead


def call_problem(state: RunState, call: CallState) -> str | None:
    """What no tool can mend: arguments that are none, or a name that the run does not know; or a cut answer."""
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
        return f"unknown tool {call.name!r}; known tools: {known}"
    return None


def callable_(turn: Turn, call: CallState) -> bool:
    """Return whether the call names a tool of the run and has arguments to run it with."""
    return call_problem(turn.state, call) is None


def recorded_result(
    state: RunState, call: CallState, settled: Container[str | None] = ()
) -> ResultRecorded | None:
    """The recorded result that a fork gives to a call instead of running it: each to one call, in call order.

    `settled` are calls that need none, though their results are not folded yet.
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


def denied(rules: Rules, call: CallState) -> str | None:
    """The rule of the policy that denies the call, in words."""
    verdict = verdict_on(rules.policy, call.name, call.arguments)
    return verdict.why if verdict.action == "deny" else None


def approval_needed(
    turn: Turn, call: CallState, settled: Container[str | None] = ()
) -> ApprovalNeeded | None:
    """The approval that a call needs before it runs, if any. `settled`: see above."""
    state, rules = turn.state, turn.rules
    if not callable_(turn, call) or recorded_result(state, call, settled) is not None:
        return None
    return _approval_asked(state, rules, call) if unfit(state, rules, call) is None else None


def _approval_asked(state: RunState, rules: Rules, call: CallState) -> ApprovalNeeded | None:
    verdict = verdict_on(rules.policy, call.name, call.arguments)
    if verdict.action == "deny":
        return None
    if call.name in rules.hitl_tools:
        return ApprovalNeeded("tool")
    if verdict.action == "require_approval":
        return ApprovalNeeded("policy", verdict.why)
    return ApprovalNeeded("policy") if _tool(state, call).effect in rules.approved_effects else None


def unfit(state: RunState, rules: Rules, call: CallState) -> str | None:
    """What is wrong with the arguments of a call that needs an approval and was not asked about.

    Nobody is asked about a call that could not run: it goes back to the model. A call without an approval is checked by
    its tool.
    """
    if call.approval_id is not None or call.name not in state.tools:
        return None
    if _approval_asked(state, rules, call) is None:
        return None
    problem = value_problem(call.arguments, _tool(state, call).parameters, formats=True)
    return None if problem is None else f"invalid arguments: {problem}"


def emitted(turn: Turn, emitted: ToolEmitted) -> None:
    """A running call emitted an event; one that is stored already stands."""
    call = _open_call(turn, emitted.step, emitted.call_id)
    if call is None or emitted.ordinal != call.emitted:
        return
    event = msgspec.structs.replace(emitted.event, step=turn.state.step, tool_call_id=call.id)
    turn.add(event)  # type: ignore[arg-type] # the shell admits observable events only


def memoized(turn: Turn, made: MemoMade) -> None:
    """A running call has the value of a named part; what is stored already stands."""
    call = _open_call(turn, made.step, made.call_id)
    if call is not None and made.name not in call.memos:
        turn.add(
            Memoized(
                step=turn.state.step,
                tool_call_id=call.id,
                name=made.name,
                value=made.value,
                evidence=list(made.evidence),
            )
        )


def asked(turn: Turn, question: ToolAsked) -> None:
    """An attempt ended with a question: people answer it, and the call runs again."""
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


def _open_call(turn: Turn, step: int, call_id: str) -> CallState | None:
    call = turn.state.calls.get(call_id) if step == turn.state.step and turn.state.step_open else None
    return call if call is not None and call.result is None else None


def returned(turn: Turn, returned: ToolReturned) -> None:
    """An attempt ended: a result, or another attempt later."""
    call = _open_call(turn, returned.step, returned.call_id)
    if call is None or call.orphaned is not returned.settles or call.name not in turn.state.tools:
        return
    if returned.attempt != call.attempt:  # that attempt's outcome is stored already
        return
    if returned.in_doubt or verdict(returned.postcondition) == "unverifiable":
        _unverified(turn, call, returned)
        return
    made = not (returned.breaker or returned.slot_cycle)
    if returned.status != "success" and made and _retries(turn, call, returned):
        wait_s = returned.retry_after_s or backoff_s(turn.rules.retry, call.failures + 1, call.id)
        turn.add(
            ToolAttemptFailed(
                step=turn.state.step,
                tool_call_id=call.id,
                attempt=call.attempt,
                error=returned.error or "",
                retry_at=turn.now + wait_s,
            )
        )
        return
    _result(
        turn,
        call,
        status=returned.status,
        result=returned.result,
        in_parts=returned.in_parts,
        error=returned.error,
        started_at=returned.started_at,
        completed_at=returned.completed_at,
        details={
            **({"evidence": list(returned.evidence)} if returned.evidence else {}),
            **({"breaker": returned.breaker} if returned.breaker else {}),
            **({"slot_cycle": returned.slot_cycle} if returned.slot_cycle else {}),
            **({"postcondition": list(returned.postcondition)} if returned.postcondition else {}),
        },
    )


def _unverified(turn: Turn, call: CallState, returned: ToolReturned) -> None:
    """Neither done nor failed: people say what became of it."""
    why = (returned.error if returned.in_doubt else problem(returned.postcondition)) or ""
    request_approval(turn, call, UNVERIFIABLE, why, unverified=returned)
    if turn.state.paused is None:
        turn.add(Status(status="paused", reason=UNVERIFIABLE))


def _retries(turn: Turn, call: CallState, returned: ToolReturned) -> bool:
    spec = _tool(turn.state, call)
    attempts = max(spec.max_attempts, RETRYABLE_ATTEMPTS if returned.retryable else 1)
    may = returned.status != "aborted" and spec.effect != "unsafe"
    may = may and not is_quota_used_up(turn, "tool_failure")
    return may and call.failures + 1 < attempts


def child_spawned(turn: Turn, spawned: ChildSpawned) -> None:
    """A running call starts a child run."""
    call = turn.state.calls.get(spawned.call_id or "")
    if call is None or call.result is not None or spawned.ordinal != len(call.children):
        return
    turn.add(
        ChildStarted(
            step=turn.state.step,
            tool_call_id=call.id,
            child_run=spawned.child_run,
            name=spawned.name,
            kind=spawned.kind,
        )
    )


def child_ended(turn: Turn, ended: ChildEnded) -> None:
    """A child run is over."""
    if ended.child_run not in turn.state.open_children:
        return
    call_id = turn.state.open_children[ended.child_run]
    if ended.returned is not None:
        output = "" if call_id else ended.returned.output
        turn.add(
            msgspec.structs.replace(
                ended.returned,
                step=turn.state.step if call_id else None,
                tool_call_id=call_id,
                child_run=ended.child_run,
                output=output,
            )
        )
    turn.add(
        ChildFinished(
            step=turn.state.step if call_id else None,
            tool_call_id=call_id,
            child_run=ended.child_run,
            status=ended.status,
            output_digest=ended.output_digest,
        )
    )


def to_verify(state: RunState) -> list[CallState]:
    """The calls in doubt that have a postcondition, which is looked at before people are asked."""
    return [
        c
        for c in state.calls.values()
        if c.orphaned
        and c.result is None
        and (spec := state.tools.get(c.name)) is not None
        and spec.postcondition
        and not _is_being_settled(state, c)
    ]


def park_orphans(turn: Turn) -> bool:
    """A claim over an open `tool_started` does nothing but settle (W20)."""
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
    """Asked already, and not answered by a retry whose start was orphaned in its turn."""
    approval = state.approvals.get(call.approval_id or "")
    if approval is None or approval.request.kind != UNVERIFIABLE:
        return False
    return approval.resolution is None or approval.resolution.outcome != "retry"


def settle(turn: Turn) -> bool:
    """Give results where no tool has to run, and park if all the rest waits for people. True: all calls are done."""
    state = turn.state
    for call in list(state.calls.values()):
        if call.result is None:
            _settle(turn, call)
    open_calls = [c for c in state.calls.values() if c.result is None]
    if open_calls and all(awaits_approval(turn, c) for c in open_calls):
        turn.add(Parked(reason=UNVERIFIABLE if turn.state.paused == UNVERIFIABLE else "approval"))
    return not open_calls


def _settle(turn: Turn, call: CallState) -> None:
    """Give a call its result where that needs no run of its tool."""
    problem = call_problem(turn.state, call)
    if problem is not None:
        _result(turn, call, status="error", error=problem)
    elif (denial := denied(turn.rules, call)) is not None:
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
    if approval.request.kind == QUESTION:  # the tool reads the answer, whatever it is
        return
    resolution, note = approval.resolution, approval.resolution.note
    if resolution.decision == "timed_out":
        _result(turn, call, status="timed_out", error="nobody approved the call in time")
    elif approval.request.kind == UNVERIFIABLE or resolution.outcome is not None:
        _settle_as_told(turn, call, approval.request, resolution)
    elif resolution.decision == "rejected":
        _result(
            turn,
            call,
            status="rejected",
            error="an operator rejected the call" + (f": {note}" if note else ""),
        )


def _settle_as_told(
    turn: Turn, call: CallState, asked: ApprovalRequested, resolution: ApprovalResolved
) -> None:
    if resolution.outcome == "succeeded":
        told = resolution.result if resolution.result is not None else asked.result
        seen = asked.in_parts and resolution.result is None
        _result(turn, call, status="success", result=told, in_parts=seen)
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
            step=turn.state.step,
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
