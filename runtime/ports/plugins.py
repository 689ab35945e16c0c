"""Plugins: the entry points that installed packages have in a group, by name."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, cast

from ...eventlog.errors import ConfigError, FoldlogError

PROJECT = "foldlog.project"
"""The entry points that read tables of the project's configuration by their name."""


@functools.cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, looked for once per process.

    An entry point of another package replaces one of the same name that ships with foldlog.
    """
    found = _read(tuple(sys.path)).select(group=group)
    shipped_first = sorted(found, key=lambda entry: not _is_shipped(entry))
    return {entry.name: entry for entry in shipped_first}


def forget() -> None:
    """Look again for what is installed, when next asked."""
    installed.cache_clear()
    _read.cache_clear()


@functools.lru_cache(1)
def _read(_path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of all groups: a read opens a file of every distribution, and many groups are asked for.

    The path of the import system decides what they are; it grows by the project's directory when agents are loaded.
    """
    return cast("EntryPoints", entry_points())  # in Python 3.11 of another type, which has the same `select`


def loaded(entry: EntryPoint) -> Any:
    """Import and return the plugin of the entry point. Raises `ConfigError`."""
    with _refusing(entry):
        return entry.load()


def made(entry: EntryPoint, *arguments: Any) -> Any:
    """Import the plugin of the entry point and call it with the arguments. Raises `ConfigError`, and its own errors."""
    with _refusing(entry):
        return entry.load()(*arguments)


def _is_shipped(entry: EntryPoint) -> bool:
    return entry.value.startswith("foldlog.")


@contextlib.contextmanager
def _refusing(entry: EntryPoint) -> Iterator[None]:
    try:
        yield
    except (FoldlogError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(
            f"the plugin {entry.name!r} ({entry.group}, {entry.value}) cannot be used: {type(error).__name__}: {error}"
        ) from error
