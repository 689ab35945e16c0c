"""The settings of a part: rounds, thoroughness, and the callback for its progress."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .figures import Series


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a measurement. `quick` is for testing the benchmark itself: its figures mean nothing."""

    rounds: int | None = None
    quick: bool = False
    times: int = 1
    """The factor for the sizes that `scaled` returns, such as the size of a namespace or the number of readers."""
    say: Callable[[str], None]

    def count(self, full: int, quick: int) -> int:
        """Return a number of runs, readers, ...: `quick` for a quick measurement, else `full`."""
        return quick if self.quick else full

    def scaled(self, full: int, quick: int) -> int:
        """Return such a number multiplied by `--times`."""
        return quick if self.quick else full * self.times

    def rounds_of(self, default: int) -> int:
        """Return the number of rounds for a part with this default."""
        return 1 if self.quick else self.rounds or default


class Measured(msgspec.Struct, frozen=True):
    """The results of a part."""

    series: list[Series]
    remarks: list[str] = []


class Collected:
    """Collects series, one value at a time."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, float | None], Series] = {}
        self.remarks: list[str] = []

    def add(
        self, measure: str, who: str, unit: str, value: float, *, setting: str = "", x: float | None = None
    ) -> None:
        """Add the value of one round of a contestant."""
        key = (measure, who, x)
        if key not in self._series:
            self._series[key] = Series(measure, who, unit, [], setting, x)
        self._series[key].values.append(value)

    def measured(self) -> Measured:
        """Return all series, grouped by measure in the order in which the measures were first added."""
        measures = list(dict.fromkeys(measure for measure, _, _ in self._series))
        ordered = sorted(self._series.values(), key=lambda series: measures.index(series.measure))
        return Measured(ordered, self.remarks)
