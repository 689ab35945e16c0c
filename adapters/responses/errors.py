"""Errors as the Responses API answers them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..http.answers import answer_to

Endpoint = Callable[[Request], Awaitable[Response]]


class BadRequest(Exception):
    """A request that cannot be served (400); `param` names the parameter at fault, `code` the API's error code."""

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param, self.code = param, code


def answered(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint so that every exception becomes an error response."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:  # noqa: BLE001 - `answer_to` logs what it does not know
            return error_answer(error)

    return guarded


def error_answer(error: Exception) -> Response:
    """Return the error response for an exception."""
    if isinstance(error, BadRequest):
        return _answer(400, str(error), error.code, error.param)
    problem = answer_to(error)
    told = msgspec.json.decode(bytes(problem.body))
    status = 400 if problem.status_code == http.HTTPStatus.UNPROCESSABLE_ENTITY else problem.status_code
    headers = {k: v for k, v in problem.headers.items() if k in {"retry-after", "www-authenticate"}}
    return _answer(status, told["detail"], _CODES.get(status, told.get("error") or None), None, headers)


_CODES = {401: "invalid_api_key", 403: "insufficient_permissions", 429: "rate_limit_exceeded"}


def _answer(
    status: int, message: str, code: str | None, param: str | None, headers: dict[str, str] | None = None
) -> Response:
    kind = "server_error" if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Response(
        msgspec.json.encode({"error": error}), status, headers=headers, media_type="application/json"
    )
