"""A Hypothesis strategy for values that are valid for a JSON Schema, as tools have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

DEPTH_MAX = 4
"""The depth below which optional parts are omitted and lists are as short as possible, for recursive schemas."""
_ITEMS_MORE = 3
_NUMBERS = 2**31
_WORDS = st.sampled_from(["one", "two", "three", "Oslo", "a b"])

Schema = Mapping[str, Any]


def fitting(schema: Schema) -> st.SearchStrategy[Any]:
    """Draw valid values; keywords that the strategy does not know are satisfied by drawing again."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(dict(schema))
    return _Drawing(schema).of(schema, 0).filter(validator.is_valid)


class _Drawing:
    """Strategies for the parts of one schema; resolves its references."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def of(self, schema: Any, depth: int) -> st.SearchStrategy[Any]:
        if not isinstance(schema, Mapping):  # true: anything
            return _WORDS
        if "const" in schema or "enum" in schema:
            return st.sampled_from(list(schema.get("enum", [schema.get("const")])))
        if isinstance(schema.get("$ref"), str):
            return st.deferred(
                lambda: self.of({**self._resolved(schema["$ref"]), **_besides(schema)}, depth + 1)
            )
        for several in ("anyOf", "oneOf"):
            if several in schema:
                rest = {key: value for key, value in schema.items() if key != several}
                chosen = sorted(schema[several], key=_is_null)[: 1 if depth > DEPTH_MAX else None]
                return st.one_of([self.of(_merged(rest, each), depth + 1) for each in chosen])
        if "allOf" in schema:
            whole: Schema = {key: value for key, value in schema.items() if key != "allOf"}
            for each in schema["allOf"]:
                whole = _merged(whole, self._resolved(each["$ref"]) if "$ref" in each else each)
            return self.of(whole, depth + 1)
        types = schema.get("type", _implied_type(schema))
        if isinstance(types, list):
            return st.one_of([self._typed({**schema, "type": each}, each, depth) for each in types])
        return self._typed(schema, types, depth)

    def _typed(self, schema: Schema, name: str, depth: int) -> st.SearchStrategy[Any]:
        match name:
            case "object":
                return self._objects(schema, depth)
            case "array":
                return self._lists(schema, depth)
            case "integer":
                return _integers(schema)
            case "number":
                return _integers(schema) | _floats(schema)
            case "boolean":
                return st.booleans()
            case "null":
                return st.none()
            case _:
                return _strings(schema)

    def _objects(self, schema: Schema, depth: int) -> st.SearchStrategy[dict[str, Any]]:
        properties, required = schema.get("properties", {}), list(schema.get("required", ()))
        needed = {key: self.of(properties.get(key, True), depth + 1) for key in required}
        if depth > DEPTH_MAX:
            return st.fixed_dictionaries(needed)
        others = {key: self.of(each, depth + 1) for key, each in properties.items() if key not in needed}
        drawn: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(needed, optional=others)
        more = schema.get("additionalProperties", True)
        if properties or more is False:
            return drawn
        least = schema.get("minProperties", 0)
        named = st.dictionaries(_WORDS, self.of(more, depth + 1), min_size=least, max_size=least + 2)
        return st.builds(lambda free, own: {**free, **own}, named, drawn)

    def _lists(self, schema: Schema, depth: int) -> st.SearchStrategy[list[Any]]:
        least = schema.get("minItems", 0)
        most = (
            least
            if depth > DEPTH_MAX
            else min(schema.get("maxItems", least + _ITEMS_MORE), least + _ITEMS_MORE)
        )
        first = [self.of(each, depth + 1) for each in schema.get("prefixItems", ())]
        if first:
            return st.tuples(*first).map(list)
        items = self.of(schema.get("items", True), depth + 1)
        unique = repr if schema.get("uniqueItems") else None
        return st.lists(items, min_size=least, max_size=most, unique_by=unique)

    def _resolved(self, ref: str) -> Schema:
        found: Any = self._root
        for part in ref.removeprefix("#").strip("/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")] if part else found
        return found if isinstance(found, Mapping) else {}


def _besides(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in {"$ref", "$defs"}}


def _merged(one: Schema, other: Any) -> Schema:
    """Return a schema for both at once, as far as keywords can express it."""
    if not isinstance(other, Mapping):
        return one
    whole = {**one, **other}
    for key, join in (("properties", dict), ("required", list)):
        if key in one and key in other:
            whole[key] = {**one[key], **other[key]} if join is dict else [*one[key], *other[key]]
    return whole


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _implied_type(schema: Schema) -> str:
    if {"properties", "required", "additionalProperties"} & schema.keys():
        return "object"
    return "array" if {"items", "prefixItems", "minItems"} & schema.keys() else "string"


def _integers(schema: Schema) -> st.SearchStrategy[int]:
    step = schema.get("multipleOf", 1)
    step = step if isinstance(step, int) else 1
    least = schema.get("minimum", schema.get("exclusiveMinimum", -_NUMBERS - 1) + 1)
    most = schema.get("maximum", schema.get("exclusiveMaximum", _NUMBERS + 1) - 1)
    first, last = int(-(-least // step)), int(most // step)
    return st.integers(first, last).map(lambda value: value * step) if first <= last else st.nothing()


def _floats(schema: Schema) -> st.SearchStrategy[float]:
    if "multipleOf" in schema:
        return st.nothing()
    least, most = schema.get("minimum"), schema.get("maximum")
    return st.floats(
        schema.get("exclusiveMinimum", -_NUMBERS) if least is None else least,
        schema.get("exclusiveMaximum", _NUMBERS) if most is None else most,
        allow_nan=False,
        exclude_min="exclusiveMinimum" in schema and least is None,
        exclude_max="exclusiveMaximum" in schema and most is None,
    )


def _strings(schema: Schema) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(str(schema["pattern"]))
    match schema.get("format"):
        case "date":
            return st.dates().map(str)
        case "date-time":
            return st.datetimes().map(lambda at: f"{at.isoformat()}Z")
        case "uuid":
            return st.uuids().map(str)
        case "email":
            return _WORDS.map(lambda word: f"{word.replace(' ', '.')}@example.org")
        case "uri":
            return _WORDS.map(lambda word: f"https://example.org/{word.replace(' ', '-')}")
        case _:
            least, most = schema.get("minLength", 0), schema.get("maxLength")
            short = st.text(min_size=least, max_size=most if most is not None else least + 8)
            return short if least or most is not None else _WORDS
