"""Telling the runtime of all that a server sends: keep-alives, too, of which the SDK makes no chunk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx2


class Heard(httpx2.AsyncByteStream):
    """The bytes of a response; with each piece of them `heard` is called."""

    def __init__(self, stream: httpx2.AsyncByteStream, heard: Callable[[], None]) -> None:
        self._stream, self._heard = stream, heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._heard()
            yield piece

    async def aclose(self) -> None:
        """Close the connection, as without this."""
        await self._stream.aclose()
