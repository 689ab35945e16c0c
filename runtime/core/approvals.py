"""Decisions about approvals: requests, answers, timeouts, resume tokens, and what a call's record says of them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from ...eventlog.events import (
    QUESTION,
    REPLY_APPROVALS,
    ApprovalRequested,
    ApprovalResolved,
    PolicyRuling,
    TokenIssued,
    TokenRevoked,
)
from ...eventlog.names import digest_of
from ...projections.run_state import ApprovalState, CallState, RunState
from ..ports.tools import Answer, AnswerAction
from . import waits
from .commands import IssueToken, Resolve, RevokeTokens, ToolReturned
from .policy import Call
from .turn import Turn

APPROVAL_TIMER = "approval-"
UNVERIFIABLE: Final = "unverifiable"
"""The kind of approvals for calls that have started and whose outcome is unknown."""
ACTIONS: dict[str, AnswerAction] = {"approved": "accept", "rejected": "decline", "timed_out": "cancel"}


def effective_arguments(state: RunState, call: CallState) -> dict[str, object]:
    """Return the arguments to run a call with: those edited with the approval, else the model's."""
    for approval in reversed(state.approvals.values()):
        resolution = approval.resolution
        if (
            approval.request.tool_call_id == call.id
            and approval.request.kind != QUESTION
            and resolution is not None
            and resolution.arguments is not None
        ):
            return resolution.arguments
    return call.arguments


def request_approval(
    turn: Turn,
    call: CallState,
    kind: str,
    reason: str = "",
    *,
    arguments: dict[str, object] | None = None,
    unverified: ToolReturned | None = None,
) -> None:
    """Request an approval for a call.

    `reason`: added where the kind alone does not explain the request. `arguments`: shown instead of those of the call.
    `unverified`: the findings about an attempt that could not be verified. The approval expires after the agent's
    `approval_timeout_s`; one about a call of unknown outcome never expires, because only a person can settle it.
    """
    expires_at = None if kind == UNVERIFIABLE else turn.now + turn.rules.approval_timeout_s
    ordinal = sum(1 for a in turn.state.approvals.values() if a.request.tool_call_id == call.id)
    approval_id = f"ap-{digest_of(turn.state.run, call.id, kind, str(ordinal))[:16]}"
    turn.add(
        ApprovalRequested(
            step=turn.state.call_step,
            tool_call_id=call.id,
            approval_id=approval_id,
            kind=kind,
            tool_name=call.name,
            arguments=_shown_arguments(turn.state, call, kind) if arguments is None else arguments,
            expires_at=expires_at,
            reason=reason,
            injected_args=call.injected_args,
            postcondition=list(unverified.postcondition) if unverified is not None else [],
            evidence=list(unverified.evidence) if unverified is not None else [],
            result=unverified.result if unverified is not None else None,
            in_parts=unverified is not None and unverified.in_parts,
        )
    )


def _shown_arguments(state: RunState, call: CallState, kind: str) -> dict[str, object]:
    """Return the arguments to show: for a call of unknown outcome those it ran with, which may have been edited."""
    return effective_arguments(state, call) if kind == UNVERIFIABLE else call.arguments


def resolve(turn: Turn, answer: Resolve) -> None:
    """Take an answer to a pending approval; ignore any other."""
    approval = turn.state.approvals.get(answer.approval_id)
    if approval is None or not approval.pending or token_problem(approval, answer.token, turn.now):
        return
    if denial_of_edit(turn.state, turn.ruling, approval, answer):
        return
    expires_at = approval.request.expires_at
    if expires_at is not None and expires_at <= turn.now:  # its timer was due while no worker drove the run
        _timed_out(turn, approval)
        return
    _resolved(
        turn,
        approval,
        ApprovalResolved(
            approval_id=answer.approval_id,
            decision=answer.decision,
            arguments=answer.arguments,
            outcome=outcome_of(approval, answer),
            result=answer.result,
            **answer.fields,
            note=answer.note,
            token=answer.token,
            always=answer.always,
        ),
    )


def outcome_of(approval: ApprovalState, answer: Resolve) -> Literal["retry", "succeeded", "failed"] | None:
    """Return the outcome that an answer states for a call; null if the call has not run and is to run now."""
    if approval.request.kind != UNVERIFIABLE or answer.outcome is not None:
        return answer.outcome
    return "failed" if answer.decision == "rejected" else "retry"


def denial_of_edit(
    state: RunState, ruling_on: Callable[[Call], PolicyRuling], approval: ApprovalState, answer: Resolve
) -> str | None:
    """Return the policy rule that denies the edited arguments of an answer: denied calls cannot be approved."""
    if answer.arguments is None or approval.request.kind not in REPLY_APPROVALS:
        return None
    asked = state.calls.get(approval.request.tool_call_id or "")
    count = asked.count if asked is not None else 0
    ruling = ruling_on(policy_call(state, approval.request.tool_name, answer.arguments, count))
    return ruling.why if ruling.action == "deny" else None


