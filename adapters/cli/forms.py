"""The form of a question, for people: a line for each thing that is asked, and an answer to fill in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def form_lines(form: Mapping[str, Any]) -> Iterator[str]:
    """What is asked, one by one: name, type, whether it has to be there, what it may be, what it means."""
    required = form.get("required", ())
    for name, field in _fields(form).items():
        said = [_type(field), "required" if name in required else "optional"]
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


def _example(field: Mapping[str, Any]) -> Any:
    if "default" in field:
        return field["default"]
    if choices := _choices(field):
        return choices[0]
    return {"boolean": True, "integer": 0, "number": 0, "array": [], "object": {}}.get(
        field.get("type", ""), "..."
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
