"""Schedules hold in every state that can be reached, and each of their rules is needed (W37 to W39)."""

import pytest

from tests.model.schedules import Rules, check

NEEDED = [
    ("keyed", "twice"),
    ("run_first", "passed"),
    ("one_batch", "ends"),
    ("edit_in_one_batch", "ends"),
    ("condition", "undone"),
    ("fresh", "ends"),
]


def test_each_time_starts_one_run_and_none_is_passed_over() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 10_000


@pytest.mark.parametrize(("rule", "breaks"), NEEDED, ids=[rule for rule, _ in NEEDED])
def test_without_one_of_its_rules_a_schedule_is_broken(rule: str, breaks: str) -> None:
    assert check(Rules()._replace(**{rule: False}), faults=1)[0] == breaks
