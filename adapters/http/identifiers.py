"""Identifiers in a request's headers. Well-formed ones are stored with the run that the request starts."""

from __future__ import annotations

from starlette.requests import Request

from ...runtime.core.submission import TRACEPARENT

REQUEST_ID_MAX = 128


def request_id(request: Request) -> str:
    """Return the `X-Request-Id`; empty if it is missing, too long or not printable."""
    given = request.headers.get("x-request-id", "")
    return given if len(given) <= REQUEST_ID_MAX and given.isprintable() and given.isascii() else ""


def traceparent(request: Request) -> str:
    """Return the W3C `traceparent`; empty if it is missing or invalid, so that a new trace begins here."""
    given = request.headers.get("traceparent", "")
    return given if TRACEPARENT.fullmatch(given) else ""
