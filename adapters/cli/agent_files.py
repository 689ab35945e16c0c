"""Configurations of agents from files and modules, and everything that is wrong with each."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...eventlog.errors import AgentConfigError, ConfigError, ConfigProblem
from ...eventlog.files import read_bounded
from ...runtime import Agent, Registry
from ...runtime.agents.agent import with_approved_tools
from ...runtime.agents.config import config_digest
from ...runtime.agents.kinds import runnable_of_table
from ...runtime.ports.runnable import Runnable, all_members

_FILES = (".json", ".toml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """What was found about one agent, swarm or loop. `agent` and `digest` are null where there is none to tell."""

    path: str
    kind: str = "agent"
    agent: str | None = None
    digest: str | None = None
    problems: tuple[ConfigProblem, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON builtins."""
        problems = [problem._asdict() for problem in self.problems]
        return {
            "path": self.path,
            "kind": self.kind,
            "agent": self.agent,
            "digest": self.digest,
            "problems": problems,
        }


def check_path(path: str, registry: Registry | None) -> Iterator[Checked]:
    """The findings about the agent of a TOML or JSON file, or about all agents at `module:attribute`.

    With a registry its tools and providers are looked for as well; what stands at a module is held to its own.
    """
    try:
        if path.lower().endswith(_FILES) or ":" not in path:
            yield from _check_data(path, _read(path), registry)
            return
        found = Registry.load(path)
    except AgentConfigError as error:
        yield Checked(path=path, problems=error.problems)
    except ConfigError as error:
        yield Checked(path=path, problems=(ConfigProblem("", str(error)),))
    else:
        for each in found.agents.values():
            yield from _check_members(path, each, registry or found)


def _check_data(path: str, data: Mapping[str, Any], registry: Registry | None) -> Iterator[Checked]:
    try:
        runnable = runnable_of_table(data if registry is None else with_approved_tools(data, registry.tools))
    except AgentConfigError as error:
        name = data.get("name")
        yield Checked(path=path, agent=name if isinstance(name, str) else None, problems=error.problems)
        return
    yield from _check_members(path, runnable, registry)


def _check_members(path: str, runnable: Runnable[Any], registry: Registry | None) -> Iterator[Checked]:
    for member in all_members(runnable):
        if isinstance(member, Agent):
            yield _checked(path, member, registry)
        else:
            yield Checked(path=path, kind=member.kind, agent=member.name, digest=_digest(member))


def _digest(runnable: Runnable[Any]) -> str | None:
    """Null for one whose instructions are functions: it has no stored form until it runs."""
    try:
        return config_digest(runnable.to_config())
    except AgentConfigError:
        return None


def _checked(path: str, agent: Agent[Any], registry: Registry | None) -> Checked:
    problems = tuple(registry.problems(agent)) if registry is not None else ()
    return Checked(
        path=path, agent=agent.name, digest=config_digest(agent.config.to_config()), problems=problems
    )


def _read(path: str) -> dict[str, Any]:
    """The table in a file. Raises `ConfigError` that says why it cannot be read."""
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in _FILES:
        raise ConfigError("give a .toml or .json file, or MODULE:NAME of an agent or a registry")
    try:
        text = read_bounded(file).decode("utf-8-sig")
        toml = kind == ".toml"
        data = tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=_distinct)
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    except ValueError as error:  # of either format, and of bytes that are no UTF-8
        raise ConfigError(f"it is no {kind[1:].upper()}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError("a table with the agent's keys is expected")
    return data


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; TOML knows no key that stands twice, and JSON would forget the first in silence."""
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise ValueError(f"the key {twice!r} stands twice")
    return data
