"""The tool `http_request`: one request to a public address, with a bounded time and response size."""

from __future__ import annotations

import asyncio
import base64
import logging
import zlib
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal

import httpx2
import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import OnError, ToolEffect
from ...runtime.ports.evidence import Evidence
from ...runtime.ports.tools import Retryable, Tool, ToolFailed, ToolTimedOut
from ...runtime.tools.context import ToolContext
from ...runtime.tools.decorator import tool
from .addresses import PinnedTransport, is_any, is_public

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
METHODS: Final[tuple[Method, ...]] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READING: Final[frozenset[Method]] = frozenset({"GET", "HEAD"})
"""The methods that change nothing: a tool with no others is pure."""
_SAFE: Final = READING | {"OPTIONS"}
_ELSEWHERE: Final = frozenset({301, 302, 303})
_FAILED, _BROKE = 400, 500
REDIRECTS_MAX: Final = 5


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of requests.

    `methods` are those that a model may use. `private_addresses` also allows hosts outside the public Internet, such as
    this machine and its network. `timeout_s` bounds a whole request with its redirects, `body_bytes_max` the part of a
    body that is kept. `effect`: None means `pure` if only GET and HEAD are allowed, else `unsafe`.
    """

    methods: Collection[Method] = METHODS
    private_addresses: bool = False
    timeout_s: float = 30.0
    body_bytes_max: int = 1024 * 1024
    effect: ToolEffect | None = None

    def __post_init__(self) -> None:
        if not self.methods or not set(self.methods) <= set(METHODS):
            raise ConfigError(f"http_request: methods must be some of {', '.join(METHODS)}")


DEFAULT: Final = HttpSettings()
# No connection was established: the request was not sent.
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_HARMLESS: Final = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "foldlog"}
"""The only headers sent to another origin after a redirect: the model's headers were meant for the first one."""
_GZIP, _ANY, _BARE = 31, 47, -15
_WINDOW_BITS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ANY}
# Errors that a retry would not fix.
_HOPELESS: Final = (
    httpx2.InvalidURL,
    httpx2.LocalProtocolError,
    httpx2.TooManyRedirects,
    httpx2.UnsupportedProtocol,
)


def http_request_tool(
    settings: HttpSettings = DEFAULT,
    *,
    on_error: OnError = "doubt",
    transport: httpx2.AsyncBaseTransport | None = None,
) -> Tool:
    """Return the tool `http_request`. `on_error` is as in `tool`; `transport` replaces the network in tests.

    A redirect to another origin is followed without the given headers; if it would take a body there, the redirect
    itself is the result.

    The result has `status`, `url` (after redirects), `headers`, `body` (or `body_base64` if it is not text), and
    `truncated: true` if the body was longer than the part that is kept. Any status is a result, except for a request of
    an unsafe tool that may change something: 4xx means that the call failed and nothing was done, and 5xx, a lost
    connection or a timeout means that its outcome is in doubt. Such a request carries the call's idempotency key as
    `Idempotency-Key`.
    """
    effect = settings.effect or ("pure" if set(settings.methods) <= READING else "unsafe")
    return tool(effect=effect, on_error=on_error, timeout_s=settings.timeout_s + 5)(
        _Http(settings, transport, effect).http_request
    )


class _Http:
    def __init__(
        self, settings: HttpSettings, transport: httpx2.AsyncBaseTransport | None, effect: ToolEffect
    ) -> None:
        self._settings, self._transport, self._effect = settings, transport, effect

    async def http_request(  # noqa: D417 - The context is none of the model's.
        self,
        url: str,
        context: ToolContext,
        method: Method = "GET",
        headers: dict[str, str] | None = None,
        body: str | None = None,
    ) -> dict[str, Any]:
        """Make an HTTP request and return its status, headers and body.

        Args:
            url: An http or https address.
            method: The method.
            headers: Headers of the request.
            body: What to send, as text.
        """
        if method not in self._settings.methods:
            raise ToolFailed(f"the method {method} is not allowed, only {', '.join(self._settings.methods)}")
        request = _request(url, method, headers or {}, body, context.idempotency_key)
        changes, answers = method not in _SAFE, list[int]()
        try:
            async with asyncio.timeout(self._settings.timeout_s), self._client(answers) as client:
                answer = await self._answer(client, request)
        except TimeoutError:
            raise ToolTimedOut(self._settings.timeout_s, in_doubt=changes) from None
        except ToolFailed as error:
            error.in_doubt = changes and _acted(answers)
            raise
        except _HOPELESS as error:
            raise ToolFailed(f"{url}: {error}", in_doubt=changes and _acted(answers)) from None
        except httpx2.HTTPError as error:
            sent = _acted(answers) or not isinstance(error, _UNSENT)
            raise Retryable(
                f"{url}: {str(error) or type(error).__name__}", in_doubt=changes and sent
            ) from None
        context.observe(_seen(answer))
        if changes and self._effect == "unsafe" and answer["status"] >= _FAILED:
            problem = f"{answer['url']} answered HTTP {answer['status']}"
            raise ToolFailed(problem, result=answer, in_doubt=answer["status"] >= _BROKE or _acted(answers))
        return answer

    def _client(self, answers: list[int]) -> httpx2.AsyncClient:
        """Return a client that records the status of each response, redirects included."""

        async def note(response: httpx2.Response) -> None:
            answers.append(response.status_code)

        allowed = is_any if self._settings.private_addresses else is_public
        return httpx2.AsyncClient(
            transport=self._transport or PinnedTransport(allowed),
            timeout=self._settings.timeout_s,
            trust_env=False,
            event_hooks={"response": [note]},
        )

    async def _answer(self, client: httpx2.AsyncClient, request: httpx2.Request) -> dict[str, Any]:
        with unlogged():
            response = await followed(client, request)
            try:
                body, truncated = await read_body(response, self._settings.body_bytes_max)
            finally:
                await response.aclose()
        return {
            "status": response.status_code,
            "url": str(response.url),
            "headers": dict(response.headers),
            **_shown(body, response.charset_encoding or "utf-8", truncated=truncated),
        }


