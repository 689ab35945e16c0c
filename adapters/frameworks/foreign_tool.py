"""A tool of another framework: its schema, its function and its name stay what they were there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from ...eventlog.errors import ConfigError
from ...eventlog.events import ToolEffect, ToolSpec
from ...runtime.ports.json_values import NotJson, as_json
from ...runtime.ports.tools import unencodable

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
Run = Callable[[Mapping[str, Any], Any], Awaitable[Any]]
"""One attempt: the arguments and our `ToolContext`."""


class ForeignTool:
    """A tool as foldlog calls it (`foldlog.runtime.ports.tools.Tool`)."""

    def __init__(self, spec: ToolSpec, run: Run, *, wants_deps: bool) -> None:
        self.spec, self.wants_deps, self._run = spec, wants_deps, run

    async def call(self, arguments: Mapping[str, Any], context: Any) -> Any:
        """Run one attempt. Raises `ToolFailed`, and whatever the function raises."""
        result = await self._run(arguments, context)
        try:
            return as_json(result)
        except NotJson as error:
            raise unencodable(error) from None


class Reading:
    """Reads one agent of a framework. `effects` says what a second run of a tool would do, by the tool's name."""

    def __init__(self, name: str, effects: Mapping[str, ToolEffect]) -> None:
        self.name, self._effects, self._tools = name, effects, set[str]()

    def refuse(self, what: str) -> NoReturn:
        """Raise `ConfigError`: this has no equivalent here."""
        raise ConfigError(f"agent {self.name!r} cannot be taken over: {what}")

    def refuse_set(self, owner: Any, fields: Mapping[str, str]) -> None:
        """Refuse the first of these fields that is set, with the reason."""
        for field, why in fields.items():
            if getattr(owner, field, None):
                self.refuse(f"{field}: {why}")

    def tool(
        self, name: str, description: str, parameters: dict[str, Any], run: Run, **more: Any
    ) -> ForeignTool:
        """Make the tool; `timeout_s` and `wants_deps` as the framework has them."""
        self._tools.add(name)
        wants_deps = more.pop("wants_deps", False)
        effect = self._effects.get(name, "unsafe")
        given = {key: value for key, value in more.items() if value is not None}
        spec = ToolSpec(name=name, description=description, parameters=parameters, effect=effect, **given)
        return ForeignTool(spec, run, wants_deps=wants_deps)

    def end(self) -> None:
        """Raise `ConfigError` if `effects` names a tool that the agent does not have."""
        if unknown := sorted(self._effects.keys() - self._tools):
            raise ConfigError(f"effects: agent {self.name!r} has no tool {unknown[0]!r}")


def plain_name(name: str) -> str:
    """Return a name that the log takes: other characters than letters, digits, `_` and `-` become one `-`."""
    return _NO_NAME.sub("-", name).strip("-")[:64] or "agent"
