"""A route that answers with generated text."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .answers import guarded


def text_route(path: str, text: Callable[[], bytes], media_type: str) -> Route:
    """Return a GET route that calls `text` for each response."""

    async def told(_: Request) -> Response:
        return Response(text(), media_type=media_type)

    return Route(path, guarded(told), methods=["GET"])