def _acted(answers: Collection[int]) -> bool:
    """Return whether a server may have acted before it redirected elsewhere; after a 307 or 308 it has not."""
    return not _ELSEWHERE.isdisjoint(answers)


async def followed(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Return the response after all redirects, unread; a redirect that would take a body elsewhere is the response."""
    for _ in range(REDIRECTS_MAX + 1):
        response = await client.send(request, stream=True)
        onward = _onward(request, response.next_request)
        if onward is None:
            return response
        await response.aclose()
        request = onward
    raise httpx2.TooManyRedirects("Exceeded maximum allowed redirects.", request=request)


def _onward(request: httpx2.Request, following: httpx2.Request | None) -> httpx2.Request | None:
    """Return the next request: unchanged for the same origin, without possible secrets for another one."""
    if following is None or following.url.origin == request.url.origin:
        return following
    if {"content-length", "transfer-encoding"} & following.headers.keys():
        return None
    return httpx2.Request(following.method, following.url, headers=_HARMLESS)


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def _is_told(_: logging.LogRecord) -> bool:
    return not _quiet.get()


for _name in ("httpx2", "httpcore2.connection", "httpcore2.http11"):
    logging.getLogger(_name).addFilter(_is_told)


@contextmanager
def unlogged() -> Iterator[None]:
    """Silence the libraries, which log addresses and headers: these may contain the value of a secret."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _seen(answer: dict[str, Any]) -> Evidence:
    media_type = answer["headers"].get("content-type", "text/plain")
    return Evidence(http_status=answer["status"], text=answer.get("body"), text_type=media_type)


def _request(url: str, method: Method, headers: dict[str, str], body: str | None, key: str) -> httpx2.Request:
    try:
        parsed = httpx2.URL(url)
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise ToolFailed(f"{url!r} is not an http or https address")
        content = body.encode() if body is not None else None
        request = httpx2.Request(method, parsed, headers=headers, content=content)
    except (httpx2.InvalidURL, ValueError, TypeError) as error:
        raise ToolFailed(f"{url!r} cannot be requested: {error}") from None
    request.headers.setdefault("accept-encoding", "identity")
    request.headers.setdefault("user-agent", "foldlog")
    if method not in READING:
        request.headers.setdefault("idempotency-key", key)
    return request


def request_to(url: str) -> httpx2.Request:
    """Return a GET of an address. Raises `ToolFailed` for anything else."""
    return _request(url, "GET", {}, None, "")


async def read_body(response: httpx2.Response, size_bytes_max: int) -> tuple[bytes, bool]:
    """Return at most `size_bytes_max` of the body, and whether there is more. No more than that is decompressed."""
    body = bytearray()
    async for chunk in _unpacked(response, size_bytes_max + 1):
        body += chunk
        if len(body) > size_bytes_max:
            return bytes(body[:size_bytes_max]), True
    return bytes(body), False


async def _unpacked(response: httpx2.Response, size_bytes_max: int) -> AsyncIterator[bytes]:
    """Yield the body in pieces of bounded size. A server may compress it although it was asked not to.

    Encodings other than the two of HTTP/1.1 are not decompressed.
    """
    bits = _WINDOW_BITS.get(response.headers.get("content-encoding", "").strip().lower())
    if bits is None:
        async for chunk in response.aiter_raw():
            yield chunk
        return
    unpacker = None
    async for chunk in response.aiter_raw():
        if unpacker is None:
            is_bare = bits == _ANY and chunk[:1] and chunk[0] & 0x0F != zlib.DEFLATED  # no zlib header
            unpacker = zlib.decompressobj(_BARE if is_bare else bits)
        try:
            yield unpacker.decompress(chunk, size_bytes_max)
        except zlib.error as error:
            raise httpx2.DecodingError(f"the body cannot be decompressed: {error}") from None
        if unpacker.unconsumed_tail:  # there is more than is kept
            return


def _shown(body: bytes, charset: str, *, truncated: bool) -> dict[str, Any]:
    mark = {"truncated": True} if truncated else {}
    try:
        # The body may be cut within a character.
        return {
            "body": body.decode(charset, "ignore" if truncated and b"\0" not in body else "strict"),
            **mark,
        }
    except (LookupError, UnicodeDecodeError):
        return {"body_base64": base64.b64encode(body).decode(), **mark}
