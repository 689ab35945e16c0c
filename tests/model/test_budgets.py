"""The spending of a budget is the cost of the stored replies, in every state that can be reached (W65)."""

import pytest

from tests.model.budgets import Rules, check


@pytest.mark.parametrize("budget", [3, 4])
def test_each_stored_reply_is_counted_once_and_nothing_is_sent_without_a_rest(budget: int) -> None:
    broken, states = check(Rules(budget=budget))
    assert broken == ""
    assert states > 100


@pytest.mark.parametrize(
    ("rule", "budget", "breaks"),
    [("one_batch", 4, "miscounted"), ("condition", 4, "miscounted"), ("asks_first", 3, "overspent")],
)
def test_without_one_of_its_rules_a_budget_is_miscounted_or_overspent(
    rule: str, budget: int, breaks: str
) -> None:
    assert check(Rules(budget=budget)._replace(**{rule: False}))[0] == breaks
