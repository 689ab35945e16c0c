"""Points in time for people: local, to the second."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(at: float) -> str:
    """Unix seconds as local time, `2026-03-01 13:05:09`."""
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
