"""The ASGI application: the routes of the enabled parts, and one handler for errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ...eventlog.names import run_subject
from ...eventlog.ports import Log
from ...runtime import Runtime
from .access import Access
from .answers import Refused, guarded, problem
from .hooks import Hook, load_hooks
from .receiving import HookRoutes
from .signals import SignalRoutes

READY_S = 2.0


def hooks_app(
    runtime: Runtime,
    *,
    hooks: Mapping[str, Mapping[str, Any]] | None = None,
    tokens: Mapping[str, Mapping[str, Any]] | None = None,
) -> Starlette:
    """Return an application with the webhooks of this runtime, to serve or to mount; see `foldlog serve --hooks`.

    `hooks` and `tokens` have the form of the tables `[hooks.<name>]` and `[tokens.<name>]`; None reads them from the
    project's configuration. Raises `ConfigError`.
    """
    return application(
        health_routes(runtime.log), hook_routes(runtime, load_hooks(runtime, hooks), Access.read(tokens))
    )


def hook_routes(runtime: Runtime, hooks: Mapping[str, Hook], access: Access) -> list[BaseRoute]:
    """Return the routes of webhooks, signals and callbacks."""
    return [*HookRoutes(runtime, hooks).routes(), *SignalRoutes(runtime, access).routes()]


def health_routes(log: Log, *, serving: Callable[[], bool] = lambda: True) -> list[BaseRoute]:
    """Return `/healthz`, which answers while the event loop runs, and `/readyz`: 503 unless it serves and has a log."""

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        if not serving():
            raise Refused(503, "this process is starting or draining")
        async with asyncio.timeout(READY_S):
            await log.events.head(run_subject(0, "readyz", "readyz"))
        return PlainTextResponse("ok\n")

    return [Route("/healthz", alive, methods=["GET"]), Route("/readyz", guarded(ready), methods=["GET"])]


def application(*parts: Sequence[BaseRoute]) -> Starlette:
    """Return one application with the routes of the given parts."""
    return Starlette(
        routes=[route for part in parts for route in part], exception_handlers={HTTPException: _not_routed}
    )


async def _not_routed(_: Request, error: Exception) -> Response:
    """Answer a request that matches no route."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    headers = (error.headers or {}) if isinstance(error, HTTPException) else {}
    allowed = headers.get("Allow", "")
    detail = f"this address takes {allowed} only" if allowed else "there is nothing at this address"
    return problem(status, detail, headers=headers)
