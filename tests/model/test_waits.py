"""Waits and signals hold in every state that can be reached, and each of their rules is needed (W28, W29)."""

import pytest

from tests.model.waits import Rules, check

SENDERS = {"one": (1,), "two": (1, 2), "one key twice": (1, 1)}
NEEDED = [
    ("buffered", "lost", (1,)),
    ("settles", "lost", (1,)),
    ("unread_first", "lost", (1,)),
    ("wakes", "ends", (1, 2)),
    ("condition", "once", (1,)),
    ("keyed", "doubled", (1, 1)),
    ("timer_first", "ends", (1,)),
    ("oldest_first", "order", (1, 2)),
]


@pytest.mark.parametrize("keys", SENDERS.values(), ids=SENDERS)
def test_no_signal_is_lost_and_every_wait_ends_once(keys: tuple[int, ...]) -> None:
    broken, states = check(Rules(), keys)
    assert broken == ""
    assert states > 500


@pytest.mark.parametrize(("rule", "breaks", "keys"), NEEDED, ids=[rule for rule, _, _ in NEEDED])
def test_without_one_of_its_rules_a_wait_is_broken(rule: str, breaks: str, keys: tuple[int, ...]) -> None:
    assert check(Rules()._replace(**{rule: False}), keys)[0] == breaks
