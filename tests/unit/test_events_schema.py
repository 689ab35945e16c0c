"""The exported JSON Schema tells a stranger exactly what is stored (R17)."""

import json
from functools import cache
from typing import Any

import jsonschema
import msgspec
import pytest
from foldlog.eventlog import (
    DRAFTS,
    ENGINE,
    OBSERVABLE,
    VOLATILE,
    Commit,
    Event,
    Unknown,
    commit_schema,
    decode,
    encode,
    event_schemas,
)
from hypothesis import given, settings
from hypothesis import strategies as st

STORED = (*OBSERVABLE, *ENGINE)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


SCALARS = {
    msgspec.inspect.AnyType: JSON_VALUES,
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False, width=32),
    msgspec.inspect.IntType: st.integers(-(2**31), 2**31),
    msgspec.inspect.NoneType: st.none(),
    msgspec.inspect.StrType: st.text(max_size=8),
}


def values_of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case msgspec.inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*(values_of(member) for member in types))
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(values_of(item), max_size=2)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*(values_of(item) for item in items))
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=2)
        case msgspec.inspect.StructType(cls=cls):
            return structs_of(cls)
        case _:
            return SCALARS[type(kind)]


@cache
def structs_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    fields = {f.name: values_of(f.type) for f in msgspec.inspect.type_info(cls).fields}
    required = {f.name: fields[f.name] for f in msgspec.inspect.type_info(cls).fields if f.required}
    return st.builds(cls, **required) | st.builds(cls, **fields)


def test_each_event_has_its_stored_name_as_its_type() -> None:
    kinds = (*OBSERVABLE, *ENGINE, *DRAFTS, Unknown)
    assert [kind.type for kind in kinds] == [kind.__struct_config__.tag for kind in kinds]
    assert set(kinds) == set(Event.__args__)


def commit_of(*events: Any) -> Commit:
    return Commit(
        run="r", root="r", rev=1, append="a", prev="0" * 64, epoch=0, at=1.5, path="a/b", events=events
    )


@cache
def schemas() -> dict[str, dict[str, Any]]:
    return {"commit": commit_schema(), **event_schemas()}


@cache
def validator_of(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schemas()[name])


def problems(document: Any, name: str = "commit") -> list[str]:
    return [error.message for error in validator_of(name).iter_errors(document)]


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.__name__)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_whatever_can_be_stored_is_valid_and_reads_back_equal(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(structs_of(kind))
    stored = encode(commit_of(event))
    assert decode(stored).events == (event,)
    assert problems(json.loads(stored)) == []
    assert problems(json.loads(stored)["events"][0], event.type) == []


def test_every_event_has_a_schema_under_its_stored_name_that_is_itself_valid() -> None:
    assert set(schemas()) == {str(kind.__struct_config__.tag) for kind in (*STORED, *DRAFTS)} | {"commit"}
    for schema in schemas().values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_event_and_every_field_of_a_commit_is_described() -> None:
    commit = schemas()["commit"]
    described = {**commit["$defs"], **schemas()}
    assert [name for name, schema in described.items() if not schema.get("description")] == []
    assert [name for name, schema in commit["properties"].items() if not schema.get("description")] == []
    assert [name for name, s in described.items() if s["description"].startswith(f"{s['title']}(")] == []


@pytest.mark.parametrize("field", Commit.__struct_fields__)
def test_a_commit_without_one_of_its_fields_is_invalid(field: str) -> None:
    document = json.loads(encode(commit_of()))
    assert problems(document) == []
    del document[field]
    assert problems(document) == [f"'{field}' is a required property"]


@pytest.mark.parametrize(
    "change",
    [
        {"rev": 0},
        {"sum": "xyz"},
        {"prev": "abc"},
        {"events": [{}]},
        {"events": [{"type": "text"}]},
        {"events": [{"type": "text", "text": 1}]},
        {"events": [{"type": "status", "status": "lost"}]},
    ],
    ids=str,
)
def test_what_is_not_a_commit_is_invalid(change: dict[str, Any]) -> None:
    document = json.loads(encode(commit_of()))
    assert len(problems({**document, **change})) == 1


def test_events_of_a_newer_writer_are_valid() -> None:
    newer = Unknown(original_type="teleported", data={"type": "teleported", "to": "mars"})
    assert problems(json.loads(encode(commit_of(newer)))) == []


def volatile_in(schema: dict[str, Any]) -> set[str]:
    return {name for name, field in schema.get("properties", {}).items() if field.get("x-volatile")}


def test_what_equal_runs_need_not_have_in_common_is_marked_volatile() -> None:
    commit = schemas()["commit"]
    definitions = {"Commit": commit, **commit["$defs"]}
    assert volatile_in(definitions.pop("Trigger")) == {
        "by",
        "fired_at",
        "key",
        "request_id",
        "traceparent",
        "via",
    }
    for schema in definitions.values():
        assert volatile_in(schema) == VOLATILE & set(schema["properties"])
    assert volatile_in(commit) == {"at", "epoch"}
    assert volatile_in(commit["$defs"]["Step"]) == {"at", "started_at", "completed_at"}
    assert volatile_in(commit["$defs"]["Claimed"]) == {"at", "build", "worker", "epoch", "lease_s"}
    assert volatile_in(commit["$defs"]["ToolResult"]["properties"]["metadata"]) == {
        "attempt",
        "completed_at",
        "deduplicated",
        "execution_time_ms",
        "idempotency_key",
        "recorded_from",
        "started_at",
        "twin_of",
    }


@pytest.mark.parametrize(
    "field", ["text", "arguments", "result", "status", "tool_name", "step", "usage", "success"]
)
def test_what_equal_runs_have_in_common_is_not_volatile(field: str) -> None:
    assert field not in VOLATILE


@pytest.mark.parametrize("field", [f for f in sorted(VOLATILE) if f not in {"span_id", "trace_id"}])
def test_every_volatile_field_is_a_field_of_something(field: str) -> None:
    definitions = schemas()["commit"]["$defs"]
    named = {name for schema in definitions.values() for name in schema["properties"]}
    metadata = definitions["ToolResult"]["properties"]["metadata"]["properties"]
    assert field in named | set(metadata) | {"at", "epoch"}
