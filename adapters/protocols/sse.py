"""Server-sent events: a stream that reports its errors as events, and stops reading the log when its client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from ..http.answers import answer_to

PING_S = 15
"""Seconds between the comments that keep a silent stream alive."""
SEND_TIMEOUT_S = 60.0
"""How long a client may take to accept what was sent."""
T = TypeVar("T")
_LINE_END = "\n"
"""The standard allows others, but the client of AG-UI recognizes only this one."""


def server_event(content: Any, event: str | None = None) -> ServerSentEvent:
    """Return an event whose data is `content` as JSON."""
    return ServerSentEvent(data=msgspec.json.encode(content).decode(), event=event, sep=_LINE_END)


def event_stream(
    events: AsyncGenerator[ServerSentEvent],
    on_error: Callable[[Response], ServerSentEvent],
    closing: asyncio.Event,
) -> EventSourceResponse:
    """Return a response that streams the events. If they fail, the last event is `on_error(problem document)`.

    The stream also ends when the server is `closing`, so that its client continues on another server.
    """
    return EventSourceResponse(
        _told(until_closing(events, closing), on_error),
        ping=PING_S,
        ping_message_factory=lambda: ServerSentEvent(comment="ping", sep=_LINE_END),
        send_timeout=SEND_TIMEOUT_S,
        headers={"Cache-Control": "no-store"},
    )


async def _told(
    events: AsyncGenerator[ServerSentEvent], on_error: Callable[[Response], ServerSentEvent]
) -> AsyncIterator[ServerSentEvent]:
    async with contextlib.aclosing(events):
        try:
            async for event in events:
                yield event
        except Exception as error:  # noqa: BLE001 - `answer_to` logs what it does not know
            yield on_error(answer_to(error))


async def until_closing(events: AsyncGenerator[T], closing: asyncio.Event) -> AsyncGenerator[T]:
    """Yield the events until `closing` is set."""
    ending = asyncio.ensure_future(closing.wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(events))
            try:
                await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
            if coming.cancelled():
                return
            try:
                yield coming.result()
            except StopAsyncIteration:
                return
    finally:
        ending.cancel()
        await events.aclose()
