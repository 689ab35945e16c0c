"""Hooks on the ends of runs hold in every state that can be reached, and each of their rules is needed (W41, W56)."""

import pytest

from tests.model.event_hooks import Rules, check

NEEDED = [
    ("keyed", "twice"),
    ("run_first", "ends"),
    ("begins_stored", "ends"),
    ("from_its_place", "ends"),
    ("condition", "ends"),
    ("moved_by_restore", "twice"),
]


def test_the_end_of_a_run_starts_one_run_and_none_is_passed_over() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 10_000


@pytest.mark.parametrize(("rule", "breaks"), NEEDED, ids=[rule for rule, _ in NEEDED])
def test_without_one_of_its_rules_a_hook_is_broken(rule: str, breaks: str) -> None:
    assert check(Rules()._replace(**{rule: False}), faults=1)[0] == breaks
