"""Executors by name: those that are shipped, and those that other packages install."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from ...eventlog.errors import ConfigError
from ..driving.host import Host
from ..ports.executor import EXECUTORS, Executor
from .durable import DurableExecutor
from .local import LocalExecutor

ExecutorFactory = Callable[[Host], Executor]
"""What an entry point of the group `foldlog.executors` names: a function of the process that drives."""

SHIPPED: dict[str, ExecutorFactory] = {"local": LocalExecutor, "durable": DurableExecutor}


def executor_factory(name: str) -> ExecutorFactory:
    """Return what makes the executor of this name. Raises `ConfigError` for an unknown name or a broken plugin."""
    if name in SHIPPED:
        return SHIPPED[name]
    found = {entry.name: entry for entry in entry_points(group=EXECUTORS)}
    if name not in found:
        known = ", ".join(sorted(SHIPPED.keys() | found.keys()))
        raise ConfigError(f"there is no executor {name!r}; known: {known}")
    try:
        factory: ExecutorFactory = found[name].load()
    except Exception as error:
        value = found[name].value
        raise ConfigError(
            f"the executor {name!r} ({value}) cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return factory
