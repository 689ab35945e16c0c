"""Burying holds in every state that can be reached, and each of its rules is needed (W48, W49, W50)."""

import pytest

from tests.model.burying import Rules, check

NEEDED = [
    ("tombstone_first", "lost"),
    ("copy_first", "lost"),
    ("key_kept", "twice"),
    ("condition", "twice"),
    ("timer", "ends"),
]


def test_what_is_erased_was_copied_and_buried_before_and_never_runs_again() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 500


@pytest.mark.parametrize(("rule", "breaks"), NEEDED, ids=[rule for rule, _ in NEEDED])
def test_without_one_of_its_rules_burying_is_broken(rule: str, breaks: str) -> None:
    assert check(Rules()._replace(**{rule: False}))[0] == breaks
