"""Validators of JSON Schemas in time linear in the size of the value.

jsonschema searches for a `pattern` with Python's engine, which takes exponential time for expressions like `(a+)+$` and
blocks the worker meanwhile. Here RE2 searches. A pattern that RE2 cannot express is ignored, and so is
`unevaluatedProperties` next to `patternProperties`, whose search in jsonschema cannot be replaced: a schema of our user
with one of them is rejected before (`unsearchable`), and one of a third party is the third party's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from .json_schema import BY_PATTERN, UNEVALUATED, subschemas
from .patterns import is_found, problem_of


def linear_validator(
    schema: Any, *, default: Any = jsonschema.Draft202012Validator, **options: Any
) -> Validator:
    """Return a validator of the schema's dialect, else of `default`, that searches for patterns in linear time."""
    base = validator_for(schema, default=default)
    has_patterns = any(BY_PATTERN in each for each in subschemas(schema))
    return cast("Validator", _linear(base, has_patterns)(schema, **options))


@lru_cache(maxsize=16)
def _linear(base: Any, has_patterns: bool) -> Any:
    ours: dict[str, Any] = {
        "pattern": _pattern,
        BY_PATTERN: _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    made: Any = extend  # it has no types
    return made(base, ours | ({UNEVALUATED: _nothing} if has_patterns else {}))


def _is_found(pattern: Any, text: str) -> bool:
    """Return whether the pattern is found, or cannot be searched for."""
    try:
        return is_found(pattern, text)
    except (ValueError, AttributeError):
        return True


def _nothing(*_: Any) -> Iterator[jsonschema.ValidationError]:
    yield from ()


def _pattern(validator: Any, pattern: Any, instance: Any, _: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(instance, "string") and not _is_found(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[jsonschema.ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        if problem_of(pattern) is None:
            for name, value in instance.items():
                if is_found(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    patterns = schema.get(BY_PATTERN, {})
    known = schema.get("properties", {})
    extras = [
        name for name in instance if name not in known and not any(_is_found(each, name) for each in patterns)
    ]
    if validator.is_type(wanted, "object"):
        for extra in extras:
            yield from validator.descend(instance[extra], wanted, path=extra)
    elif not wanted and extras:
        named = ", ".join(map(repr, sorted(extras, key=str)))
        if patterns:
            verb = "does" if len(extras) == 1 else "do"
            searched = ", ".join(map(repr, sorted(patterns)))
            yield jsonschema.ValidationError(f"{named} {verb} not match any of the regexes: {searched}")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield jsonschema.ValidationError(
                f"Additional properties are not allowed ({named} {verb} unexpected)"
            )
