"""Server-sent events: a stream whose errors are told in it, and that stops reading the log when its client is gone."""

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
"""The time that a client has to take what was sent."""
T = TypeVar("T")
_LINE_END = "\n"
"""The standard allows others; the client of AG-UI looks for this one."""


def server_event(content: Any, event: str | None = None) -> ServerSentEvent:
    """Return an event whose data is this content as JSON."""
    return ServerSentEvent(data=msgspec.json.encode(content).decode(), event=event, sep=_LINE_END)


def event_stream(
    events: AsyncGenerator[ServerSentEvent],
    on_error: Callable[[Response], ServerSentEvent],
    closing: asyncio.Event,
) -> EventSourceResponse:
    """Return an answer of these events. One that fails ends with `on_error` of the problem document.

    It also ends once the server is `closing`, and its client goes on elsewhere.
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
    """Yield the events, but only until the server is closing."""
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
