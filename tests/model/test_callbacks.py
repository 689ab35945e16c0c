"""Callbacks hold in every state that can be reached, and each of their rules is needed (W30)."""

import pytest

from tests.model.callbacks import Rules, check

NEEDED = [
    ("stored_first", "refused"),
    ("all_valid", "refused"),
    ("used_once", "twice"),
    ("repeatable", "refused"),
    ("buffered", "lost"),
    ("condition", "twice"),
]


def test_a_token_that_was_told_answers_its_callback_once() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 500


@pytest.mark.parametrize(("rule", "breaks"), NEEDED, ids=[rule for rule, _ in NEEDED])
def test_without_one_of_its_rules_a_callback_is_broken(rule: str, breaks: str) -> None:
    assert check(Rules()._replace(**{rule: False}))[0] == breaks
