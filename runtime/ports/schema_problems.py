"""What is wrong with a value by its JSON Schema. jsonschema is loaded when one is checked: the core does without."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec


def value_problem(value: object, schema: Mapping[str, Any], *, formats: bool = False) -> str | None:
    """What is wrong with a JSON value by a JSON Schema, in one line; None for nothing.

    A schema of somebody else's (an MCP server's) that is none, or leads outside, finds nothing wrong. `formats`: texts
    are held to their `format` (date, email, uuid, ...), too.
    """
    validator = _validator(msgspec.json.encode(schema, order="sorted"), formats)
    try:
        first = next(iter(validator.iter_errors(value)), None)
    except RecursionError:
        return "it is nested too deeply, or its schema leads back to itself without end"
    except Exception:  # noqa: BLE001 - over what is not a schema the library may stumble in any way
        return None
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
