"""Snapshots: chunks under a name of their own for each, and the one before is purged once the next is whole.

So a writer that dies half way leaves the one before, and two writers at once leave one of them, or chunks of neither.
"""

from __future__ import annotations

import asyncio

import msgspec

from ..commits import digest_of_bytes
from .artifacts import CHUNK_BYTES, CHUNKS_IN_FLIGHT, HEADER_ROOM_BYTES
from .layout import Layout
from .streams import read_all, store
from .wire import Wire

_NAME_DIGITS = 32


class _Purged(msgspec.Struct, frozen=True):
    purged: int = 0


class JetStreamSnapshots:
    """`Snapshots` in a stream of their own."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout

    async def put(self, run: str, data: bytes) -> None:
        """Keep this for the run, in place of what was kept before. Raises `LogUnavailable`."""
        name = digest_of_bytes(data)[:_NAME_DIGITS]
        size = min(CHUNK_BYTES, self._wire.payload_bytes_max - HEADER_ROOM_BYTES)
        cuts = range(0, max(1, len(data)), size)
        chunks = [
            (self._layout.snapshot(run, name, index, len(cuts)), data[at : at + size])
            for index, at in enumerate(cuts)
        ]
        positions: list[int] = []
        for first in range(0, len(chunks), CHUNKS_IN_FLIGHT):
            some = chunks[first : first + CHUNKS_IN_FLIGHT]
            positions += await asyncio.gather(*(store(self._wire, subject, part) for subject, part in some))
        before = {"filter": self._layout.snapshots_of(run).decode(), "seq": min(positions)}
        await self._wire.api(f"STREAM.PURGE.{self._layout.snapshots}", before, _Purged)

    async def get(self, run: str) -> bytes | None:
        """The newest that is whole. Raises `LogUnavailable`."""
        sets: dict[tuple[bytes, int], dict[int, bytes]] = {}
        async for message in read_all(self._wire, self._layout.snapshots, self._layout.snapshots_of(run)):
            *_, name, count, index = message.subject.split(b".")
            chunks = sets.pop((name, int(count)), {})
            sets[name, int(count)] = {**chunks, int(index): message.data}  # last again
        for (name, chunks_in_all), chunks in reversed(sets.items()):
            data = b"".join(chunks[number] for number in sorted(chunks))
            if len(chunks) == chunks_in_all and digest_of_bytes(data)[:_NAME_DIGITS].encode() == name:
                return data
        return None
