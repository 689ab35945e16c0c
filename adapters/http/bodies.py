"""Request bodies: read up to a limit, and parsed only after the caller is identified (H1)."""

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
"""How many seconds a sender may take to send its body."""


def check_json(request: Request) -> None:
    """Raise `Refused` (415) unless the content type is JSON."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json" and not (given.startswith("application/") and given.endswith("+json")):
        raise Refused(415, "the body must be JSON: send it as application/json")


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Read the body, of at most `bytes_max` bytes. Raises `Refused` (408 if it is too slow, 413 if too large)."""
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
    """Parse the body. Raises `Refused` (400)."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and so is text that is not UTF-8
        raise Refused(400, "the body is not valid JSON") from None


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` that yields a body already read, then the messages of the original one."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return given.pop() if given else await receive()

    return received


def _too_large(bytes_max: int) -> Refused:
    return Refused(413, f"the body has more than {bytes_max:,} bytes")
