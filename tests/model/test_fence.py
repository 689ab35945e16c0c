"""The fence of a cancel holds in every state that can be reached, and each of its rules is needed (W23)."""

import pytest

from tests.model.fence import Rules, check

NEEDED = [
    ("fence", "whole", False),
    ("wake", "ends", True),
    ("condition", "closed", False),
    ("children_first", "order", False),
    ("others_finish", "ends", False),
    ("conditions_below", "order", False),
]


@pytest.mark.parametrize("rests", [False, True], ids=["driven", "at rest"])
def test_a_family_is_cancelled_whole_whichever_process_dies_on_the_way(rests: bool) -> None:
    broken, states = check(Rules(), rests=rests)
    assert broken == ""
    assert states > 50


@pytest.mark.parametrize(("rule", "breaks", "rests"), NEEDED, ids=[rule for rule, _, _ in NEEDED])
def test_without_one_of_its_rules_it_is_broken(rule: str, breaks: str, rests: bool) -> None:
    assert check(Rules()._replace(**{rule: False}), rests=rests)[0] == breaks
