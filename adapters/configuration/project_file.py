"""The project's configuration file, `foldlog.toml` or a part of `pyproject.toml`: where it is, and its tables.

It is the file `FOLDLOG_CONFIG` if set, else `foldlog.toml` in the project's directory, else its `pyproject.toml`.
"""

from __future__ import annotations

import os
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from ...eventlog.embedded import project_directory
from ...eventlog.errors import ConfigError
from ...eventlog.files import read_bounded


class Tables(NamedTuple):
    """The tables of one kind by name; `place` says in messages where they stand."""

    place: str
    tables: dict[str, Any]

    def where(self, name: str) -> str:
        """Where the table of this name stands."""
        return f"{self.place}.{name}]"


def project_tables(kind: str, *, exact: bool = False) -> Tables:
    """The `[<kind>.<name>]` tables (in pyproject.toml `[tool.foldlog.<kind>.<name>]`); none without a file.

    `exact` reads numbers with a fraction as `Decimal`. Raises `ConfigError` that names the file.
    """
    path = _configuration()
    if path is None:
        return Tables("", {})
    place = f"tool.foldlog.{kind}" if path.name == "pyproject.toml" else kind
    try:
        found: Any = tomllib.loads(read_bounded(path).decode(), parse_float=Decimal if exact else float)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    for key in place.split("."):
        found = found.get(key, {})
        if not isinstance(found, dict):
            raise ConfigError(f"{path}: {key} has to be a table: [{place}.<name>]")
    return Tables(f"{path}: [{place}", dict(found))


def _configuration() -> Path | None:
    """The file to read, or null if there is none."""
    if chosen := os.environ.get("FOLDLOG_CONFIG"):
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise ConfigError(f"FOLDLOG_CONFIG names {chosen}, which is no file")
        return path
    candidates = (project_directory() / name for name in ("foldlog.toml", "pyproject.toml"))
    return next((path for path in candidates if path.is_file()), None)
