"""Artifacts: chunks below their root, under the digest of the whole content, each stored once in a family.

The subject of a chunk includes the number of chunks, so a reader knows whether it has all. A writer that repeats an
interrupted `put` completes it.
"""

from __future__ import annotations

import asyncio
import contextlib

from ..commits import digest_of_bytes
from ..errors import LogCorrupted
from ..sealing.cipher import is_sealed
from . import headers
from .layout import ANY_ROOT, Layout
from .removals import erase, places_of
from .streams import WrongPosition, read_all, store
from .wire import Wire

CHUNK_BYTES = 512 * 1024
CHUNKS_IN_FLIGHT = 4

HEADER_ROOM_BYTES = 1024


class JetStreamArtifacts:
    """`Artifacts` in a separate stream."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout

    def of(self, root: str) -> JetStreamFamilyArtifacts:
        """Return the artifacts of the family of `root`."""
        return JetStreamFamilyArtifacts(self._wire, self._layout, root)

    async def find(self, digest: str) -> bytes:
        """Return the bytes, whatever family has them. Raises what `get` of a family raises."""
        return await _read(self._wire, self._layout, digest, self._layout.chunks_of(ANY_ROOT, digest))

    async def purge(self, root: str) -> None:
        """Remove all artifacts of a family. Raises `LogUnavailable`."""
        stream, subject = self._layout.artifacts, self._layout.artifacts_of(root)
        places = await places_of(self._wire, stream, subject)
        await erase(self._wire, self._layout, stream, [places])


class JetStreamFamilyArtifacts:
    """`FamilyArtifacts` in the artifacts' stream."""

    def __init__(self, wire: Wire, layout: Layout, root: str) -> None:
        self._wire, self._layout, self._root = wire, layout, root

    async def put(self, data: bytes, digest: str = "") -> str:
        """Store the bytes and return their digest. Raises `LogUnavailable`: repeat it."""
        digest = digest or await asyncio.to_thread(digest_of_bytes, data)
        size = min(CHUNK_BYTES, self._wire.payload_bytes_max - HEADER_ROOM_BYTES)
        count = max(1, -(-len(data) // size))
        for first in range(0, count, CHUNKS_IN_FLIGHT):
            indices = range(first, min(first + CHUNKS_IN_FLIGHT, count))
            await asyncio.gather(
                *(self._put_chunk(digest, i, count, data[i * size : (i + 1) * size]) for i in indices)
            )
        return digest

    async def _put_chunk(self, digest: str, index: int, count: int, data: bytes) -> None:
        subject = self._layout.chunk(self._root, digest, index, count)
        with contextlib.suppress(WrongPosition):  # it is there already
            await store(self._wire, subject, data, headers.build((headers.EXPECTED, b"0")))

    async def get(self, digest: str) -> bytes:
        """Return the bytes. Raises `KeyError` if there are none, `LogCorrupted` if some are missing or altered."""
        subject = self._layout.chunks_of(self._root, digest)
        return await _read(self._wire, self._layout, digest, subject)


async def _read(wire: Wire, layout: Layout, digest: str, subject: bytes) -> bytes:
    sets: dict[tuple[bytes, int], dict[int, bytes]] = {}
    async for message in read_all(wire, layout.artifacts, subject):
        *_, root, _digest, total, number = message.subject.split(b".")
        sets.setdefault((root, int(total)), {})[int(number)] = message.data
    if not sets:
        raise KeyError(digest)
    for (_root, count), chunks in sets.items():
        if len(chunks) == count:
            data = b"".join(chunks[index] for index in range(count))
            if is_sealed(data) or await asyncio.to_thread(digest_of_bytes, data) == digest:
                return data
    raise LogCorrupted(f"(artifact {digest})", 0, "its bytes are incomplete, or do not match its digest")
