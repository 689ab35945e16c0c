"""Wake-ups: one durable consumer for each shard and agent, shared by everybody who serves the agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from ..errors import AppendUnsure
from ..ports import Delivery, Wakeup, WakeWrite
from .events import JetStreamEvents
from .layout import Layout
from .puller import Puller, Source
from .wire import Done, Unanswered, Wire

CONSUMERS_AT_ONCE = 16
_TOLD_EVERY = 100
_ACK_PREFIX = "$JS.ACK."
_ACK_ATTEMPTS = 2
_ACK_WAIT_S = 1.0
_NS = 1_000_000_000
_log = logging.getLogger(__name__)


class JetStreamWakeups:
    """`Wakeups` on the streams of the shards. `ack_wait_s`: after how much silence a wake-up is delivered again."""

    def __init__(self, wire: Wire, layout: Layout, events: JetStreamEvents, ack_wait_s: float) -> None:
        self._wire, self._layout, self._events, self._ack_wait_s = wire, layout, events, ack_wait_s

    async def send(self, wakeup: Wakeup) -> None:
        """Store a wake-up; without an answer, once more, since a second is harmless. Raises `LogUnavailable`."""
        try:
            await self._events.append(WakeWrite(wakeup))
        except AppendUnsure:
            await self._events.append(WakeWrite(wakeup))

    @contextlib.asynccontextmanager
    async def pull(self, agents: frozenset[str]) -> AsyncIterator[AsyncIterator[Delivery]]:
        """Wake-ups of runs of these agents. Raises `LogUnavailable` when entered without a log; later it waits for it.

        What was delivered here and not taken goes back when the context is left, and when nobody asks for the next.
        """
        keys = [(shard, agent) for shard in range(self._events.shards) for agent in sorted(agents)]
        await self._make_consumers(keys)
        puller = Puller(
            self._wire, [Source(self._layout.shard(s), s, agent) for s, agent in keys], self._make_consumer
        )
        try:
            yield puller
        finally:
            await puller.aclose()

    async def _make_consumers(self, keys: Sequence[tuple[int, str]]) -> None:
        """Make so many at once that a server answers each in time; one that it did not answer is made again."""
        places, made = asyncio.Semaphore(CONSUMERS_AT_ONCE), 0

        async def make(shard: int, agent: str) -> None:
            nonlocal made
            async with places:
                try:
                    await self._make_consumer(shard, agent)
                except Unanswered:
                    await self._make_consumer(shard, agent)
            made += 1
            if made % _TOLD_EVERY == 0 or made == len(keys) > _TOLD_EVERY:
                _log.info("%d of %d consumers of wake-ups are there", made, len(keys))

        await asyncio.gather(*(make(shard, agent) for shard, agent in keys))

    async def _make_consumer(self, shard: int, agent: str) -> None:
        """Make the consumer, or set its `ack_wait`: the last one who says wins."""
        stream = self._layout.shard(shard)
        body = {"stream_name": stream, "config": self._layout.consumer_config(shard, agent, self._ack_wait_s)}
        await self._wire.api(f"CONSUMER.CREATE.{stream}.{agent}", body, Done)

    async def ack(self, token: str) -> None:
        """Done with it for ever. Raises `LogUnavailable`, `ValueError` for what is not a token.

        A server that was killed may have forgotten that it delivered, and says nothing to such a token; it delivers
        again. So a server that answers all else counts as having taken the acknowledgement.
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
        """Not done: deliver it again after the delay. Raises `LogUnavailable`, `ValueError` for what is not a token."""
        delay = b' {"delay": %d}' % int(delay_s * _NS) if delay_s > 0 else b""
        self._wire.publish(_subject(token), b"-NAK" + delay)

    async def extend(self, token: str) -> None:
        """Still at work. Raises `LogUnavailable`, `ValueError` for what is not a token."""
        self._wire.publish(_subject(token), b"+WPI")


def _subject(token: str) -> bytes:
    """A token is the subject that acknowledges it. It may come from another worker's lease: let nothing else pass."""
    if not token.startswith(_ACK_PREFIX) or any(c <= " " for c in token):
        raise ValueError(f"not the token of a wake-up: {token!r}")
    return token.encode()
