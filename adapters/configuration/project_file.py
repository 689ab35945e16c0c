"""Find the project's configuration file, `foldlog.toml` or a part of `pyproject.toml`, and read its tables.

It is the file `FOLDLOG_CONFIG` if set, else `foldlog.toml` in the project's directory, else its `pyproject.toml`.
"""

from __future__ import annotations

import os
import tomllib
from copy import deepcopy
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...eventlog.embedded import project_directory
from ...eventlog.errors import ConfigError
from ...eventlog.files import read_bounded


class Tables(NamedTuple):
    """The tables of one kind by name; `place` locates them in messages."""

    place: str
    tables: dict[str, Any]

    def where(self, name: str) -> str:
        """Return the location of the table of this name."""
        return f"{self.place}.{name}]"


def project_tables(kind: str, *, exact: bool = False) -> Tables:
    """Return the `[<kind>.<name>]` tables (in pyproject.toml `[tool.foldlog.<kind>.<name>]`); none without a file.

    `exact` reads numbers with a fraction as `Decimal`. Raises `ConfigError`, which names the file.
    """
    path = _configuration()
    return Tables("", {}) if path is None else tables_in(path, kind, exact=exact)


def tables_in(path: Path, kind: str, *, exact: bool = False) -> Tables:
    """Return the tables of a kind in this file, as `project_tables` does. Raises `ConfigError`."""
    place = f"tool.foldlog.{kind}" if path.name == "pyproject.toml" else kind
    try:
        found: Any = _parsed(read_bounded(path).decode(), Decimal if exact else float)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    for key in place.split("."):
        found = found.get(key, {})
        if not isinstance(found, dict):
            raise ConfigError(f"{path}: {key} must be a table: [{place}.<name>]")
    return Tables(f"{path}: [{place}", deepcopy(found))


@lru_cache(4)
def _parsed(text: str, number: type[Decimal | float]) -> dict[str, Any]:
    """Parse a file, cached by its content: every opened runtime reads several of its tables."""
    return tomllib.loads(text, parse_float=number)


def project_table(name: str) -> tuple[str, dict[str, Any]]:
    """Return where the table `[<name>]` is, for messages, and its content, empty without one. Raises `ConfigError`."""
    found = project_tables(name)
    return f"{found.place}]" if found.place else "", found.tables


def _configuration() -> Path | None:
    """Return the configuration file, or None if there is none."""
    if chosen := os.environ.get("FOLDLOG_CONFIG"):
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise ConfigError(f"FOLDLOG_CONFIG is set to {chosen}, which is not a file")
        return path
    candidates = (project_directory() / name for name in ("foldlog.toml", "pyproject.toml"))
    return next((path for path in candidates if path.is_file()), None)
