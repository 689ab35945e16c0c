"""Show the form of a question: a line for each field, and an answer to fill in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "pattern": "matching {}",
}
_TEXTS = {
    "email": "name@example.com",
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "uri": "https://example.com",
}
"""Example texts by format."""


def form_lines(form: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each field: name, type, bounds, required or optional, default, description."""
    required = form.get("required", ())
    for name, field in _fields(form).items():
        said = [_type(field), *_bounds(field), "required" if name in required else "optional"]
        if "default" in field:
            said.append(f"default {_json(field['default'])}")
        about = " - ".join(str(field[key]) for key in ("title", "description") if field.get(key))
        yield f"{name}: {', '.join(said)}" + (f" ({about})" if about else "")


def answer_template(form: Mapping[str, Any]) -> str:
    """Return JSON with all required fields (all fields if none is required), to be filled in."""
    fields = _fields(form)
    asked = [name for name in fields if name in form.get("required", ())] or list(fields)
    return _json({name: _example(fields[name]) for name in asked})


def _fields(form: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = form.get("properties")
    found = properties.items() if isinstance(properties, Mapping) else ()
    return {name: field if isinstance(field, Mapping) else {} for name, field in found}


def _choices(field: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the choices with their titles, empty where there is none."""
    either = field.get("oneOf") or field.get("anyOf") or ()
    told = [each for each in either if isinstance(each, Mapping) and "const" in each]
    if told:
        return [(each["const"], str(each.get("title", ""))) for each in told]
    values, names = (list(field.get(key) or ()) for key in ("enum", "enumNames"))
    return [
        (value, str(name))
        for value, name in itertools.zip_longest(values, names[: len(values)], fillvalue="")
    ]


def _items(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a list's items."""
    items = field.get("items") if field.get("type") == "array" else None
    return items if isinstance(items, Mapping) else {}


def _listed(choices: list[tuple[Any, str]]) -> str:
    return ", ".join(_json(value) + (f" ({name})" if name else "") for value, name in choices)


def _type(field: Mapping[str, Any]) -> str:
    if choices := _choices(field):
        return f"one of {_listed(choices)}"
    if choices := _choices(_items(field)):
        return f"a list of {_listed(choices)}"
    kind = field.get("type", "anything")
    return str(kind) if not field.get("format") else f"{kind} ({field['format']})"


def _bounds(field: Mapping[str, Any]) -> Iterator[str]:
    for key, words in _BOUNDS.items():
        if key in field:
            yield words.format(_json(field[key]))


def _number(field: Mapping[str, Any]) -> int | float:
    """Return 0, or the bound nearest to it."""
    least, most = (field.get(key) for key in ("minimum", "maximum"))
    if isinstance(least, int | float) and least > 0:
        return least
    return most if isinstance(most, int | float) and most < 0 else 0


def _count(field: Mapping[str, Any]) -> int:
    """Return the minimum length of a list."""
    least = field.get("minItems")
    return least if isinstance(least, int) else 0


def _example(field: Mapping[str, Any]) -> Any:
    if "default" in field:
        return field["default"]
    if choices := _choices(field):
        return choices[0][0]
    examples: dict[str, Any] = {
        "boolean": True,
        "integer": _number(field),
        "number": _number(field),
        "array": [value for value, _ in _choices(_items(field))][: _count(field)],
        "object": {},
    }
    text = _TEXTS.get(field.get("format", ""), "...")
    return examples.get(field.get("type", ""), text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
