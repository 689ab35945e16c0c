"""Compute the difference of two JSON values as a JSON Patch (RFC 6902)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def patch(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield, in order, the operations that turn `before` into `after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [key for key in before if key not in after]:
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key, value in after.items():
            if key in before:
                yield from patch(before[key], value, f"{path}/{_escaped(key)}")
            else:
                yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}
    elif isinstance(before, list) and isinstance(after, list):
        shared = min(len(before), len(after))
        for number in range(shared):
            yield from patch(before[number], after[number], f"{path}/{number}")
        for number in reversed(range(shared, len(before))):
            yield {"op": "remove", "path": f"{path}/{number}"}
        for value in after[shared:]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(key: str) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
