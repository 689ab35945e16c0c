"""Streamable HTTP as a transport where a failed request fails alone, and reports whether the server can have seen it.

The SDK's transport implements the protocol. But there a failed HTTP request ends the whole session with all its calls,
and the status and text of a refusal are lost. So the HTTP client here answers such a request with a JSON-RPC error in
place of the server, marked with what is known about the delivery.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import httpx2
import msgspec
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import ValidationError

from ...runtime.agents.mcp_servers import HttpServer
from .oauth import auth_of

EVENT_SIZE_BYTES_MAX = 64 * 1024 * 1024
_BODY_BYTES_MAX = 64 * 1024
"""Limit of an error response; the rest is not read."""
_WORDS_MAX = 500
_MARK = "foldlog.delivery"
_WRITE_TIMEOUT_S = 30.0
RECEIPT_TIMEOUT_S = 5.0
"""The time a server may take to confirm a message without an answer: a notification, or the end of the session."""

Delivery = Literal["unsent", "lost", "refused"]
"""The server has not seen the request; may have executed it; has refused it (HTTP 4xx)."""


@asynccontextmanager
async def http_transport(
    config: HttpServer, auth: httpx2.Auth | None = None
) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a session with the server. Nothing is sent yet. `auth` overrides that of the entry."""
    auth = auth or auth_of(config)
    # Reading is not bounded here: each call has its own timeout, a stream of notifications has none.
    timeout = httpx2.Timeout(_WRITE_TIMEOUT_S, connect=config.connect_timeout_s, read=None)
    async with (
        # Connections to this machine never use a proxy.
        _Client(
            headers=config.headers, auth=auth, timeout=timeout, trust_env=not _is_loopback(config.url)
        ) as client,
        streamable_http_client(
            config.url, http_client=client, max_sse_event_size=EVENT_SIZE_BYTES_MAX
        ) as streams,
    ):
        yield streams


def delivery(error: MCPError) -> Delivery | None:
    """Return what an error says about the request's delivery; None if the server itself returned it."""
    if isinstance(error.data, dict) and _MARK in error.data:
        mark: Delivery = error.data[_MARK]
        return mark
    # The SDK reports a response stream that ends early only by its message.
    if error.code == CONNECTION_CLOSED and error.message.startswith("SSE stream"):
        return "lost"
    return None


def unmarked(error: MCPError) -> MCPError:
    """Return the error as the server sent it, with the HTTP status in its message."""
    return MCPError(error.code, error.message, error.data.get("data"))


class _Client(httpx2.AsyncClient):
    """An HTTP client that answers in place of a server that cannot be reached or refuses."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if _asks_nothing(request):
            # The SDK sends messages one by one; a server that does not confirm one would block them all.
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": RECEIPT_TIMEOUT_S}
        try:
            response = await super().send(request, **options)
        except (
            httpx2.ConnectError,
            httpx2.ConnectTimeout,
            httpx2.PoolTimeout,
            httpx2.UnsupportedProtocol,
        ) as error:
            return _instead(
                request, 503, f"cannot be reached: {_words(error)}", CONNECTION_CLOSED, {_MARK: "unsent"}
            )
        except (OAuthFlowError, ValidationError) as error:
            return _instead(request, 401, _words(error), CONNECTION_CLOSED, {_MARK: "unsent"})
        except httpx2.TransportError as error:
            return _instead(
                request, 502, f"the connection was lost: {_words(error)}", CONNECTION_CLOSED, {_MARK: "lost"}
            )
        return await _refused(request, response) if response.is_error else response


class _Envelope(msgspec.Struct):
    """The fields of a message that distinguish requests from notifications and from each other."""

    id: str | int | None = None
    method: str = ""


class _Error(msgspec.Struct):
    code: int
    message: str
    data: Any = None


class _ErrorResponse(msgspec.Struct):
    """A JSON-RPC error as the body of an HTTP error."""

    error: _Error


def _asks_nothing(request: httpx2.Request) -> bool:
    if request.method != "POST":
        return request.method == "DELETE"
    return _envelope(request).id is None


def _envelope(request: httpx2.Request) -> _Envelope:
    return msgspec.json.decode(request.content, type=_Envelope)


async def _refused(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return the response for an HTTP error, with its status and text.

    A JSON-RPC error keeps its code and its data, which the SDK reads, except for a tool call, which is marked instead.
    """
    body = await _body(response)
    status = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
    mark: Delivery = "lost" if response.is_server_error else "refused"
    try:
        error = msgspec.json.decode(body, type=_ErrorResponse).error
    except msgspec.MsgspecError:
        words = _said(response, body)
        message = f"it answered {status}: {words}" if words else f"it answered {status}"
        return _instead(request, response.status_code, message, CONNECTION_CLOSED, {_MARK: mark})
    is_call = request.method == "POST" and _envelope(request).method == "tools/call"
    data = {_MARK: mark, "data": error.data} if is_call else error.data
    return _instead(request, response.status_code, f"{error.message} ({status})", error.code, data)


async def _body(response: httpx2.Response) -> bytes:
    """Return the beginning of an error's body; empty for an event stream."""
    body = b""
    try:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) >= _BODY_BYTES_MAX:
                    break
    except (httpx2.TransportError, httpx2.DecodingError):
        pass
    finally:
        await response.aclose()
    return body[:_BODY_BYTES_MAX]


def _said(response: httpx2.Response, body: bytes) -> str:
    """Return the text of a body on one line; empty for HTML."""
    if "html" in response.headers.get("content-type", ""):
        return ""
    words = " ".join(body.decode("utf-8", "replace").split())
    return words if len(words) <= _WORDS_MAX else f"{words[:_WORDS_MAX]}..."


def _instead(request: httpx2.Request, status: int, message: str, code: int, data: Any) -> httpx2.Response:
    if request.method == "DELETE":
        return httpx2.Response(204, request=request)  # A session whose end cannot be sent counts as ended.
    error = {"code": code, "message": message, "data": data}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _is_loopback(url: str) -> bool:
    host = httpx2.URL(url).host
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
