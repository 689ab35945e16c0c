"""The table of all routes: method, path, role, shapes, endpoint. Fixed paths come before those with parameters."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from .openapi import openapi
from .routes import (
    agents,
    approvals,
    jobs,
    looking,
    namespace,
    operating,
    plans,
    rollback,
    runs,
    session,
    steering,
    stream,
    tokens,
    tree,
)
from .routing import Call, Nothing, Route


async def show_openapi(_: Call[Nothing, Nothing]) -> dict[str, Any]:
    """Show this API as an OpenAPI document."""
    return openapi(ROUTES, version("foldlog"))


ROUTES: tuple[Route, ...] = (
    *session.ROUTES,
    *runs.ROUTES,
    *jobs.ROUTES,
    *tree.ROUTES,
    *looking.ROUTES,
    *steering.ROUTES,
    *rollback.ROUTES,
    *approvals.ROUTES,
    *operating.ROUTES,
    *agents.ROUTES,
    *plans.ROUTES,
    *namespace.ROUTES,
    *tokens.ROUTES,
    *stream.ROUTES,
    Route(method="GET", path="/openapi.json", role="viewer", endpoint=show_openapi, answer=dict[str, Any]),
)
