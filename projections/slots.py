"""Slots, a distributed semaphore: the runs of an agent, or the calls, that may run at once, and those that wait.

The holders and waiters are the content of one event on a log subject of its own. Every function takes the last event
and returns the next one. Of several priorities that wait, each gets its turns (W64); within one, waiters are served in
the order in which their runs were submitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from ..eventlog.events import SlotHolder, SlotsUpdated, SlotWaiter
from ..eventlog.priorities import Priority, Turns

SlotEntry = SlotHolder | SlotWaiter
WAITING_MAX = 64
"""The most waiters that are stored. Later ones retry until there is room."""


def with_taken(slots: SlotsUpdated, who: SlotWaiter, *, out_of_turn: bool = False) -> SlotsUpdated | None:
    """Give the run a slot; None if none is free, or (unless `out_of_turn`) earlier waiters need the free ones.

    A slot that the run already holds is kept, at the newer revision: the caller may not have read all of the run.
    """
    others, waiting = _others(slots, who)
    held = [each for each in slots.holders if _same(each, who)]
    line = _in_line([*waiting, who], slots.turns)
    before = 0 if out_of_turn else line.index(who)
    if not held and who.runs_max - len(others) <= before:
        return None
    turns = Turns(slots.turns)
    if not held:
        turns.take(who.priority, {each.priority for each in line})
        slots = msgspec.structs.replace(slots, turns=turns.owed)
    holder = SlotHolder(
        run=who.run,
        shard=who.shard,
        root=who.root,
        call=who.call,
        revision=max([who.revision, *(each.revision for each in held)]),
        since=min([who.since, *(each.since for each in held)]),
        worker=who.worker if all(each.worker == who.worker for each in held) else "",
    )
    return _with(slots, [*others, holder], waiting)


def with_waiting(slots: SlotsUpdated, who: SlotWaiter) -> SlotsUpdated | None:
    """Add the run to the waiters; None if there are too many."""
    others, waiting = _others(slots, who)
    if len(waiting) >= WAITING_MAX:
        return None
    since = min([who.since, *(each.since for each in slots.waiting if _same(each, who))])
    who = msgspec.structs.replace(who, since=since)
    return _with(slots, others, [*waiting, who])


def is_waiting(slots: SlotsUpdated, who: SlotWaiter) -> bool:
    """Return whether the run already waits, by the size and the revision that the caller knows, or a newer one."""
    return any(
        _same(each, who) and each.revision >= who.revision and each.runs_max == who.runs_max
        for each in slots.waiting
    )


def without(slots: SlotsUpdated, who: SlotEntry, revision: int) -> SlotsUpdated:
    """Remove the run from holders and waiters, unless it was added at this revision of its run or a later one."""
    return _with(
        slots,
        [each for each in slots.holders if not _same(each, who) or each.revision >= revision],
        [each for each in slots.waiting if not _same(each, who) or each.revision >= revision],
    )


def left(slots: SlotsUpdated, who: SlotWaiter) -> SlotsUpdated:
    """Remove the run from the waiters, and from the holders if its worker alone took the slot, at no later revision.

    A slot that another worker took as well stays: that one may have claimed the run since.
    """
    mine = [
        each
        for each in slots.holders
        if _same(each, who) and each.worker == who.worker != "" and each.revision <= who.revision
    ]
    return _with(
        slots,
        [each for each in slots.holders if each not in mine],
        [each for each in slots.waiting if not _same(each, who)],
    )


def next_in_line(slots: SlotsUpdated) -> list[SlotWaiter]:
    """Return the waiters for whom a slot is free now."""
    held = len(slots.holders)
    return [each for place, each in enumerate(slots.waiting) if place < each.runs_max - held]


def _in_line(waiting: list[SlotWaiter], turns: Mapping[Priority, int]) -> list[SlotWaiter]:
    """Return the waiters in the order of their turns, if no others come."""
    lines: dict[Priority, deque[SlotWaiter]] = {}
    for each in sorted(waiting, key=_order):
        lines.setdefault(each.priority, deque()).append(each)
    coming, line = Turns(turns), list[SlotWaiter]()
    while lines:
        chosen = coming.next(lines)
        coming.take(chosen, lines)
        line.append(lines[chosen].popleft())
        if not lines[chosen]:
            del lines[chosen]
    return line


def _order(waiter: SlotWaiter) -> tuple[float, str, str]:
    return waiter.submitted_at, waiter.run, waiter.call


def _same(one: SlotEntry, other: SlotEntry) -> bool:
    return (one.run, one.call) == (other.run, other.call)


def _others(slots: SlotsUpdated, who: SlotEntry) -> tuple[list[SlotHolder], list[SlotWaiter]]:
    return [h for h in slots.holders if not _same(h, who)], [w for w in slots.waiting if not _same(w, who)]


def _with(slots: SlotsUpdated, holders: list[Any], waiting: list[Any]) -> SlotsUpdated:
    return msgspec.structs.replace(slots, holders=holders, waiting=_in_line(waiting, slots.turns))
