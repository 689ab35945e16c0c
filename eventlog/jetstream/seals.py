"""Seals: what a shard held up to a position, written down outside of its stream.

Within a stream a missing position shows by itself (`audit`). A stream that lost its end does not show it: the server
gives the positions out again. So whoever appends writes, every few thousand positions and when the log is closed, how
far the shard reaches, how many messages and which runs are there since the seal before, and a digest of all of them.
Seals of a shard form a chain and lie among the artifacts, in other files than what they are about. A writer appends
behind the seal that it has read, under a condition, so of many writers one succeeds and the others need not try again.
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
from .streams import Message, WrongPosition, read_all, read_last, read_stream, store
from .wire import Wire

SEAL_EVERY = 4096
"""How many positions a seal covers at most, and about how many a writer lets pass without one."""
TRIES = 10
"""How often a log that is closed seals again behind others that sealed at the same moment."""

_log = logging.getLogger(__name__)
_ENCODER = msgspec.json.Encoder()


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """Positions `first` to `last` of a shard as they were: how many messages stay there, of which runs, their digest.

    `number` counts the shard's seals from 1, `before` is the SHA-256 (hex) of the one before, byte for byte.
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
    """Accounts for a shard's positions in order: each holds a message, or is that of a schedule.

    A schedule is removed when it is due, replaced or cancelled. The message before it says that it was one.
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
        """The next message; returns the first and last position that are missing before it, if any are."""
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
        """What is missing between the last message and this position, schedules apart."""
        first = max(self.last, self._timers_to) + 1
        return (first, to) if first <= to else None

    def seal(self, shard: int, number: int, before: str, to: int = 0) -> Seal:
        """The seal of what was taken since the last one, with the schedules right behind it, or up to `to`."""
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
        """This process has stored something there; now and then that starts a task that seals."""
        self._newest[shard] = max(self._newest[shard], position)
        if not self._due[shard]:  # not all writers at the same position
            self._due[shard] = position + SEAL_EVERY // 2 + secrets.randbelow(SEAL_EVERY)
        if position >= self._due[shard] and (shard not in self._tasks or self._tasks[shard].done()):
            self._due[shard] = position + SEAL_EVERY
            self._tasks[shard] = asyncio.create_task(self._seal(shard, SEAL_EVERY))

    async def close(self) -> None:
        """Seal what this process has stored; does nothing while the log is away."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._wire.is_up:
            await asyncio.gather(
                *(self._seal(shard, 1, tries=TRIES) for shard, newest in enumerate(self._newest) if newest)
            )

    async def _seal(self, shard: int, positions_min: int, tries: int = 1) -> None:
        """Seal the shard if so many positions are not sealed yet. A seal that cannot be written is written later.

        Where a seal came in between, of another process or on its way when its task was cancelled, it may not reach as
        far: with more tries what it left out is sealed behind it.
        """
        try:
            for _ in range(tries):
                with contextlib.suppress(WrongPosition):
                    await seal_shard(self._wire, self._layout, shard, self._newest[shard], positions_min)
                    return
        except (LogUnavailable, ValueError) as error:
            _log.info("shard %d is not sealed: %s", shard, error)


async def seal_shard(wire: Wire, layout: Layout, shard: int, to: int, positions_min: int = 1) -> None:
    """Write the seals that are missing up to position `to`, if it is so many positions behind the last one.

    Nothing is sealed behind a loss that no operator knows of. Raises `WrongPosition` if somebody else seals,
    `LogUnavailable`, and `ValueError` for a last seal that is none.
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

    async def write() -> None:
        nonlocal position, number, digest, unsealed
        number, unsealed = number + 1, 0
        data = _ENCODER.encode(reckoning.seal(shard, number, digest))
        fields = (headers.EXPECTED, b"%d" % position)
        position, digest = await store(wire, subject, data, headers.build(fields)), digest_of_bytes(data)

    async for message in read_stream(wire, layout.shard(shard), layout.everything(shard), after):
        gap = reckoning.take(message)
        if gap is not None and not await _is_known(wire, layout, shard, gap):
            _log.warning("shard %d has lost positions %d to %d: see foldlog events verify --all", shard, *gap)
            return
        unsealed += 1
        if unsealed == SEAL_EVERY:
            await write()
        if message.position >= to:
            break
    if unsealed:
        await write()


async def _is_known(wire: Wire, layout: Layout, shard: int, gap: tuple[int, int]) -> bool:
    known = known_losses(wire, layout, layout.shard(shard))
    return any([first <= gap[0] and gap[1] <= last async for _stream, first, last in known])


async def read_seals(wire: Wire, layout: Layout, shard: int) -> AsyncIterator[tuple[Message, Seal | None]]:
    """The shard's seals in order, None for one that cannot be read. Raises `LogUnavailable`."""
    async for message in read_all(wire, layout.artifacts, layout.seal(shard)):
        try:
            yield message, _decoded(message.data)
        except ValueError:
            yield message, None


def _decoded(data: bytes) -> Seal:
    """Raises `ValueError` for what is not a seal."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not a seal: {error}") from error
