"""The run list and the approvals as pure folds."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from foldlog.eventlog.commits import Recorded
from foldlog.eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalRevoked,
    CancelRequested,
    Claimed,
    Error,
    ModelRequested,
    ParentLink,
    Parked,
    Released,
    Status,
    Submitted,
    Text,
    TimerFired,
    TokenIssued,
    TokenRevoked,
    TokenUsage,
    Usage,
)
from foldlog.projections.approvals import Approvals
from foldlog.projections.family_totals import family_totals
from foldlog.projections.fold import fold_commit
from foldlog.projections.projection import fold
from foldlog.projections.run_list import RunList, RunRow
from foldlog.projections.run_state import RunState
from foldlog.replay import trace_of

from .traces import LEGAL, Family, canonical_trace, child_trace, parallel_trace, recovery_trace, step_started


def commits(family: Family) -> tuple[Recorded, ...]:
    return trace_of(family.stored).commits


def row_of(family: Family, run: str | None = None) -> RunRow:
    return fold(RunList(), commits(family))[run or family.root]


def test_a_submitted_run_is_queued_with_all_that_its_submission_says():
    family = Family()
    family.commit(
        Submitted(
            kind="agent",
            config={},
            config_digest="c",
            input="x",
            input_digest="i",
            session="s",
            executor="durable",
            parent=ParentLink(run="above"),
        ),
        Status(status="starting"),
        path="top/agent",
    )
    row = row_of(family)
    assert (row.status, row.waiting_for, row.worker, row.epoch) == ("queued", None, "", 0)
    assert (row.kind, row.session, row.executor, row.parent) == ("agent", "s", "durable", "above")
    assert (row.agent, row.agent_path, row.submitted_at, row.updated_at) == (
        "agent",
        "top/agent",
        1001.0,
        1001.0,
    )


def test_a_completed_run_has_its_totals_and_stands_at_the_head_of_its_log():
    family = canonical_trace(takeover=True)
    row, last = row_of(family), commits(family)[-1]
    assert (row.status, row.over, row.steps, row.worker, row.epoch) == ("completed", True, 2, "worker-a-2", 2)
    assert row.usage == TokenUsage(input_tokens=14, total_tokens=14)
    assert (row.revision, row.digest, row.position) == (last.last_rev, last.digest, last.position)


@pytest.mark.parametrize("build", LEGAL.values(), ids=LEGAL)
def test_the_status_is_that_of_the_run_state_at_every_commit(build: Callable[[], Family]):
    states: dict[str, RunState] = {}
    rows: dict[str, RunRow] = {}
    for recorded in commits(build()):
        run = recorded.commit.run
        fold_commit(states.setdefault(run, RunState()), recorded)
        rows[run] = RunList().evolve(rows.get(run), recorded)
        state, row = states[run], rows[run]
        assert (row.status, row.steps, row.usage) == (state.status, state.steps_completed, state.usage)
        assert row.waiting_for == (state.parked.reason if state.parked is not None else None)
        assert (row.epoch, row.revision) == (state.epoch, state.head.rev)


def test_a_row_has_the_first_line_of_the_input_the_model_and_the_end():
    family = Family()
    family.commit(
        Submitted(kind="agent", config={}, config_digest="c", input="\n first\nsecond", input_digest="i"),
        Status(status="starting"),
    )
    assert (row_of(family).input, row_of(family).model, row_of(family).ended_at) == ("first", "", None)
    family.claim(1, *step_started(1), ModelRequested(attempt=1, digest="d", model="openai:x"))
    assert (row_of(family).model, row_of(family).driven) == ("openai:x", True)
    row = row_of(canonical_trace())
    assert (row.ended_at, row.driven) == (row.updated_at, False)


def test_a_claim_that_ends_one_which_held_counts_as_a_takeover():
    family = Family()
    family.begin()
    family.claim(1)
    assert (row_of(family).driven, row_of(family).takeovers, row_of(family).takeover) == (True, 0, None)
    family.claim(2)
    assert (row_of(family).driven, row_of(family).takeovers) == (True, 1)
    taken = row_of(family).takeover
    assert taken is not None
    assert (taken.worker, taken.by) == (f"worker-{family.salt}-1", f"worker-{family.salt}-2")
    family.commit(Released())
    assert row_of(family).driven is False
    family.claim(3, Parked(reason="manual"))
    family.claim(4)
    assert (row_of(family).driven, row_of(family).takeovers) == (True, 1)


def test_pending_approvals_are_counted_until_each_is_answered_or_the_run_ends():
    family = Family()
    family.begin()
    asked = [ApprovalRequested(approval_id=each, kind="tool") for each in ("a", "b", "c")]
    family.claim(1, *step_started(1), *asked)
    assert row_of(family).approvals == 3
    family.commit(ApprovalResolved(approval_id="a", decision="approved"))
    family.commit(ApprovalRevoked(approval_id="b"))
    assert row_of(family).approvals == 1
    family.commit(CancelRequested(reason="x"), Status(status="cancelled", reason="x"))
    assert row_of(family).approvals == 0


def test_a_paused_run_says_why_and_what_it_waits_for():
    family = Family()
    family.begin()
    family.claim(1, Status(status="paused", reason="manual"), Parked(reason="manual"))
    row = row_of(family)
    assert (row.status, row.reason, row.waiting_for) == ("paused", "manual", "manual")
    family.commit(Status(status="resumed", reason="manual"))
    row = row_of(family)
    assert (row.status, row.reason, row.waiting_for) == ("running", "", None)


def test_a_run_that_waits_for_a_timer_runs_until_the_timer_fires():
    family = Family()
    family.begin()
    family.claim(1, *step_started(1), Parked(reason="timer", timer_id="t", due_at=5.0))
    assert (row_of(family).status, row_of(family).waiting_for) == ("running", "timer")
    family.commit(TimerFired(timer_id="t"))
    assert row_of(family).waiting_for is None


def test_a_failed_run_has_its_error():
    family = Family()
    family.begin()
    family.claim(1, Error(error="no key", error_type="auth"), Status(status="error", message="no key"))
    assert (row_of(family).status, row_of(family).error, row_of(family).error_type) == (
        "error",
        "no key",
        "auth",
    )


def test_a_cancelled_run_has_the_reason_of_the_cancel():
    family = Family()
    family.begin()
    family.commit(CancelRequested(reason="enough"), Status(status="cancelled", reason="enough"))
    assert (row_of(family).status, row_of(family).reason) == ("cancelled", "enough")


def test_costs_add_up_as_decimals_until_one_is_unknown():
    def cost(*costs: str | None) -> str | None:
        family = Family()
        family.begin()
        family.commit(*[Usage(usage=TokenUsage(), model="m", cost_usd=cost) for cost in costs])
        return row_of(family).cost_usd

    assert (cost(), cost("0.1", "0.2"), cost("0.1", None, "0.2")) == ("0", "0.3", None)


def test_children_have_rows_of_their_own():
    rows = fold(RunList(), commits(child_trace()))
    assert {(row.run_id, row.root_id, row.agent) for row in rows.values()} == {
        ("root-a", "root-a", "agent"),
        ("child-a-0", "root-a", "helper"),
        ("child-a-1", "root-a", "helper"),
    }


def test_what_a_run_took_with_all_below_it_is_the_sum_over_its_family():
    def row(run: str, parent: str | None, steps: int, cost: str | None) -> RunRow:
        usage = TokenUsage(total_tokens=10 * steps)
        place = {"root_id": "top", "shard": 0, "agent": "a", "agent_path": "a", "submitted_at": 0.0}
        return RunRow(
            run_id=run, parent=parent, steps=steps, usage=usage, cost_usd=cost, updated_at=0.0, **place
        )

    rows = [row("leaf", "node", 2, "0.2"), row("top", None, 0, "0"), row("node", "top", 1, "0.1")]
    totals = family_totals([*rows, row("free", "top", 1, None)])
    assert [(totals[run].runs, totals[run].steps) for run in ("top", "node", "leaf")] == [
        (4, 4),
        (2, 3),
        (1, 2),
    ]
    assert [totals[run].usage.total_tokens for run in ("top", "node")] == [40, 30]
    assert [totals[run].cost_usd for run in ("top", "node")] == [None, "0.3"]
    turned = family_totals([row("a", "b", 1, "0"), row("b", "a", 1, "0"), row("c", "c", 1, "0")])
    assert [totals.runs for totals in turned.values()] == [2, 2, 1]


def test_what_an_inner_agent_said_changes_nothing():
    family = Family()
    family.begin()
    before = row_of(family)
    family.commit(
        Status(status="completed", agent_path="agent/inner"),
        Text(text="inner", agent_path="agent/inner"),
        Usage(usage=TokenUsage(total_tokens=5), model="m", agent_path="agent/inner"),
        ApprovalRequested(approval_id="inner", kind="tool", agent_path="agent/inner"),
    )
    after = row_of(family)
    assert (after.status, after.usage) == (before.status, before.usage)
    assert fold(Approvals(), commits(family)) == {}


def test_a_released_run_keeps_its_status():
    family = Family()
    family.begin()
    family.claim(1, *step_started(1))
    family.commit(Released(reason="drain"), epoch=1)
    assert row_of(family).status == "running"


def test_the_tokens_of_an_approval_are_counted_without_those_that_were_taken_back():
    family = Family()
    family.begin()
    tokens = [TokenIssued(approval_id="ap", sha256=sha256, expires_at=9.0) for sha256 in ("aa", "bb", "cc")]
    family.commit(ApprovalRequested(approval_id="ap", kind="tool"), *tokens)
    family.commit(TokenRevoked(approval_id="ap", sha256="bb"))
    (approval,) = fold(Approvals(), commits(family))[family.root].approvals
    assert approval.tokens == 2


def test_an_approval_is_pending_until_it_is_decided():
    family = parallel_trace()
    (recorded, *rest) = commits(family)[2:]
    before = Approvals().evolve(None, recorded)
    assert before is not None
    (pending,) = before.approvals
    assert (pending.decision, pending.kind, pending.tool_name, pending.requested_at) == (
        None,
        "tool",
        "search",
        1003.0,
    )
    assert (pending.run_id, pending.tool_call_id, pending.step, pending.expires_at) == (
        "root-a",
        "call-a-0",
        1,
        9.0,
    )
    assert Approvals().index(before) == (1, pending.approval_id)
    (decided,) = fold(Approvals(), commits(family))["root-a"].approvals
    assert (decided.decision, decided.by, decided.resolved_at) == ("approved", "a", 1006.0)
    assert msgspec.structs.replace(decided, decision=None, by="", resolved_at=None) == pending
    assert rest


def test_the_first_decision_stands():
    family = Family()
    family.begin()
    family.commit(
        ApprovalRequested(approval_id="a", kind="tool"), ApprovalRequested(approval_id="b", kind="tool")
    )
    family.commit(ApprovalResolved(approval_id="a", decision="rejected", note="no"))
    family.commit(ApprovalResolved(approval_id="a", decision="approved"), ApprovalRevoked(approval_id="b"))
    first, second = fold(Approvals(), commits(family))["root-a"].approvals
    assert (first.decision, first.note, second.decision) == ("rejected", "no", "revoked")


def test_an_approval_of_kind_unverifiable_has_its_outcome():
    (approval,) = fold(Approvals(), commits(recovery_trace()))["root-a"].approvals
    assert (approval.kind, approval.decision, approval.outcome) == ("unverifiable", "approved", "succeeded")


def test_whatever_is_pending_when_the_run_ends_is_revoked():
    family = Family()
    family.begin()
    family.commit(ApprovalRequested(approval_id="a", kind="tool"))
    family.commit(CancelRequested(), Status(status="cancelled"))
    (approval,) = fold(Approvals(), commits(family))["root-a"].approvals
    assert (approval.decision, approval.resolved_at) == ("revoked", 1003.0)


def test_folding_is_pure():
    family = Family()
    family.begin()
    family.commit(Claimed(worker="w", epoch=1, lease_s=1.0), epoch=1)
    first, second = commits(family)
    row = RunList().evolve(None, first)
    copy = msgspec.json.decode(msgspec.json.encode(row), type=RunRow)
    assert RunList().evolve(row, second) == RunList().evolve(row, second)
    assert row == copy
