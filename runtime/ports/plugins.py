"""Plugins: the entry points that installed packages have in a group, by name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ...eventlog.errors import ConfigError, FoldlogError

PROJECT = "foldlog.project"
"""The entry points that read tables of the project's configuration by their name."""


@functools.cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, read once per process: a read opens a file of every distribution.

    An entry point of another package replaces one of the same name that ships with foldlog.
    """
    shipped_first = sorted(entry_points(group=group), key=lambda entry: not _is_shipped(entry))
    return {entry.name: entry for entry in shipped_first}


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
