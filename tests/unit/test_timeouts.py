"""The time that a run and its steps may take: what it is counted from, what stops it, and what its end does."""

from __future__ import annotations

from typing import Any

import msgspec
from foldlog.eventlog.events import Claimed, Error, Parked, Status, Step
from foldlog.projections.fold import apply
from foldlog.runtime.core.commands import Claim, Expired, ModelCallFailed, Resolve, TimerDue
from foldlog.runtime.core.effects import Expire
from foldlog.runtime.core.timeouts import expiry

from .test_core import CLAIM, NOW, PREPARED, RULES, Story, given_events, replies, returns


def story(**changes: Any) -> Story:
    """A run whose first model call is under way."""
    return Story(CLAIM, PREPARED, rules=msgspec.structs.replace(RULES, **changes))


def test_nothing_is_bounded_unless_the_configuration_says_so() -> None:
    told = story()
    assert expiry(told.state, told.rules) is None
    assert told.tell(Expired(scope="run", step=1)).last == ()


def test_whichever_time_is_over_first_counts() -> None:
    told = story(run_timeout_s=100.0, step_timeout_s=30.0)
    assert expiry(told.state, told.rules) == Expire(at=NOW + 30, scope="step", step=1)
    told.now += 80
    told.tell(replies("look"), returns("1-0-look"))
    assert expiry(told.state, told.rules) == Expire(at=NOW + 100, scope="run", step=2)


def test_the_time_of_a_run_is_counted_from_its_first_claim() -> None:
    told = story(run_timeout_s=100.0)
    told.now += 50
    told.tell(Claim("w1", 10.0))
    assert expiry(told.state, told.rules) == Expire(at=NOW + 100, scope="run", step=1)


def test_waiting_for_an_approval_does_not_count() -> None:
    told = story(run_timeout_s=100.0, step_timeout_s=30.0)
    told.now += 10
    told.tell(replies("deploy"))
    assert expiry(told.state, told.rules) is None
    assert told.tell(Expired(scope="step", step=1)).last == ()
    told.now += 3600
    (approval,) = told.state.pending_approvals
    told.tell(Resolve(approval_id=approval.request.approval_id, decision="approved"), Claim("w1", 10.0))
    assert expiry(told.state, told.rules) == Expire(at=NOW + 3630, scope="step", step=1)
    told.tell(returns("1-0-deploy"))
    assert expiry(told.state, told.rules) == Expire(at=NOW + 3640, scope="step", step=2)
    told.now += 20
    told.tell(replies("look", step=2), returns("2-0-look", step=2))
    assert expiry(told.state, told.rules) == Expire(at=NOW + 3660, scope="step", step=3)


def test_a_step_whose_time_is_over_stays_open_and_ends_the_run() -> None:
    told = story(step_timeout_s=30.0)
    told.tell(Expired(scope="step", step=1))
    assert told.types == ["error", "status(error)"]
    error = told.last[0]
    assert isinstance(error, Error)
    assert (error.error_type, error.step, error.recoverable) == ("timeout", 1, True)
    assert error.error == "step 1 took longer than step_timeout_s allows (30 s)"


def test_the_end_of_a_step_that_is_done_means_nothing() -> None:
    told = story(step_timeout_s=30.0)
    told.tell(replies("look"), returns("1-0-look"))
    assert told.tell(Expired(scope="step", step=1)).last == ()


def test_a_run_that_waits_longer_than_it_may_is_woken_at_its_end() -> None:
    told = story(run_timeout_s=100.0)
    told.tell(ModelCallFailed(step=1, attempt=1, error_type="rate_limit", message="no", retry_after_s=300.0))
    parked = told.last[-1]
    assert isinstance(parked, Parked)
    assert (parked.timer_id, parked.due_at) == ("timeout-run-1", NOW + 100)
    told.now += 100
    told.tell(TimerDue("timeout-run-1"))
    assert told.types == ["timer_fired", "error", "status(error)"]


def test_every_pause_counts_for_the_run_and_those_within_a_step_for_the_step_and_the_budget_of_seconds() -> (
    None
):
    told = story(run_timeout_s=1000.0, step_timeout_s=300.0)
    for step, pauses in ((1, (5.0, 7.0)), (2, (11.0,))):
        told.now += 2
        told.tell(replies(*["deploy"] * len(pauses), step=step))
        told.now += sum(pauses)
        for approval in told.state.pending_approvals:
            told.tell(Resolve(approval_id=approval.request.approval_id, decision="approved"))
        told.tell(Claim("w1", 10.0))
        for number in range(len(pauses)):
            told.tell(returns(f"{step}-{number}-deploy", step=step))
    assert told.state.elapsed.paused_s == 23.0
    assert expiry(told.state, told.rules) == Expire(at=NOW + 27 + 300, scope="step", step=3)


def test_two_pauses_within_a_step_add_up_and_nothing_of_them_is_time_that_the_run_spent() -> None:
    state = given_events()
    for at, event in (
        (0.0, Claimed(worker="w", epoch=1, lease_s=10.0)),
        (1.0, Step(step=1, status="started", started_at=NOW + 1)),
        (2.0, Status(status="paused", reason="approval")),
        (4.0, Status(status="paused", reason="unverifiable")),
        (12.0, Status(status="resumed", reason="approval")),
        (13.0, Status(status="paused", reason="policy")),
        (33.0, Status(status="resumed", reason="policy")),
        (35.0, Step(step=1, status="completed", started_at=NOW + 1, completed_at=NOW + 35)),
        (40.0, Status(status="paused", reason="manual")),
        (140.0, Status(status="resumed", reason="manual")),
        (141.0, Step(step=2, status="started", started_at=NOW + 141)),
        (145.0, Step(step=2, status="completed", started_at=NOW + 141, completed_at=NOW + 145)),
    ):
        apply(state, event, NOW + at)
    assert (state.elapsed.paused_s, state.elapsed.paused_at) == (130.0, None)
    assert (state.spent.step_seconds, state.spent.seconds) == (4.0, 8.0)
