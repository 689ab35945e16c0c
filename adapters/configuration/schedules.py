"""Read the `[schedules.<name>]` tables of the configuration. All are checked before any is applied."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from ...eventlog.errors import ConfigError
from ...eventlog.priorities import Priority
from ...runtime.triggers.schedule import Missed, Overlap, Schedule, checked
from .project_file import project_tables, tables_in
from .strict_tables import StrictTable


class ScheduleTable(StrictTable):
    """One `[schedules.<name>]` table; the fields and their defaults are those of `Schedule`."""

    agent: str
    input: str | dict[str, Any] | None = None
    cron: str | None = None
    every: str | None = None
    tz: str | None = None
    start: str | None = Field(None, alias="from")
    overlap: Overlap | None = None
    missed: Missed | None = None
    catchup_s: float | None = None
    jitter_s: float | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    priority: Priority | int | None = None


def load_schedules(path: Path | None = None) -> list[Schedule]:
    """Return the schedules of a TOML file, or of the project's configuration. Raises `ConfigError`, with the table."""
    found = project_tables("schedules") if path is None else tables_in(path, "schedules")
    return [_schedule(name, table, found.where(name)) for name, table in found.tables.items()]


def _schedule(name: str, given: Any, where: str) -> Schedule:
    if isinstance(given, dict):
        given = {key: _plain(value) for key, value in given.items()}
    table = ScheduleTable.read(given, where)
    document = table.model_dump(exclude_none=True)
    try:
        return checked(Schedule(name=name, from_=document.pop("start", None), **document))
    except ConfigError as error:
        told = str(error).removeprefix(f"schedule {name!r}: ")
        raise ConfigError(f"{where}: {told}") from None


def _plain(value: Any) -> Any:
    """Return a TOML time as the text that `Schedule` takes."""
    return value.isoformat() if isinstance(value, datetime) else value
