"""A route that answers with text that is made for each request."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .answers import guarded


def text_route(path: str, text: Callable[[], bytes], media_type: str) -> Route:
    """Return a route for GET whose answers are the text as it is then."""

    async def told(_: Request) -> Response:
        return Response(text(), media_type=media_type)

    return Route(path, guarded(told), methods=["GET"])
