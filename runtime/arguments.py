"""What a model wrote, checked: tool arguments and final outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

NESTING_MAX = 100
"""How deep JSON of a model may be nested: no reader, however deep in its own stack, runs out of it."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def parse_arguments(text: str, nesting_max: int | None = NESTING_MAX) -> tuple[dict[str, Any], str | None]:
    """The arguments as an object and null, or an empty object and the text when it is no JSON object, or too deep.

    No text at all counts as no arguments: several models write that for a tool without parameters.
    """
    if not text.strip():
        return {}, None
    if nesting_max is not None and is_deeper(text, nesting_max):
        return {}, text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}, text
    return (value, None) if isinstance(value, dict) else ({}, text)


def is_deeper(text: str, most: int) -> bool:
    """Whether the JSON text holds more objects and lists within each other."""
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


def value_problem(value: object, schema: Mapping[str, Any], *, formats: bool = False) -> str | None:
    """What is wrong with a JSON value by a JSON Schema, in one line; None for nothing.

    A schema of somebody else's (an MCP server's) that is none, or leads outside, finds nothing wrong. `formats`: texts
    are held to their `format` (date, email, uuid, ...), too.
    """
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    validator = _validator(msgspec.json.encode(schema, order="sorted"), formats)
    try:
        first = next(iter(validator.iter_errors(value)), None)
    except (SchemaError, Unresolvable):
        return None
    except RecursionError:
        return "it is nested too deeply, or its schema leads back to itself without end"
    return None if first is None else f"{first.message} (at {first.json_path})"


@lru_cache(maxsize=1)
def _formats() -> Any:
    """The formats that jsonschema knows by itself, and two of the four that MCP's forms have."""
    from jsonschema import Draft202012Validator, FormatChecker
    from pydantic import AnyUrl, TypeAdapter

    known, url = FormatChecker(formats=()), TypeAdapter(AnyUrl)
    known.checkers = {**Draft202012Validator.FORMAT_CHECKER.checkers}

    @known.checks("date-time", raises=ValueError)
    def _is_moment(value: object) -> bool:
        return not isinstance(value, str) or bool(msgspec.convert(value, datetime))

    @known.checks("uri", raises=ValueError)
    def _is_uri(value: object) -> bool:
        return not isinstance(value, str) or bool(url.validate_python(value))

    return known


@lru_cache(maxsize=64)
def _validator(schema: bytes, formats: bool) -> Any:
    from referencing import Registry
    from referencing.jsonschema import SchemaRegistry

    from .json_schema import linear_validator

    nothing_outside: SchemaRegistry = Registry()
    checker = _formats() if formats else None
    return linear_validator(msgspec.json.decode(schema), registry=nothing_outside, format_checker=checker)
