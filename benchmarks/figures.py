"""The measured figures: one value per contestant and round, stored as JSON with the machine and its versions."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec


class Series(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values of one contestant in one measure, one per round.

    `setting` describes the contestant's durability, where that matters. `x` is the position on the x axis (steps,
    shards, ...), if there is one.
    """

    measure: str
    who: str
    unit: str
    values: list[float]
    setting: str = ""
    x: float | None = None

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest round."""
        return min(self.values), max(self.values)


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one part: its series and remarks, and the time, machine and versions of the measurement."""

    part: str
    at: str
    """The time of the measurement (UTC, ISO 8601)."""
    took_s: float
    load_before: float
    """The load average of the machine in the minute before."""
    rounds: int
    quick: bool
    machine: dict[str, str]
    versions: dict[str, str]
    series: list[Series]
    remarks: list[str] = []
    """Notes on contestants that were left out, and observations that are not numbers."""

    def find(self, measure: str, who: str, x: float | None = None) -> Series | None:
        """Return the series of a contestant; None if it was not measured."""
        for series in self.series:
            if (series.measure, series.who) == (measure, who) and (x is None or series.x == x):
                return series
        return None

    def measures(self) -> list[str]:
        """Return the names of the measures, in the order in which they were taken."""
        return list(dict.fromkeys(series.measure for series in self.series))

    def of(self, measure: str) -> list[Series]:
        """Return all series of a measure."""
        return [series for series in self.series if series.measure == measure]


def ratios(series: Series, base: Series) -> list[float]:
    """Return the ratios to the base: round by round if both have as many rounds, else to the base's median."""
    if len(series.values) == len(base.values):
        return [mine / theirs for mine, theirs in zip(series.values, base.values, strict=True) if theirs]
    return [mine / base.median for mine in series.values if base.median]


def keep(taken: Taken, directory: Path) -> Path:
    """Write a part to `PART.json`, replacing earlier results; return the path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{taken.part}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(taken)) + b"\n")
    return path


def kept(directory: Path) -> dict[str, Taken]:
    """Return the parts stored in a directory, by name. Raises `msgspec.DecodeError` for any other JSON file."""
    found = (msgspec.json.decode(path.read_bytes(), type=Taken) for path in sorted(directory.glob("*.json")))
    return {taken.part: taken for taken in found}
