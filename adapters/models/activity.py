"""Report to the runtime every piece that a server sends, including keep-alives, for which the SDK yields no chunk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx2


class Heard(httpx2.AsyncByteStream):
    """The bytes of a response; calls `heard` for each piece."""

    def __init__(self, stream: httpx2.AsyncByteStream, heard: Callable[[], None]) -> None:
        self._stream, self._heard = stream, heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._heard()
            yield piece

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
