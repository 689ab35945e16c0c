"""Priorities: three classes of runs, whose turns come 8 : 4 : 1, so that none starves (W64)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

from .errors import ConfigError

Priority = Literal["urgent", "normal", "background"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
WEIGHTS: Mapping[Priority, int] = {"urgent": 8, "normal": 4, "background": 1}
"""The turns of each class out of 13, if runs of all of them wait."""
NUMBER_MAX = 9
_URGENT_FROM, _NORMAL_FROM = 7, 3


def priority_of(given: object) -> Priority:
    """Return a class by its name, or by a number from 0 to 9 (9 is the most urgent). Raises `ConfigError`."""
    for priority in PRIORITIES:
        if given == priority:
            return priority
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= NUMBER_MAX:
        return "urgent" if given >= _URGENT_FROM else "normal" if given >= _NORMAL_FROM else "background"
    names = ", ".join(PRIORITIES)
    raise ConfigError(
        f"a priority is {names}, or a number from 0 to {NUMBER_MAX} (the most urgent), not {given!r:.40}"
    )


class Turns:
    """Whose turn it is, by smooth weighted round-robin: a class that has waited for long comes before its weight.

    `owed` is all of its state: what each class is owed for the turns that others took while it waited.
    """

    def __init__(self, owed: Mapping[Priority, int] | None = None) -> None:
        self._owed: dict[Priority, int] = dict(owed or {})

    @property
    def owed(self) -> dict[Priority, int]:
        """The turns that each class is owed; classes without any are left out."""
        return {priority: turns for priority, turns in self._owed.items() if turns}

    def next(self, waiting: Collection[Priority]) -> Priority:
        """Return the class whose turn it is among those that wait, of which there is one at least."""
        return max((each for each in PRIORITIES if each in waiting), key=self._after)

    def take(self, taken: Priority, waiting: Collection[Priority]) -> None:
        """Account for a turn of a class while runs of these classes wait, its own among them."""
        there = {taken, *waiting}
        for each in there:
            self._owed[each] = self._after(each)
        self._owed[taken] -= sum(WEIGHTS[each] for each in there)

    def _after(self, priority: Priority) -> int:
        return self._owed.get(priority, 0) + WEIGHTS[priority]
