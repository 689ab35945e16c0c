"""Pulling wake-ups from many consumers, but no more than the reader can take.

A puller has one pull request at each of its consumers while its reader waits, and withdraws them when it does not: a
busy worker must not hold wake-ups that an idle one could take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from ..errors import LogUnavailable
from ..ports import Delivery
from . import headers
from .mailbox import Mailbox
from .messages import read_wakeup
from .wire import Wire

PULL_EXPIRES_S = 5.0
"""The lifetime of a pull request at the server, in seconds."""
PATIENCE_S = 0.05
"""The time, in seconds, for which wake-ups are held while the reader does not take the next one."""

_QUESTION = b'{"batch":1,"expires":%d}' % int(PULL_EXPIRES_S * 1e9)
_LOST_AFTER_S = PULL_EXPIRES_S + 1.0
_RETRY_S = 0.2
_LINGER_S = 5.0
_FAREWELL_S = 0.5
_NO_RESPONDERS, _TIMED_OUT, _NOTHING = 503, 408, 404
_SHORT_ACK_TOKENS = (
    9  # $JS.ACK.<stream>.<consumer>.<attempt>.<...>; the long form has domain and account before these
)
_log = logging.getLogger(__name__)


class Source:
    """A consumer, and the time of the loop at which to send it the next pull request."""

    __slots__ = ("agent", "ask_at", "lost", "question", "shard", "stream")

    def __init__(self, stream: str, shard: int, agent: str) -> None:
        self.stream, self.shard, self.agent = stream, shard, agent
        self.question = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{agent}".encode()
        self.ask_at = 0.0
        self.lost = False


class _Inbox:
    """The subscription for replies, until the pull requests are withdrawn."""

    __slots__ = ("over", "prefix", "sid")

    def __init__(self, prefix: bytes) -> None:
        self.prefix, self.sid, self.over = prefix, 0, False


class Puller:
    """The iterator that `pull` returns. Cancelling a wait loses nothing."""

    def __init__(
        self,
        wire: Wire,
        sources: list[Source],
        remake: Callable[[int, str], Awaitable[None]],
        sources_of: Callable[[frozenset[str]], Awaitable[list[Source]]],
    ) -> None:
        self._wire, self._sources, self._remake, self._sources_of = wire, sources, remake, sources_of
        self._by_name = {(s.stream.encode(), s.agent.encode()): s for s in sources}
        self._deliveries = Mailbox[Delivery]()
        self._inbox: _Inbox | None = None
        self._impatience: asyncio.TimerHandle | None = None
        self._closed = False
        wire.on_down.add(self._broke)
        wire.on_up.add(self._deliveries.wake)

    def __aiter__(self) -> Puller:
        return self

    async def __anext__(self) -> Delivery:
        if self._impatience is not None:
            self._impatience.cancel()
        try:
            while not self._deliveries.items:
                if self._closed:
                    raise StopAsyncIteration
                if self._wire.closed:
                    raise LogUnavailable("the log was closed")
                await self._remake_lost()
                await self._deliveries.wait(self._ask())
            return self._deliveries.items.popleft()
        finally:
            self._impatience = asyncio.get_running_loop().call_later(PATIENCE_S, self._take_back)

    async def serve(self, agents: frozenset[str]) -> None:
        """Yield the wake-ups of these agents, too. Raises `LogUnavailable`."""
        new = agents - {source.agent for source in self._sources}
        for source in await self._sources_of(new) if new else ():
            key = source.stream.encode(), source.agent.encode()
            if key not in self._by_name:  # others may have been added meanwhile
                self._by_name[key] = source
                self._sources.append(source)  # at the end: replies name the others by their places
        self._deliveries.wake()

    async def aclose(self) -> None:
        """End the iterator, and give back deliveries that were not taken or are still in flight."""
        self._closed = True
        self._wire.on_down.discard(self._broke)
        self._wire.on_up.discard(self._deliveries.wake)
        if self._impatience is not None:
            self._impatience.cancel()
        self._take_back()
        self._deliveries.wake()
        with anyio.move_on_after(_FAREWELL_S, shield=True), contextlib.suppress(LogUnavailable):
            await self._wire.barrier()

    def _ask(self) -> float:
        """Send the pull requests that are due; returns the seconds until the next one."""
        now = asyncio.get_running_loop().time()
        if not self._wire.is_up:
            return _RETRY_S
        inbox = self._inbox or self._open_inbox()
        for index, source in enumerate(self._sources):
            if source.ask_at <= now:
                source.ask_at = now + _LOST_AFTER_S
                self._wire.publish(source.question, _QUESTION, reply=b"%b%d" % (inbox.prefix, index))
        return min((source.ask_at for source in self._sources), default=now + _LOST_AFTER_S) - now

    def _open_inbox(self) -> _Inbox:
        inbox = self._inbox = _Inbox(self._wire.inbox(b""))

        def take(subject: bytes, reply: bytes, header: bytes, data: bytes) -> None:
            if reply:
                self._take(inbox, reply, data)
            elif not inbox.over:
                self._request_ended(self._sources[int(subject.rpartition(b".")[2])], header)

        inbox.sid = self._wire.subscribe_now(inbox.prefix + b"*", take)
        return inbox

    def _take(self, inbox: _Inbox, reply: bytes, data: bytes) -> None:
        """Take a delivered wake-up."""
        if inbox.over:
            self._give_back(reply)
            return
        tokens = reply.split(b".")
        at = 2 if len(tokens) == _SHORT_ACK_TOKENS else 4
        source = self._by_name.get((tokens[at], tokens[at + 1]))
        if source is not None:
            source.ask_at = 0.0
        try:
            delivery = Delivery(read_wakeup(data), reply.decode(), int(tokens[at + 2]))
        except msgspec.MsgspecError:
            _log.exception("a wake-up that cannot be decoded is dropped: %r", data)
            self._wire.publish(reply, b"+TERM")
            self._deliveries.wake()
        else:
            self._deliveries.post(delivery)

    def _request_ended(self, source: Source, header: bytes) -> None:
        """Handle the end of a pull request without a wake-up."""
        status = headers.status(header)
        usual = status in {_TIMED_OUT, _NOTHING}
        source.lost = status == _NO_RESPONDERS or "deleted" in headers.description(header).lower()
        source.ask_at = 0.0 if usual else asyncio.get_running_loop().time() + _RETRY_S
        self._deliveries.wake()

    async def _remake_lost(self) -> None:
        for source in self._sources:
            if source.lost:
                with contextlib.suppress(LogUnavailable):
                    await self._remake(source.shard, source.agent)
                    source.lost = False

    def _broke(self) -> None:
        """Forget the pull requests, which ended with the connection."""
        for source in self._sources:
            source.ask_at = 0.0
        self._deliveries.wake()

    def _take_back(self) -> None:
        """Withdraw the pull requests, and give back the deliveries that were not taken."""
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.over = True
            self._wire.unsubscribe(inbox.sid, linger_s=_LINGER_S)
        for delivery in self._deliveries.items:
            self._give_back(delivery.token.encode())
        self._deliveries.items.clear()
        for source in self._sources:
            source.ask_at = 0.0

    def _give_back(self, token: bytes) -> None:
        with contextlib.suppress(LogUnavailable):
            self._wire.publish(token, b"-NAK")
