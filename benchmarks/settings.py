"""The settings of a part: rounds, thoroughness, and the callback for its progress."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .figures import Series


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`quick` is for trying the benchmark itself: its figures are worth nothing."""

    rounds: int | None = None
    quick: bool = False
    times: int = 1
    """The factor by which the parts grow whose size is in question: a namespace, the number of readers."""
    say: Callable[[str], None]

    def count(self, full: int, quick: int) -> int:
        """A number of runs, tokens, readers, ..."""
        return quick if self.quick else full

    def scaled(self, full: int, quick: int) -> int:
        """A number that `--times` multiplies."""
        return quick if self.quick else full * self.times

    def rounds_of(self, default: int) -> int:
        """Return the number of rounds for a part with this default."""
        return 1 if self.quick else self.rounds or default


class Measured(msgspec.Struct, frozen=True):
    """The findings of a part."""

    series: list[Series]
    remarks: list[str] = []


class Collected:
    """Series that grow by a value at a time."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, float | None], Series] = {}
        self.remarks: list[str] = []

    def add(
        self, measure: str, who: str, unit: str, value: float, *, setting: str = "", x: float | None = None
    ) -> None:
        """Another round of a contestant."""
        key = (measure, who, x)
        if key not in self._series:
            self._series[key] = Series(measure, who, unit, [], setting, x)
        self._series[key].values.append(value)

    def measured(self) -> Measured:
        """All of it, sorted by measure in the order in which they came up."""
        measures = list(dict.fromkeys(measure for measure, _, _ in self._series))
        ordered = sorted(self._series.values(), key=lambda series: measures.index(series.measure))
        return Measured(ordered, self.remarks)
