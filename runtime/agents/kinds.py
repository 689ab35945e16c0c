"""The kinds of runnables, and how to rebuild one from the configuration that a run stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...eventlog.errors import AgentConfigError, ConfigError, ConfigProblem
from ..ports.runnable import Runnable

KINDS: dict[str, Callable[[Mapping[str, Any]], Runnable[Any]]] = {}
"""By the kind of a run: the function that builds its runnable from the configuration in `submitted`.

The package adds its classes when it is imported: a swarm's configuration holds agents, loops and other swarms, so no
class can name the others.
"""


def runnable_of_table(table: Mapping[str, Any]) -> Runnable[Any]:
    """Return the runnable of a table, by its `kind`; an agent if it has none. Raises `AgentConfigError`."""
    kind = checked_kind(table.get("kind", "agent"))
    if kind == "workflow" and "steps" not in table:  # the stored form of a function has none
        message = "the key 'steps' is required"
        raise AgentConfigError(message, [ConfigProblem("steps", message)])
    return KINDS[kind](table)


def checked_kind(kind: object) -> str:
    """Return the kind if it is known. Raises `AgentConfigError`."""
    if not isinstance(kind, str) or kind not in KINDS:
        message = f"kind is {kind!r:.60}; known are {', '.join(map(repr, KINDS))}"
        raise AgentConfigError(message, [ConfigProblem("kind", message)])
    return kind


def runnable_of(kind: str, config: Mapping[str, Any]) -> Runnable[Any]:
    """Return the runnable of a stored run, without Python objects that only its process had. Raises `ConfigError`."""
    if kind not in KINDS:
        raise ConfigError(f"runs of kind {kind!r} are unknown here; known kinds: {', '.join(KINDS)}")
    return KINDS[kind](config)
