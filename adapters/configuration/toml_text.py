"""Write a table as TOML, as `tomllib` reads it back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...eventlog.errors import ConfigError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, Any]) -> str:
    """Return the table as TOML: plain values first, then tables with headers. Raises `ConfigError` for a null in it."""
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping) and value}
    plain = {key: value for key, value in table.items() if key not in tables}
    if path and (plain or not tables):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value, (*path, key))}"
    for key, value in tables.items():
        yield from _lines(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any, path: tuple[str, ...]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _long_text(value) if "\n" in value else _text(value)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(_value(each, path) for each in value)}]"
        case Mapping():
            inner = ", ".join(f"{_key(key)} = {_value(each, (*path, key))}" for key, each in value.items())
            return f"{{{inner}}}"
        case _:
            raise ConfigError(f"{'.'.join(path)} has a null, which TOML lacks: export it as JSON")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _long_text(text: str) -> str:
    """Return a text of several lines as such."""
    lines = "\n".join(_text(line)[1:-1] for line in text.split("\n"))
    return f'"""\n{lines}"""'
