"""The stream of changes."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from ..routing import Call, Nothing, Route
from ..streaming.viewer import wanted_topics


async def stream(call: Call[None, Nothing]) -> Response:
    """Follow any number of topics (`t`, each with an optional `@cursor`) as Server-Sent Events."""
    request, streams = call.request, call.door.streams
    wanted = wanted_topics(request.query_params.getlist("t"), request.headers.get("last-event-id", ""))
    topics = await streams.prepared(wanted)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

    def still() -> bool:
        return call.door.identity.actor_of(request) is not None

    return StreamingResponse(streams.frames(topics, still), headers=headers, media_type="text/event-stream")


ROUTES = (
    Route(
        method="GET",
        path="/stream",
        role="viewer",
        endpoint=stream,
        query=None,
        media="text/event-stream",
    ),
)
