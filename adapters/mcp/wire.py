"""Report progress and responses in the order of the wire, between the transport and the SDK.

The SDK starts a task for every notification but wakes the caller of a request directly, so progress races the result
that it precedes; it also turns every number into a float. So progress is taken off the stream here: the streams of a
transport are wrapped, every message passes through one place, and progress is reported at once, with the numbers as
sent. A response ends its call: progress after it is dropped and counted. There is no queue, so no progress is pending
when the SDK hands the result to the caller.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

logger = logging.getLogger(__name__)

Report = Callable[[float, float | None, str], None]
"""Takes progress, total and message; does not block."""

_NUMBER_MAX = 2**63


class ReadStream(Protocol):
    """The incoming messages of a transport."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises `anyio.EndOfStream` when the connection has ended."""
        ...

    async def aclose(self) -> None:
        """Read no more."""
        ...


class WriteStream(Protocol):
    """The outgoing messages of a transport."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message."""
        ...

    async def aclose(self) -> None:
        """Send no more."""
        ...


Transport = AbstractAsyncContextManager[tuple[Any, Any]]
"""Connects on entry and returns a `ReadStream` and a `WriteStream`."""


class Call:
    """One tool call on a connection.

    `sent`: the request was given to the transport, so the server may have it. `answered`: its response has passed.
    """

    def __init__(self, token: str, report: Report) -> None:
        self.token = token
        self.report = report
        self.request: str | None = None
        self.sent = False
        self.answered = False


class Wire:
    """The messages of one connection.

    `ended`: no more messages come; `hung_up`: because the server ended it. `progress_dropped` counts the progress that
    came too late or without a call of ours.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.ended = False
        self.hung_up = False
        self.progress_dropped = 0
        self._on_end = on_end
        self._tokens = (f"foldlog-{number}" for number in itertools.count(1))
        self._by_token: dict[str, Call] = {}
        self._by_request: dict[str, Call] = {}

    @contextmanager
    def call(self, report: Report) -> Iterator[Call]:
        """Yield a call whose progress is reported until its response arrives or the block ends.

        Its request must carry the call's token as `_meta.progressToken`.
        """
        call = Call(next(self._tokens), report)
        self._by_token[call.token] = call
        try:
            yield call
        finally:
            del self._by_token[call.token]
            self._by_request.pop(call.request or "", None)

    @asynccontextmanager
    async def over(self, transport: Transport) -> AsyncIterator[tuple[_Incoming, _Outgoing]]:
        """Wrap the transport, and watch its messages."""
        async with transport as (read, write):
            yield _Incoming(self, read), _Outgoing(self, write)

    def end(self) -> None:
        """Record that the connection has ended: no more messages come."""
        if not self.ended:
            self.ended = True
            self._on_end()

    def call_of(self, message: SessionMessage) -> Call | None:
        """Return the call whose request an outgoing message is, and expect its response from here on."""
        request = message.message
        if not isinstance(request, JSONRPCRequest):
            return None
        token = ((request.params or {}).get("_meta") or {}).get("progressToken")
        call = self._by_token.get(token) if isinstance(token, str) else None
        if call is not None:
            call.request, call.sent, call.answered = str(request.id), False, False
            self._by_request[call.request] = call
        return call

    def takes(self, message: SessionMessage) -> bool:
        """Inspect an incoming message; return true for progress, which needs no further handling."""
        match message.message:
            case JSONRPCNotification(method="notifications/progress", params=params):
                self._progress(params or {})
                return True
            case JSONRPCResponse(id=request) | JSONRPCError(id=request):
                if (call := self._by_request.pop(str(request), None)) is not None:
                    call.answered = True
            case _:
                pass
        return False

    def _progress(self, params: dict[str, Any]) -> None:
        token, progress = params.get("progressToken"), _number(params.get("progress"))
        call = self._by_token.get(token) if isinstance(token, str) else None
        if call is None or call.request not in self._by_request or progress is None:
            self.progress_dropped += 1
            logger.debug("dropped progress %r: no call of ours is open for it, or it is malformed", params)
            return
        message = params.get("message")
        try:
            call.report(progress, _number(params.get("total")), message if isinstance(message, str) else "")
        except Exception:  # A failing reporter must not end the connection for the other calls.
            logger.exception("reporting progress failed")


def _number(value: object) -> float | None:
    """Return a number as sent, or None if it is not one that every reader of the log can represent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and abs(value) <= _NUMBER_MAX else None


class _Incoming:
    """A `ReadStream` without the progress."""

    def __init__(self, wire: Wire, stream: ReadStream) -> None:
        self._wire = wire
        self._stream = stream

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                message = await self._stream.receive()
            except anyio.EndOfStream:
                self._wire.hung_up = not self._wire.ended
                self._wire.end()
                raise
            if isinstance(message, Exception) or not self._wire.takes(message):
                return message

    async def aclose(self) -> None:
        self._wire.end()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Outgoing:
    """A `WriteStream` that maps requests to their calls."""

    def __init__(self, wire: Wire, stream: WriteStream) -> None:
        self._wire = wire
        self._stream = stream

    async def send(self, item: SessionMessage, /) -> None:
        call = self._wire.call_of(item)
        if call is not None:
            call.sent = True  # Before the send: one that is cancelled may have passed the message on.
        try:
            await self._stream.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if call is not None:
                call.sent = False
            self._wire.end()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
