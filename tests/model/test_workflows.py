"""Workflows do nothing twice and notice code that does not fit, and each of their rules is needed (W31 to W36)."""

from collections.abc import Callable

import pytest

from tests.model.workflows import Rules, check_changes, check_choice, check_places, check_takeovers

Check = Callable[[Rules, int], str]
SEEDS = range(400)
CHECKS: dict[str, Check] = {
    "takeovers": check_takeovers,
    "places": check_places,
    "changes": check_changes,
    "choice": check_choice,
}
NEEDED: list[tuple[str, str, Check]] = [
    ("placed_as_written", "alike", check_places),
    ("compared", "noticed", check_changes),
    ("in_order", "noticed", check_changes),
    ("choice_stored", "choice", check_choice),
    ("started_first", "once", check_takeovers),
    ("drained", "left", check_takeovers),
]


def broken(rules: Rules, check: Check) -> set[str]:
    return {found for found in (check(rules, seed) for seed in SEEDS) if found}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_code_that_is_run_again_does_nothing_twice_and_what_no_longer_fits_is_noticed(check: Check) -> None:
    assert broken(Rules(), check) == set()


@pytest.mark.parametrize(("rule", "breaks", "check"), NEEDED, ids=[rule for rule, _, _ in NEEDED])
def test_without_one_of_its_rules_a_workflow_is_broken(rule: str, breaks: str, check: Check) -> None:
    assert breaks in broken(Rules()._replace(**{rule: False}), check)
