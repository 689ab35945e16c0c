"""Snapshots: chunks under a unique name for each snapshot; the last one is purged once the next is complete.

So a writer that dies in between leaves the last one, and two concurrent writers leave one of theirs, or none.
"""

from __future__ import annotations

import asyncio

from ..commits import digest_of_bytes
from .artifacts import CHUNK_BYTES, CHUNKS_IN_FLIGHT, HEADER_ROOM_BYTES
from .layout import Layout
from .streams import read_all, store
from .wire import Done, Wire

_NAME_DIGITS = 32


class JetStreamSnapshots:
    """`Snapshots` in a separate stream."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout

    async def put(self, run: str, data: bytes) -> None:
        """Store the value for the run, replacing any other. Raises `LogUnavailable`."""
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
        await self._wire.api(f"STREAM.PURGE.{self._layout.snapshots}", before, Done)

    async def purge(self, run: str) -> None:
        """Remove the value of a run. Raises `LogUnavailable`."""
        every = {"filter": self._layout.snapshots_of(run).decode()}
        await self._wire.api(f"STREAM.PURGE.{self._layout.snapshots}", every, Done)

    async def get(self, run: str) -> bytes | None:
        """Return the newest complete value. Raises `LogUnavailable`."""
        sets: dict[tuple[bytes, int], dict[int, bytes]] = {}
        async for message in read_all(self._wire, self._layout.snapshots, self._layout.snapshots_of(run)):
            *_, name, count, index = message.subject.split(b".")
            chunks = sets.pop((name, int(count)), {})
            sets[name, int(count)] = {**chunks, int(index): message.data}  # moved to the end
        for (name, chunks_in_all), chunks in reversed(sets.items()):
            data = b"".join(chunks[number] for number in sorted(chunks))
            if len(chunks) == chunks_in_all and digest_of_bytes(data)[:_NAME_DIGITS].encode() == name:
                return data
        return None
