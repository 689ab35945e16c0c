"""The kinds of runnables, and how one is made again from what a run of it stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...eventlog.errors import AgentConfigError, ConfigError, ConfigProblem
from ..ports.runnable import Runnable

KINDS: dict[str, Callable[[Mapping[str, Any]], Runnable[Any]]] = {}
"""By the kind of a run: what makes its runnable from the configuration in `submitted`.

The package adds its classes when it is imported: a swarm's configuration holds agents, loops and other swarms, so no
class can name the others.
"""


def runnable_of_table(table: Mapping[str, Any]) -> Runnable[Any]:
    """The runnable of a table whose `kind` says what it is; an agent if it says nothing. Raises `AgentConfigError`."""
    return KINDS[checked_kind(table.get("kind", "agent"))](table)


def checked_kind(kind: object) -> str:
    """The kind, if it is one. Raises `AgentConfigError`."""
    if not isinstance(kind, str) or kind not in KINDS:
        told = f"kind is {kind!r:.60}; known are {', '.join(map(repr, KINDS))}"
        raise AgentConfigError(told, [ConfigProblem("kind", told)])
    return kind


def runnable_of(kind: str, config: Mapping[str, Any]) -> Runnable[Any]:
    """The runnable of a stored run, without the Python objects that only its process had. Raises `ConfigError`."""
    if kind not in KINDS:
        raise ConfigError(f"runs of kind {kind!r} are not known here; known kinds: {', '.join(KINDS)}")
    return KINDS[kind](config)
