"""Seals: records of a shard's content up to a position, stored outside of its stream.

A missing position within a stream is evident (`audit`). The loss of a stream's end is not, because the server assigns
the lost positions again. So every writer stores a seal every few thousand positions and when its log is closed: the
last position of the shard, the number of messages and the runs since the last seal, and a digest of those messages. An
audit computes the same from the stream and compares.

The seals of a shard form a hash chain in the stream of the artifacts, which is in other files on the server's disk. A
writer appends its seal after the last one that it has read, with an expected position; of several writers one succeeds,
and the others do not need to retry, because the positions are sealed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator

import msgspec

from ..commits import digest_of_bytes
from ..errors import LogUnavailable
from . import headers
from .known_losses import known_losses
from .layout import Layout
from .removals import Removed, removed
from .streams import Message, WrongPosition, read_all, read_last, read_stream, store
from .wire import Wire

SEAL_EVERY = 4096
"""The most positions that a seal covers, and about how many a writer appends before it seals."""
TRIES = 10
"""The attempts of a closing log to seal, if others seal at the same moment."""

_log = logging.getLogger(__name__)
_ENCODER = msgspec.json.Encoder()


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The content of positions `first` to `last` of a shard: the number of lasting messages, their runs and digest.

    `number` counts the shard's seals from 1; `before` is the SHA-256 (hex) of the previous seal as stored.
    """

    shard: int
    number: int
    before: str
    first: int
    last: int
    messages: int
    runs: tuple[str, ...]
    digest: str


_DECODER = msgspec.json.Decoder(Seal)


class Reckoning:
    """Accounts for a shard's positions in order: each has a message, or belonged to a schedule.

    A schedule is removed when it is due, replaced or cancelled; the message before it announces it.
    """

    def __init__(self, layout: Layout, shard: int, after: int = 0) -> None:
        self._prefix = f"{layout.prefix(shard)}.".encode()
        self._after = after
        self._timers_to = after
        self.last = after
        self._begin()

    def _begin(self) -> None:
        self._first, self._sha, self._messages = self.last + 1, hashlib.sha256(), 0
        self._runs: dict[str, None] = {}

    def take(self, message: Message) -> tuple[int, int] | None:
        """Take the next message; returns the first and last position that are missing before it, if any."""
        gap = self.gap(message.position - 1)
        self.last = max(self.last, message.position)
        if message.timers:
            self._timers_to = message.position + message.timers
        kind, _, rest = message.subject.removeprefix(self._prefix).partition(b".")
        if kind != b"timer":
            self._messages += 1
            self._sha.update(b"%d %b %d\n" % (message.position, message.subject, len(message.data)))
            self._sha.update(message.data)
        if kind == b"run":
            self._runs[rest.rpartition(b".")[2].decode()] = None
        return gap

    def gap(self, to: int) -> tuple[int, int] | None:
        """Return the positions missing between the last message and this position, apart from schedules."""
        first = max(self.last, self._timers_to) + 1
        return (first, to) if first <= to else None

    def seal(self, shard: int, number: int, before: str, to: int = 0) -> Seal:
        """Return the seal of the messages since the last one and the schedules right after them, or up to `to`."""
        self.last = to or max(self.last, self._timers_to)
        sealed = Seal(
            shard=shard,
            number=number,
            before=before,
            first=self._first,
            last=self.last,
            messages=self._messages,
            runs=tuple(self._runs),
            digest=self._sha.hexdigest(),
        )
        self._begin()
        return sealed


