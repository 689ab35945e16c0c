"""A tool of another framework, which keeps its name, schema and function."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

from ...eventlog.errors import ConfigError
from ...eventlog.events import ToolEffect, ToolSpec
from ...runtime.agents.agent import AgentFields
from ...runtime.ports.files import is_content
from ...runtime.ports.json_values import NotJson, as_json
from ...runtime.ports.settings import EFFORTS, as_table
from ...runtime.ports.tools import unencodable
from ..models.endpoint import OPENAI_URL, Endpoint

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
Run = Callable[[Mapping[str, Any], Any], Awaitable[Any]]
"""One attempt: the arguments and our `ToolContext`."""


class ForeignTool:
    """Adapts a tool of another framework to `foldlog.runtime.ports.tools.Tool`."""

    def __init__(self, spec: ToolSpec, run: Run, *, wants_deps: bool) -> None:
        self.spec, self.wants_deps, self._run = spec, wants_deps, run

    async def call(self, arguments: Mapping[str, Any], context: Any) -> Any:
        """Run one attempt. Raises `ToolFailed`, and whatever the function raises."""
        result = await self._run(arguments, context)
        if is_content(result):
            return result
        try:
            return as_json(result)
        except NotJson as error:
            raise unencodable(error) from None


class Reading:
    """The conversion of one agent. `effects` declares the effect of each tool, by name; others are `unsafe`."""

    def __init__(self, name: str, effects: Mapping[str, ToolEffect]) -> None:
        self.name, self._effects, self._tools = name, effects, set[str]()

    def refuse(self, what: str) -> NoReturn:
        """Raise `ConfigError`, which says what has no equivalent in foldlog."""
        raise ConfigError(f"agent {self.name!r} cannot be taken over: {what}")

    def refuse_set(self, owner: Any, fields: Mapping[str, str]) -> None:
        """Raise `ConfigError` for the first of these fields that is set; `fields` maps each to the reason."""
        for field, why in fields.items():
            if getattr(owner, field, None):
                self.refuse(f"{field.lstrip('_')}: {why}")

    def tool(
        self,
        name: str,
        description: str,
        parameters: dict[str, Any],
        run: Run,
        *,
        timeout_s: float | None,
        wants_deps: bool = False,
    ) -> ForeignTool:
        """Build the tool from its parts in the framework, with its declared effect."""
        self._tools.add(name)
        effect = self._effects.get(name, "unsafe")
        spec = ToolSpec(
            name=name, description=description, parameters=parameters, effect=effect, timeout_s=timeout_s
        )
        return ForeignTool(spec, run, wants_deps=wants_deps)

    def settings(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return the settings unchanged. Raises `ConfigError` for an unknown reasoning effort."""
        effort = found.get("reasoning")
        if isinstance(effort, str) and effort not in EFFORTS:
            self.refuse(f"reasoning {effort!r} is not a level here; they are {', '.join(EFFORTS)}")
        return found

    def end(self) -> None:
        """Raise `ConfigError` if `effects` names a tool that the agent does not have."""
        if unknown := sorted(self._effects.keys() - self._tools):
            raise ConfigError(f"effects: agent {self.name!r} has no tool {unknown[0]!r}")


def merged(taken: AgentFields, fields: AgentFields) -> AgentFields:
    """Merge the converted fields with those of the caller, which win; settings are merged key by key."""
    whole: dict[str, Any] = {**taken, **fields}
    both = taken.get("settings"), fields.get("settings")
    if both[0] is not None and both[1] is not None:
        whole["settings"] = {**as_table(both[0]), **as_table(both[1])}
    return cast("AgentFields", whole)


@contextmanager
def known_version(distribution: str, known: str) -> Iterator[None]:
    """Turn errors from an unknown version's internals into a `ConfigError` that names the known versions."""
    try:
        yield
    except (AttributeError, ImportError) as error:
        raise ConfigError(
            f"agents of {distribution} {version(distribution)} cannot be taken over ({error}); "
            f"known versions are {known}"
        ) from error


def openai_servers() -> tuple[str, str]:
    """Return OpenAI's address, and the one that `openai:` and `openai-responses:` are configured to call."""
    return OPENAI_URL, Endpoint().url


def is_elsewhere(address: str, *known: str) -> bool:
    """Return whether `address` is on none of the known servers; false if there is nothing to compare."""
    servers = {urlsplit(each).netloc for each in known if each}
    return bool(address and servers) and urlsplit(address).netloc not in servers


def plain_name(name: str) -> str:
    """Return a valid agent name: each run of characters other than letters, digits, `_` and `-` becomes one `-`."""
    return _NO_NAME.sub("-", name).strip("-")[:64] or "agent"
