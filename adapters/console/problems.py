"""Errors as problem documents (RFC 9457): the message that the command line would show, and the error's attributes."""

from __future__ import annotations

import http
import logging
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ...eventlog.errors import (
    AgentChanged,
    AgentConfigError,
    AgentNotFound,
    ApprovalError,
    Conflict,
    FoldlogError,
    KeyMissing,
    LogCorrupted,
    LogUnavailable,
    PayloadTooLarge,
    PlanChanged,
    PlanNotFound,
    RunConflict,
    RunFinished,
    RunGone,
    RunNotFound,
    RunOpen,
    ScheduleNotFound,
    SessionBusy,
    TooManySignals,
    UnsupportedByExecutor,
)
from ..http.answers import RETRY_AFTER_S, Refused

logger = logging.getLogger("foldlog.http")

_STATUS: tuple[tuple[type[Exception], int], ...] = (  # the first that fits
    (LogUnavailable, 503),
    (KeyMissing, 503),
    (Conflict, 503),
    (TimeoutError, 503),
    (RunGone, 410),
    (RunNotFound, 404),
    (ScheduleNotFound, 404),
    (AgentNotFound, 404),
    (AgentChanged, 409),
    (PlanNotFound, 404),
    (PlanChanged, 409),
    (RunFinished, 409),
    (RunOpen, 409),
    (RunConflict, 409),
    (SessionBusy, 409),
    (ApprovalError, 409),
    (PayloadTooLarge, 413),
    (TooManySignals, 429),
    (UnsupportedByExecutor, 422),
    (LogCorrupted, 500),
    (FoldlogError, 422),
)
_CARRIED: dict[type[Exception], dict[str, str]] = {
    UnsupportedByExecutor: {"feature": "feature", "executor": "executor", "remedy": "remedy"},
    PayloadTooLarge: {"size": "size_bytes", "limit": "limit_bytes"},
    LogCorrupted: {"run": "run", "revision": "revision", "expected": "expected"},
    RunConflict: {"run_id": "run_id"},
    AgentChanged: {"version": "version"},
    PlanChanged: {"version": "version"},
    RunOpen: {"run_id": "run_id"},
    RunGone: {"run_id": "run_id", "how": "how", "at": "at", "url": "url"},
}
"""The attributes of an error that its problem document contains, by their names in the document."""


class Problem(Refused):
    """A request that is answered with a problem document with additional members."""

    def __init__(self, status: int, detail: str, *, error: str = "", **members: Any) -> None:
        super().__init__(status, detail)
        self.error, self.members = error, members


def problem_of(error: Exception, request_id: str) -> Response:
    """Return the problem document for an exception."""
    headers: dict[str, str] = {}
    members: dict[str, Any] = {}
    name = type(error).__name__ if isinstance(error, FoldlogError) else ""
    match error:
        case Refused():
            status, detail = error.status, error.detail
            if error.retry_after_s is not None:
                headers["Retry-After"] = str(error.retry_after_s)
            if isinstance(error, Problem):
                name, members = error.error, error.members
        case HTTPException():
            status, detail = error.status_code, str(error.detail)
        case ClientDisconnect():
            status, detail = 400, "the request ended before its body did"
        case _:
            status = status_of(error)
            detail = str(error)
            members = _members(error)
            if not isinstance(error, FoldlogError | TimeoutError):
                logger.error("request %s failed", request_id, exc_info=error)
                detail = "the server could not answer; its log has the reason under this request_id"
    if status == http.HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
        detail = detail or "the log did not answer in time"
    return _document(status, detail, name, members | {"request_id": request_id}, headers)


def status_of(error: Exception) -> int:
    """Return the HTTP status for an exception."""
    if isinstance(error, Refused):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def _members(error: Exception) -> dict[str, Any]:
    if isinstance(error, AgentConfigError):
        return {"problems": [problem._asdict() for problem in error.problems]}
    found = next((names for kind, names in _CARRIED.items() if isinstance(error, kind)), {})
    return {name: getattr(error, attribute) for name, attribute in found.items()}


def _document(
    status: int, detail: str, error: str, members: dict[str, Any], headers: dict[str, str]
) -> Response:
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    content |= ({"error": error} if error else {}) | members
    body = msgspec.json.encode(content)
    return Response(body, status, headers=headers, media_type="application/problem+json")
