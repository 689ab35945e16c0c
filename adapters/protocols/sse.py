"""Server-sent events: a stream whose errors are told in it, and that stops reading the log when its client is gone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from ..http.answers import answer_to

PING_S = 15
"""Seconds between the comments that keep a silent stream alive."""
SEND_TIMEOUT_S = 60.0
"""The time that a client has to take what was sent."""


def event_stream(
    events: AsyncGenerator[ServerSentEvent], on_error: Callable[[Response], ServerSentEvent]
) -> EventSourceResponse:
    """Return an answer of these events. One that fails ends with `on_error` of the problem document."""
    return EventSourceResponse(
        _told(events, on_error),
        ping=PING_S,
        ping_message_factory=lambda: ServerSentEvent(comment="ping"),
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
