"""Approvals as elicitation: the form that a person fills in, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from ...eventlog.events import QUESTION, ApprovalRequested
from ...runtime.handle import CallOutcome, Decision

MESSAGE_MAX = 4000
"""The longest message, in characters. The approval itself has all of it."""
_APPROVE = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve"},
        "note": {"type": "string", "title": "Note"},
    },
    "required": ["approve"],
}
_IN_DOUBT = {
    "type": "object",
    "properties": {
        "outcome": {"type": "string", "title": "Outcome", "enum": ["retry", "succeeded", "failed"]},
        "result": {"type": "string", "title": "Its result, if it succeeded"},
        "note": {"type": "string", "title": "Note"},
    },
    "required": ["outcome"],
}
_OUTCOMES: Mapping[Any, CallOutcome] = {"retry": "retry", "succeeded": "succeeded", "failed": "failed"}


class Answered(NamedTuple):
    """The answer of a person, as the arguments of `RunHandle.resolve`."""

    decision: Decision
    note: str = ""
    arguments: Mapping[str, Any] | None = None
    outcome: CallOutcome | None = None
    result: Any = None


def question_of(asked: ApprovalRequested) -> ElicitRequest:
    """Return the question of an approval, with its form."""
    form = _APPROVE
    if asked.kind == QUESTION and isinstance(asked.arguments.get("schema"), dict):
        form = asked.arguments["schema"]
    elif asked.kind == "unverifiable":
        form = _IN_DOUBT
    return ElicitRequest(params=ElicitRequestFormParams(message=text_of(asked), requested_schema=form))


def text_of(asked: ApprovalRequested) -> str:
    """Return what is asked, in words."""
    if asked.kind == QUESTION:
        return str(asked.arguments.get("message", ""))[:MESSAGE_MAX]
    call = f"{asked.tool_name} {msgspec.json.encode(asked.arguments).decode()}".strip()
    if asked.kind == "unverifiable":
        told = f"Nobody knows what became of the call: {call}"
    else:
        told = f"{asked.agent} asks for approval ({asked.kind}): {call}"
    return f"{told}{f' ({asked.reason})' if asked.reason else ''}"[:MESSAGE_MAX]


def answer_of(asked: ApprovalRequested, result: object) -> Answered | None:
    """Return the answer to an approval; null if nobody decided: the question was dismissed, or the form is empty."""
    if not isinstance(result, ElicitResult) or result.action == "cancel":
        return None
    content: Mapping[str, Any] = result.content or {}
    note = str(content.get("note") or "")
    if result.action == "decline":
        return Answered("rejected", note)
    if asked.kind == QUESTION and isinstance(asked.arguments.get("schema"), dict):
        return Answered("approved", arguments=content)
    if asked.kind == "unverifiable":
        outcome = _OUTCOMES.get(content.get("outcome"))
        made = content.get("result") if outcome == "succeeded" else None
        return None if outcome is None else Answered("approved", note, outcome=outcome, result=made)
    if not isinstance(content.get("approve"), bool):
        return None
    return Answered("approved" if content["approve"] else "rejected", note)
