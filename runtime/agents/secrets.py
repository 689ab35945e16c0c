"""Secrets of tool calls: the log holds `secret://NAME`, and the value is only there while the call runs.

Names in arguments are resolved when an attempt begins, by the process that runs it. In everything that the attempt
returns (result, error, events, memos, artifacts, the inputs of children) the value is replaced by the name again. So it
is in log records written meanwhile in this process: the libraries that tools are built on log what they send.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import traceback
import urllib.parse
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol

import msgspec

from ...eventlog.events import Event
from ...eventlog.ports import FamilyArtifacts
from ..ports.tools import ToolFailed

CHARACTERS_MIN: Final = 6
"""A shorter value would be found, and replaced, in too many places."""

FORMS_MAX: Final = 3
"""The depth to which nested encodings of a value are found: a text in a JSON text in an error, say."""

_SCHEME = "secret://"
_REFERENCE = re.compile(r"secret://([A-Za-z_][A-Za-z0-9_]{0,63})")


class SecretSource(Protocol):
    """The source of a secret's value, and the tools that may use it."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools whose calls may use it."""
        ...

    async def read(self) -> str:
        """Return the current value. Raises `ToolFailed`, without naming the value."""
        ...


class Veil:
    """The secrets of one attempt at a call of the tool `tool`: those it may use, and the values to hide."""

    at_work: ClassVar[tuple[weakref.ref[Veil], ...]] = ()
    """The attempts in this process that have a value; replaced as a whole, because threads read it."""

    def __init__(self, sources: Mapping[str, SecretSource], tool: str) -> None:
        mine = {name: source for name, source in sources.items() if tool in source.tools} if sources else {}
        self._sources: Mapping[str, SecretSource] = mine
        self._tool = tool
        self._values: dict[str, str] = {}
        self._hidden: dict[str, str] = {}

    @property
    def used(self) -> bool:
        """Return whether the attempt has the value of a secret."""
        return bool(self._values)

    async def lift(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the values of all secrets that they name.

        Raises `ToolFailed` for a name that the tool may not use, and for a value that cannot be hidden.
        """
        named = _names(arguments) if _SCHEME in repr(arguments) else ()
        for name in dict.fromkeys(named):
            self._values[name] = await self._read(name)
        found = {
            spelling: f"secret://{name}"
            for name, value in self._values.items()
            for spelling in _spellings(value)
        }
        self._hidden = dict(sorted(found.items(), key=lambda each: -len(each[0])))
        if self._hidden:
            Veil.at_work = (*(each for each in Veil.at_work if each() is not None), weakref.ref(self))
            _veil_logs()
        return {key: self._lifted(value) for key, value in arguments.items()}

    def hide(self, value: Any) -> Any:
        """Return JSON builtins with names instead of values, also in keys. A number that shows a value becomes text."""
        if not self._hidden:
            return value
        match value:
            case str():
                return self.hide_text(value)
            case bool():
                return value
            case int() | float():
                hidden = self.hide_text(repr(value))
                return value if hidden == repr(value) else hidden
            case list():
                return [self.hide(item) for item in value]
            case dict():
                return {self.hide_text(key): self.hide(item) for key, item in value.items()}
            case _:
                return value

    def hide_text(self, text: str) -> str:
        """Return the text with names instead of values."""
        for value, name in self._hidden.items():
            text = text.replace(value, name)
        return text

    def hide_bytes(self, data: bytes) -> bytes:
        """Return the bytes with names instead of values."""
        for value, name in self._hidden.items():
            data = data.replace(value.encode(), name.encode())
        return data

    def hide_record(self, record: logging.LogRecord) -> None:
        """Replace values by names in a log record, and in its traceback."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - logging would write it to stderr, with its arguments
            message = f"{record.msg!r} with {record.args!r}"
        if (hidden := self.hide_text(message)) != message:
            record.msg, record.args = hidden, ()
        if record.exc_info and record.exc_info[0] is not None:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            if (hidden := self.hide_text(text)) != text:
                record.exc_info, record.exc_text = None, hidden

    def hide_event(self, event: Event) -> Event:
        """Return the event with names instead of values."""
        if not self._hidden:
            return event
        plain = msgspec.to_builtins(event)
        try:
            return msgspec.convert(self.hide(plain), type(event))
        except msgspec.ValidationError:  # a field that only accepts a number
            return msgspec.convert(self.hide(self._without_numbers(plain)), type(event))

    def _without_numbers(self, value: Any) -> Any:
        """Return JSON builtins with 0 for each number that shows a value."""
        match value:
            case list():
                return [self._without_numbers(item) for item in value]
            case dict():
                return {key: self._without_numbers(item) for key, item in value.items()}
            case _:
                return 0 if isinstance(value, int | float) and self.hide(value) is not value else value

    def over(self, artifacts: FamilyArtifacts) -> FamilyArtifacts:
        """Return the artifact store, wrapped so that values are not stored."""
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


class _VeiledRecords:
    """Makes log records as before, with names instead of the values that attempts have at the time."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **fields: Any) -> logging.LogRecord:
        record = self._make(*args, **fields)
        for each in Veil.at_work:
            veil = each()
            if veil is not None:
                veil.hide_record(record)
        return record


def _veil_logs() -> None:
    """Hide values from all log handlers of the process, once the first value was read."""
    make = logging.getLogRecordFactory()
    if not isinstance(make, _VeiledRecords):
        logging.setLogRecordFactory(_VeiledRecords(make))


class _VeiledArtifacts:
    def __init__(self, veil: Veil, artifacts: FamilyArtifacts) -> None:
        self._veil, self._artifacts = veil, artifacts

    async def put(self, data: bytes, digest: str = "") -> str:
        return await self._artifacts.put(self._veil.hide_bytes(data), digest)

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


_FORMS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr("\"'" + text)[4:-1],  # in a text that has both quotes
    lambda text: ascii(text)[1:-1],
    lambda text: repr(text.encode())[2:-1],
    html.escape,
    lambda text: html.escape(text, quote=False),
    lambda text: urllib.parse.quote(text, safe=""),
    urllib.parse.quote,
    urllib.parse.quote_plus,
)
"""The ways in which our code, and the libraries under it, encode a text within another."""


def _spellings(value: str) -> set[str]:
    """Return the value, and each of its lines that is long enough, in all encodings; and the value within base64."""
    lines = (line.strip() for line in value.splitlines())
    found = {value, *(line for line in lines if len(line) >= CHARACTERS_MIN)}
    fresh = found
    for _ in range(FORMS_MAX):
        fresh = {form(text) for form in _FORMS for text in fresh} - found
        found = found | fresh
    return found | {form for core in _in_base64(value.encode()) for form in (core, _url_safe(core))}


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield the part of these bytes' base64 that does not depend on the bytes around them."""
    for before in range(3):
        written = base64.b64encode(bytes(before) + data).decode()
        core = written[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        if len(core) >= CHARACTERS_MIN:
            yield core


def _url_safe(core: str) -> str:
    return core.replace("+", "-").replace("/", "_")
