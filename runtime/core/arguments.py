"""Checks of model output: tool arguments and final outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..ports.schema_problems import value_problem

NESTING_MAX = 100
"""The deepest nesting of JSON accepted from a model: any reader can handle it, however deep its own stack is."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments and null; or an empty object and the text if it is not a JSON object, or nested too deep.

    Empty text counts as no arguments: several models write that for a tool without parameters.
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
    """Return whether objects and lists in the JSON text are nested deeper than `most` levels."""
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
    """Return the executable arguments, and those that exist only because of `injected_tool_args`."""
    executable = {name: value for name, value in arguments.items() if name not in injected}
    return executable, {name: value for name, value in arguments.items() if name in injected}


def schema_problem(output: str, schema: Mapping[str, Any] | None) -> str | None:
    """Return how an output violates its JSON Schema, in one line; None if it does not, or without a schema."""
    if schema is None:
        return None
    if is_deeper(output, NESTING_MAX):
        return f"it is nested more than {NESTING_MAX} levels deep"
    try:
        value = msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"it is not JSON ({error})"
    return value_problem(value, schema)
