"""The approvals of a namespace, pending and decided: one row for each run that has requested any."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..eventlog.commits import Recorded, tombstone_in
from ..eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    Event,
    TokenIssued,
    TokenRevoked,
    is_terminal,
)
from ..eventlog.offload import outline_of
from ..eventlog.ports import Subject
from .projection import Damage, Value


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One approval. `decision` is None while it is pending; times are Unix seconds.

    `revoked`: the run ended before a decision. `edited_arguments` are those of the decision, if it changed them.
    `tokens` counts the resume tokens that were issued for it and not revoked, including expired ones. `postcondition`
    is the report on a call that could not be verified, `evidence` the artifacts it refers to. `aside`: the arguments
    are omitted because they are sealed, or too large for the list; the state of the run has them.
    """

    approval_id: str
    run_id: str
    root_id: str
    shard: int
    agent_path: str
    kind: str
    step: int | None = None
    tool_call_id: str | None = None
    tool_name: str = ""
    arguments: dict[str, Any] = {}
    requested_at: float
    expires_at: float | None = None
    reason: str = ""
    injected_args: dict[str, Any] = {}
    postcondition: list[dict[str, Any]] = []
    evidence: list[dict[str, Any]] = []
    decision: Literal["approved", "rejected", "timed_out", "revoked"] | None = None
    outcome: Literal["retry", "succeeded", "failed"] | None = None
    edited_arguments: dict[str, Any] | None = None
    resolved_at: float | None = None
    by: str = ""
    note: str = ""
    tokens: int = 0
    aside: bool = False


class RunApprovals(msgspec.Struct, frozen=True):
    """The approvals of one run, in the order in which they were requested."""

    approvals: tuple[ApprovalRow, ...] = ()


class Approvals:
    """The projection for the list of approvals."""

    name = "approvals"
    version = 7
    row = RunApprovals
    columns = ("pending", "ids")
    indexes = (("pending",),)

    def evolve(self, row: RunApprovals | None, recorded: Recorded) -> RunApprovals | None:
        """Fold a run's next commit; a run without approvals has no row."""
        if tombstone_in(recorded.commit) is not None:
            return None
        before = row.approvals if row is not None else ()
        after = before
        for event in recorded.commit.events:
            if not event.agent_path:
                after = _evolve(after, event, recorded)
        return row if after == before else RunApprovals(after)

    def damaged(self, row: RunApprovals | None, _subject: Subject, _damage: Damage) -> RunApprovals | None:
        """Return the row as it is; the row of the run list tells of the damage."""
        return row

    def index(self, row: RunApprovals) -> tuple[Value, ...]:
        """Return the number of pending approvals, and the ids of all in one text."""
        pending = sum(approval.decision is None for approval in row.approvals)
        return pending, " ".join(approval.approval_id for approval in row.approvals)


def _evolve(approvals: tuple[ApprovalRow, ...], event: Event, recorded: Recorded) -> tuple[ApprovalRow, ...]:
    outline = outline_of(event)
    if isinstance(outline, ApprovalRequested):
        return *approvals, _requested(
            outline, recorded, aside=outline is not event or event.sealed is not None
        )
    if isinstance(event, ApprovalResolved):
        changes = {
            "decision": event.decision,
            "outcome": event.outcome,
            "edited_arguments": event.arguments,
            "by": event.by,
            "note": event.note,
            "resolved_at": recorded.commit.at,
        }
        return _decided(approvals, event.approval_id, changes)
    if isinstance(event, (TokenIssued, TokenRevoked)):
        change = 1 if isinstance(event, TokenIssued) else -1
        return tuple(
            msgspec.structs.replace(each, tokens=each.tokens + change)
            if each.approval_id == event.approval_id
            else each
            for each in approvals
        )
    revoked = {"decision": "revoked", "resolved_at": recorded.commit.at}
    if isinstance(event, ApprovalRevoked):
        return _decided(approvals, event.approval_id, revoked)
    return _decided(approvals, None, revoked) if is_terminal(event) else approvals


def _requested(event: ApprovalRequested, recorded: Recorded, *, aside: bool) -> ApprovalRow:
    commit = recorded.commit
    return ApprovalRow(
        approval_id=event.approval_id,
        run_id=commit.run,
        root_id=commit.root,
        shard=recorded.subject.shard,
        agent_path=commit.path,
        kind=event.kind,
        step=event.step,
        tool_call_id=event.tool_call_id,
        tool_name=event.tool_name,
        arguments=event.arguments,
        requested_at=commit.at,
        expires_at=event.expires_at,
        reason=event.reason,
        injected_args=event.injected_args,
        postcondition=event.postcondition,
        evidence=event.evidence,
        aside=aside,
    )


def _decided(
    approvals: tuple[ApprovalRow, ...], approval_id: str | None, changes: dict[str, Any]
) -> tuple[ApprovalRow, ...]:
    """Record a decision on one approval, or on all without an id; the first decision is final."""
    return tuple(
        msgspec.structs.replace(approval, **changes)
        if approval.decision is None and approval_id in {None, approval.approval_id}
        else approval
        for approval in approvals
    )
