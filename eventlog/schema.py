"""The stored format as JSON Schema (2020-12), for readers in any language.

Fields in which two equal runs may differ are marked `"x-volatile": true`; `VOLATILE` is the only list of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .commits import Commit
from .events import DRAFTS, ENGINE, OBSERVABLE, Event

JsonSchema = dict[str, Any]

VOLATILE = frozenset(
    {
        # times and durations
        "at",
        "completed_at",
        "due_at",
        "duration_ms",
        "execution_time_ms",
        "expires_at",
        "fired_at",
        "lease_s",
        "retry_at",
        "started_at",
        "until",
        # random values
        "request_id",
        "request_key",
        "sha256",
        "token",
        "traceparent",
        # tries
        "attempt",
        "deduplicated",
        "epoch",
        "idempotency_key",
        "twin_of",
        # processes and actors
        "build",
        "by",
        "via",
        "executor",
        "recorded_from",
        "span_id",
        "trace_id",
        "worker",
    }
)
"""Fields, of events and in a tool result's `metadata`, in which two equal runs may differ (R23)."""

TRIGGER_VOLATILE = VOLATILE - {"due_at"} | {"key"}
"""Those of a `Trigger`: the time for which a schedule started a run is what the run is about."""

_METADATA = (
    "started_at",
    "completed_at",
    "execution_time_ms",
    "attempt",
    "deduplicated",
    "idempotency_key",
    "recorded_from",
    "twin_of",
)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DIGEST = {"type": "string", "pattern": "^([0-9a-f]{64})?$"}
_COMMIT_FIELDS: dict[str, JsonSchema] = {
    "v": {"minimum": 1, "description": "Version of the vocabulary that the events are written in."},
    "run": {"description": "The run, or the lane or key, whose sequence this is."},
    "root": {"description": "The root run of its family."},
    "rev": {"minimum": 1, "description": "Revision of the first event; revisions of a run are dense."},
    "append": {
        "description": "Unique id of this append; a writer uses it to find out whether it was stored."
    },
    "prev": {
        **_DIGEST,
        "description": "SHA-256 of the run's previous commit as stored; empty for the first.",
    },
    "epoch": {"minimum": 0, "description": "Fencing token of the writer; 0 for one without a claim."},
    "at": {"description": "Time of writing, in Unix seconds UTC."},
    "path": {"description": "Names from the root agent to this one, joined by '/'."},
    "events": {
        "description": "The events, in order. An event of a type not listed here is of a newer writer."
    },
    "sum": {
        "pattern": "^[0-9a-f]{16}$",
        "description": 'First 16 hex digits of the SHA-256 of the bytes before `,"sum":`, closed with `}`.',
    },
}


def commit_schema() -> JsonSchema:
    """Return the schema of a stored commit with all events that it can contain."""
    _, definitions = msgspec.json.schema_components([Commit], ref_template="#/$defs/{name}")
    commit = definitions.pop("Commit")
    definitions.pop("Unknown")
    properties = {name: {**schema, **_COMMIT_FIELDS[name]} for name, schema in commit["properties"].items()}
    properties["events"]["items"] = _any_event()
    for schema in properties.values():
        schema.pop("default", None)
    return {
        "$schema": _DIALECT,
        "title": "Commit",
        "description": "The content of one append to a run.",
        "type": "object",
        "properties": _marked(properties),
        "required": list(properties),
        "$defs": {name: _described(schema) for name, schema in definitions.items()},
    }


def event_schemas() -> dict[str, JsonSchema]:
    """Return the schema of each event by its stored name, including drafts; each is self-contained."""
    schemas = {}
    for event in (*OBSERVABLE, *ENGINE, *DRAFTS):
        _, definitions = msgspec.json.schema_components([event], ref_template="#/$defs/{name}")
        own = _described(definitions.pop(event.__name__))
        others = {name: _described(schema) for name, schema in definitions.items()}
        schemas[_tag(event)] = {"$schema": _DIALECT, **own, **({"$defs": others} if others else {})}
    return schemas


def _any_event() -> JsonSchema:
    stored = (*OBSERVABLE, *ENGINE)
    newer = {"type": {"type": "string", "not": {"enum": [_tag(event) for event in stored]}}}
    return {
        "anyOf": [
            *({"$ref": f"#/$defs/{event.__name__}"} for event in stored),
            {"title": "Newer", "type": "object", "properties": newer, "required": ["type"]},
        ]
    }


def _tag(event: type[Event]) -> str:
    return str(event.__struct_config__.tag)


def _plain(schema: Any) -> Any:
    """Return the schema without `discriminator`, which is of OpenAPI and not of JSON Schema."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _plain(each) for name, each in schema.items() if name != "discriminator"}
    return schema


def _described(schema: JsonSchema) -> JsonSchema:
    schema = _plain(schema)
    volatile = TRIGGER_VOLATILE if schema.get("title") == "Trigger" else VOLATILE
    properties = _marked(schema.get("properties", {}), volatile)
    if "metadata" in properties and schema["title"] == "ToolResult":
        properties["metadata"]["properties"] = _marked({name: {} for name in _METADATA})
    return {**schema, "properties": properties}


def _marked(properties: JsonSchema, volatile: frozenset[str] = VOLATILE) -> JsonSchema:
    return {
        name: {**schema, "x-volatile": True} if name in volatile else dict(schema)
        for name, schema in properties.items()
    }
