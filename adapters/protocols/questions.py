"""Approvals as questions with a form, for protocols that ask people: build the form, and interpret the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ...eventlog.events import QUESTION, ApprovalRequested
from ...runtime.handle import CallOutcome, Decision

MESSAGE_MAX = 4000
"""The longest message, in characters. The approval itself has all of it."""
_APPROVE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve"},
        "note": {"type": "string", "title": "Note"},
    },
    "required": ["approve"],
}
_IN_DOUBT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "outcome": {"type": "string", "title": "Outcome", "enum": ["retry", "succeeded", "failed"]},
        "result": {"type": "string", "title": "Its result, if it succeeded"},
        "note": {"type": "string", "title": "Note"},
    },
    "required": ["outcome"],
}
_OUTCOMES: Mapping[Any, CallOutcome] = {"retry": "retry", "succeeded": "succeeded", "failed": "failed"}

_WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("yes", "y", "ok", "approve", "approved"), True),
    **dict.fromkeys(("no", "n", "reject", "rejected", "deny"), False),
}


class Answered(NamedTuple):
    """An answer, as the arguments of `RunHandle.resolve`."""

    decision: Decision
    note: str = ""
    arguments: Mapping[str, Any] | None = None
    outcome: CallOutcome | None = None
    result: Any = None


def form_of(asked: ApprovalRequested) -> dict[str, Any]:
    """Return the JSON Schema of the answer: the tool's own for a question, else a fixed one for the approval's kind."""
    if _has_form(asked):
        return dict(asked.arguments["schema"])
    return dict(_IN_DOUBT if asked.kind == "unverifiable" else _APPROVE)


def text_of(asked: ApprovalRequested) -> str:
    """Return the question as text, of at most `MESSAGE_MAX` characters."""
    if asked.kind == QUESTION:
        return str(asked.arguments.get("message", ""))[:MESSAGE_MAX]
    call = f"{asked.tool_name} {msgspec.json.encode(asked.arguments).decode()}".strip()
    if asked.kind == "unverifiable":
        told = f"The outcome of the call is unknown: {call}"
    else:
        told = f"{asked.agent} asks for approval ({asked.kind}): {call}"
    return f"{told}{f' ({asked.reason})' if asked.reason else ''}"[:MESSAGE_MAX]


def answer_by(asked: ApprovalRequested, content: Mapping[str, Any]) -> Answered | None:
    """Interpret a filled-in form; None if it decides nothing. The log validates the form of a tool's question."""
    if _has_form(asked):
        return Answered("approved", arguments=content)
    note = content.get("note")
    note = note if isinstance(note, str) else ""
    if asked.kind == "unverifiable" and "outcome" in content:
        outcome = _OUTCOMES.get(content["outcome"]) if isinstance(content["outcome"], str) else None
        made = content.get("result") if outcome == "succeeded" else None
        return None if outcome is None else Answered("approved", note, outcome=outcome, result=made)
    approve, edited = content.get("approve"), content.get("arguments")
    if not isinstance(approve, bool):
        return None
    arguments = edited if approve and isinstance(edited, dict) else None
    return Answered("approved" if approve else "rejected", note, arguments)


def word_of(text: str) -> bool | None:
    """Return true or false for a text that means yes or no, such as "ok" or "deny"; None for any other text."""
    return _WORDS.get(text.strip().lower().rstrip(".!"))


def _has_form(asked: ApprovalRequested) -> bool:
    return asked.kind == QUESTION and isinstance(asked.arguments.get("schema"), dict)
