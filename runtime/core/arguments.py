"""What a model wrote, checked: tool arguments and final outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..ports.schema_problems import value_problem

NESTING_MAX = 100
"""How deep JSON of a model may be nested: no reader, however deep in its own stack, runs out of it."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments as an object and null, or an empty object and the text when it is no JSON object, or too deep.

    No text at all counts as no arguments: several models write that for a tool without parameters.
    """
    if not text.strip():
        return {}, None
    if is_deeper(text, NESTING_MAX):
        return {}, text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}, text
    return (value, None) if isinstance(value, dict) else ({}, text)


def is_deeper(text: str, most: int) -> bool:
    """Return whether the JSON text holds more objects and lists within each other."""
    if text.count("{") + text.count("[") <= most:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += {"{": 1, "[": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > most:
            return True
    return False


def split_arguments(
    arguments: Mapping[str, Any], injected: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The executable arguments, and those that only the configuration's `injected_tool_args` asked for."""
    executable = {name: value for name, value in arguments.items() if name not in injected}
    return executable, {name: value for name, value in arguments.items() if name in injected}


def schema_problem(output: str, schema: Mapping[str, Any] | None) -> str | None:
    """What is wrong with an output by its JSON Schema, in one line; None for nothing, or for no schema."""
    if schema is None:
        return None
    if is_deeper(output, NESTING_MAX):
        return f"it is nested more than {NESTING_MAX} levels deep"
    try:
        value = msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"it is not JSON ({error})"
    return value_problem(value, schema)
