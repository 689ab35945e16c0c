"""Shrink a failing schedule: fewer faults, acts, workers and choices of the next callback, the same broken property.

Deterministic: the same schedule always shrinks to the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from .playing import Played
from .schedule import Schedule

T = TypeVar("T")
ATTEMPTS_MAX = 400
"""The most schedules that are played while shrinking."""

Play = Callable[[Schedule], Played]


class Shrunk(msgspec.Struct, frozen=True):
    """The smallest failing schedule that was found, as played, and the number of attempts."""

    played: Played
    attempts: int


def shrink(failed: Played, play: Play, *, attempts_max: int = ATTEMPTS_MAX) -> Shrunk:
    """Make a failing schedule smaller, as long as it still breaks one of the same properties."""
    shrinking = _Shrinking(failed, play, attempts_max)
    shrinking.run()
    return Shrunk(shrinking.best, shrinking.attempts)


class _Shrinking:
    def __init__(self, failed: Played, play: Play, attempts_max: int) -> None:
        self.best, self.attempts = failed, 0
        self._play, self._attempts_max = play, attempts_max
        self._broken = failed.broken

    def run(self) -> None:
        """Remove parts until none can be removed."""
        before = None
        while before != self._size() and self.attempts < self._attempts_max:
            before = self._size()
            self._without_any(lambda it: it.faults or (), lambda it, faults: _with(it, faults=faults))
            self._without_any(lambda it: it.acts, lambda it, acts: _with(it, acts=acts))
            self._fewer_workers()
            self._fewer_picks()

    def _size(self) -> tuple[int, ...]:
        it = self.best.schedule
        picks = it.picks or ()
        return len(it.faults or ()), len(it.acts), len(it.staff), len(picks), sum(map(bool, picks))

    def _holds(self, smaller: Schedule) -> bool:
        """Play it, and return whether it still breaks the same; then it is the best one so far."""
        if self.attempts >= self._attempts_max:
            return False
        self.attempts += 1
        played = self._play(smaller)
        if not played.broken & self._broken:
            return False
        self.best = msgspec.structs.replace(played, schedule=_with(smaller, faults=played.faults))
        return True

    def _without_any(
        self,
        parts: Callable[[Schedule], Sequence[T]],
        put: Callable[[Schedule, tuple[T, ...]], Schedule],
    ) -> None:
        """Leave out all parts at once, or else one after the other, the last first."""
        if parts(self.best.schedule) and self._holds(put(self.best.schedule, ())):
            return
        index = len(parts(self.best.schedule)) - 1
        while index >= 0:
            now = parts(self.best.schedule)
            if index < len(now):
                self._holds(put(self.best.schedule, (*now[:index], *now[index + 1 :])))
            index -= 1

    def _fewer_workers(self) -> None:
        while len(self.best.schedule.staff) > 1:
            if not self._holds(_with(self.best.schedule, staff=self.best.schedule.staff[:-1])):
                return

    def _fewer_picks(self) -> None:
        """Leave out all choices, or keep the shortest beginning; then replace whole stretches by the first choice."""
        if self._holds(_with(self.best.schedule, picks=())):
            return
        self._shortest_beginning()
        for start, end in _stretches(len(self.best.schedule.picks or ())):
            picks = self.best.schedule.picks or ()
            if any(picks[start:end]):
                plain = (*picks[:start], *[0] * len(picks[start:end]), *picks[end:])
                self._holds(_with(self.best.schedule, picks=plain))

    def _shortest_beginning(self) -> None:
        low, high = 0, len(self.best.schedule.picks or ())
        while low < high:
            middle = (low + high) // 2
            if self._holds(_with(self.best.schedule, picks=(self.best.schedule.picks or ())[:middle])):
                high = middle
            else:
                low = middle + 1


def _stretches(length: int) -> Iterator[tuple[int, int]]:
    """Yield halves, quarters, ..., down to single choices, from the end."""
    size = length // 2
    while size >= 1:
        yield from ((start, start + size) for start in range(length - size, -1, -size))
        size //= 2


def _with(schedule: Schedule, **changes: object) -> Schedule:
    return msgspec.structs.replace(schedule, **changes)
