"""The bodies of requests: read up to a limit, and parsed only where the caller is known (H1)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive

from .answers import Refused

BODY_BYTES_MAX = 1 << 20
"""The largest body of a webhook."""
BODY_S = 30.0
"""The time that a sender has for its body."""


def check_json(request: Request) -> None:
    """Raise `Refused` (415) for a body that is not declared as JSON."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json" and not (given.startswith("application/") and given.endswith("+json")):
        raise Refused(415, "the body must be JSON: send it as application/json")


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return the bytes of the body. Raises `Refused` (408, 413)."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) > len(str(bytes_max)) + 1:
        raise _too_large(bytes_max)
    if declared.isdecimal() and int(declared) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise _too_large(bytes_max)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_S:g} s") from None
    return bytes(body)


def parse_json(body: bytes) -> Any:
    """Return what the JSON says. Raises `Refused` (400)."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and so is text that is not UTF-8
        raise Refused(400, "the body is not valid JSON") from None


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receiver of a body that was read, and of what follows it."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return given.pop() if given else await receive()

    return received


def _too_large(bytes_max: int) -> Refused:
    return Refused(413, f"the body has more than {bytes_max:,} bytes")
