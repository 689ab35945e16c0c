"""Load the configurations of agents from files and modules, and list every mistake in them."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ...eventlog.errors import AgentConfigError, ConfigError, ConfigProblem
from ...eventlog.files import read_bounded
from ...runtime import Agent, Registry
from ...runtime.agents.agent import with_approved_tools
from ...runtime.agents.config import config_digest
from ...runtime.agents.kinds import runnable_of_table
from ...runtime.agents.workflow.table import WorkflowTable
from ...runtime.ports.runnable import Runnable, all_members

_FILES = (".json", ".toml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    """The findings for one agent, swarm or loop. `agent` and `digest` are null if they are unknown."""

    path: str
    kind: str = "agent"
    agent: str | None = None
    digest: str | None = None
    problems: tuple[ConfigProblem, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the findings as JSON builtins."""
        problems = [problem._asdict() for problem in self.problems]
        return {
            "path": self.path,
            "kind": self.kind,
            "agent": self.agent,
            "digest": self.digest,
            "problems": problems,
        }


def check_path(path: str, registry: Registry | None) -> Iterator[Checked]:
    """Yield the findings for the agent in a TOML or JSON file, or for all agents at `module:attribute`.

    With a registry, also check that it has the agent's tools and providers. Agents at a module are checked against
    their own registry if none is given.
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


def read_runnable(path: str, registry: Registry) -> Runnable[Any]:
    """Return the agent, swarm, loop or workflow in a file, with the tools of a registry. Raises `ConfigError`."""
    hint = "" if registry.tools or registry.agents else " (name the registry of its tools with --registry)"
    try:
        return _of_data(_read(path), registry)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}{hint}") from None


def read_table(path: str) -> dict[str, Any]:
    """Return the table in a TOML or JSON file. Raises `ConfigError`."""
    try:
        return _read(path)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def tables_of(path: str) -> list[dict[str, Any]]:
    """Return the agents in a file: its one table, or those of its list `agents`. Raises `ConfigError`."""
    data = read_table(path)
    if set(data) != {"agents"}:
        return [data]
    tables = data["agents"]
    if not (isinstance(tables, list) and all(isinstance(table, dict) for table in tables)):
        raise ConfigError(f"{path}: agents: must be a list of tables")
    return tables


def text_of(tables: Sequence[Mapping[str, Any]], form: Literal["toml", "json"]) -> str:
    """Format agents as a file that `tables_of` reads. Raises `ConfigError` for values that TOML cannot express."""
    if form == "json":
        return (
            json.dumps(tables[0] if len(tables) == 1 else {"agents": tables}, indent=2, ensure_ascii=False)
            + "\n"
        )
    from ..configuration.toml_text import to_toml

    return to_toml(tables[0] if len(tables) == 1 else {"agents": list(tables)})


def write_text(file: Path, text: str) -> None:
    """Write a file, replacing an existing one. Raises `ConfigError`."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: it cannot be written: {error.strerror}") from None


def _of_data(data: Mapping[str, Any], registry: Registry | None) -> Runnable[Any]:
    """Return the runnable of a table, checked against a registry, if one is given. Raises `AgentConfigError`."""
    if data.get("kind") == "workflow" and "steps" in data:
        return WorkflowTable.from_config(data, registry)
    return runnable_of_table(data if registry is None else with_approved_tools(data, registry.tools))


def _check_data(path: str, data: Mapping[str, Any], registry: Registry | None) -> Iterator[Checked]:
    try:
        runnable = _of_data(data, registry)
    except AgentConfigError as error:
        name, kind = data.get("name"), data.get("kind", "agent")
        yield Checked(
            path=path,
            kind=kind if isinstance(kind, str) else "agent",
            agent=name if isinstance(name, str) else None,
            problems=error.problems,
        )
        return
    if isinstance(
        runnable, WorkflowTable
    ):  # the agents that it runs are in the registry, and checked on their own
        yield Checked(
            path=path, kind=runnable.kind, agent=runnable.name, digest=config_digest(runnable.to_config())
        )
        return
    yield from _check_members(path, runnable, registry)


def _check_members(path: str, runnable: Runnable[Any], registry: Registry | None) -> Iterator[Checked]:
    for member in all_members(runnable):
        if isinstance(member, Agent):
            yield _checked(path, member, registry)
        else:
            yield Checked(
                path=path, kind=member.kind, agent=member.name, digest=config_digest(member.to_config())
            )


def _checked(path: str, agent: Agent[Any], registry: Registry | None) -> Checked:
    problems = tuple(registry.problems(agent)) if registry is not None else ()
    return Checked(
        path=path, agent=agent.name, digest=config_digest(agent.config.to_config()), problems=problems
    )


def _read(path: str) -> dict[str, Any]:
    """Return the table in a file. Raises `ConfigError` if it cannot be read, with the reason."""
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
    except ValueError as error:  # raised by both parsers, and for bytes that are not UTF-8
        raise ConfigError(f"it is not {kind[1:].upper()}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError("expected a table with the agent's keys")
    return data


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises `ValueError` for duplicate keys, as TOML does; `json` would drop one."""
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise ValueError(f"duplicate key {twice!r}")
    return data
