"""Executors by name: those that ship with foldlog, and those that other packages install."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ...eventlog.errors import ConfigError
from ..driving.host import Host
from ..ports.executor import EXECUTORS, Executor
from ..ports.plugins import installed, loaded
from ..ports.suggestions import unknown

ExecutorFactory = Callable[[Host], Executor]
"""The type of the entry points in the group `foldlog.executors`: a function of the process that drives."""


def executor_factory(name: str) -> ExecutorFactory:
    """Return the factory of the executor with this name. Raises `ConfigError` for an unknown name or broken plugin."""
    found = installed(EXECUTORS)
    if name not in found:
        raise ConfigError(unknown("executor", name, found))
    return cast("ExecutorFactory", loaded(found[name]))
