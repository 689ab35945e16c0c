"""Roles and routes: each route that is served, by whatever part, wants the role that its row says.

The rows of the API are in its own table, which the reference of the documents repeats; those of the other parts are
here. A route that is served and has no row fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from foldlog.adapters.console.app import AT_ROOT
from foldlog.adapters.console.table import ROUTES
from foldlog.eventlog import MemoryLog
from starlette.routing import Mount

from tests.http.api import BASE, ROLES, bearer
from tests.http.test_anything import everything

NOBODY, SIGNED, HELD = "", "signed", "held"
"""Nobody needs to sign in; the sender signs its request; the sender knows the token in the path."""
RANKS = ["viewer", "operator", "admin"]
OTHERS: dict[tuple[str, str], str] = {
    ("GET", "/healthz"): NOBODY,
    ("GET", "/readyz"): NOBODY,
    ("POST", "/hooks/{name}"): SIGNED,
    ("POST", "/v1/callbacks/{token}"): HELD,
    ("POST", "/v1/runs/{run}/signals/{name}"): "operator",
    ("GET", "/v1/models"): "viewer",
    ("GET", "/v1/models/{name}"): "viewer",
    ("POST", "/v1/responses"): "operator",
    ("GET", "/v1/responses/{id}"): "viewer",
    ("POST", "/v1/responses/{id}/cancel"): "operator",
    ("GET", "/v1/responses{rest:path}"): NOBODY,
    ("POST", "/v1/responses{rest:path}"): NOBODY,
    ("DELETE", "/v1/responses{rest:path}"): NOBODY,
    ("GET", "/.well-known/agent-card.json"): NOBODY,
    ("GET", "/a2a/{agent}/.well-known/agent-card.json"): NOBODY,
    ("POST", "/a2a/{agent}"): "operator",
    ("POST", "/agui/{agent}"): "operator",
    ("POST", "/agui/{agent}/cancel"): "operator",
    ("GET", "/mcp"): "operator",
    ("POST", "/mcp"): "operator",
    ("DELETE", "/mcp"): "operator",
    ("GET", "/{path:path}"): NOBODY,
}
API = {
    **{(route.method, f"/api/v1{route.path}"): route.role or NOBODY for route in ROUTES},
    **{(route.method, route.path): route.role or NOBODY for route in ROUTES if route.path in AT_ROOT},
}
ROWS = OTHERS | API
SIGNS_IN = ("POST", "/api/v1/session")
ANY_HOST = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    *(each for each in OTHERS if OTHERS[each] in {SIGNED, HELD}),
}
ANY_HOST.add(("POST", "/v1/runs/{run}/signals/{name}"))
"""Asked by machines, under whatever name they know: none of them takes a cookie."""


def served_routes(app: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the method and path of each route that an application serves, also within mounts and other wrappers."""
    while not hasattr(app, "routes"):
        app = app._app
    for route in app.routes:
        path = prefix + route.path
        if isinstance(route, Mount):
            yield from served_routes(route.app if route.app is not None else route, path)
        else:
            yield from ((method, path) for method in route.methods - {"HEAD"})


def filled(path: str) -> str:
    """Return an address of the path, whose things are not there."""
    known = {"agent": "desk", "name": "standard"} if path.startswith(("/hooks", "/a2a", "/agui")) else {}
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: known.get(found[1], "x"), path)


def client_of(app: Any, **headers: str) -> httpx.AsyncClient:
    """Return a client of the application that sends these headers."""
    given = {"content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE, headers=given)


async def test_every_route_of_every_part_has_a_row() -> None:
    async with everything(MemoryLog()) as (app, _):
        assert set(served_routes(app)) == set(ROWS)


@pytest.mark.parametrize("role", ["", *ROLES])
async def test_every_route_of_every_part_wants_its_role(role: str) -> None:
    async with everything(MemoryLog()) as (app, _), client_of(app, **bearer(role) if role else {}) as client:
        for (method, path), wanted in ROWS.items():
            answer = await client.request(method, filled(path), content=b"")
            status, told = answer.status_code, (method, path, answer.text)
            if (method, path) == SIGNS_IN or wanted == SIGNED:
                assert status == 401, told
            elif wanted == HELD:
                assert status == 410, told
            elif wanted == NOBODY:
                assert status not in {401, 403}, told
            elif not role:
                assert status == 401, told
                assert answer.headers["www-authenticate"] == "Bearer"
            elif RANKS.index(role) < RANKS.index(wanted):
                assert status == 403, told
            else:
                assert status not in {401, 403}, told


async def test_no_write_of_any_part_takes_a_cookie_that_another_page_made_the_browser_send() -> None:
    async with everything(MemoryLog()) as (app, runtime), client_of(app) as client:
        own = {"sec-fetch-site": "same-origin"}
        signed = await client.post(SIGNS_IN[1], json={"token": "admin"}, headers=own)
        assert signed.status_code == 200
        for (method, path), wanted in ROWS.items():
            if method == "GET" or wanted in {NOBODY, SIGNED, HELD}:
                continue
            for forged in ({"sec-fetch-site": "same-site"}, {"origin": "http://127.0.0.1:1"}, {}):
                answer = await client.request(method, filled(path), content=b"{}", headers=forged)
                assert answer.status_code in {401, 403}, (method, path, forged, answer.text)
        assert (await client.get("/api/v1/me")).status_code == 200  # it is still signed in
        assert await runtime.list_runs() == []


async def test_no_route_that_takes_a_cookie_answers_under_a_foreign_name() -> None:
    async with (
        everything(MemoryLog()) as (app, _),
        client_of(app, host="evil.example", **bearer("admin")) as client,
    ):
        for method, path in ROWS:
            answer = await client.request(method, filled(path), content=b"")
            assert (answer.status_code == 421) is ((method, path) not in ANY_HOST), (
                method,
                path,
                answer.text,
            )
