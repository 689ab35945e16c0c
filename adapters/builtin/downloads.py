"""Download a file for `File.fetch()`, by the rules of `http_request`: from public addresses only."""

from __future__ import annotations

import asyncio

import httpx2

from ...runtime.ports.tools import Retryable, ToolFailed, ToolTimedOut
from .addresses import PinnedTransport, is_public
from .http_request import DEFAULT, followed, read_body, request_to, unlogged

_FAILED = 400


async def fetched(
    url: str, size_bytes_max: int, *, transport: httpx2.AsyncBaseTransport | None = None
) -> tuple[bytes, str]:
    """Return the bytes at the address, and the media type that the server states. Raises `ToolFailed`.

    `transport` replaces the network in tests.
    """
    client = httpx2.AsyncClient(
        transport=transport or PinnedTransport(is_public), timeout=DEFAULT.timeout_s, trust_env=False
    )
    try:
        async with asyncio.timeout(DEFAULT.timeout_s), client:
            with unlogged():
                response = await followed(client, request_to(url))
                try:
                    data, more = await read_body(response, size_bytes_max)
                finally:
                    await response.aclose()
    except TimeoutError:
        raise ToolTimedOut(DEFAULT.timeout_s, in_doubt=False) from None
    except httpx2.HTTPError as error:
        raise Retryable(f"{url}: {str(error) or type(error).__name__}") from None
    if response.status_code >= _FAILED:
        raise ToolFailed(f"{url} answered HTTP {response.status_code}")
    if more:
        raise ToolFailed(f"{url} has more than the {size_bytes_max:,} bytes of one file")
    return data, str(response.headers.get("content-type", ""))
