"""Slots: which runs of an agent may be driven at once, or which calls may run, and who waits, first submitted first.

Every function takes all that the last commit of the slots holds, and gives all that the next one is to hold.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..eventlog.events import SlotHolder, SlotsUpdated, SlotWaiter

Who = SlotHolder | SlotWaiter
WAITING_MAX = 64
"""How many stand in line. Who comes later comes again and again, until there is room."""


def with_taken(slots: SlotsUpdated, who: SlotWaiter, *, out_of_turn: bool = False) -> SlotsUpdated | None:
    """The run holds a slot; null if none is free, or (unless `out_of_turn`) they are for those before it.

    One that it holds already is its own again, at the newer revision: who asks may not have seen all of the run.
    """
    others, waiting = _others(slots, who)
    held = [each.revision for each in slots.holders if _same(each, who)]
    before = 0 if out_of_turn else sum(_order(each) < _order(who) for each in waiting)
    if not held and who.runs_max - len(others) <= before:
        return None
    revision = max([who.revision, *held])
    holder = SlotHolder(run=who.run, shard=who.shard, root=who.root, call=who.call, revision=revision)
    return _with(slots, [*others, holder], waiting)


def with_waiting(slots: SlotsUpdated, who: SlotWaiter) -> SlotsUpdated | None:
    """The run stands in line; null if the line is as long as it may be."""
    others, waiting = _others(slots, who)
    if len(waiting) >= WAITING_MAX:
        return None
    return _with(slots, others, sorted([*waiting, who], key=_order))


def stands_in_line(slots: SlotsUpdated, who: Who) -> bool:
    """Return whether it waits already: since what is known of it here, or since something newer that others know."""
    return any(_same(each, who) and each.revision >= who.revision for each in slots.waiting)


def without(slots: SlotsUpdated, who: Who, revision: int) -> SlotsUpdated:
    """Who it is neither holds a slot nor waits for one, unless it began to at this revision of its run or behind."""
    return _with(
        slots,
        [each for each in slots.holders if not _same(each, who) or each.revision >= revision],
        [each for each in slots.waiting if not _same(each, who) or each.revision >= revision],
    )


def next_in_line(slots: SlotsUpdated) -> list[SlotWaiter]:
    """Those for whom a slot is free now."""
    held = len(slots.holders)
    return [each for place, each in enumerate(slots.waiting) if place < each.runs_max - held]


def _order(waiter: SlotWaiter) -> tuple[float, str, str]:
    return waiter.submitted_at, waiter.run, waiter.call


def _same(one: Who, other: Who) -> bool:
    return (one.run, one.call) == (other.run, other.call)


def _others(slots: SlotsUpdated, who: Who) -> tuple[list[SlotHolder], list[SlotWaiter]]:
    return [h for h in slots.holders if not _same(h, who)], [w for w in slots.waiting if not _same(w, who)]


def _with(slots: SlotsUpdated, holders: list[Any], waiting: list[Any]) -> SlotsUpdated:
    return msgspec.structs.replace(slots, holders=holders, waiting=waiting)
