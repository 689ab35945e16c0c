"""Registers keep what they hold in every reachable state, and each rule is needed (W57, W62, W63)."""

import pytest

from tests.model.registers import Rules, check

NEEDED = [
    ("condition", False, "lost"),
    ("knows_itself", True, "denied"),
    ("knows_itself", False, "twice"),
    ("last_position", False, "unseen"),
]


@pytest.mark.parametrize("expects", [True, False])
def test_changes_are_stored_once_over_what_their_writers_have_seen(*, expects: bool) -> None:
    broken, states = check(Rules(), expects=expects)
    assert broken == ""
    assert states > 150


@pytest.mark.parametrize(("rule", "expects", "breaks"), NEEDED)
def test_without_one_of_its_rules_a_register_loses_or_doubles_a_change(
    rule: str, breaks: str, *, expects: bool
) -> None:
    assert check(Rules()._replace(**{rule: False}), expects=expects)[0] == breaks
