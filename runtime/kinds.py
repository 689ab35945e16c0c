"""The kinds of runnables, and how one is made again from what a run of it stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..eventlog.errors import AgentConfigError, ConfigError
from .agent import Agent
from .ralph.loop import RalphLoop
from .runnable import Runnable
from .swarm import Swarm

KINDS: dict[str, Callable[[Mapping[str, Any]], Runnable[Any]]] = {
    "agent": Agent.from_config,
    "ralph": RalphLoop.from_config,
    "swarm": Swarm.from_config,
}
"""By the kind of a run: what makes its runnable from the configuration in `submitted`."""


def runnable_of_table(table: Mapping[str, Any]) -> Runnable[Any]:
    """The runnable of a table whose `kind` says what it is; an agent if it says nothing. Raises `AgentConfigError`."""
    kind = table.get("kind", "agent")
    if kind not in KINDS:
        raise AgentConfigError(f"kind is {kind!r}; known are {', '.join(map(repr, KINDS))}")
    return KINDS[kind]({k: v for k, v in table.items() if (k, v) != ("kind", "agent")})


def runnable_of(kind: str, config: Mapping[str, Any]) -> Runnable[Any]:
    """The runnable of a stored run, without the Python objects that only its process had. Raises `ConfigError`."""
    if kind not in KINDS:
        raise ConfigError(f"runs of kind {kind!r} are not known here; known kinds: {', '.join(KINDS)}")
    return KINDS[kind](config)
