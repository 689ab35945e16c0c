"""Turns of priorities: 8 : 4 : 1 while all of them wait, and none waits longer than its weight means (W64)."""

from __future__ import annotations

from collections import Counter

import pytest
from foldlog.eventlog import SlotsUpdated, SlotWaiter
from foldlog.eventlog.errors import ConfigError
from foldlog.eventlog.priorities import PRIORITIES, WEIGHTS, Priority, Turns, priority_of
from foldlog.projections.slots import next_in_line, with_taken, with_waiting, without
from hypothesis import example, given
from hypothesis import strategies as st

ALL = sum(WEIGHTS.values())


def taken(turns: Turns, waiting: set[Priority]) -> Priority:
    chosen = turns.next(waiting)
    turns.take(chosen, waiting)
    return chosen


def test_of_thirteen_turns_eight_are_urgent_four_normal_and_one_in_the_background() -> None:
    turns = Turns()
    assert Counter(taken(turns, set(PRIORITIES)) for _ in range(ALL)) == WEIGHTS
    assert turns.owed == {}


def test_one_priority_alone_is_owed_nothing() -> None:
    turns = Turns()
    assert [taken(turns, {"background"}) for _ in range(3)] == ["background"] * 3
    assert turns.owed == {}


@given(st.lists(st.sets(st.sampled_from(PRIORITIES), min_size=1), max_size=60), st.sampled_from(PRIORITIES))
@example([{"urgent"}] * 8, "normal")
@example([{"urgent", "normal"}] * 27, "background")
def test_no_priority_starves_whatever_else_comes_and_goes(
    waiting: list[set[Priority]], patient: Priority
) -> None:
    turns, passed_over = Turns(), 0
    for each in waiting:
        passed_over = 0 if taken(turns, each | {patient}) == patient else passed_over + 1
        assert passed_over <= 2 * ALL / WEIGHTS[patient]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("urgent", "urgent"),
        ("normal", "normal"),
        ("background", "background"),
        *((number, "background") for number in range(3)),
        *((number, "normal") for number in range(3, 7)),
        *((number, "urgent") for number in range(7, 10)),
    ],
)
def test_a_priority_is_a_name_or_a_number_from_zero_to_nine(given: object, meant: Priority) -> None:
    assert priority_of(given) == meant


@pytest.mark.parametrize("given", [10, -1, True, 1.0, "", "high", "URGENT", None, ["urgent"], 5.5])
def test_anything_else_is_no_priority(given: object) -> None:
    with pytest.raises(
        ConfigError, match="a priority is urgent, normal, background, or a number from 0 to 9"
    ):
        priority_of(given)


def waiter(name: str, at: int, priority: Priority) -> SlotWaiter:
    return SlotWaiter(
        run=name, shard=0, revision=2, agent="a", runs_max=1, submitted_at=at, priority=priority
    )


def served(slots: SlotsUpdated) -> list[str]:
    """Serve the line with one slot until it is empty."""
    order: list[str] = []
    while slots.holders:
        slots = without(slots, slots.holders[0], 9)
        for each in next_in_line(slots):
            order.append(each.run)
            after = with_taken(slots, each)
            assert after is not None
            slots = after
    return order


def test_a_line_for_slots_gives_each_priority_its_turns_and_keeps_their_order() -> None:
    first = waiter("first", 0, "normal")
    slots = with_taken(SlotsUpdated(name="agent:a"), first)
    assert slots is not None
    runs = [waiter(f"{name[0]}{n}", n + 1, name) for name in reversed(PRIORITIES) for n in range(8)]
    for each in runs:
        slots = with_waiting(slots, each)
        assert slots is not None
    planned = [each.run for each in slots.waiting]
    order = served(slots)
    assert order == planned
    assert Counter(name[0] for name in order[:ALL]) == {"u": 8, "n": 4, "b": 1}
    for priority in "unb":
        assert [name for name in order if name[0] == priority] == [f"{priority}{n}" for n in range(8)]


def test_an_urgent_run_goes_before_a_line_that_came_earlier() -> None:
    slots = with_taken(SlotsUpdated(name="agent:a"), waiter("first", 0, "normal"))
    assert slots is not None
    slots = with_waiting(slots, waiter("early", 1, "background"))
    assert slots is not None
    slots = with_waiting(slots, waiter("late", 2, "urgent"))
    assert slots is not None
    assert served(slots) == ["late", "early"]
