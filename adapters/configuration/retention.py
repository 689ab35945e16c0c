"""Read the retention of the project: `[retention]` and `[retention.agents.NAME]` in its configuration."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from ...eventlog.errors import ConfigError
from ...runtime.burying.bury import KEYS_S
from ...runtime.burying.retention import AgentRetention, Retention
from .project_file import project_table
from .strict_tables import StrictTable

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


class AgentTable(StrictTable):
    """One `[retention.agents.NAME]` table."""

    keep: str | None = None
    archive: str | None = None


class RetentionTable(StrictTable):
    """The `[retention]` table."""

    keep: str | None = None
    archive: str = ""
    keys: str | None = None
    agents: dict[str, AgentTable] = Field(default_factory=dict)


def load_retention() -> Retention | None:
    """Return the project's retention; None without the table. Raises `ConfigError`, which names file and key."""
    where, table = project_table("retention")
    return read_retention(table, where) if table else None


def read_retention(table: Any, where: str) -> Retention:
    """Return the retention of a table. Raises `ConfigError`, which names `where` and the key."""
    read = RetentionTable.read(table, where)
    agents = {
        name: AgentRetention(
            keep_s=None if own.keep is None else _seconds(own.keep, f"{where}: agents.{name}.keep"),
            archive=_url(own.archive, f"{where}: agents.{name}.archive"),
        )
        for name, own in read.agents.items()
    }
    return Retention(
        keep_s=None if read.keep is None else _seconds(read.keep, f"{where}: keep"),
        archive=_url(read.archive, f"{where}: archive") or "",
        keys_s=KEYS_S if read.keys is None else _seconds(read.keys, f"{where}: keys"),
        agents=agents,
    )


def _seconds(text: str, where: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or not float(match[1]):
        raise ConfigError(f'{where} is a duration such as "30d", "12h" or "10m", not {text!r:.60}')
    return float(match[1]) * _UNITS_S[match[2]]


def _url(text: str | None, where: str) -> str | None:
    if text and "://" not in text:
        raise ConfigError(f"{where} is the URL of an archive such as s3://bucket/foldlog, not {text!r:.60}")
    return text
