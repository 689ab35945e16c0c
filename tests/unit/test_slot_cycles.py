"""Which slots are never free again, by who holds them and what waits below each."""

from __future__ import annotations

import pytest
from foldlog.runtime.shared.deadlocks import Waiting, stuck
from hypothesis import given
from hypothesis import strategies as st


def held(**slots: list[str]) -> dict[str, list[frozenset[Waiting]]]:
    """By the slots' name, of each holder the slots that are waited for below it."""
    return {
        name: [
            frozenset(Waiting(float(at), f"{name}{at}", "", wanted) for wanted in below)
            for at, below in enumerate(holders)
        ]
        for name, holders in slots.items()
    }


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ({"a": [""]}, ""),
        ({"a": ["b"], "b": [""]}, ""),
        ({"a": ["a"]}, "a"),
        ({"a": ["b"], "b": ["a"]}, "ab"),
        ({"a": ["b", ""], "b": ["a"]}, ""),
        ({"a": ["bb"], "b": [""]}, ""),
        ({"a": ["bc"], "b": [""], "c": ["a"]}, "ac"),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, "bc"),
    ],
    ids=[
        "a holder that waits for nothing",
        "a chain",
        "one that waits for itself",
        "two that wait for each other",
        "a second holder goes on",
        "two waits for slots that move",
        "one of two waits is in a circle",
        "behind a circle",
    ],
)
def test_slots_are_stuck_whose_holders_all_wait_for_stuck_slots(
    slots: dict[str, list[str]], expected: str
) -> None:
    found = stuck("a", held(**slots))
    assert {each.slots for each in found} == set(expected)


HELD = st.dictionaries(
    st.sampled_from("abcde"), st.lists(st.text("abcde", max_size=3), min_size=1, max_size=3), min_size=1
)


@given(HELD, st.randoms(use_true_random=False))
def test_what_is_not_stuck_can_end_in_some_order_and_what_is_cannot(
    slots: dict[str, list[str]], random: object
) -> None:
    """Holders end, in any order, that wait for nothing, or for what somebody has given up."""
    world = {name: held(**slots).get(name, [frozenset()]) for name in "abcde"}
    free = set[str]()
    while more := [name for name in sorted(set(world) - free) if _one_ends(world[name], free)]:
        free.add(random.choice(more))  # type: ignore[attr-defined]
    for name in world:
        waits = stuck(name, world)
        assert bool(waits) == (name not in free)
        assert not {each.slots for each in waits} & free


def _one_ends(holders: list[frozenset[Waiting]], free: set[str]) -> bool:
    return any({each.slots for each in below} <= free for below in holders)
