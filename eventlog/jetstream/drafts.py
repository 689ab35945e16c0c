"""Drafts: core messages, which a small stream in memory overhears for late readers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from ..errors import LogUnavailable
from ..ports import DraftPiece
from . import headers
from .layout import Layout
from .mailbox import Mailbox
from .streams import read_all, store
from .wire import Refused, Wire

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(DraftPiece)
_NEVER = headers.build((headers.EXPECTED_LAST, b"%d" % 2**62))


class JetStreamDrafts:
    """`Drafts` over core NATS."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout

    async def publish(self, root: str, piece: DraftPiece) -> None:
        """Send a piece to whoever follows. Raises `LogUnavailable` while there is no connection: the piece is lost."""
        unhurried = piece.channel == "tool_calls"  # nobody reads along; text leaves at once
        self._wire.publish(self._layout.draft(root, piece.run), _ENCODER.encode(piece), unhurried=unhurried)

    @contextlib.asynccontextmanager
    async def follow(self, root: str) -> AsyncIterator[AsyncIterator[DraftPiece]]:
        """The recent pieces of the family, then the new ones. Raises `LogUnavailable` when entered without a log.

        What is published while the connection is down is missing.
        """
        reader = _Reader()
        sid = await self._wire.subscribe(self._layout.drafts_of(root), reader.take)
        try:
            with contextlib.suppress(LogUnavailable):  # the live pieces come all the same
                await self._kept()
                kept = read_all(self._wire, self._layout.drafts, self._layout.drafts_of(root))
                reader.begin([message.data async for message in kept])
            yield reader
        finally:
            self._wire.unsubscribe(sid)
            reader.close()

    async def _kept(self) -> None:
        """Return when the stream has all that was published before: it takes its messages in one after the other.

        The message that asks for it cannot be stored, so that no reader comes upon it. Raises `LogUnavailable`.
        """
        with contextlib.suppress(Refused):
            await store(self._wire, self._layout.drafts_mark, b"", _NEVER)


class _Reader:
    """Live pieces, behind the recent ones that the stream kept; a piece that comes both ways is taken once."""

    def __init__(self) -> None:
        self._box = Mailbox[bytes]()
        self._doubled: set[bytes] = set()
        self._closed = False

    def take(self, _subject: bytes, _reply: bytes, _header: bytes, data: bytes) -> None:
        if data in self._doubled:
            self._doubled.discard(data)
        else:
            self._box.post(data)

    def begin(self, recent: list[bytes]) -> None:
        live = [*self._box.items]
        self._doubled = set(recent)
        self._box.items.clear()
        self._box.items.extend(recent)
        for data in live:
            self.take(b"", b"", b"", data)

    def close(self) -> None:
        self._closed = True
        self._box.wake()

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> DraftPiece:
        while not self._box.items:
            if self._closed:
                raise StopAsyncIteration
            await self._box.wait()
        return _DECODER.decode(self._box.items.popleft())
