"""Of the runs of an agent only so many hold a slot, and those in line are served in the order of their submission."""

from __future__ import annotations

import msgspec
from foldlog.eventlog import SlotsUpdated, SlotWaiter
from foldlog.projections.slots import (
    WAITING_MAX,
    is_waiting,
    left,
    next_in_line,
    with_taken,
    with_waiting,
    without,
)
from hypothesis import given
from hypothesis import strategies as st

EMPTY = SlotsUpdated(name="agent:a")


def run(name: str, at: float = 0.0, *, revision: int = 2, runs_max: int = 1) -> SlotWaiter:
    return SlotWaiter(
        run=name, shard=0, revision=revision, agent="a", runs_max=runs_max, submitted_at=at or ord(name[-1])
    )


def taken(slots: SlotsUpdated, who: SlotWaiter, **options: bool) -> SlotsUpdated:
    after = with_taken(slots, who, **options)
    assert after is not None
    return after


def waiting(slots: SlotsUpdated, who: SlotWaiter) -> SlotsUpdated:
    after = with_waiting(slots, who)
    assert after is not None
    return after


def test_a_slot_is_taken_while_there_is_one() -> None:
    one = taken(EMPTY, run("a", runs_max=2))
    two = taken(one, run("b", runs_max=2))
    assert [holder.run for holder in two.holders] == ["a", "b"]
    assert with_taken(two, run("c", runs_max=2)) is None


def test_queued_runs_go_before_runs_that_were_submitted_later() -> None:
    line = waiting(waiting(taken(EMPTY, run("h")), run("c")), run("b"))
    assert [each.run for each in line.waiting] == ["b", "c"]
    free = without(line, run("h"), 9)
    assert [each.run for each in next_in_line(free)] == ["b"]
    assert with_taken(free, run("c")) is None
    assert with_taken(free, run("d")) is None
    after = taken(free, run("b"))
    assert ([h.run for h in after.holders], [w.run for w in after.waiting]) == (["b"], ["c"])


def test_who_was_submitted_before_those_in_line_goes_first() -> None:
    free = without(waiting(taken(EMPTY, run("h")), run("b")), run("h"), 9)
    assert [holder.run for holder in taken(free, run("a")).holders] == ["a"]


def test_who_does_not_come_is_passed_over() -> None:
    free = without(waiting(taken(EMPTY, run("h")), run("b")), run("h"), 9)
    assert [holder.run for holder in taken(free, run("c"), out_of_turn=True).holders] == ["c"]
    assert with_taken(taken(EMPTY, run("h")), run("c"), out_of_turn=True) is None


def by(worker: str, *, revision: int = 2) -> SlotWaiter:
    return msgspec.structs.replace(run("a", revision=revision), worker=worker)


def test_who_waits_elsewhere_leaves_only_a_slot_that_nobody_else_took_for_its_run() -> None:
    mine = waiting(taken(EMPTY, by("w1")), run("b"))
    assert left(mine, by("w1")) == msgspec.structs.replace(EMPTY, waiting=mine.waiting)
    assert left(mine, by("w2")) == mine
    assert left(taken(mine, by("w1")), by("w1")).holders == []
    both = taken(mine, by("w2"))
    assert both.holders[0].worker == ""
    assert left(both, by("w1")) == left(both, by("w2")) == left(both, run("a")) == both
    assert left(taken(both, by("w1")), by("w1")).holders == both.holders
    newer = taken(EMPTY, by("w1", revision=7))
    assert left(newer, by("w1")) == newer
    assert left(waiting(taken(EMPTY, run("h")), by("w1")), by("w2")).waiting == []


def test_a_slot_that_is_held_is_kept_and_never_made_older() -> None:
    held = waiting(taken(EMPTY, run("b", revision=9)), run("a"))
    again = taken(held, run("b", revision=4))
    assert [(holder.run, holder.revision) for holder in again.holders] == [("b", 9)]


def test_what_was_given_up_before_it_was_taken_again_stays_taken() -> None:
    """The one who gives up may come late: the run was parked at 8, and has been taken up again since."""
    held = taken(EMPTY, run("a", revision=11))
    assert without(held, run("a"), 8) == held
    assert without(held, run("a"), 12).holders == []


def test_a_run_with_a_wider_limit_needs_not_wait_for_one_with_a_narrower() -> None:
    line = waiting(taken(EMPTY, run("h")), run("b", runs_max=1))
    assert [holder.run for holder in taken(line, run("c", runs_max=3)).holders] == ["h", "c"]


def test_the_queue_is_not_longer_than_its_limit() -> None:
    line = taken(EMPTY, run("h"))
    for number in range(WAITING_MAX):
        line = waiting(line, run(f"w{number}", float(number + 1)))
    assert with_waiting(line, run("z")) is None
    assert with_waiting(line, run("w3", 4.0, revision=5)) is not None


NAMES = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(["take", "pass", "wait", "leave"]), NAMES), max_size=60)


@given(st.integers(1, 4), STEPS)
def test_there_are_never_more_holders_than_slots_and_no_run_is_listed_twice(
    runs_max: int, steps: list[tuple[str, str]]
) -> None:
    slots = EMPTY
    for does, name in steps:
        who = run(name, runs_max=runs_max)
        if does == "leave":
            slots = without(slots, who, 3)
        elif does == "wait":
            slots = with_taken(slots, who) or with_waiting(slots, who) or slots
        else:
            slots = with_taken(slots, who, out_of_turn=does == "pass") or slots
        there = [each.run for each in (*slots.holders, *slots.waiting)]
        assert len(there) == len(set(there))
        assert len(slots.holders) <= runs_max
        assert slots.waiting == sorted(slots.waiting, key=lambda each: each.submitted_at)
        assert len(next_in_line(slots)) == min(len(slots.waiting), runs_max - len(slots.holders))


def test_a_run_in_line_waits_by_the_size_that_it_was_asked_with_last() -> None:
    line = waiting(waiting(taken(EMPTY, run("h")), run("a")), run("b"))
    larger = run("b", runs_max=3)
    assert is_waiting(line, run("b"))
    assert not is_waiting(line, larger)
    after = waiting(line, larger)
    assert [(each.run, each.runs_max) for each in after.waiting] == [("a", 1), ("b", 3)]
