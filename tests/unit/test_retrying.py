"""The next event after a failed model call: another attempt, another model, a pause, or the end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from foldlog.eventlog.events import (
    Error,
    ModelFailed,
    ModelRequested,
    Parked,
    Status,
    ToolAttemptFailed,
    ToolResult,
)
from foldlog.runtime.core.commands import Claim, ModelCallFailed, Resume, Tick, TimerDue, ToolReturned
from foldlog.runtime.core.decide import pending
from foldlog.runtime.core.effects import CallModel
from foldlog.runtime.core.model_request import request_digest
from foldlog.runtime.core.rules import RetryRules, Rules

from .test_core import CLAIM, NOW, PREPARED, Story, replies, returns

CHAIN = ("sim:m", "sim:spare", "sim:last")
RETRY = RetryRules(attempts=2, base_s=1.0, jitter=False)
RULES = Rules(model="sim:m", fallback_models=CHAIN[1:], retry=RETRY)


def story(**changes: Any) -> Story:
    """A run whose first model call is under way."""
    return Story(CLAIM, PREPARED, rules=msgspec.structs.replace(RULES, **changes))


def fail(told: Story, error_type: str = "rate_limit", **fields: Any) -> None:
    """The attempt under way fails, and the wait for the next one, if there is one, passes."""
    model = told.state.model
    step = told.state.step
    told.tell(
        ModelCallFailed(
            step=step, attempt=model.attempt, error_type=error_type, message="no", phase=model.phase, **fields
        )
    )
    if told.state.model.retry_at is not None:
        told.now = max(told.now, told.state.model.retry_at)
        told.tell(Tick())


def asked(told: Story) -> list[str]:
    """The models that were asked, in order."""
    return [event.model for event in told.told if isinstance(event, ModelRequested)]


def test_each_model_has_its_own_attempts_and_the_next_is_asked_at_once() -> None:
    told = story()
    for _ in range(5):
        fail(told)
    assert asked(told) == ["sim:m", "sim:m", "sim:spare", "sim:spare", "sim:last", "sim:last"]
    failures = [event for event in told.told if isinstance(event, ModelFailed)]
    assert [event.next_model for event in failures] == ["", "sim:spare", "", "sim:last", ""]
    assert [event.retry_at is None for event in failures] == [False, True, False, True, False]
    assert [event.attempt for event in told.told if isinstance(event, ModelRequested)] == [1, 2, 3, 4, 5, 6]


def test_the_request_is_that_to_the_model_which_is_asked() -> None:
    told = story(retry=RetryRules(attempts=1))
    fail(told)
    requested = [event for event in told.told if isinstance(event, ModelRequested)]
    assert requested[-1].digest == request_digest(told.state, told.rules, "sim:spare")
    assert requested[0].digest != requested[-1].digest


@pytest.mark.parametrize("error_type", ["transient", "rate_limit"])
def test_the_run_fails_with_the_last_error_when_no_model_is_left(error_type: str) -> None:
    told = story(retry=RetryRules(attempts=1))
    for _ in CHAIN:
        fail(told, error_type)
    assert asked(told) == list(CHAIN)
    assert told.types == ["model_failed", "error", "status(error)"]
    error = told.last[1]
    assert isinstance(error, Error)
    assert (error.error_type, error.recoverable, error.step) == (error_type, True, 1)


@pytest.mark.parametrize("error_type", ["auth", "quota", "invalid_request", "context_overflow"])
def test_what_no_retry_mends_no_other_model_is_asked_for(error_type: str) -> None:
    told = story()
    fail(told, error_type)
    assert asked(told) == ["sim:m"]
    assert told.types == ["model_failed", "error", "status(error)"]


def test_the_next_step_begins_with_the_first_model_again() -> None:
    told = story(retry=RetryRules(attempts=1))
    fail(told)
    told.tell(replies("look", attempt=2), returns("1-0-look"))
    assert asked(told) == ["sim:m", "sim:spare", "sim:m"]


def test_a_new_owner_asks_the_model_that_was_being_asked() -> None:
    told = story()
    for _ in range(2):
        fail(told)
    told.tell(Claim("w1", 10.0))
    assert asked(told) == ["sim:m", "sim:m", "sim:spare", "sim:spare"]
    assert pending(told.state, told.now) == (CallModel(step=1, attempt=4),)
    fail(told)  # its first failure: a takeover uses up no attempt
    assert asked(told)[-1] == "sim:spare"


def test_a_fallback_that_has_to_wait_long_parks_the_run_under_a_timer_of_its_own() -> None:
    told = story()
    for _ in range(2):
        fail(told)
    told.tell(ModelCallFailed(step=1, attempt=3, error_type="rate_limit", message="no", retry_after_s=60.0))
    parked = told.last[-1]
    assert isinstance(parked, Parked)
    assert (parked.timer_id, parked.due_at) == ("model-1-3", told.now + 60.0)
    told.now += 60
    told.tell(TimerDue("model-1-3"), Claim("w1", 10.0))
    assert asked(told)[-1] == "sim:spare"


def test_a_planner_falls_back_as_a_step_does() -> None:
    told = story(planning=True, planning_model="sim:planner", retry=RetryRules(attempts=1))
    fail(told)
    assert asked(told) == ["sim:planner", "sim:spare"]
    assert told.state.model.phase == "planner"


def test_a_run_may_pause_instead_of_failing_and_begins_with_the_first_model_when_it_is_resumed() -> None:
    told = story(retry=RetryRules(attempts=1, exhausted="pause"))
    for _ in CHAIN:
        fail(told)
    assert told.types == ["model_failed", "status(paused)", "parked(policy)"]
    paused = told.last[1]
    assert isinstance(paused, Status)
    assert (paused.reason, paused.message) == ("policy", "rate_limit: no")
    assert pending(told.state, NOW) == ()
    told.tell(Resume(), Claim("w1", 10.0))
    assert asked(told) == [*CHAIN, "sim:m"]
    assert [event.attempt for event in told.told if isinstance(event, ModelRequested)] == [1, 2, 3, 4]


def test_a_planner_that_is_out_of_models_pauses_too() -> None:
    retry = RetryRules(attempts=1, exhausted="pause")
    told = story(planning=True, fallback_models=(), retry=retry)
    fail(told)
    assert told.types == ["model_failed", "status(paused)", "parked(policy)"]
    told.tell(Resume(), Claim("w1", 10.0))
    assert (told.state.model.phase, asked(told)) == ("planner", ["sim:m", "sim:m"])


def test_no_pause_for_an_error_that_waiting_does_not_mend() -> None:
    told = story(retry=RetryRules(exhausted="pause"))
    fail(told, "auth")
    assert told.types == ["model_failed", "error", "status(error)"]


def refuse(told: Story, wait_s: float = 5.0) -> None:
    """A circuit breaker does not let the call through."""
    attempt = told.state.model.attempt
    told.tell(
        ModelCallFailed(
            step=1, attempt=attempt, error_type="circuit_open", message="open", retry_after_s=wait_s
        )
    )


def test_while_a_breaker_is_open_the_next_model_is_called_at_once() -> None:
    told = story()
    refuse(told)
    assert told.types == ["model_failed", "model_requested"]
    assert asked(told) == ["sim:m", "sim:spare"]


def test_the_last_model_is_waited_for_until_its_breaker_lets_a_call_through() -> None:
    told = story(fallback_models=())
    refuse(told)
    assert told.types == ["model_failed"]
    assert told.state.model.retry_at == told.now + 5.0
    told.now += 5
    told.tell(Tick())
    assert asked(told) == ["sim:m", "sim:m"]
    refuse(told)
    assert told.types == ["model_failed", "error", "status(error)"]


def test_a_tool_that_a_breaker_refuses_is_not_tried_again() -> None:
    told = story()
    refused = msgspec.structs.replace(returns("1-0-save", status="error"), breaker="tool:agent/save")
    told.tell(replies("save"), refused)
    result = told.last[0]
    assert isinstance(result, ToolResult)
    assert (result.success, result.metadata["breaker"]) == (False, "tool:agent/save")


def test_a_quota_bounds_the_retries_of_a_run_by_the_type_of_the_error() -> None:
    told = story(fallback_models=(), retry=RetryRules(attempts=9, base_s=1.0, quota={"transient": 2}))
    fail(told, "transient")
    fail(told, "rate_limit")
    told.tell(replies("look", attempt=3), returns("1-0-look"))
    fail(told, "transient")
    assert told.state.retries == {"transient": 2, "rate_limit": 1}
    fail(told, "rate_limit")
    fail(told, "transient")
    assert told.types == ["model_failed", "error", "status(error)"]


def test_with_its_quota_used_up_a_run_asks_each_fallback_once() -> None:
    told = story(retry=RetryRules(attempts=9, quota={"rate_limit": 0}))
    for _ in CHAIN:
        fail(told)
    assert asked(told) == list(CHAIN)
    assert told.state.over


def test_a_quota_of_tool_failures_bounds_the_attempts_at_tools() -> None:
    def save(number: int) -> ToolReturned:
        return returns(f"1-{number}-save", status="error")

    told = story(retry=RetryRules(quota={"tool_failure": 1}))
    told.tell(replies("save", "save"), save(0))
    assert isinstance(told.last[0], ToolAttemptFailed)
    told.tell(save(1))
    assert told.types == ["tool_result"]
