"""A restore lets nothing go on unasked in any state that can be reached, and each of its rules is needed (W56)."""

import pytest

from tests.model.restoring import Rules, check

NEEDED = ["gate", "hold_first", "key_first", "read_to_end", "leftovers"]


def test_a_restored_run_pays_nothing_twice_and_goes_on_once_a_person_has_looked() -> None:
    broken, states = check(Rules())
    assert broken == ""
    assert states > 50


@pytest.mark.parametrize("rule", NEEDED)
def test_without_one_of_its_rules_a_restore_is_broken(rule: str) -> None:
    assert check(Rules()._replace(**{rule: False}))[0] == "twice"
