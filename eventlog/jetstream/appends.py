"""Group commit for the appends of one stream.

A server stores the messages of a stream one after the other, and if it syncs, each costs an fsync; an atomic batch
needs about four for all its messages. While few messages are in flight, an append is sent at once, because waiting
would only add latency. While many are (`_is_full`), appends queue here until all replies have arrived, and are then
sent together as one atomic batch, if that is estimated to be faster than sending them alone (`Pace`). To keep the
estimate for single messages current, every `PROBE_EVERY`-th batch lets a few appends go ahead alone.

Within a batch each message keeps its own expected position, so two appends with a condition on the same subject are
never in the same batch. If one condition fails, the server stores nothing of the batch; each append is then sent again
alone and gets its own reply. If no reply comes, the outcome of every append of the batch is unknown, as it would be for
a single one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections import deque
from collections.abc import Collection

import msgspec

from ..errors import ConfigError, LogUnavailable
from . import headers
from .messages import Outgoing
from .pace import Pace
from .streams import position_in
from .wire import NoResponders, Refused, Reply, Unanswered, Wire

BATCH_LOAD = 8
"""The load of an append with several messages, which is always a batch, in units of a single message."""
TOGETHER_MESSAGES_MAX = 500
TOGETHER_BYTES_MAX = 4 * 1024 * 1024
CROWDED = 4
"""The number of releases without a batch after which appends are sent at once again."""
PROBE_EVERY = 16
"""The number of batches after which some appends are sent alone, to measure how long a message takes."""
PROBE_APPENDS = 3

_SERVER_TROUBLE = 503


class Append:
    """One append: its messages, stored all or none, the subjects of its conditions, and the future of its reply."""

    __slots__ = ("answer", "load", "messages", "subjects")

    def __init__(
        self, messages: list[Outgoing], subjects: Collection[bytes], answer: asyncio.Future[int]
    ) -> None:
        self.messages, self.subjects, self.answer = messages, subjects, answer
        self.load = 1 if len(messages) == 1 else BATCH_LOAD

    @property
    def size_bytes(self) -> int:
        """The size of all messages without their headers."""
        return sum(len(data) for _, data, _ in self.messages)

    def fail(self, error: Exception) -> None:
        """Fail the append, unless it is done already."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Appends:
    """The queue of appends of one stream."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._pace = Pace()
        self._waiting: deque[Append] = deque()
        self._load = 0  # of the messages in flight
        self._outage: asyncio.Task[None] | None = None
        self._crowded = 0
        self._until_probe = PROBE_EVERY
        prefix = secrets.token_hex(4)
        self._batches = (f"{prefix}{number:x}".encode() for number in itertools.count())

    async def store(self, messages: list[Outgoing], subjects: Collection[bytes]) -> int:
        """Store all messages or none; returns the position of the first one, after which the others follow.

        `subjects` are those of their conditions. Raises `WrongPosition`, `Refused` (other errors of the server),
        `Unanswered` (maybe stored), `NoResponders`, `LogUnavailable` (never sent), `ConfigError` (denied).
        """
        if not self._waiting and not self._wire.is_up:
            await self._wire.until_up()
        append = Append(messages, subjects, self._wire.future())
        if self._waiting or self._is_full():
            self._waiting.append(append)
        else:
            self._send([append])
        try:
            return await append.answer
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):  # it was sent already
                self._waiting.remove(append)
            raise

    async def store_apart(self, messages: list[Outgoing]) -> int:
        """Store messages at once, not together with other appends."""
        await self._wire.until_up()
        append = Append(messages, (), self._wire.future())
        self._send([append])
        return await append.answer

    def _is_full(self) -> bool:
        """Return whether a further append should wait here for a batch, because it would only wait at the server."""
        return self._load > 0 and (self._crowded > 0 or self._load >= self._worth)

    @property
    def _worth(self) -> float:
        return self._pace.worth(self._wire.now())

    def _send(self, together: list[Append]) -> None:
        messages = together[0].messages
        if len(together) > 1:
            messages = [message for append in together for message in append.messages]
        sent = _Sent(self, together, len(messages), messages[-1][0], self._wire.now())
        self._load += sent.load
        try:
            if sent.is_batch:
                messages = self._as_batch(messages)
                for subject, data, fields in messages[:-1]:
                    self._wire.publish(subject, data, headers.build(*fields))
            subject, data, fields = messages[-1]
            self._wire.ask(subject, data, headers.build(*fields), sent)
        except LogUnavailable as error:
            sent.set_exception(error)

    def _as_batch(self, messages: list[Outgoing]) -> list[Outgoing]:
        batch = (headers.BATCH_ID, next(self._batches))
        end = ((headers.BATCH_COMMIT, b"1"),)
        return [
            (subject, data, (*fields, batch, (headers.BATCH_SEQUENCE, b"%d" % n), *end[: n == len(messages)]))
            for n, (subject, data, fields) in enumerate(messages, start=1)
        ]

    # ---- replies

    def answered(self, sent: _Sent, reply: Reply) -> None:
        """Handle the reply of the server: stored, refused, or no such stream."""
        try:
            last = position_in(self._wire.answered(sent.subject, reply))
        except Refused as refused:
            self.failed(sent, refused)
        except NoResponders as error:
            self.failed(sent, Unanswered(str(error)) if sent.is_batch else error)
        except msgspec.MsgspecError as error:
            self.failed(sent, Unanswered(f"the reply to an append cannot be decoded: {error}"))
        else:
            self._pace.stored(sent.at, self._wire.now(), batch=sent.is_batch)
            sent.stored(last)
            self._landed(sent)

    def failed(self, sent: _Sent, error: Exception) -> None:
        """Handle a failure. If a batch was refused, each of its appends is sent again alone."""
        certain = isinstance(error, ConfigError) or (
            isinstance(error, Refused) and error.code != _SERVER_TROUBLE
        )
        if certain and len(sent.together) > 1:
            for append in sent.together:
                self._send([append])
        else:
            sent.fail(error)
        self._landed(sent)

    def _landed(self, sent: _Sent) -> None:
        self._load -= sent.load
        if self._waiting and not self._load:
            self._release()

    # ---- the queue

    def _release(self) -> None:
        """Send the waiting appends: alone if that is faster, otherwise together."""
        if not self._wire.is_up:
            if self._outage is None or self._outage.done():
                self._outage = asyncio.ensure_future(self._sit_out())
            return
        many = sum(append.load for append in self._waiting) > self._worth
        self._crowded = CROWDED if many else max(0, self._crowded - 1)
        ahead = PROBE_APPENDS if many else len(self._waiting)
        self._until_probe -= many
        if not many or not self._until_probe:
            self._until_probe = PROBE_EVERY
            for _ in range(min(ahead, len(self._waiting))):
                self._send([self._waiting.popleft()])
        if self._waiting:
            self._send(self._next())

    def _next(self) -> list[Append]:
        """Take the next appends that fit into one batch: within the server's limits, each subject only once."""
        together, subjects, count, size_bytes = list[Append](), set[bytes](), 0, 0
        while self._waiting:
            append = self._waiting[0]
            count += len(append.messages)
            size_bytes += append.size_bytes
            fits = count <= TOGETHER_MESSAGES_MAX and size_bytes <= TOGETHER_BYTES_MAX
            if together and not (fits and subjects.isdisjoint(append.subjects)):
                break
            together.append(self._waiting.popleft())
            subjects.update(append.subjects)
        return together

    async def _sit_out(self) -> None:
        try:
            await self._wire.until_up()
        except LogUnavailable as error:
            waiting, self._waiting = [*self._waiting], deque()
            for append in waiting:
                append.fail(error)
        else:
            self._release()


class _Sent:
    """Appends in flight together, as the `ReplyHandler` of their common reply."""

    __slots__ = ("_appends", "_count", "_over", "at", "is_batch", "load", "subject", "together")

    def __init__(
        self, appends: Appends, together: list[Append], count: int, subject: bytes, at: float
    ) -> None:
        self._appends, self.together, self._count, self.subject, self.at = (
            appends,
            together,
            count,
            subject,
            at,
        )
        self.is_batch = count > 1
        self.load = BATCH_LOAD if self.is_batch else 1
        self._over = False

    def done(self) -> bool:
        return self._over

    def set_result(self, result: Reply, /) -> None:
        self._over = True
        self._appends.answered(self, result)

    def set_exception(self, exception: Exception, /) -> None:
        self._over = True
        self._appends.failed(self, exception)

    def stored(self, last: int) -> None:
        """Complete each append with the position of its first message."""
        position = last - self._count + 1
        for append in self.together:
            if not append.answer.done():
                append.answer.set_result(position)
            position += len(append.messages)

    def fail(self, error: Exception) -> None:
        """Fail all appends."""
        for append in self.together:
            append.fail(error)
