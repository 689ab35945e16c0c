"""Validation errors by JSON Schema. jsonschema is loaded with the first check: the core imports without it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec


def value_problem(value: object, schema: Mapping[str, Any], *, formats: bool = False) -> str | None:
    """Return how a JSON value violates a JSON Schema, in one line; None if it does not.

    A schema of a third party (an MCP server) that is invalid, or refers to other documents, rejects nothing.
    `formats`: text must also match its `format` (date, email, uuid, ...).
    """
    validator = _validator(msgspec.json.encode(schema, order="sorted"), formats)
    try:
        first = next(iter(validator.iter_errors(value)), None)
    except RecursionError:
        return "it is nested too deeply, or its schema leads back to itself without end"
    except Exception:  # noqa: BLE001 - the library may fail in any way on an invalid schema
        return None
    return None if first is None else f"{first.message} (at {first.json_path})"


@lru_cache(maxsize=1)
def _formats() -> Any:
    """Return the formats that jsonschema knows by itself, plus two of the four that MCP's forms have."""
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

    from .schema_validators import linear_validator

    nothing_outside: SchemaRegistry = Registry()
    checker = _formats() if formats else None
    return linear_validator(msgspec.json.decode(schema), registry=nothing_outside, format_checker=checker)
