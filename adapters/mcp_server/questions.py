"""Approvals as elicitation."""

from __future__ import annotations

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from ...eventlog.events import ApprovalRequested
from ..protocols.questions import Answered, answer_by, form_of, text_of


def question_of(asked: ApprovalRequested) -> ElicitRequest:
    """Return the question of an approval, with its form."""
    return ElicitRequest(
        params=ElicitRequestFormParams(message=text_of(asked), requested_schema=form_of(asked))
    )


def answer_of(asked: ApprovalRequested, result: object) -> Answered | None:
    """Return the answer to an approval; None if the question was dismissed or the form is empty."""
    if not isinstance(result, ElicitResult) or result.action == "cancel":
        return None
    if result.action == "decline":
        return Answered("rejected")
    return answer_by(asked, result.content or {})
