"""Pulling wake-ups from many consumers, but no more than the reader can take.

A puller has one pull request at each of its consumers while its reader waits, and withdraws them when it does not: a
busy worker must not hold wake-ups that an idle one could take.

Of several priorities that wait, each gets its turns (W64). What waits is only known once each consumer has replied, so
a wake-up whose turn may not be next is held for `SETTLE_S` after the pull requests were sent; while a reader keeps
taking, the requests at empty consumers stay open, and nothing is held.
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
from ..priorities import Turns
from . import headers
from .layout import priority_in
from .mailbox import Mailbox
from .messages import read_wakeup
from .wire import Wire

PULL_EXPIRES_S = 5.0
"""The lifetime of a pull request at the server, in seconds."""
PATIENCE_S = 0.05
"""The time, in seconds, for which wake-ups are held while the reader does not take the next one."""
SETTLE_S = 0.01
"""The time, in seconds, after which a consumer that has not replied counts as empty."""

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
    """A consumer, and the time of the loop at which to send it the next pull request.

    `asked_at` is when it was asked without knowing that it was empty.
    """

    __slots__ = (
        "ask_at",
        "asked_at",
        "lost",
        "priority",
        "question",
        "queue",
        "shard",
        "stream",
        "was_empty",
    )

    def __init__(self, stream: str, shard: int, queue: str) -> None:
        self.stream, self.shard, self.queue = stream, shard, queue
        self.priority = priority_in(queue)
        self.question = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{queue}".encode()
        self.ask_at = self.asked_at = 0.0
        self.lost = self.was_empty = False

    @property
    def agent(self) -> str:
        """The agent whose wake-ups it has."""
        return self.queue.partition("=")[0]

    def may_reply_soon(self, now: float) -> bool:
        """Return whether it was asked so lately that it may have a wake-up."""
        return self.ask_at > now and now - self.asked_at < SETTLE_S


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
        self._by_name = {(s.stream.encode(), s.queue.encode()): s for s in sources}
        self._deliveries = Mailbox[Delivery]()
        self._inbox: _Inbox | None = None
        self._impatience: asyncio.TimerHandle | None = None
        self._closed = False
        self._turns = Turns()
        wire.on_down.add(self._broke)
        wire.on_up.add(self._deliveries.wake)

    def __aiter__(self) -> Puller:
        return self

    async def __anext__(self) -> Delivery:
        if self._impatience is not None:
            self._impatience.cancel()
        try:
            self._ask()
            while (delivery := self._next()) is None:
                if self._closed:
                    raise StopAsyncIteration
                if self._wire.closed:
                    raise LogUnavailable("the log was closed")
                await self._remake_lost()
                await self._deliveries.news(self._ask())
            return delivery
        finally:
            self._impatience = asyncio.get_running_loop().call_later(PATIENCE_S, self._take_back)

    def _next(self) -> Delivery | None:
        """Return the delivery whose turn it is; null if there is none, or one of another class may come first."""
        items = self._deliveries.items
        if not items:
            return None
        here, now = {each.wakeup.priority for each in items}, asyncio.get_running_loop().time()
        coming = {source.priority for source in self._sources if source.may_reply_soon(now)}
        chosen = self._turns.next(here | coming)
        if chosen not in here:
            return None
        self._turns.take(chosen, here)
        delivery = next(each for each in items if each.wakeup.priority == chosen)
        items.remove(delivery)
        return delivery

    async def serve(self, agents: frozenset[str]) -> None:
        """Yield the wake-ups of these agents, too. Raises `LogUnavailable`."""
        new = agents - {source.agent for source in self._sources}
        for source in await self._sources_of(new) if new else ():
            key = source.stream.encode(), source.queue.encode()
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
        """Send the pull requests that are due, but for priorities that are here; returns the seconds until the next."""
        now = asyncio.get_running_loop().time()
        if not self._wire.is_up:
            return _RETRY_S
        here = {each.wakeup.priority for each in self._deliveries.items}
        inbox = self._inbox or self._open_inbox()
        for index, source in enumerate(self._sources):
            if source.ask_at <= now and source.priority not in here:
                source.ask_at = now + _LOST_AFTER_S
                source.asked_at = source.asked_at if source.was_empty else now
                source.was_empty = False
                self._wire.publish(source.question, _QUESTION, reply=b"%b%d" % (inbox.prefix, index))
        if here:
            return SETTLE_S
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
        usual = source.was_empty = status in {_TIMED_OUT, _NOTHING}
        source.lost = status == _NO_RESPONDERS or "deleted" in headers.description(header).lower()
        source.ask_at = 0.0 if usual else asyncio.get_running_loop().time() + _RETRY_S
        self._deliveries.wake()

    async def _remake_lost(self) -> None:
        for source in self._sources:
            if source.lost:
                with contextlib.suppress(LogUnavailable):
                    await self._remake(source.shard, source.queue)
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
