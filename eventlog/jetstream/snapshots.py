"""Snapshots: chunks under a unique name for each snapshot; the last one is overwritten once the next is complete.

So a writer that dies in between leaves the last one, and two concurrent writers leave one of theirs, or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..commits import digest_of_bytes
from .artifacts import CHUNK_BYTES, CHUNKS_IN_FLIGHT, HEADER_ROOM_BYTES
from .layout import Layout
from .removals import Places, overwrite, places_of
from .streams import read_all, store
from .wire import Wire

_NAME_DIGITS = 32
REMEMBERED_MAX = 4096
"""The most runs of which a process knows where it has stored the last value."""


class JetStreamSnapshots:
    """`Snapshots` in a separate stream."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout
        self._last: dict[str, Sequence[int]] = {}
        """The positions of the last value that this process has stored for a run."""

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
        last = self._last.pop(run, None)
        self._last[run] = tuple(positions)
        if len(self._last) > REMEMBERED_MAX:
            del self._last[next(iter(self._last))]
        if last is None:  # of another process, or none
            last = (await self._places(run, min(positions))).messages
        await overwrite(self._wire, self._layout.snapshots, last)

    async def purge(self, run: str) -> None:
        """Remove the value of a run. Raises `LogUnavailable`."""
        self._last.pop(run, None)
        await overwrite(self._wire, self._layout.snapshots, (await self._places(run)).messages)

    async def _places(self, run: str, below: int | None = None) -> Places:
        return await places_of(self._wire, self._layout.snapshots, self._layout.snapshots_of(run), below)

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
