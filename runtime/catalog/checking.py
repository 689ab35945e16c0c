"""The check of a stored agent before it is saved: its shape, and every name in it against what processes have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...eventlog.errors import AgentConfigError, ConfigProblem
from ...eventlog.ports import Offer, Presence
from ..agents.agent import Agent
from ..agents.config import MODEL, AgentConfig
from ..ports.suggestions import near, nearest

if TYPE_CHECKING:
    from ..agents.registry import Registry

_SECRET = re.compile(r"secret://([A-Za-z_][A-Za-z0-9_]{0,63})")
_MODELS = "model", "planning_model", "fallback_models"
_ONLY_AGENTS = (
    "kind: only agents are stored, not a {kind!s:.40}: keep it in the code of workers, or as a file, "
    "which `foldlog run FILE` takes"
)
_FUNCTIONS = {
    "instructions_function": "write the instructions themselves, in `instructions`",
    "output_validators": "check the output by `output_schema`",
}


class Source(NamedTuple):
    """A process that may run stored agents, by name, with what it has."""

    name: str
    offer: Offer


def offer_of(registry: Registry) -> Offer:
    """Return what a process with this registry has for stored agents. Raises `ConfigError` for wrong providers."""
    return Offer(
        tools=tuple(sorted(registry.offered_tools)),
        providers=tuple(sorted(registry.providers)),
        secrets=tuple(sorted(registry.secrets)),
        mcp_servers=dict(registry.mcp_servers),
        agents=tuple(sorted(registry.agents)),
    )


def sources(present: Iterable[Presence], registry: Registry) -> list[Source]:
    """Return the workers that run stored agents; without any, this process, if it has agents or tools of its own.

    A worker that drains is none of them: it takes no run of the agent that is checked.
    """
    found = [
        Source(each.worker, each.offer) for each in present if each.offer is not None and not each.draining
    ]
    if not found and (registry.agents or registry.tools):
        return [Source("this process", offer_of(registry))]
    return found


def completed(data: Mapping[str, Any], known: Sequence[Source]) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """Return the table with the entries of the workers' MCP servers, and all problems of it, each with its key.

    An empty entry takes the one that workers have. The table is not valid if there are problems.
    """
    kind = data.get("kind", "agent")
    if kind != "agent":
        return dict(data), [ConfigProblem("kind", _ONLY_AGENTS.format(kind=kind))]
    table = {key: value for key, value in data.items() if key != "kind"}
    servers, problems = _servers(table.get("mcp_servers"), known)
    if servers is not None:
        table["mcp_servers"] = servers
    problems = [*_shape(table), *problems, *_functions(table)]
    return table, problems + _names(table, known)


def _shape(table: dict[str, Any]) -> list[ConfigProblem]:
    """Return the problems of the table by itself; those of its right keys also if others are wrong."""
    found = _invalid(table)
    wrong = {problem.key.partition(".")[0] for problem in found}
    rest = {key: value for key, value in table.items() if key not in wrong}
    if found and wrong:
        more = _invalid({"name": "agent", **rest})
        found += [problem for problem in more if problem.key.partition(".")[0] not in wrong]
    return found


def _invalid(table: Mapping[str, Any]) -> list[ConfigProblem]:
    try:
        AgentConfig.from_config(table)
        Agent.from_config(table)
    except AgentConfigError as error:
        return list(error.problems)
    return []


def _functions(table: Mapping[str, Any]) -> list[ConfigProblem]:
    return [
        ConfigProblem(key, f"{key}: a stored agent has no functions; {remedy}")
        for key, remedy in _FUNCTIONS.items()
        if table.get(key)
    ]


def _servers(given: object, known: Sequence[Source]) -> tuple[dict[str, Any] | None, list[ConfigProblem]]:
    """Return the entries with empty ones filled in, without those that no process has; null if it is not a table."""
    if not isinstance(given, Mapping):
        return None, []
    found: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    offered: dict[str, list[dict[str, Any]]] = {}
    for source in known:
        for name, entries in source.offer.mcp_servers.items():
            offered.setdefault(name, []).extend(
                entry for entry in entries if entry not in offered.get(name, [])
            )
    for name, entry in given.items():
        key = f"mcp_servers.{name}"
        entries = offered.get(name, [])
        if not entries:
            problems.append(
                ConfigProblem(
                    key,
                    f"{key}: no worker has an MCP server {name!r}{_hint(name, offered, known)}",
                    near(name, offered),
                )
            )
        elif entry == {} and len(entries) > 1:
            problems.append(
                ConfigProblem(
                    key, f"{key}: workers have {len(entries)} different servers of this name; write out which"
                )
            )
        elif entry != {} and entry not in entries:
            problems.append(
                ConfigProblem(
                    key, f"{key}: it differs from what workers have; leave it empty ({{}}) to take theirs"
                )
            )
        else:
            found[name] = entry or entries[0]
    return found, problems


class _Named(NamedTuple):
    """A name in a table: its key, the kind of what it names, and the part of an offer that may have it."""

    key: str
    kind: str
    name: str
    part: Literal["tools", "providers", "secrets"]

    def is_in(self, offer: Offer) -> bool:
        names: tuple[str, ...] = getattr(offer, self.part)
        return self.name in names


def _named(table: Mapping[str, Any]) -> list[_Named]:
    return [
        *(_Named("tools", "tool", name, "tools") for name in _texts(table.get("tools"))),
        *(
            _Named(key, "model provider", model.partition(":")[0], "providers")
            for key in _MODELS
            for model in _models(table, key)
        ),
        *(_Named(key, "secret", name, "secrets") for key, name in _secrets(table)),
    ]


def fits(config: Mapping[str, Any], offer: Offer) -> bool:
    """Return whether a process with this offer has all that a stored agent names."""
    return all(each.is_in(offer) for each in _named(config))


def _names(table: Mapping[str, Any], known: Sequence[Source]) -> list[ConfigProblem]:
    """Return a problem for each name that no process has, and one if no single process has all of them."""
    named, found = _named(table), _taken(table.get("name"), known)
    for each in named:
        have = {name for source in known for name in getattr(source.offer, each.part)}
        if each.name not in have:
            message = f"{each.key}: no worker has a {each.kind} {each.name!r}{_hint(each.name, have, known)}"
            found.append(ConfigProblem(each.key, message, near(each.name, have)))
    if not found and known and not any(fits(table, source.offer) for source in known):
        lacks = "; ".join(f"{source.name} lacks {_lacking(named, source.offer)}" for source in known)
        found.append(ConfigProblem("", f"no one worker has all that the agent names: {lacks}"))
    return found


def _taken(name: object, known: Sequence[Source]) -> list[ConfigProblem]:
    """Return a problem if the name is that of an agent in code."""
    holder = next((source.name for source in known if name in source.offer.agents), None)
    if holder is None:
        return []
    return [ConfigProblem("name", f"name: {name!r} is an agent in the code of {holder}; choose another name")]


def _lacking(named: Iterable[_Named], offer: Offer) -> str:
    return ", ".join(sorted({each.name for each in named if not each.is_in(offer)}))


def _hint(name: str, have: Iterable[str], known: Sequence[Source]) -> str:
    return nearest(name, sorted(have)) if known else "; no worker is present that could say what there is"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, list | tuple | set | frozenset):
        yield from (each for each in value if isinstance(each, str))


def _models(table: Mapping[str, Any], key: str) -> Iterator[str]:
    value = table.get(key, MODEL if key == "model" else None)
    texts = [value] if isinstance(value, str) else _texts(value)
    yield from (each for each in texts if ":" in each)


def _secrets(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the secrets that a text in the table names, each with the key of its text."""
    match value:
        case str():
            yield from ((key, found) for found in dict.fromkeys(_SECRET.findall(value)))
        case Mapping():
            for name, each in value.items():
                yield from _secrets(each, f"{key}.{name}" if key else str(name))
        case list() | tuple():
            for each in value:
                yield from _secrets(each, key)
        case _:
            return