class Sealer:
    """Seals the shards that this process appends to."""

    def __init__(self, wire: Wire, layout: Layout, shards: int) -> None:
        self._wire, self._layout = wire, layout
        self._newest = [0] * shards
        self._due = [0] * shards
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def appended(self, shard: int, position: int) -> None:
        """Note an append of this process; from time to time this starts a task that seals."""
        self._newest[shard] = max(self._newest[shard], position)
        if not self._due[shard]:  # at random, so that not all writers seal at the same position
            self._due[shard] = position + SEAL_EVERY // 2 + secrets.randbelow(SEAL_EVERY)
        if position >= self._due[shard] and (shard not in self._tasks or self._tasks[shard].done()):
            self._due[shard] = position + SEAL_EVERY
            self._tasks[shard] = asyncio.create_task(self._seal(shard, SEAL_EVERY))

    async def close(self) -> None:
        """Seal what this process has stored; does nothing while the log is unavailable."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._wire.is_up:
            await asyncio.gather(
                *(self._seal(shard, 1, tries=TRIES) for shard, newest in enumerate(self._newest) if newest)
            )

    async def _seal(self, shard: int, positions_min: int, tries: int = 1) -> None:
        """Seal the shard if at least `positions_min` positions are not sealed. A seal that fails is written later.

        Another process, or a cancelled task whose seal was in flight, may have sealed meanwhile, but not as far: with
        further tries, the rest is sealed after it.
        """
        try:
            for _ in range(tries):
                with contextlib.suppress(WrongPosition):
                    await seal_shard(self._wire, self._layout, shard, self._newest[shard], positions_min)
                    return
        except (LogUnavailable, ValueError) as error:
            _log.info("shard %d is not sealed: %s", shard, error)


async def seal_shard(wire: Wire, layout: Layout, shard: int, to: int, positions_min: int = 1) -> None:
    """Write the seals up to position `to`, if at least `positions_min` positions are not sealed yet.

    Nothing is sealed after a loss that no operator has accepted. Raises `WrongPosition` if another process seals,
    `LogUnavailable`, and `ValueError` for an invalid last seal.
    """
    subject = layout.seal(shard)
    last = await read_last(wire, layout.artifacts, subject)
    before = _decoded(last.data) if last is not None else None
    after = before.last if before is not None else 0
    if to - after < positions_min:
        return
    position, number = (last.position, before.number) if last is not None and before is not None else (0, 0)
    digest = digest_of_bytes(last.data) if last is not None else ""
    reckoning, unsealed = Reckoning(layout, shard, after), 0
    known: Removed | None = None

    async def write() -> None:
        nonlocal position, number, digest, unsealed
        number, unsealed = number + 1, 0
        data = _ENCODER.encode(reckoning.seal(shard, number, digest))
        fields = (headers.EXPECTED, b"%d" % position)
        position, digest = await store(wire, subject, data, headers.build(fields)), digest_of_bytes(data)

    async for message in read_stream(wire, layout.shard(shard), layout.everything(shard), after):
        gap = reckoning.take(message)
        if gap is not None:
            known = known or await _known(wire, layout, shard)
            if any(known.without(*gap)):
                told = "shard %d has lost positions %d to %d: see foldlog events verify --all"
                _log.warning(told, shard, *gap)
                return
        unsealed += 1
        if unsealed == SEAL_EVERY:
            await write()
        if message.position >= to:
            break
    if unsealed:
        await write()


async def _known(wire: Wire, layout: Layout, shard: int) -> Removed:
    """Return the positions that are missing by a removal, or by a loss that an operator has accepted."""
    stream = layout.shard(shard)
    accepted = [(first, last) async for _stream, first, last in known_losses(wire, layout, stream)]
    return Removed([*(await removed(wire, layout, stream)).spans, *accepted])


async def read_seals(wire: Wire, layout: Layout, shard: int) -> AsyncIterator[tuple[Message, Seal | None]]:
    """Yield the shard's seals in order, None for one that cannot be decoded. Raises `LogUnavailable`."""
    async for message in read_all(wire, layout.artifacts, layout.seal(shard)):
        try:
            yield message, _decoded(message.data)
        except ValueError:
            yield message, None


def _decoded(data: bytes) -> Seal:
    """Decode a seal. Raises `ValueError` if it is invalid."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not a seal: {error}") from error
