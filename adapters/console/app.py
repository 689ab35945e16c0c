"""The application of the API and the page, to be served or mounted, around one runtime."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Mount

from ...eventlog.errors import ConfigError
from ...runtime import Runtime
from ..http.access import Access
from ..http.server import is_loopback
from .identity import Identity
from .options import ApiOptions
from .page_files import page_routes
from .routing import Door
from .serving import Shell, api_app, not_routed, shielded, starlette_routes
from .table import ROUTES

AT_ROOT = ("/health", "/ready", "/metrics", "/openapi.json")
"""Routes that are also served at the root, where monitoring tools look for them."""


def console_door(runtime: Runtime, options: ApiOptions, access: Access) -> Door:
    """Return the state that all routes share. Raises `ConfigError`."""
    options.check()
    if not is_loopback(options.host) and access.is_empty:
        raise ConfigError(
            f"--host {options.host} is reached by others, and there is no token yet: "
            "issue one with `foldlog tokens issue`, or listen on 127.0.0.1"
        )
    return Door(runtime, Identity(access, options, runtime.log.clock.now), options)


def console_app(door: Door, *others: Sequence[BaseRoute]) -> Starlette:
    """Return the application: other parts first, then the API at `/api/v1`, and the page if `console` is set."""
    routes: list[BaseRoute] = [route for part in others for route in part]
    inner: list[BaseRoute] = [Mount("/api/v1", Shell(api_app(door, ROUTES), door))]
    inner += shielded(starlette_routes(door, [route for route in ROUTES if route.path in AT_ROOT]), door)
    if door.options.console:
        inner.append(
            Mount(
                "/",
                Shell(
                    Starlette(
                        routes=page_routes(door.options.base_path),
                        exception_handlers={HTTPException: not_routed},
                    ),
                    door,
                ),
            )
        )
    base = door.options.base_path
    routes += [Mount(base, routes=inner)] if base else inner
    return Starlette(routes=routes, exception_handlers={HTTPException: not_routed})
