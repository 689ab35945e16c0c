"""Secrets of tool calls: `secret://NAME` stands in the log, and the value is there for the length of the call.

Names in arguments are resolved when an attempt begins, by the process that makes it. Whatever the attempt gives back
(result, error, events, memos, artifacts, the inputs of children) has the name again in the value's place.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from ..eventlog.events import Event
from ..eventlog.ports import Artifacts
from .toolport import ToolFailed

CHARACTERS_MIN: Final = 6
"""A shorter value would be found, and replaced, in too many places."""

_SCHEME = "secret://"
_REFERENCE = re.compile(r"secret://([A-Za-z_][A-Za-z0-9_]{0,63})")


class SecretSource(Protocol):
    """Where the value of a secret comes from, and which tools may have it."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools whose calls may use it."""
        ...

    async def read(self) -> str:
        """The value as it is now. Raises `ToolFailed`, without naming the value."""
        ...


class Veil:
    """The secrets of one attempt at a call of the tool `tool`: what it may have, and what nobody is to see."""

    def __init__(self, sources: Mapping[str, SecretSource], tool: str) -> None:
        mine = {name: source for name, source in sources.items() if tool in source.tools} if sources else {}
        self._sources: Mapping[str, SecretSource] = mine
        self._tool = tool
        self._values: dict[str, str] = {}
        self._hidden: dict[str, str] = {}

    @property
    def used(self) -> bool:
        """Whether the attempt has the value of a secret."""
        return bool(self._values)

    async def lift(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the values of all secrets that they name.

        Raises `ToolFailed` for a name that the tool may not use, and for a value that cannot be hidden.
        """
        named = _names(arguments) if _SCHEME in repr(arguments) else ()
        for name in dict.fromkeys(named):
            self._values[name] = await self._read(name)
        for name, value in sorted(self._values.items(), key=lambda each: -len(each[1])):
            self._hidden |= dict.fromkeys(_spellings(value), f"secret://{name}")
        return {key: self._lifted(value) for key, value in arguments.items()}

    def hide(self, value: Any) -> Any:
        """JSON builtins with names instead of values, in keys, too."""
        if not self._hidden:
            return value
        match value:
            case str():
                return self.hide_text(value)
            case list():
                return [self.hide(item) for item in value]
            case dict():
                return {self.hide_text(key): self.hide(item) for key, item in value.items()}
            case _:
                return value

    def hide_text(self, text: str) -> str:
        """The text with names instead of values."""
        for value, name in self._hidden.items():
            text = text.replace(value, name)
        return text

    def hide_bytes(self, data: bytes) -> bytes:
        """The bytes with names instead of values."""
        for value, name in self._hidden.items():
            data = data.replace(value.encode(), name.encode())
        return data

    def hide_event(self, event: Event) -> Event:
        """The event with names instead of values."""
        if not self._hidden:
            return event
        return msgspec.convert(self.hide(msgspec.to_builtins(event)), type(event))

    def over(self, artifacts: Artifacts) -> Artifacts:
        """The artifacts, into which values do not get."""
        return _VeiledArtifacts(self, artifacts) if self._sources else artifacts

    async def _read(self, name: str) -> str:
        if name not in self._sources:
            known = ", ".join(sorted(self._sources)) or "none"
            raise ToolFailed(f"the tool {self._tool!r} has no secret {name!r} (it has: {known})")
        value = await self._sources[name].read()
        if len(value) < CHARACTERS_MIN:
            raise ToolFailed(
                f"the secret {name!r} is shorter than {CHARACTERS_MIN} characters: it cannot be kept out of results"
            )
        return value

    def _lifted(self, value: Any) -> Any:
        match value:
            case str():
                return (
                    _REFERENCE.sub(lambda found: self._values[found[1]], value) if _SCHEME in value else value
                )
            case list():
                return [self._lifted(item) for item in value]
            case dict():
                return {key: self._lifted(item) for key, item in value.items()}
            case _:
                return value


class _VeiledArtifacts:
    def __init__(self, veil: Veil, artifacts: Artifacts) -> None:
        self._veil, self._artifacts = veil, artifacts

    async def put(self, data: bytes) -> str:
        return await self._artifacts.put(self._veil.hide_bytes(data))

    async def get(self, digest: str) -> bytes:
        return await self._artifacts.get(digest)


def _names(value: Any) -> list[str]:
    match value:
        case str():
            return _REFERENCE.findall(value) if _SCHEME in value else []
        case list():
            return [name for item in value for name in _names(item)]
        case Mapping():
            return [name for item in value.values() for name in _names(item)]
        case _:
            return []


def _spellings(value: str) -> list[str]:
    """The value as it is, and as it stands in JSON, in a Python literal and in a URL; the longest first."""
    plain = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
    return sorted({value, *plain, urllib.parse.quote(value, safe="")}, key=lambda each: -len(each))
