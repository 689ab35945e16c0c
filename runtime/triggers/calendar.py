"""The times of schedules: the next one after any time, in Unix seconds. Pure: the time is an argument.

Cron times are local. One that does not exist, because clocks go forward, comes right after the gap; one that exists
twice, because they go back, comes once, the first time. An expression that counts on within the hour (`*/10 * * * *`)
or whose hour is a star follows the elapsed time instead: it comes in both hours.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from ...eventlog.errors import ConfigError
from ..ports.time_zones import zone_of

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
_LATEST = 253_402_214_400.0
"""The last day of the year 9999, the end of the library's calendar."""


class Calendar(Protocol):
    """The times of a schedule."""

    def after(self, at: float) -> float | None:
        """Return the first time after `at`; null if there is none."""
        ...


class Every:
    """Every `period_s` seconds, counted from `origin`."""

    def __init__(self, period_s: int, origin: float) -> None:
        self._period_s, self._origin = period_s, origin

    def after(self, at: float) -> float | None:
        """Return the first time after `at`."""
        found = self._origin + ((at - self._origin) // self._period_s + 1) * self._period_s
        return found if found > at else found + self._period_s  # of large numbers, fractions are rounded


class Cron:
    """A cron expression in a time zone. Raises `ConfigError`, which begins with `where`."""

    def __init__(self, expression: str, tz: str, where: str) -> None:
        text = " ".join(expression.split())
        self._expression = _NAMED.get(text.lower(), text)
        if len(self._expression.split()) != _FIELDS:
            raise ConfigError(
                f"{where}: {expression!r:.80} is not a cron expression: write five fields, as in "
                f"'0 7 * * MON-FRI', or one of {', '.join(_NAMED)}"
            )
        self._zone = zone_of(tz, where)
        try:
            self._next(0.0)
        except ValueError as error:
            raise ConfigError(f"{where}: cron {expression!r:.80}: {error}") from None

    def after(self, at: float) -> float | None:
        """Return the first time after `at`."""
        return self._next(at)

    def _next(self, at: float) -> float | None:
        from cronsim import CronSim, CronSimError

        moment = datetime.fromtimestamp(math.floor(min(at, _LATEST)), UTC).astimezone(self._zone)
        try:
            times = CronSim(self._expression, moment)
            for time in times:  # a time that exists twice may lie before `at`, in its first hour
                if time.timestamp() > at:
                    return time.timestamp()
        except CronSimError as error:
            told = str(error) or "it has a wrong field"
            raise ValueError(f"{told[:1].lower()}{told[1:]}, or a day that never comes") from None
        except OverflowError:
            return None
        return None


def jitter_of(name: str, due_at: float, jitter_s: float) -> float:
    """Return the seconds by which a run for this time starts later: the same in every process."""
    if not jitter_s:
        return 0.0
    digest = hashlib.sha256(f"{name}\n{due_at:.3f}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * jitter_s


def written(at: float) -> str:
    """Return a time as it is written in keys and inputs: `2026-03-01T06:00:00Z`, with a fraction only if it has one."""
    moment = datetime.fromtimestamp(at, UTC)
    precision = "seconds" if not moment.microsecond else "microseconds"
    return moment.isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def local(at: float, tz: str | None) -> str:
    """Return a time as it is written in its time zone: `2026-03-01T07:00:00+01:00`; of UTC without one."""
    return datetime.fromtimestamp(at, UTC).astimezone(local_zone(tz)).isoformat()


def local_zone(tz: str | None) -> tzinfo:
    """Return the time zone in which times of a schedule are written."""
    return UTC if tz is None else zone_of(tz, "tz")
