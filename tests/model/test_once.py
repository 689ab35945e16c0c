"""One outcome for a key holds in every state that can be reached, and each of its rules is needed (W43)."""

import pytest

from tests.model.once import Rules, check

NEEDED = [
    ("recorded_first", "twice"),
    ("condition", "twice"),
    ("knows_itself", "ends"),
    ("waits", "twice"),
    ("sees_starts", "twice"),
    ("takes_over", "ends"),
]


def test_of_two_calls_with_one_key_one_acts_and_both_end() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 500


@pytest.mark.parametrize(("rule", "breaks"), NEEDED, ids=[rule for rule, _ in NEEDED])
def test_without_one_of_its_rules_a_key_has_two_outcomes_or_none(rule: str, breaks: str) -> None:
    assert check(Rules()._replace(**{rule: False}))[0] == breaks
