"""A run that waits for a budget goes on once workers know a larger amount, in every state that can be reached (W65)."""

import pytest

from tests.model.waking import Rules, check


def test_a_run_that_waits_for_a_budget_is_resumed_once_however_its_workers_are_replaced() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 1000


@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("wakes", "ends"),
        ("looks_again", "ends"),
        ("timer_first", "ends"),
        ("condition", "twice"),
        ("wake_in_batch", "ends"),
    ],
)
def test_without_one_of_its_rules_it_waits_for_its_timer_or_is_resumed_twice(rule: str, breaks: str) -> None:
    assert check(Rules()._replace(**{rule: False}))[0] == breaks
