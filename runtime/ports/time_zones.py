"""Time zones of schedules and budgets, by their names in the IANA database."""

from __future__ import annotations

from datetime import UTC, tzinfo

from ...eventlog.errors import ConfigError


def zone_of(name: str, where: str) -> tzinfo:
    """Return the time zone of this name. Raises `ConfigError`, which begins with `where`, for one that is unknown."""
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise ConfigError(
            f"{where}: {name!r:.80} is not a time zone of the IANA database, such as Europe/Oslo"
        ) from None
