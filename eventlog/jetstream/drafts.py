"""Drafts: core NATS messages, which a small stream in memory also records for late readers.

A piece must be shown at once, but each message costs writer, server and reader more than its text. So the first piece
in a turn of the event loop is sent at once; later pieces of the same turn are held, and those that continue one another
are sent as one at its end. Publishing never waits, and a piece may be lost: the complete text is in the log.

A late reader subscribes first and then reads the recorded pieces, so that nothing is missed; pieces that come both ways
are dropped once. Before it reads, it sends a message whose condition cannot hold: the stream's refusal shows that it
has taken in everything published before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec

from ..errors import LogUnavailable
from ..ports import DraftPiece
from . import headers
from .layout import Layout
from .mailbox import Mailbox
from .streams import read_all, store
from .wire import Done, Refused, Wire

JOINED_MAX = 32
"""The most pieces that are joined; more are sent at once, while the next ones are prepared."""
JOINED_CHARS_MAX = 16 * 1024
PIECE_CHARS_MAX = 64 * 1024
"""The largest piece: a character takes up to six bytes, and a message may have a megabyte."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(DraftPiece)
_NEVER = headers.build((headers.EXPECTED_LAST, b"%d" % 2**62))


class JetStreamDrafts:
    """`Drafts` over core NATS."""

    def __init__(self, wire: Wire, layout: Layout) -> None:
        self._wire, self._layout = wire, layout
        self._in_turn = False
        self._held = _Held()

    async def publish(self, root: str, piece: DraftPiece) -> None:
        """Send a piece to all followers. Raises `LogUnavailable` without a connection; the piece is then lost."""
        for part in _parts(piece):
            self._publish(root, part)

    def _publish(self, root: str, piece: DraftPiece) -> None:
        if self._in_turn:
            if not self._held.takes(root, piece):
                self._send_held()
            self._held.add(root, piece)
            return
        self._send(root, piece)
        self._in_turn = True
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._in_turn = False
        self._send_held()

    def _send_held(self) -> None:
        held, self._held = self._held, _Held()
        if held.pieces and self._wire.is_up:
            self._send(held.root, held.joined())

    def _send(self, root: str, piece: DraftPiece) -> None:
        data = _ENCODER.encode(piece)
        if (
            len(data) > self._wire.payload_bytes_max
        ):  # possible with a very long name; the server would disconnect
            return
        unhurried = piece.channel == "tool_calls"  # only text is read while it is written
        self._wire.publish(self._layout.draft(root, piece.run), data, unhurried=unhurried)
        if not unhurried:
            self._wire.flush()

    @contextlib.asynccontextmanager
    async def follow(self, root: str) -> AsyncIterator[AsyncIterator[DraftPiece]]:
        """Yield the recent pieces of the family, then new ones. Raises `LogUnavailable` when entered without a log.

        Pieces that are published while the connection is down are missing.
        """
        reader = _Reader()
        sid = await self._wire.subscribe(self._layout.drafts_of(root), reader.take)
        try:
            with contextlib.suppress(LogUnavailable):  # live pieces come anyway
                await self._kept()
                kept = read_all(self._wire, self._layout.drafts, self._layout.drafts_of(root))
                reader.begin([message.data async for message in kept])
            yield reader
        finally:
            self._wire.unsubscribe(sid)
            reader.close()

    async def purge(self, root: str) -> None:
        """Remove the recorded pieces of the family. Raises `LogUnavailable`."""
        body = {"filter": self._layout.drafts_of(root).decode()}
        await self._wire.api(f"STREAM.PURGE.{self._layout.drafts}", body, Done)

    async def _kept(self) -> None:
        """Return once the stream has recorded everything published before, because it takes messages in order.

        The message that is sent for this has a condition that never holds, so it is not stored. Raises
        `LogUnavailable`.
        """
        with contextlib.suppress(Refused):
            await store(self._wire, self._layout.drafts_mark, b"", _NEVER)


def _parts(piece: DraftPiece) -> Iterator[DraftPiece]:
    """Split a piece so that each part fits into a message."""
    if len(piece.text) <= PIECE_CHARS_MAX:
        yield piece
        return
    for start in range(0, len(piece.text), PIECE_CHARS_MAX):
        text = piece.text[start : start + PIECE_CHARS_MAX]
        yield msgspec.structs.replace(piece, text=text, offset=piece.offset + start)


class _Held:
    """Held pieces of one run that continue one another."""

    __slots__ = ("_end", "pieces", "root")

    def __init__(self) -> None:
        self.root, self.pieces = "", list[DraftPiece]()
        self._end = 0  # the offset after the last of them

    def takes(self, root: str, piece: DraftPiece) -> bool:
        """Return whether the piece continues the held ones, and they are not too many yet."""
        if not self.pieces:
            return True
        first = self.pieces[0]
        same = (first.run, first.step, first.attempt, first.epoch, first.channel, first.index)
        return (
            piece.offset == self._end
            and (piece.run, piece.step, piece.attempt, piece.epoch, piece.channel, piece.index) == same
            and (self.root, first.tool_name) == (root, piece.tool_name)
            and len(self.pieces) < JOINED_MAX
            and self._end - first.offset < JOINED_CHARS_MAX
        )

    def add(self, root: str, piece: DraftPiece) -> None:
        self.root, self._end = root, piece.offset + len(piece.text)
        self.pieces.append(piece)

    def joined(self) -> DraftPiece:
        """Return one piece with the text of all."""
        if len(self.pieces) == 1:
            return self.pieces[0]
        return msgspec.structs.replace(self.pieces[0], text="".join(piece.text for piece in self.pieces))


class _Reader:
    """Yields the recorded pieces and then the live ones; a piece that comes both ways is yielded once."""

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
