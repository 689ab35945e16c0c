"""Appends of one stream: each leaves at once while few are under way, and those that queue leave together.

A server stores the messages of a stream one after the other, and one that syncs does it with an fsync for each; an
atomic batch needs some four for all. So what comes while many messages are under way waits until they are answered,
and then leaves as one batch, if that pays. In it each message keeps its own condition. If one of them does not hold the
server stores nothing of the batch; then each append is sent on its own, and gets its own answer. If no answer comes, it
is unknown of each whether it is stored, as it would be of one.
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
"""What an append of several messages, which is a batch in any case, counts for in single messages."""
TOGETHER_MESSAGES_MAX = 500
TOGETHER_BYTES_MAX = 4 * 1024 * 1024
CROWDED = 4
"""After how many releases without a batch appends go side by side again."""
PROBE_EVERY = 16
"""Every how many batches some appends go ahead alone, so that it stays known what a message takes."""
PROBE_APPENDS = 3

_SERVER_TROUBLE = 503


class Append:
    """What one append stores, as a whole or not at all; the subjects it has conditions on; and who waits for it."""

    __slots__ = ("answer", "load", "messages", "subjects")

    def __init__(
        self, messages: list[Outgoing], subjects: Collection[bytes], answer: asyncio.Future[int]
    ) -> None:
        self.messages, self.subjects, self.answer = messages, subjects, answer
        self.load = 1 if len(messages) == 1 else BATCH_LOAD

    @property
    def size_bytes(self) -> int:
        """Of all messages, without their headers."""
        return sum(len(data) for _, data, _ in self.messages)

    def fail(self, error: Exception) -> None:
        """Tell who waits."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Appends:
    """The appends of one stream."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._pace = Pace()
        self._waiting: deque[Append] = deque()
        self._load = 0  # of what is under way
        self._outage: asyncio.Task[None] | None = None
        self._crowded = 0
        self._until_probe = PROBE_EVERY
        prefix = secrets.token_hex(4)
        self._batches = (f"{prefix}{number:x}".encode() for number in itertools.count())

    async def store(self, messages: list[Outgoing], subjects: Collection[bytes]) -> int:
        """Store all messages or none; returns the position of the first, which the others follow.

        `subjects` are those that they have conditions on. Raises `WrongPosition`, `Refused` (other errors of the
        server), `Unanswered` (maybe stored), `NoResponders`, `LogUnavailable` (never sent), `ConfigError` (denied).
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
            with contextlib.suppress(ValueError):  # it has left already
                self._waiting.remove(append)
            raise

    async def store_apart(self, messages: list[Outgoing]) -> int:
        """The same, in a batch that is shared with nobody."""
        await self._wire.until_up()
        append = Append(messages, (), self._wire.future())
        self._send([append])
        return await append.answer

    def _is_full(self) -> bool:
        """Return whether more would have to wait at the server: then it rather waits here, and leaves with others."""
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

    # ---- answers

    def answered(self, sent: _Sent, reply: Reply) -> None:
        """The server stored or refused what was sent, or nobody is there to do it."""
        try:
            last = position_in(self._wire.answered(sent.subject, reply))
        except Refused as refused:
            self.failed(sent, refused)
        except NoResponders as error:
            self.failed(sent, Unanswered(str(error)) if sent.is_batch else error)
        except msgspec.MsgspecError as error:
            self.failed(sent, Unanswered(f"the answer to an append cannot be read: {error}"))
        else:
            self._pace.stored(sent.at, self._wire.now(), batch=sent.is_batch)
            sent.stored(last)
            self._landed(sent)

    def failed(self, sent: _Sent, error: Exception) -> None:
        """What was sent is not stored, or nobody knows. Of those who were refused together each gets another try."""
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
        """Send those that wait: alone while that is quicker, else together."""
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
        """Those that leave together: no more than the server takes, and no subject's condition twice."""
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
    """Appends that are under way together. It is told what the server answers."""

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
        """Tell everybody the position of his first message."""
        position = last - self._count + 1
        for append in self.together:
            if not append.answer.done():
                append.answer.set_result(position)
            position += len(append.messages)

    def fail(self, error: Exception) -> None:
        """Tell everybody."""
        for append in self.together:
            append.fail(error)
