"""Paths into JSON: `.a.b[0]["odd key"]`, as in flows, tables, hooks and schedules.

They are the singular queries of JSONPath (RFC 9535) without their `$`: one value, no wildcard and no filter.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

Path = tuple[str | int, ...]

STRING = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
INDEX = rf"\[(?:[0-9]{{1,9}}|{STRING})\]"
_PART = re.compile(rf"([A-Za-z_][\w-]*)|\[([0-9]+)\]|\[({STRING})\]", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Nowhere(Exception):
    """The path leads to no value."""


def parse_path(text: str) -> Path:
    """Return the keys and indexes of a path of which the form is known to be right. Raises `ValueError`."""
    parts: list[str | int] = []
    for key, index, quoted in _PART.findall(text):
        try:
            parts.append(key or (int(index) if index else str(msgspec.json.decode(quoted))))
        except msgspec.DecodeError:
            raise ValueError(f"{quoted} is not a JSON string") from None
    return tuple(parts)


def format_path(path: Path) -> str:
    """Return the path as it is written: `.a.b[0]["odd key"]`; `.` is the whole value."""
    parts = [_part(part) for part in path]
    return "".join(parts) if parts and parts[0].startswith(".") else f".{''.join(parts)}"


def value_at(value: Any, path: Path) -> Any:
    """Return the value at the path. Raises `Nowhere`."""
    for part in path:
        match value, part:
            case dict(), str() if part in value:
                value = value[part]
            case list(), int() if part < len(value):
                value = value[part]
            case _:
                raise Nowhere
    return value


def _part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _NAME.fullmatch(part) else f"[{msgspec.json.encode(part).decode()}]"
