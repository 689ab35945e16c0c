"""Wrapped keys: a stream of their own, which is made with the first of them and is in no backup.

Each value is a message on the subject of its name. The one before it is deleted by its position, so that the server
overwrites its bytes; a purge, or a limit of messages for a subject, would leave them in the file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from ..clock import Clock
from ..errors import Conflict
from ..ports import At
from . import headers
from .layout import Layout
from .opening import Namespace
from .removals import overwrite, places_of
from .streams import WrongPosition, read_lasts, store
from .wire import NoResponders, Refused, Wire

UNUSED_S = 30.0
"""The time for which a process remembers that an owner has no key, in seconds."""
_STREAM_NOT_FOUND, _NO_MESSAGE = 10059, 10037


class _Stored(msgspec.Struct, frozen=True):
    seq: int
    data: bytes = b""


class _Got(msgspec.Struct, frozen=True):
    message: _Stored


class _Info(msgspec.Struct, frozen=True):
    config: dict[str, object]


class JetStreamKeys:
    """`Keys` in a separate stream."""

    def __init__(self, wire: Wire, layout: Layout, keeper: Namespace, clock: Clock) -> None:
        self._wire, self._layout, self._keeper, self._clock = wire, layout, keeper, clock
        self._unused_at: float | None = None
        """The last time at which the stream was looked for and not found, on the clock's monotonic time."""

    async def in_use(self) -> bool:
        """Return whether there is the stream; a no is believed for `UNUSED_S`. Raises `LogUnavailable`."""
        now = self._clock.monotonic()
        if self._unused_at is None or now - self._unused_at >= UNUSED_S:
            self._unused_at = None if await self._exists() else now
        return self._unused_at is None

    async def _exists(self) -> bool:
        try:
            await self._wire.api(f"STREAM.INFO.{self._layout.keys}", None, _Info)
        except Refused as refused:
            if refused.err_code == _STREAM_NOT_FOUND:
                return False
            raise
        return True

    async def get(self, name: str) -> tuple[int, bytes] | None:
        """Return the position and the value of a name; null for none. Raises `LogUnavailable`.

        Only the stream's leader answers, so an erased key is not found on a replica that lags.
        """
        body = {"last_by_subj": self._layout.key(name).decode()}
        try:
            found = (await self._wire.api(f"STREAM.MSG.GET.{self._layout.keys}", body, _Got)).message
        except Refused as refused:
            if refused.err_code in {_STREAM_NOT_FOUND, _NO_MESSAGE}:
                return None
            raise
        return found.seq, found.data

    async def put(self, name: str, data: bytes, expected: At) -> int:
        """Store a value in place of the one at the expected position. Raises `Conflict`, `LogUnavailable`."""
        subject = self._layout.key(name)
        header = headers.build((headers.EXPECTED, b"%d" % expected.position))
        try:
            try:
                position = await store(self._wire, subject, data, header)
            except NoResponders:
                await self._keeper.make_keys()
                position = await store(self._wire, subject, data, header)
        except WrongPosition as wrong:
            raise Conflict(f"the key {name} is not at position {expected.position}") from wrong
        await self._tidied(name, position, expected.position)
        return position

    async def tidy(self, name: str) -> None:
        """Overwrite what an interrupted `put` has left of earlier values. Raises `LogUnavailable`."""
        found = await self.get(name)
        if found is not None:
            await self._tidied(name, found[0], 0)

    async def _tidied(self, name: str, position: int, last: int) -> None:
        """Overwrite the values before a position, that at `last` among them even if no replica shows it."""
        stream = self._layout.keys
        places = await places_of(self._wire, stream, self._layout.key(name), position)
        await overwrite(self._wire, stream, sorted({*places.messages, last} - {0}))

    async def all(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """Yield the names with their positions and values. Raises `LogUnavailable`."""
        if not await self._exists():
            return
        async for message in read_lasts(self._wire, self._layout.keys, self._layout.key("*")):
            yield message.subject.rpartition(b".")[2].decode(), message.position, message.data
