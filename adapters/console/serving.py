"""Turn the table of routes into an ASGI application: requests are authorized, validated and answered in one place."""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...eventlog.events import AnswerKept
from ...runtime.shared.kept_answers import KeptAnswers
from ..http.answers import Refused
from ..http.bodies import check_json, read_body
from .identity import Actor, check_role
from .problems import problem_of
from .rates import Rates
from .routing import Answered, Call, Door, Nothing, Route

KEY_MAX = 256
KEPT_CHARACTERS_MAX = 200_000
"""Longer answers are not stored for their idempotency key: the logs of the runs have the same information."""
_REQUEST_ID = re.compile(r"[0-9A-Za-z]{26}|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


def api_app(door: Door, table: Iterable[Route]) -> Starlette:
    """Return the application of the routes, to be mounted at `/api/v1`."""
    return Starlette(
        routes=starlette_routes(door, table),
        exception_handlers={HTTPException: not_routed, Exception: _failed},
    )


def starlette_routes(door: Door, table: Iterable[Route]) -> list[StarletteRoute]:
    """Return the routes of a table as Starlette routes."""
    rates = Rates(door.runtime.log.clock.now)
    return [
        StarletteRoute(route.path, _Judged(door, route, rates).answer, methods=[route.method])
        for route in table
    ]


class _Judged:
    """An endpoint with authorization, rate limits, validation and idempotency around it."""

    def __init__(self, door: Door, route: Route, rates: Rates) -> None:
        self._door, self._route, self._rates = door, route, rates

    async def answer(self, request: Request) -> Response:
        """Answer a request. Every exception becomes a problem document."""
        request_id = request_id_of(request)
        try:
            if (refused := _bad_address(request.scope)) is not None:
                raise refused
            actor = self._door.identity.actor_of(request)
            if self._route.role is not None:
                actor = check_role(actor, self._route.role)
            async with self._rates.counted(self._route, request, actor):
                call = await self._call(request, actor or Actor("", "viewer"), request_id)
                if call.key and self._route.is_write and self._route.role is not None:
                    return await self._answered_once(call)
                return _response(request, self._route, await self._route.endpoint(call))
        except Exception as error:  # noqa: BLE001 - logged there, if it is not known
            return problem_of(error, request_id)

    async def _answered_once(self, call: Call[Any, Any]) -> Response:
        """Answer a request that has an idempotency key; repeating it returns the stored first answer."""
        if not self._route.keyed:
            raise Refused(422, "its answer is shown once, so this takes no Idempotency-Key")
        kept, name = KeptAnswers(self._door.runtime.log), call.actor.name
        lock = self._door.locks.setdefault(f"{name}\0{call.key}", asyncio.Lock())
        async with lock:
            found = await kept.find(name, call.key)
            if found is None:
                response = _response(call.request, self._route, await self._route.endpoint(call))
                if response.status_code >= HTTPStatus.BAD_REQUEST or isinstance(response, StreamingResponse):
                    return response
                body = bytes(response.body).decode()
                if len(body) > KEPT_CHARACTERS_MAX:
                    return response
                found = await kept.keep(name, call.key, call.digest, response.status_code, body)
                if found.body == body:
                    return response
            _check_same(found, call)
        headers = {"Idempotency-Replayed": "true"}
        return Response(found.body, found.status, headers=headers, media_type="application/json")

    async def _call(self, request: Request, actor: Actor, request_id: str) -> Call[Any, Any]:
        key = request.headers.get("idempotency-key", "")
        if len(key) > KEY_MAX or not key.isprintable() or not key.isascii():
            raise Refused(400, f"an Idempotency-Key is at most {KEY_MAX} printable ASCII characters")
        raw = b"" if self._route.body is None else await read_body(request, self._route.body_bytes_max)
        address = f"{request.method} {request.url.path}?{request.url.query}"
        return Call(
            door=self._door,
            request=request,
            actor=actor,
            query=None if self._route.query is None else _query(request, self._route.query),
            body=self._body(request, raw),
            digest=hashlib.sha256(address.encode() + b"\0" + raw).hexdigest() if key else "",
            request_id=request_id,
            key=key,
        )

    def _body(self, request: Request, raw: bytes) -> Any:
        wanted = self._route.body
        if wanted is None:
            return Nothing()
        if wanted is bytes:
            return raw
        if raw:
            check_json(request)
        try:
            return msgspec.json.decode(raw or b"{}", type=wanted)
        except msgspec.ValidationError as error:
            raise Refused(422, f"the body: {error}") from None
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not valid JSON") from None


def _check_same(found: AnswerKept, call: Call[Any, Any]) -> None:
    if found.request != call.digest:
        raise Refused(422, "this Idempotency-Key belongs to another request: use a new one")


def _bad_address(scope: Scope) -> Refused | None:
    """Return the refusal (400) of a query string that is not percent-encoded; None if it is."""
    if scope["query_string"].isascii():
        return None
    return Refused(400, "the parameters of an address are ASCII: encode others as %XX of UTF-8")


def _query(request: Request, wanted: type[Any]) -> Any:
    given = dict(request.query_params.multi_items())
    repeated = [name for name in given if len(request.query_params.getlist(name)) > 1]
    if repeated:
        raise Refused(422, f"the parameter {repeated[0]!r:.80} is given more than once")
    try:
        return msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(wanted))
        raise Refused(422, f"the parameters: {error}; known are {known or 'none'}") from None


