"""Checks of an answer to an approval, whose errors go to the caller.

The core itself only accepts or ignores an answer. These checks read the same state, and say why one is ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ...eventlog.errors import ApprovalError
from ...eventlog.events import QUESTION, REPLY_APPROVALS, ApprovalResolved
from ...projections.run_state import ApprovalState, RunState
from ..ports.json_values import NotJson, as_json
from ..ports.schema_problems import value_problem
from . import budgets
from .approvals import UNVERIFIABLE, denial_of_edit, filled_in, outcome_of, token_problem
from .commands import Resolve
from .policy import ruling_on
from .rules import Rules


def check_answer(state: RunState, rules: Rules, answer: Resolve, now: float) -> None:
    """Raise `ApprovalError` unless this answer is acceptable now, or is the one that was already given."""
    approval = _approval(state, answer.approval_id)
    _check_decision(approval, answer)
    problem = token_problem(approval, answer.token, now)
    if problem is not None:
        raise ApprovalError(f"{problem}; request a new one")
    if approval.resolution is not None and answer.token:
        raise ApprovalError(f"{_already_resolved(approval)}: a resume token can be used only once")
    if approval.resolution is None and approval.request.kind == QUESTION:
        _check_content(approval, answer)
    elif approval.resolution is None and answer.arguments is not None:
        _check_arguments(state, rules, approval, answer, answer.arguments)
    _check_same(state, answer)


def check_answered(state: RunState, answer: Resolve) -> ApprovalResolved:
    """Return the stored answer. Raises `ApprovalError` if it differs from this one, or the approval became void."""
    _check_same(state, answer)
    resolution = _approval(state, answer.approval_id).resolution
    if resolution is None:
        raise ApprovalError(f"the answer to {answer.approval_id} was not accepted; try again")
    return resolution


def _check_same(state: RunState, answer: Resolve) -> None:
    approval = _approval(state, answer.approval_id)
    if approval.revoked:
        raise ApprovalError(f"the approval {answer.approval_id} is void: its run is over")
    resolution = approval.resolution
    if resolution is None:
        return
    stored = (
        resolution.decision,
        resolution.arguments,
        resolution.outcome,
        resolution.result,
        resolution.always,
    )
    given = (answer.decision, answer.arguments, outcome_of(approval, answer), answer.result, answer.always)
    if stored != given:
        raise ApprovalError(_already_resolved(approval))


def given_json(value: object) -> Any:
    """Return a value from an answer as JSON builtins. Raises `ApprovalError`."""
    try:
        return as_json(value)
    except NotJson as error:
        raise ApprovalError(f"values in an answer must be valid JSON: {error}") from None


def given_arguments(value: object) -> dict[str, Any] | None:
    """Return the arguments of an answer. Raises `ApprovalError` unless they are an object."""
    if value is not None and not isinstance(value, Mapping):
        raise ApprovalError(f"the arguments of an answer must be an object, not {value!r:.60}")
    given: dict[str, Any] | None = given_json(value)
    return given


def check_pending(state: RunState, approval_id: str) -> ApprovalState:
    """Return the approval if it is still pending. Raises `ApprovalError` otherwise."""
    approval = _approval(state, approval_id)
    if approval.revoked:
        raise ApprovalError(f"the approval {approval_id} is void: its run is over")
    if approval.resolution is not None:
        raise ApprovalError(_already_resolved(approval))
    return approval


def _approval(state: RunState, approval_id: str) -> ApprovalState:
    approval = state.approvals.get(approval_id)
    if approval is None:
        raise ApprovalError(f"run {state.run} has no approval {approval_id!r}")
    return approval


def _already_resolved(approval: ApprovalState) -> str:
    """Return the error message that names the stored answer and who gave it."""
    resolution = approval.resolution
    if resolution is None:
        return ""
    by = f" by {resolution.by}" if resolution.by else ""
    how = f" as {resolution.outcome}" if resolution.outcome is not None else ""
    edited = " with other arguments" if resolution.arguments is not None else ""
    if resolution.decision == "timed_out":
        return f"the approval {resolution.approval_id} has timed out"
    return f"the approval {resolution.approval_id} was {resolution.decision}{how}{edited}{by} already"


def _check_decision(approval: ApprovalState, answer: Resolve) -> None:
    kind = approval.request.kind
    decisions: frozenset[str] = frozenset({"approved", "rejected"})
    if answer.decision not in decisions:
        raise ApprovalError(f"the decision must be approved or rejected, not {answer.decision!r}")
    _check_outcome(kind, answer)
    if answer.arguments is not None and answer.decision == "rejected":
        raise ApprovalError("a rejected call does not run, so it takes no arguments")
    if answer.always and (
        kind not in REPLY_APPROVALS or answer.decision != "approved" or answer.outcome is not None
    ):
        raise ApprovalError(
            "only a call that is approved to run, of kind tool or policy, can be approved always"
        )
    if answer.always and answer.token:
        raise ApprovalError("a resume token answers one approval, and approves no later call")
    if kind == budgets.KIND and answer.decision == "approved":
        budgets.check_raise(answer.arguments)
    if kind == UNVERIFIABLE and answer.arguments is not None:
        raise ApprovalError("the arguments of a call that has started cannot be changed")
    if kind == UNVERIFIABLE and answer.decision == "approved" and answer.outcome is None:
        raise ApprovalError("state the outcome of the call: retry, succeeded (with a result) or failed")


def _check_outcome(kind: str, answer: Resolve) -> None:
    """Check that an outcome is given only for a call that has started, or that a person carried out by hand."""
    if kind == UNVERIFIABLE or (answer.outcome is None and answer.result is None):
        return
    if kind not in REPLY_APPROVALS:
        raise ApprovalError(f"an approval of kind {kind} takes no outcome or result")
    if answer.result is not None and answer.outcome != "succeeded":
        raise ApprovalError("a result belongs to outcome succeeded")
    if answer.outcome == "retry":
        raise ApprovalError("the call has not started: approve it without an outcome to run it")
    if answer.decision == "rejected":
        raise ApprovalError("a rejected call has no outcome")
    if answer.arguments is not None:
        raise ApprovalError("a call that was carried out by hand does not run, so it takes no arguments")


def _check_content(approval: ApprovalState, answer: Resolve) -> None:
    """Check the content of an answer to a question against the question's form."""
    form = approval.request.arguments.get("schema")
    if answer.decision != "approved":
        return
    if form is None:
        if answer.arguments is not None:
            raise ApprovalError("the question has no form: approve or reject it, with a note")
        return
    problem = value_problem(filled_in(form, answer), form, formats=True)
    if problem is not None:
        raise ApprovalError(f"the answer does not fit the form of the question: {problem}")


def _check_arguments(
    state: RunState, rules: Rules, approval: ApprovalState, answer: Resolve, arguments: dict[str, Any]
) -> None:
    """Check edited arguments as the model's own are checked: by the policy and the tool's schema."""
    name = approval.request.tool_name
    injected = next((each for each in arguments if each in rules.injected_tool_args), None)
    if injected is not None:
        raise ApprovalError(
            f"{injected!r} is an injected argument, which is never passed to the tool {name!r}"
        )
    denial = denial_of_edit(state, functools.partial(ruling_on, rules.policy), approval, answer)
    if denial is not None:
        raise ApprovalError(f"these arguments cannot be approved: {denial} denies them")
    tool = state.tools.get(name)
    problem = value_problem(arguments, tool.parameters, formats=True) if tool is not None else None
    if problem is not None:
        raise ApprovalError(f"the tool {name!r} does not take these arguments: {problem}")
