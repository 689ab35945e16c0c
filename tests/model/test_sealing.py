"""Erasing keys holds in every state that can be reached, and each of its rules is needed (W58, W59, W60)."""

import pytest

from tests.model.sealing import Rules, check

NEEDED = [
    ("condition", "revived"),
    ("erased_noted", "revived"),
    ("family_key", "mixed"),
    ("cancels", "ends"),
    ("refuses", "clear"),
]


def test_an_erased_key_never_comes_back_and_no_run_waits_for_it() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 500


@pytest.mark.parametrize(("rule", "breaks"), NEEDED, ids=[rule for rule, _ in NEEDED])
def test_without_one_of_its_rules_erasing_keys_is_broken(rule: str, breaks: str) -> None:
    assert check(Rules()._replace(**{rule: False}))[0] == breaks
