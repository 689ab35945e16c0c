"""Load the agent or registry that `MODULE:NAME` on a command line names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...runtime import Registry, Runtime
    from ...runtime.ports.executor import RunsIn
    from ...runtime.ports.runnable import Runnable


STORED = "stored:"
"""The prefix of a stored agent's name, where `MODULE:NAME` is accepted, too."""


def stored_registry(known: str | None) -> Registry:
    """Return the registry at `module:attribute`, with the tools of a stored agent; an empty one without a path."""
    from ...runtime import Registry

    return Registry() if known is None else Registry.load(known)


async def load_stored(runtime: Runtime, named: str) -> Runnable[Any]:
    """Return the stored agent `NAME`, or its version as `NAME@N`. Raises `AgentNotFound`, `ConfigError`."""
    from ...eventlog.errors import ConfigError

    name, at, number = named.partition("@")
    if at and not (number.isascii() and number.isdecimal()):
        raise ConfigError(f"{named!r}: a version is a number, as in stored:refunds@3")
    return await runtime.agents.load(name, int(number) if at else None)


def load_agent(path: str, name: str | None, known: str | None = None) -> tuple[Registry, Runnable[Any]]:
    """Return the agent at `module:attribute`, or from the registry there its only agent, or the one called `name`.

    The path may also be that of a TOML or JSON file, whose tools and agents are those of the registry at `known`.
    Raises `ConfigError`, which says what is wrong with the path, the module or the value.
    """
    from ...eventlog.errors import ConfigError
    from ...runtime import Registry

    if path.lower().endswith((".toml", ".json")):
        from .agent_files import read_runnable

        registry = Registry() if known is None else Registry.load(known)
        return registry, read_runnable(path, registry)
    if known is not None:
        raise ConfigError(f"a registry besides {path!r} is for a .toml or .json file; leave it out")
    registry = Registry.load(path)
    if name is not None:
        return registry, registry.agent(name)
    agents = list(registry.agents.values())
    if not agents:
        raise ConfigError(f"the registry {path!r} has no agents")
    if len(agents) != 1:
        known = ", ".join(registry.agents)
        raise ConfigError(f"{path!r} has {len(agents)} agents ({known}): choose one with --agent NAME")
    return registry, agents[0]


def load_registry(path: str) -> Registry:
    """Return the registry at `module:attribute`. Raises `ConfigError`, also for one without agents and tools."""
    from ...eventlog.errors import ConfigError
    from ...runtime import Registry

    registry = Registry.load(path)
    if not registry.agents and not registry.tools:  # tools alone are for stored agents
        raise ConfigError(f"the registry {path!r} has no agents: a worker would have nothing to do")
    return registry


def check_executor(name: str | None) -> None:
    """Refuse an executor that is not installed before doing anything else. Raises `typer.BadParameter`."""
    if name is None:
        return
    import typer

    from ...eventlog.errors import ConfigError
    from ...runtime.executors.installed import executor_factory

    try:
        executor_factory(name)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--executor") from None


def executor_for(runtime: Runtime, named: str | None, path: str | None) -> tuple[str, RunsIn]:
    """Return the executor that is to continue a run: the named one, else `local` if there is a `path`, else `durable`.

    Raises `typer.BadParameter` for an executor that drives in this process, but lacks a `path` to the registry.
    """
    import typer

    name = named or ("durable" if path is None else "local")
    runs_in = runtime.executor(name).runs_in
    if runs_in == "process" and path is None:
        raise typer.BadParameter(
            f"{name!r} drives it in this process: give MODULE:REGISTRY, too", param_hint="--executor"
        )
    return name, runs_in