def policy_call(state: RunState, name: str, arguments: Mapping[str, Any], count: int) -> Call:
    """Return a call of the run as its policy sees it; `count` earlier ones were of the same tool."""
    user = (state.submitted.user or "") if state.submitted is not None else ""
    return Call(name, arguments, agent=state.agent, user=user, count=count, step=state.step)


def answers_to(state: RunState, call: CallState) -> dict[str, Answer]:
    """Return the answers to the questions of a call, by the questions' names."""
    found: dict[str, Answer] = {}
    for approval in state.approvals.values():
        request, resolution = approval.request, approval.resolution
        if request.kind == QUESTION and request.tool_call_id == call.id and resolution is not None:
            found[str(request.arguments["name"])] = Answer(
                action=ACTIONS[resolution.decision],
                content=filled_in(request.arguments.get("schema"), resolution),
                note=resolution.note,
                by=resolution.by,
            )
    return found


def filled_in(form: Mapping[str, Any] | None, answer: Resolve | ApprovalResolved) -> dict[str, Any] | None:
    """Return the content of an answer, with the form's defaults for fields left out; as given without a form."""
    if form is None or answer.decision != "approved":
        return answer.arguments
    return filled_in_form(form, answer.arguments)


def filled_in_form(form: Mapping[str, Any] | None, arguments: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the content of an accepted answer with the form's defaults; as given without a form."""
    if form is None:
        return arguments
    properties = form.get("properties")
    fields = properties.items() if isinstance(properties, Mapping) else ()
    defaults = {
        name: field["default"] for name, field in fields if isinstance(field, Mapping) and "default" in field
    }
    return defaults | (arguments or {})


def token_problem(approval: ApprovalState, sha256: str, now: float) -> str | None:
    """Return why the resume token with this digest is not accepted; None if it is, or if no token was used."""
    if not sha256:
        return None
    found = [token for token in approval.tokens if hmac.compare_digest(token.sha256, sha256)]
    if not found:
        return "the resume token is not valid: it was never issued, or it was revoked"
    expires_at = found[0].expires_at
    return None if expires_at is None or now < expires_at else "the resume token has expired"


def issue_token(turn: Turn, command: IssueToken) -> None:
    """Record a resume token, as long as the approval is pending."""
    approval = turn.state.approvals.get(command.approval_id)
    if (
        approval is None
        or not approval.pending
        or command.sha256 in {each.sha256 for each in approval.tokens}
    ):
        return
    turn.add(
        TokenIssued(
            approval_id=command.approval_id,
            sha256=command.sha256,
            expires_at=command.expires_at,
            by=command.by,
        )
    )


def revoke_tokens(turn: Turn, command: RevokeTokens) -> None:
    """Revoke all resume tokens of a pending approval."""
    approval = turn.state.approvals.get(command.approval_id)
    if approval is not None and approval.pending:
        tokens = [each.sha256 for each in approval.tokens]
        turn.add(
            *[TokenRevoked(approval_id=command.approval_id, sha256=each, by=command.by) for each in tokens]
        )


def _resolved(turn: Turn, approval: ApprovalState, resolution: ApprovalResolved) -> None:
    request = approval.request
    turn.add(msgspec.structs.replace(resolution, step=request.step, tool_call_id=request.tool_call_id))
    waits.resume(turn)


def timers_of(state: RunState) -> list[tuple[str, float]]:
    """Return the timers of the pending approvals that expire: the id and the time of each, in Unix seconds."""
    if not state.approvals:
        return []
    requests = [approval.request for approval in state.pending_approvals]
    return [
        (APPROVAL_TIMER + each.approval_id, each.expires_at)
        for each in requests
        if each.expires_at is not None
    ]


def timer_due(turn: Turn, timer_id: str) -> None:
    """End the time of an approval, if it is still pending."""
    approval = turn.state.approvals.get(timer_id.removeprefix(APPROVAL_TIMER))
    if approval is not None and approval.pending:
        _timed_out(turn, approval)


def _timed_out(turn: Turn, approval: ApprovalState) -> None:
    approval_id = approval.request.approval_id
    _resolved(turn, approval, ApprovalResolved(approval_id=approval_id, decision="timed_out"))


def approval_metadata(turn: Turn, call: CallState) -> dict[str, object]:
    """Return what the call's record says of its approval; approvals for recovery and questions are not part of it."""
    for approval in reversed(turn.state.approvals.values()):
        request, resolution = approval.request, approval.resolution
        if request.tool_call_id == call.id and request.kind in REPLY_APPROVALS and resolution is not None:
            edited = {"edited_arguments": resolution.arguments} if resolution.arguments is not None else {}
            return {"approval_status": resolution.decision, "approval_id": request.approval_id, **edited}
    return {"approval_status": "not_required"}


def awaits_approval(turn: Turn, call: CallState) -> bool:
    """Return whether the call has a pending approval."""
    approval = turn.state.approvals.get(call.approval_id or "")
    return approval is not None and approval.pending
