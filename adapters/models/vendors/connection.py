"""The HTTP clients of a vendor's SDK for one event loop and server. Every piece received is reported to the runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any

from ....runtime.ports.models import HEARD
from ..endpoint import Endpoint

OPENED: ContextVar[list[Any] | None] = ContextVar("OPENED", default=None)
"""The responses of a call, which we close after it, because not every SDK closes a partly read response."""


class Connection:
    """The address, key and HTTP clients of a vendor's SDK on one event loop. Closed by `aclose`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._clients: dict[str, Any] = {}
        self._open = AsyncExitStack()

    @property
    def url(self) -> str:
        """Return the server's address."""
        return self.endpoint.url

    @property
    def key(self) -> str:
        """Return the key to send. Raises `ConfigError`."""
        return self.endpoint.key()

    def http2(self) -> Any:
        """Return the client for SDKs over httpx2."""
        import httpx2

        return self._client(httpx2)

    def http1(self) -> Any:
        """Return the client for SDKs over the older httpx."""
        import httpx

        return self._client(httpx)

    def closes(self, close: Callable[[], Awaitable[Any]]) -> None:
        """Register something that an SDK opened by itself, for `aclose` to close."""
        self._open.push_async_callback(close)

    async def aclose(self) -> None:
        """Close all clients."""
        await self._open.aclose()

    def _client(self, library: Any) -> Any:
        """Return a client of this library; both libraries have the same classes."""
        if library.__name__ not in self._clients:
            options = self.endpoint.options
            client = library.AsyncClient(
                timeout=library.Timeout(options.idle_timeout_s, connect=options.connect_timeout_s),
                limits=library.Limits(max_connections=1000, max_keepalive_connections=100),
                trust_env=not self.endpoint.is_loopback,  # a proxy has no business between a machine and itself
                follow_redirects=True,
                event_hooks={"response": [_listener(library)]},
            )
            self._clients[library.__name__] = client
            self._open.push_async_callback(client.aclose)
        return self._clients[library.__name__]


def _listener(library: Any) -> Callable[[Any], Awaitable[None]]:
    class Heard(library.AsyncByteStream):  # type: ignore[misc] # of a module that is known late
        """Yields the bytes of a response without comments, reports each piece, also keep-alives, to the runtime."""

        def __init__(self, stream: Any, comments: _Comments | None) -> None:
            self._stream, self._heard, self._comments = stream, HEARD.get(), comments

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._stream:
                self._heard()
                yield piece if self._comments is None else self._comments.cut(piece)

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def listen(response: Any) -> None:
        if (opened := OPENED.get()) is not None:
            opened.append(response)
        is_events = response.headers.get("content-type", "").startswith("text/event-stream")
        is_plain = "content-encoding" not in response.headers
        response.stream = Heard(response.stream, _Comments() if is_events and is_plain else None)

    return listen


class _Comments:
    """Removes comments (lines that begin with a colon) from server-sent events: Google's SDK fails on them."""

    def __init__(self) -> None:
        self._at_line_start, self._within = True, False

    def cut(self, piece: bytes) -> bytes:
        """Return the piece without comments."""
        kept = bytearray()
        for line in piece.splitlines(keepends=True):
            if self._at_line_start:
                self._within = line.startswith(b":")
            self._at_line_start = line.endswith((b"\n", b"\r"))
            if not self._within:
                kept += line
        return bytes(kept)
