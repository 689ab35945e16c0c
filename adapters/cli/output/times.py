"""Parse and format times: points in local time, to the second, and durations."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from ....eventlog.errors import ConfigError

if TYPE_CHECKING:
    from ....eventlog.events import Trigger

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def moment(at: float) -> str:
    """Format Unix seconds as local time, `2026-03-01 13:05:09`."""
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def trigger_words(trigger: Trigger) -> str:
    """Say what started a run: `cron briefing, due 2026-03-01 13:05:00, request r-17`."""
    due = "" if trigger.due_at is None else f", due {moment(trigger.due_at)}"
    request = f", request {trigger.request_id}" if trigger.request_id else ""
    door = f" by {trigger.via}" if trigger.via else ""
    by = f", by {trigger.by}" if trigger.by else ""
    return f"{trigger.kind} {trigger.name}".rstrip() + door + by + due + request


def seconds_of(text: str) -> float:
    """Return a duration, `30s`, `10m`, `1h` or `2d`, in seconds. Raises `ConfigError`."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS_S else (text, "s")
    try:
        length_s = float(number) * _UNITS_S[unit]
    except ValueError:
        length_s = 0.0
    if not 0 < length_s < math.inf:
        raise ConfigError(f"write a duration as 30s, 10m, 1h or 2d, not {text!r}")
    return length_s


def coming_time(text: str, now: float) -> datetime:
    """Return a time to come: `30m` or `2d` from now, or a date or time, local unless it names its zone.

    Raises `ConfigError`.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.fromtimestamp(now + seconds_of(text), UTC)
        except (ConfigError, OverflowError, OSError, ValueError):
            told = f"write a time to come as 30m, 2d (from now), 2026-03-01 or 2026-03-01T12:00, not {text!r}"
            raise ConfigError(told) from None
    return moment if moment.tzinfo is not None else moment.astimezone()


def time_of(text: str, now: float, zone: tzinfo | None = None) -> float:
    """Return a point in time in Unix seconds: `30m` or `2d` ago, or a date or time.

    One that does not name its zone is of `zone`, or (None) local. Raises `ConfigError`.
    """
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return now - seconds_of(text)
    except ConfigError:
        raise ConfigError(
            f"write a time as 30m, 2d (ago), 2026-03-01 or 2026-03-01T12:00, not {text!r}"
        ) from None
