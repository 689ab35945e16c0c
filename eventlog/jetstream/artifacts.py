"""Artifacts: chunks under the digest of the whole content, each stored once.

The subject of a chunk includes the number of chunks, so a reader knows whether it has all. A writer that repeats an
interrupted `put` completes it.
"""

from __future__ import annotations

import asyncio
import contextlib

from ..commits import digest_of_bytes
from ..errors import LogCorrupted
from . import headers
from .layout import Layout
from .streams import WrongPosition, read_all, store
from .wire import Wire

CHUNK_BYTES = 512 * 1024
CHUNKS_IN_FLIGHT = 4

HEADER_ROOM_BYTES = 1024


class JetStreamArtifacts:
    """`Artifacts` in a separate stream."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout

    async def put(self, data: bytes) -> str:
        """Store the bytes and return their digest. Raises `LogUnavailable`: repeat it."""
        digest = await asyncio.to_thread(digest_of_bytes, data)
        size = min(CHUNK_BYTES, self._wire.payload_bytes_max - HEADER_ROOM_BYTES)
        count = max(1, -(-len(data) // size))
        for first in range(0, count, CHUNKS_IN_FLIGHT):
            indices = range(first, min(first + CHUNKS_IN_FLIGHT, count))
            await asyncio.gather(
                *(self._put_chunk(digest, i, count, data[i * size : (i + 1) * size]) for i in indices)
            )
        return digest

    async def _put_chunk(self, digest: str, index: int, count: int, data: bytes) -> None:
        subject = self._layout.chunk(digest, index, count)
        with contextlib.suppress(WrongPosition):  # it is there already
            await store(self._wire, subject, data, headers.build((headers.EXPECTED, b"0")))

    async def get(self, digest: str) -> bytes:
        """Return the bytes. Raises `KeyError` if there are none, `LogCorrupted` if some are missing or altered."""
        sets: dict[int, dict[int, bytes]] = {}
        async for message in read_all(self._wire, self._layout.artifacts, self._layout.chunks_of(digest)):
            *_, total, number = message.subject.split(b".")
            sets.setdefault(int(total), {})[int(number)] = message.data
        if not sets:
            raise KeyError(digest)
        for count, chunks in sets.items():
            if len(chunks) == count:
                data = b"".join(chunks[index] for index in range(count))
                if await asyncio.to_thread(digest_of_bytes, data) == digest:
                    return data
        raise LogCorrupted(f"(artifact {digest})", 0, "its bytes are incomplete, or do not match its digest")
