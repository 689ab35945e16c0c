"""The form of a question, for people: a line for each thing that is asked, and an answer to fill in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_TEXTS = {"email": "name@example.com", "date": "2026-01-31", "uri": "https://example.com"}
"""Texts that fit their format."""


def form_lines(form: Mapping[str, Any]) -> Iterator[str]:
    """What is asked, one by one: name, type, whether it has to be there, what it may be, what it means."""
    required = form.get("required", ())
    for name, field in _fields(form).items():
        said = [_type(field), *_bounds(field), "required" if name in required else "optional"]
        if "default" in field:
            said.append(f"default {_json(field['default'])}")
        about = " - ".join(str(field[key]) for key in ("title", "description") if field.get(key))
        yield f"{name}: {', '.join(said)}" + (f" ({about})" if about else "")


def answer_template(form: Mapping[str, Any]) -> str:
    """JSON with all that has to be there, to be filled in."""
    fields = _fields(form)
    asked = [name for name in fields if name in form.get("required", ())] or list(fields)
    return _json({name: _example(fields[name]) for name in asked})


def _fields(form: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = form.get("properties")
    found = properties.items() if isinstance(properties, Mapping) else ()
    return {name: field if isinstance(field, Mapping) else {} for name, field in found}


def _choices(field: Mapping[str, Any]) -> list[Any]:
    titled = [
        each["const"] for each in field.get("oneOf", ()) if isinstance(each, Mapping) and "const" in each
    ]
    return titled or list(field.get("enum", ()))


def _type(field: Mapping[str, Any]) -> str:
    if choices := _choices(field):
        return "one of " + ", ".join(map(_json, choices))
    kind = field.get("type", "anything")
    return str(kind) if not field.get("format") else f"{kind} ({field['format']})"


def _bounds(field: Mapping[str, Any]) -> Iterator[str]:
    for key, words in _BOUNDS.items():
        if key in field:
            yield f"{words} {_json(field[key])}"


def _number(field: Mapping[str, Any]) -> int | float:
    """0, or the bound that is nearest to it."""
    least, most = (field.get(key) for key in ("minimum", "maximum"))
    if isinstance(least, int | float) and least > 0:
        return least
    return most if isinstance(most, int | float) and most < 0 else 0


def _example(field: Mapping[str, Any]) -> Any:
    if "default" in field:
        return field["default"]
    if choices := _choices(field):
        return choices[0]
    examples: dict[str, Any] = {
        "boolean": True,
        "integer": _number(field),
        "number": _number(field),
        "array": [],
        "object": {},
    }
    text = _TEXTS.get(field.get("format", ""), "...")
    return examples.get(field.get("type", ""), text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
