"""The identifiers that a request brings along: they are kept with what it starts, if they are well formed."""

from __future__ import annotations

from starlette.requests import Request

from ...runtime.core.submission import TRACEPARENT

REQUEST_ID_MAX = 128


def request_id(request: Request) -> str:
    """Return the `X-Request-Id`; empty for none, or for one that is not short printable text."""
    given = request.headers.get("x-request-id", "")
    return given if len(given) <= REQUEST_ID_MAX and given.isprintable() and given.isascii() else ""


def traceparent(request: Request) -> str:
    """Return the W3C trace context; empty for none, or for one that is not valid: the trace then begins here."""
    given = request.headers.get("traceparent", "")
    return given if TRACEPARENT.fullmatch(given) else ""
