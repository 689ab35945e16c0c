"""Wake-ups: one durable consumer for each shard, agent and priority, shared by all workers that serve the agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

import msgspec

from ..errors import AppendUnsure
from ..ports import Deliveries, Wakeup, WakeWrite
from ..priorities import PRIORITIES
from .events import JetStreamEvents
from .layout import EVERY_QUEUE, Layout, queue_of
from .puller import Puller, Source
from .removals import places_of, remove
from .streams import subjects_on
from .wire import Done, Refused, Unanswered, Wire

CONSUMERS_AT_ONCE = 16
_TOLD_EVERY = 100
_ACK_PREFIX = "$JS.ACK."
_ACK_ATTEMPTS = 2
_ACK_WAIT_S = 1.0
_NS = 1_000_000_000
_NO_CONSUMER = 10014
_log = logging.getLogger(__name__)


class JetStreamWakeups:
    """`Wakeups` on the streams of the shards. `ack_wait_s`: the time without a heartbeat before a redelivery."""

    def __init__(self, wire: Wire, layout: Layout, events: JetStreamEvents, ack_wait_s: float) -> None:
        self._wire, self._layout, self._events, self._ack_wait_s = wire, layout, events, ack_wait_s

    async def send(self, wakeup: Wakeup) -> None:
        """Store a wake-up, with one retry if no reply comes; a duplicate is harmless. Raises `LogUnavailable`."""
        try:
            await self._events.append(WakeWrite(wakeup))
        except AppendUnsure:
            await self._events.append(WakeWrite(wakeup))

    @contextlib.asynccontextmanager
    async def pull(self, agents: frozenset[str]) -> AsyncIterator[Deliveries]:
        """Yield wake-ups of runs of these agents. Raises `LogUnavailable` only when entered without a log.

        Deliveries that were not taken are given back when the context is left, and when the reader is busy.
        """
        puller = Puller(self._wire, await self._sources(agents), self._make_consumer, self._sources)
        try:
            yield puller
        finally:
            await puller.aclose()

    async def _sources(self, agents: frozenset[str]) -> list[Source]:
        queues = [queue for agent in sorted(agents) for queue in _queues(agent)]
        keys = [(shard, queue) for shard in range(self._events.shards) for queue in queues]
        await self._make_consumers(keys)
        return [Source(self._layout.shard(shard), shard, queue) for shard, queue in keys]

    async def _make_consumers(self, keys: Sequence[tuple[int, str]]) -> None:
        """Create consumers, with limited concurrency so that the server replies to each in time, and one retry."""
        places, made = asyncio.Semaphore(CONSUMERS_AT_ONCE), 0

        async def make(shard: int, queue: str) -> None:
            nonlocal made
            async with places:
                try:
                    await self._make_consumer(shard, queue)
                except Unanswered:
                    await self._make_consumer(shard, queue)
            made += 1
            if made % _TOLD_EVERY == 0 or made == len(keys) > _TOLD_EVERY:
                _log.info("%d of %d consumers of wake-ups are ready", made, len(keys))

        await asyncio.gather(*(make(shard, queue) for shard, queue in keys))

    async def _make_consumer(self, shard: int, queue: str) -> None:
        """Create the consumer, or change its `ack_wait`; the last process that does wins."""
        stream = self._layout.shard(shard)
        body = {"stream_name": stream, "config": self._layout.consumer_config(shard, queue, self._ack_wait_s)}
        await self._wire.api(f"CONSUMER.CREATE.{stream}.{queue}", body, Done)

    async def ack(self, token: str) -> None:
        """Acknowledge a delivery. Raises `LogUnavailable`, `ValueError` for an invalid token.

        A server that was killed may have forgotten the delivery; it does not reply to such a token, and redelivers. So
        if the server replies to other requests, the acknowledgement counts as accepted.
        """
        subject = _subject(token)
        for _ in range(_ACK_ATTEMPTS):
            try:
                await self._wire.request(subject, b"+ACK", timeout_s=_ACK_WAIT_S)
            except Unanswered:
                await self._wire.barrier()
            else:
                return

    async def nak(self, token: str, delay_s: float = 0.0) -> None:
        """Give a delivery back: it is redelivered after the delay. Raises `LogUnavailable`, `ValueError`."""
        delay = b' {"delay": %d}' % int(delay_s * _NS) if delay_s > 0 else b""
        self._wire.publish(_subject(token), b"-NAK" + delay)

    async def waiting(self, agents: frozenset[str]) -> dict[str, int]:
        """Return the number of wake-ups of each of these agents that were not delivered. Raises `LogUnavailable`."""
        found = dict.fromkeys(agents, 0)
        for shard in range(self._events.shards):
            for agent in agents:
                for queue in _queues(agent):
                    found[agent] += await self._undelivered(shard, queue)
        return found

    async def _undelivered(self, shard: int, queue: str) -> int:
        stream = self._layout.shard(shard)
        try:
            consumer = await self._wire.api(f"CONSUMER.INFO.{stream}.{queue}", None, _Consumer)
        except Refused as refused:
            if refused.err_code != _NO_CONSUMER:
                raise
        else:
            return consumer.num_pending
        counts = [
            await subjects_on(self._wire, stream, subject)
            for subject in self._layout.acknowledged(shard, queue)
        ]
        return sum(number for count in counts for number in count.values())

    async def sweep(self) -> int:
        """Remove the wake-ups below the floor of their consumers' acknowledgements, and the marks of schedules.

        Raises `LogUnavailable`.
        """
        swept = 0
        for shard in range(self._events.shards):
            stream = self._layout.shard(shard)
            for queue in await self._woken(shard):
                floor = await self._floor(stream, queue)
                places = {
                    subject: await places_of(self._wire, stream, subject, floor + 1)
                    for subject in self._layout.acknowledged(shard, queue)
                }
                swept += await remove(self._wire, self._layout, stream, places)
            mark = self._layout.mark(shard)
            await remove(self._wire, self._layout, stream, {mark: await places_of(self._wire, stream, mark)})
        return swept

    async def _woken(self, shard: int) -> list[str]:
        """Return the queues that have wake-ups in a shard."""
        found: dict[str, None] = {}
        for subject in self._layout.acknowledged(shard, EVERY_QUEUE):
            for name in await subjects_on(self._wire, self._layout.shard(shard), subject):
                found[name.split(".")[-2]] = None
        return list(found)

    async def _floor(self, stream: str, queue: str) -> int:
        """Return the position up to which all wake-ups of a queue are acknowledged; 0 without a consumer."""
        try:
            consumer = await self._wire.api(f"CONSUMER.INFO.{stream}.{queue}", None, _Consumer)
        except Refused as refused:
            if refused.err_code == _NO_CONSUMER:
                return 0
            raise
        return consumer.ack_floor.stream_seq

    async def extend(self, token: str) -> None:
        """Send a heartbeat for a delivery. Raises `LogUnavailable`, `ValueError` for an invalid token."""
        self._wire.publish(_subject(token), b"+WPI")


class _Floor(msgspec.Struct, frozen=True):
    stream_seq: int = 0


class _Consumer(msgspec.Struct, frozen=True):
    ack_floor: _Floor = _Floor()
    num_pending: int = 0


def _queues(agent: str) -> list[str]:
    """Return the queues of an agent. Raises `ConfigError` for an invalid name."""
    return [queue_of(agent, priority) for priority in PRIORITIES]


def _subject(token: str) -> bytes:
    """Return the subject that acknowledges a token: the token, checked because it may be from another's lease."""
    if not token.startswith(_ACK_PREFIX) or any(c <= " " for c in token):
        raise ValueError(f"not the token of a wake-up: {token!r}")
    return token.encode()
