"""Streamable HTTP as a transport in which a failed request fails alone, and says whether the server can have seen it.

The SDK's transport does the protocol. But an HTTP request that fails ends its whole session, with every call in it. So
the HTTP client here answers such a request with a JSON-RPC error in the server's stead, marked with what is known.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from ...runtime.mcp_servers import HttpServer

EVENT_SIZE_BYTES_MAX = 64 * 1024 * 1024
_SESSION_HEADER = "mcp-session-id"
_MARK = "foldlog.delivery"
_WRITE_TIMEOUT_S = 30.0
RECEIPT_TIMEOUT_S = 5.0
"""How long a server has to confirm what asks for no answer, a notification or the end of the session."""

Delivery = Literal["unsent", "lost", "refused"]
"""The server has not seen the request; may have seen it; has refused it before it looked at it."""


@asynccontextmanager
async def http_transport(config: HttpServer) -> AsyncIterator[tuple[Any, Any]]:
    """Give the streams of a session with the server. Nothing is sent yet."""
    # Reading is not bounded here: each call has its own time-out, a stream of notifications has none.
    timeout = httpx2.Timeout(_WRITE_TIMEOUT_S, connect=config.connect_timeout_s, read=None)
    async with (
        # A proxy has no business between this machine and itself.
        _Client(headers=config.headers, timeout=timeout, trust_env=not _is_loopback(config.url)) as client,
        streamable_http_client(
            config.url, http_client=client, max_sse_event_size=EVENT_SIZE_BYTES_MAX
        ) as streams,
    ):
        yield streams


def delivery(error: MCPError) -> Delivery | None:
    """What an error says about the request's delivery; null if the server itself answered it."""
    if isinstance(error.data, dict) and _MARK in error.data:
        mark: Delivery = error.data[_MARK]
        return mark
    # A response stream that ends early is told by the SDK in words only.
    if error.code == CONNECTION_CLOSED and error.message.startswith("SSE stream"):
        return "lost"
    return None


class _Client(httpx2.AsyncClient):
    """An HTTP client that answers for a server that does not."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if _asks_nothing(request):
            # The SDK sends one message after the other; a server that does not confirm one would stop them all.
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": RECEIPT_TIMEOUT_S}
        try:
            response = await super().send(request, **options)
        except (
            httpx2.ConnectError,
            httpx2.ConnectTimeout,
            httpx2.PoolTimeout,
            httpx2.UnsupportedProtocol,
        ) as error:
            return _instead(request, 503, f"cannot be reached: {_words(error)}", "unsent")
        except httpx2.TransportError as error:
            return _instead(request, 502, f"the connection was lost: {_words(error)}", "lost")
        if response.status_code == httpx2.codes.NOT_FOUND and _SESSION_HEADER in request.headers:
            await response.aclose()
            return _instead(request, response.status_code, "the server has ended the session", "unsent")
        if response.is_error and not response.headers.get("content-type", "").startswith("application/json"):
            await response.aclose()
            message = f"it answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
            return _instead(request, response.status_code, message, "refused")
        return response


class _Envelope(msgspec.Struct):
    """Of a message only what tells a request from a notification."""

    id: str | int | None = None


def _asks_nothing(request: httpx2.Request) -> bool:
    if request.method != "POST":
        return request.method == "DELETE"
    return msgspec.json.decode(request.content, type=_Envelope).id is None


def _instead(request: httpx2.Request, status: int, message: str, mark: Delivery) -> httpx2.Response:
    if request.method == "DELETE":
        return httpx2.Response(204, request=request)  # A session that cannot be told to end has ended.
    error = {"code": CONNECTION_CLOSED, "message": message, "data": {_MARK: mark}}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _is_loopback(url: str) -> bool:
    host = httpx2.URL(url).host
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
