"""Build the OpenAPI document from the table of routes and its structs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from .routing import Nothing, Route

_PROBLEM = {
    "description": "a problem document (RFC 9457)",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document: what is wrong, where, and what to do. An error may add members of its own."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    error: str = ""


def openapi(table: Iterable[Route], version: str) -> dict[str, Any]:
    """Return the document."""
    routes = [*table]
    answers = [kind for route in routes for kind in _answers(route)]
    bodies = [route.body for route in routes if route.body not in {None, bytes}]
    kinds = [*answers, *bodies, Problem]
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(map(_key, kinds), found, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        path = re.sub(r":path\}", "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "foldlog", "version": version},
        "servers": [{"url": "api/v1"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _answers(route: Route) -> tuple[Any, ...]:
    """Return the shapes that an answer may have."""
    if isinstance(route.answer, tuple):
        return route.answer
    return () if route.answer is None else (route.answer,)


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "x-role": route.role or "none",
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": {str(route.status): _answer(route, schemas), "default": _PROBLEM},
    }
    if route.role is None:
        found["security"] = []
    if route.body is bytes:
        found["requestBody"] = {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
    elif route.body is not None:
        found["requestBody"] = {
            "required": route.body is not Nothing,
            "content": {"application/json": {"schema": schemas[_key(route.body)]}},
        }
    return found


def _answer(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    told = {"description": route.summary}
    if kinds := [schemas[_key(kind)] for kind in _answers(route)]:
        schema = kinds[0] if len(kinds) == 1 else {"oneOf": kinds}
        return told | {"content": {"application/json": {"schema": schema}}}
    return told | ({"content": {route.media: {"schema": {"type": "string"}}}} if route.media else {})


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)(?::path)?\}", route.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        many = {"type": "array", "items": {"type": "string"}}
        return [{"name": "t", "in": "query", "required": True, "schema": many}]
    schema: Any = msgspec.json.schema(route.query)
    (struct,) = schema["$defs"].values()
    fields: dict[str, Any] = struct["properties"]
    return [{"name": name, "in": "query", "schema": each} for name, each in fields.items()]


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    if not (route.is_write and route.keyed) or route.role is None:
        return []
    return [{"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 256}}]
