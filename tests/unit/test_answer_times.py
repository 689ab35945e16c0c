"""The core decides until when resume tokens and approvals are valid, regardless of what a caller saw before."""

from __future__ import annotations

import pytest
from foldlog.eventlog.events import ApprovalRequested, ApprovalResolved, TokenRevoked
from foldlog.projections.fold import apply
from foldlog.runtime.core.approvals import token_problem
from foldlog.runtime.core.commands import IssueToken, Resolve, RevokeTokens
from foldlog.runtime.core.timers import next_timer

from .test_core import CLAIM, NOW, PREPARED, Story, given_events, replies


def asked(*tokens: str, expires_s: float = 60.0) -> tuple[Story, str]:
    """A run with one pending approval, and tokens of it."""
    told = Story(CLAIM, PREPARED, replies("deploy"))
    (approval,) = told.state.pending_approvals
    name = approval.request.approval_id
    for token in tokens:
        told.tell(IssueToken(approval_id=name, sha256=token, expires_at=NOW + expires_s, by="ann"))
    return told, name


@pytest.mark.parametrize(("after_s", "holds"), [(59.9, True), (60.0, False), (60.1, False)])
def test_a_token_holds_until_its_end_also_for_an_answer_that_was_sent_in_time(
    after_s: float, holds: bool
) -> None:
    told, name = asked("aa")
    told.now += after_s
    assert (token_problem(told.state.approvals[name], "aa", told.now) is None) is holds
    told.tell(Resolve(approval_id=name, decision="approved", token="aa"))
    assert told.state.approvals[name].pending is not holds


@pytest.mark.parametrize("token", ["", "aa"])
def test_an_expired_approval_cannot_be_answered_by_any_token(token: str) -> None:
    told, name = asked("aa", expires_s=1e9)
    end = told.state.approvals[name].request.expires_at
    assert end is not None
    told.now = end
    told.tell(Resolve(approval_id=name, decision="approved", token=token))
    resolution = told.last[0]
    assert isinstance(resolution, ApprovalResolved)
    assert resolution.decision == "timed_out"


def test_all_tokens_are_taken_back_and_a_decided_approval_gets_none() -> None:
    told, name = asked("aa", "bb")
    told.tell(RevokeTokens(approval_id=name, by="ann"))
    for token in ("aa", "bb"):
        told.tell(Resolve(approval_id=name, decision="approved", token=token))
        assert told.last == ()
    told.tell(Resolve(approval_id=name, decision="approved"))
    told.tell(IssueToken(approval_id=name, sha256="cc", expires_at=NOW + 60, by="ann"))
    assert told.last == ()


def test_each_token_of_an_approval_holds_until_it_alone_is_taken_back() -> None:
    told, name = asked("aa", "bb", "cc")
    apply(told.state, TokenRevoked(approval_id=name, sha256="bb"), NOW)
    problems = [token_problem(told.state.approvals[name], token, NOW) for token in ("aa", "bb", "cc")]
    assert [problem is None for problem in problems] == [True, False, True]
    told.tell(Resolve(approval_id=name, decision="approved", token="cc"))
    assert not told.state.approvals[name].pending


def test_the_approval_that_ends_first_is_waited_for_first() -> None:
    requests = [
        ApprovalRequested(approval_id=name, kind="tool", tool_name="deploy", expires_at=NOW + due_s)
        for name, due_s in (("late", 90.0), ("soon", 30.0))
    ]
    found = next_timer(given_events(*requests))
    assert found is not None
    assert (found.at, found.timer_id) == (NOW + 30.0, "approval-soon")