def _response(request: Request, route: Route, given: Any) -> Response:
    if isinstance(given, Response):
        return given
    answered = given if isinstance(given, Answered) else Answered(given, route.status)
    body = msgspec.json.encode(answered.content)
    headers = dict(answered.headers)
    if route.method == "GET":
        headers["ETag"] = tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if tag in {
            each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")
        }:
            return Response(status_code=304, headers=headers)
    return Response(body, answered.status, headers=headers, media_type="application/json")


def request_id_of(request: Request) -> str:
    """Return the id that the shell has assigned to the request; empty outside the shell."""
    return str(request.scope.get("foldlog.request_id", ""))


async def not_routed(request: Request, error: Exception) -> Response:
    """Answer a request that matches no route."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    headers = (error.headers or {}) if isinstance(error, HTTPException) else {}
    allowed = headers.get("Allow", "")
    detail = f"this address takes {allowed} only" if allowed else "there is nothing at this address"
    inside = request_id_of(request)  # empty for an address outside the shell, such as one with a line break
    request_id = inside or str(uuid.uuid4())
    response = problem_of(Refused(status, detail), request_id)
    response.headers.update(headers if inside else {**headers, **_HEADERS, "X-Request-Id": request_id})
    return response


async def _failed(request: Request, error: Exception) -> Response:
    return problem_of(error, request_id_of(request))


class Shell:
    """Wraps API and page: checks the `Host` header, and adds `X-Request-Id` and security headers to each answer."""

    def __init__(self, app: ASGIApp, door: Door, headers: Mapping[str, str] = _HEADERS) -> None:
        self._app, self._door = app, door
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope)
        given = request.headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else self._door.runtime.log.clock.new_id()
        scope["foldlog.request_id"] = request_id

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message.get("headers", ())}
                more = [pair for pair in self._headers if pair[0] not in own]
                cors = self._cross_origin(request)
                message["headers"] = [
                    *message.get("headers", ()),
                    *more,
                    *cors,
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        if not self._door.options.serves_host(request.headers.get("host", "")):
            refused = Refused(421, "this host is not served here; `--allow-host` adds a name")
            await problem_of(refused, request_id)(scope, receive, send_named)
        elif (unread := _bad_address(scope)) is not None:
            await problem_of(unread, request_id)(scope, receive, send_named)
        elif request.method == "OPTIONS" and self._cross_origin(request):
            await Response(status_code=204)(scope, receive, send_named)
        else:
            await self._app(scope, receive, send_named)

    def _cross_origin(self, request: Request) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers for an allowed origin, whose pages may use a token but never cookies."""
        origin = request.headers.get("origin", "")
        if origin not in self._door.options.allow_origins:
            return []
        return [
            (b"access-control-allow-origin", origin.encode()),
            (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE"),
            (
                b"access-control-allow-headers",
                b"authorization, content-type, idempotency-key, x-request-id, last-event-id",
            ),
            (b"access-control-expose-headers", b"x-request-id, retry-after, etag"),
            (b"access-control-max-age", b"600"),
            (b"vary", b"origin"),
        ]


def shielded(routes: Iterable[StarletteRoute], door: Door) -> list[StarletteRoute]:
    """Return other routes with the API's protection: known hosts only, and security headers."""
    found = list(routes)
    for route in found:
        route.app = Shell(route.app, door)
    return found
