"""The MCP server over streamable HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..http.answers import Refused, answer_to
from ..http.bodies import check_json, read_body, replayed
from ..protocols.door import Door, Origin
from .server import Call, agent_server

BODY_BYTES_MAX = 4 * 1024 * 1024
SESSIONS_MAX = 1000
_ORIGIN = "foldlog.origin"


@contextlib.asynccontextmanager
async def mcp_routes(door: Door) -> AsyncIterator[list[Route]]:
    """Open the server; yields the route of `/mcp`."""
    manager = StreamableHTTPSessionManager(
        agent_server(door, _origin_of), max_request_body_size=BODY_BYTES_MAX, max_sessions=SESSIONS_MAX
    )
    async with manager.run():
        yield [Route("/mcp", _Known(door, manager), methods=["GET", "POST", "DELETE"])]


class _Known:
    """The application, restricted to identified callers. A session belongs to the caller that opened it."""

    def __init__(self, door: Door, manager: StreamableHTTPSessionManager) -> None:
        self._door, self._manager = door, manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, after its sender is identified and its body is read."""
        request = Request(scope, receive)
        try:
            origin = self._door.origin(request)
            if request.method == "POST":
                check_json(request)
            receive = replayed(await read_body(request, BODY_BYTES_MAX), receive)
        except Exception as error:  # noqa: BLE001 - each has its answer
            await answer_to(error)(scope, receive, send)
            return
        scope[_ORIGIN] = origin
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=origin.actor, scopes=[]))
        await self._manager.handle_request(scope, receive, _told(scope, receive, send))


def _told(scope: Scope, receive: Receive, send: Send) -> Send:
    """Return a `send` that replaces an error response without a body, such as the SDK's 405, by a problem document."""
    replaced = False

    async def sent(message: Message) -> None:
        nonlocal replaced
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            if message["status"] >= HTTPStatus.BAD_REQUEST and headers.get("content-length") == "0":
                replaced = True
                allowed = headers.get("allow", "")
                detail = f"this takes only {allowed}" if allowed else HTTPStatus(message["status"]).phrase
                answer = answer_to(Refused(message["status"], detail))
                if allowed:
                    answer.headers["allow"] = allowed
                await answer(scope, receive, send)
        if not replaced:
            await send(message)

    return sent


def _origin_of(call: Call) -> Origin:
    request: Any = call.request
    origin: Origin = request.scope[_ORIGIN]
    return origin
