"""The JSON Schemas of users: their check, and the forms of them that providers take.

A pattern that RE2 cannot express (look-around, back-references) is rejected (`unsearchable`), and so is
`unevaluatedProperties` next to `patternProperties`: `linear_validator` cannot check them. jsonschema is loaded with the
first check, since it takes longer to import than the rest of the core.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from .json_values import WRAPPED, as_json
from .patterns import problem_of

_NOT_STRICT: Final = frozenset(
    {
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "prefixItems",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
    }
)
"""Keywords that strict modes of providers refuse."""
_SAYING: Final = frozenset({"type", "anyOf", "$ref", "enum", "const"})
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
DATA_KEYWORDS: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data, not schemas."""
NAMED_SCHEMAS: Final = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose values are schemas by name."""
UNEVALUATED: Final = "unevaluatedProperties"
BY_PATTERN: Final = "patternProperties"


def subschemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object in the place of a schema, not those in data or under a property's name."""
    if isinstance(schema, list):
        for item in schema:
            yield from subschemas(item)
    if not isinstance(schema, Mapping):
        return
    yield schema
    for keyword, value in schema.items():
        if keyword in NAMED_SCHEMAS and isinstance(value, Mapping):
            for subschema in value.values():
                yield from subschemas(subschema)
        elif keyword not in DATA_KEYWORDS:
            yield from subschemas(value)


def unsearchable(schema: Mapping[str, Any]) -> str | None:
    """Return the part of a schema that cannot be checked here; null if there is none."""
    found = list(subschemas(schema))
    for each in found:
        by_name = each.get(BY_PATTERN)
        for pattern in (each.get("pattern"), *(by_name if isinstance(by_name, Mapping) else ())):
            if isinstance(pattern, str) and (why := problem_of(pattern)) is not None:
                return f"the pattern {pattern!r} cannot be used: {why}"
    if any(UNEVALUATED in each for each in found) and any(BY_PATTERN in each for each in found):
        return f"{UNEVALUATED} cannot be used together with {BY_PATTERN}; use additionalProperties"
    return None


def as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema for a provider that wants an object: itself, or an object with it as its one property."""
    if schema.get("type") == "object":
        return dict(schema)
    inner = {key: value for key, value in schema.items() if key not in {"$defs", "$schema"}}
    defined = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        "additionalProperties": False,
        **defined,
    }


def as_strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema in the strict form of providers: objects are closed and have all of their properties.

    Whatever meets it meets the schema. Null for a schema that has no such form.
    """
    strict: dict[str, Any] = copy.deepcopy(dict(schema))
    found = [cast("dict[str, Any]", each) for each in subschemas(strict)]
    if any(not _NOT_STRICT.isdisjoint(each) or _is_open(each) for each in found):
        return None
    for each in found:
        each.pop("default", None)
        if each.get("type") == "object":
            each["additionalProperties"] = False
            each["required"] = list(each["properties"])
    return strict


def for_provider(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the schema of an output as a provider of objects takes it, and whether that is its strict form."""
    wanted = as_object(schema)
    strict = as_strict(wanted)
    return (wanted, False) if strict is None else (strict, True)


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Return whether it allows any properties that it does not name, or says nothing at all."""
    if schema.get("type") != "object":
        return _SAYING.isdisjoint(schema)
    return schema.get("additionalProperties", False) is not False or not schema.get("properties")


def check_output_schema(schema: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless it is a JSON Schema of draft 2020-12 whose references all stay within it."""
    if (dialect := schema.get("$schema", DRAFT)) not in (DRAFT, f"{DRAFT}#"):
        raise ValueError(f"$schema is {dialect!r}; only draft 2020-12 ({DRAFT}) is supported")
    import jsonschema
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    draft = jsonschema.Draft202012Validator
    try:  # its formats also reject invalid regular expressions
        draft.check_schema(schema, format_checker=draft.FORMAT_CHECKER)
    except jsonschema.SchemaError as error:
        raise ValueError(f"not a valid JSON Schema at {error.json_path}: {error.message}") from None
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise ValueError(f"the reference {reference!r} leaves the schema; put its target under $defs")
        try:
            resolver.lookup(reference)
        except (Unresolvable, LookupError, TypeError, ValueError):
            raise ValueError(f"the reference {reference!r} leads nowhere") from None
    if (problem := unsearchable(schema)) is not None:
        raise ValueError(problem)


def _references(schema: Any) -> Iterator[str]:
    """Yield every `$ref` and `$dynamicRef` in the place of a schema's keyword, not those in data."""
    for each in subschemas(schema):
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(each.get(keyword), str):
                yield each[keyword]


FORM_BYTES_MAX = 256 * 1024
"""The largest size of a schema for what a wait or a question takes, encoded."""


def given_schema(what: str, schema: object) -> dict[str, Any]:
    """Return the JSON Schema that a caller gives for what comes from outside. Raises `ValueError`."""
    if not isinstance(schema, Mapping):
        raise ValueError(f"{what} must be a JSON Schema, not {schema!r:.60}")  # noqa: TRY004 - one error for all
    try:
        form: dict[str, Any] = as_json(dict(schema))
        check_output_schema(form)
    except ValueError as error:  # NotJson is one
        raise ValueError(f"{what} must be a JSON Schema: {error}") from None
    if (size := len(msgspec.json.encode(form))) > FORM_BYTES_MAX:
        raise ValueError(f"{what} has {size:,} bytes, and must have at most {FORM_BYTES_MAX:,} bytes")
    return form


def given_form(schema: object) -> dict[str, Any]:
    """Return the JSON Schema of an object, which a person fills in. Raises `ValueError`."""
    form = given_schema("the form of a question", schema)
    if form.get("type", "object") != "object":
        raise ValueError(
            f"the form of a question must be a JSON Schema of an object, not of type {form['type']!r}"
        )
    return form
