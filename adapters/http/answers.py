"""Responses of the server: JSON for success, problem documents (RFC 9457) for errors."""

from __future__ import annotations

import http
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...eventlog.errors import (
    ApprovalError,
    ConfigError,
    FoldlogError,
    KeyMissing,
    LogUnavailable,
    PayloadTooLarge,
    RunConflict,
    RunFinished,
    RunGone,
    RunNotFound,
    RunPurged,
    SignalError,
    TooManySignals,
    UnsupportedByExecutor,
)

logger = logging.getLogger("foldlog.http")

Endpoint = Callable[[Request], Awaitable[Response]]

RETRY_AFTER_S = 1
_STATUS: tuple[tuple[type[Exception], int], ...] = (  # the first that fits
    (LogUnavailable, 503),
    (KeyMissing, 503),
    (TimeoutError, 503),
    (RunGone, 410),
    (RunPurged, 410),
    (RunNotFound, 404),
    (RunConflict, 409),
    (RunFinished, 409),
    (ApprovalError, 409),
    (PayloadTooLarge, 413),
    (TooManySignals, 429),
    (SignalError, 422),
    (UnsupportedByExecutor, 422),
    (ConfigError, 422),
)


class Refused(Exception):
    """A request that is answered with a problem document."""

    def __init__(self, status: int, detail: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after_s = status, detail, retry_after_s


def guarded(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint so that every exception becomes a problem document. None is a 500, none reaches the server."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:  # noqa: BLE001 - logged, if it is not known
            return answer_to(error)

    return answered


def answer(status: int, content: Mapping[str, Any]) -> Response:
    """Return a JSON response."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def problem(
    status: int, detail: str, *, headers: Mapping[str, str] | None = None, error: str = ""
) -> Response:
    """Return a problem document; `error` is the name of the exception's class, empty for none."""
    content = {"type": "about:blank", "title": http.HTTPStatus(status).phrase, "status": status}
    content |= {"detail": detail} | ({"error": error} if error else {})
    body = msgspec.json.encode(content)
    return Response(body, status, headers=dict(headers or {}), media_type="application/problem+json")


def answer_to(error: Exception) -> Response:
    """Return the response for an exception. An unexpected one is logged and becomes a 503, which senders may retry."""
    if isinstance(error, Refused):
        wait = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
        challenge = {"WWW-Authenticate": "Bearer"} if error.status == http.HTTPStatus.UNAUTHORIZED else {}
        return problem(error.status, error.detail, headers=wait | challenge)
    if isinstance(error, ClientDisconnect):
        return problem(400, "the request ended before its body did")
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 0)
    if not status:
        status = 503
        logger.error("a request failed", exc_info=error)
    known = isinstance(error, FoldlogError)
    if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        detail = "the log cannot be reached now; send the same again"
        return problem(
            status, detail, headers={"Retry-After": str(RETRY_AFTER_S)}, error=_name(error, known=known)
        )
    wait = {"Retry-After": str(RETRY_AFTER_S)} if status == http.HTTPStatus.TOO_MANY_REQUESTS else {}
    return problem(status, str(error), headers=wait, error=_name(error, known=known))


def _name(error: Exception, *, known: bool) -> str:
    return type(error).__name__ if known else ""
