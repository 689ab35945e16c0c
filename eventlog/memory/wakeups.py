"""Wake-ups in memory, and the timers that become wake-ups while a consumer waits for them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from ..clock import Clock
from ..ports import Deliveries, Delivery, Timer, Wakeup
from ..priorities import Priority, Turns
from .positions import Positions
from .waiting import Signal, Takes, checkpoint

OTHERS_FIRST_S = 0.001
"""The time, in seconds, for which a consumer leaves a wake-up that it gave back to others; otherwise it would always be
the first to take it again."""


class _Message:
    """A wake-up until it is acknowledged. It may be delivered from `ready_at` (monotonic) on."""

    __slots__ = ("attempts", "left_by", "number", "ready_at", "taker", "wakeup")

    def __init__(self, number: int, wakeup: Wakeup, ready_at: float) -> None:
        self.number, self.wakeup, self.ready_at, self.attempts = number, wakeup, ready_at, 0
        self.taker: object = None
        self.left_by: object = None

    def ready_for(self, taker: object) -> float:
        """Return the time from which this consumer may have it."""
        return self.ready_at + OTHERS_FIRST_S if self.left_by is taker else self.ready_at


class MemoryWakeups:
    """`Wakeups` in memory."""

    def __init__(self, clock: Clock, positions: Positions, ack_wait_s: float) -> None:
        self._clock = clock
        self._positions = positions
        self._ack_wait_s = ack_wait_s
        self._messages: dict[int, _Message] = {}
        self._made = 0
        self._timers: dict[tuple[int, str, str], Timer] = {}
        self._changes = Signal()

    @property
    def unacknowledged(self) -> list[Wakeup]:
        """The wake-ups that are not acknowledged yet, oldest first."""
        return [message.wakeup for message in self._messages.values()]

    async def send(self, wakeup: Wakeup) -> None:
        """Store a wake-up."""
        await checkpoint()
        self.put(wakeup)

    def put(self, wakeup: Wakeup) -> int:
        """Store a wake-up now and return its position."""
        position = self._positions.next(wakeup.shard)
        self._made += 1
        self._messages[self._made] = _Message(self._made, wakeup, self._clock.monotonic())
        self._changes.notify()
        return position

    def put_timer(self, timer: Timer) -> int:
        """Set or replace the timer now and return its position."""
        position = self._positions.next(timer.wakeup.shard)
        self._timers[timer.wakeup.shard, timer.wakeup.run, timer.id] = timer
        self._changes.notify()
        return position

    def drop_timer(self, timer: Timer) -> None:
        """Remove the timer now."""
        self._timers.pop((timer.wakeup.shard, timer.wakeup.run, timer.id), None)

    def timers_named(self, timer_id: str) -> list[Wakeup]:
        """Return the wake-ups of the timers with this id that have not fired."""
        return [timer.wakeup for timer in self._timers.values() if timer.id == timer_id]

    @contextlib.asynccontextmanager
    async def pull(self, agents: frozenset[str]) -> AsyncIterator[Deliveries]:
        """Yield wake-ups of runs of these agents; many consumers share them."""
        yield _Pulled(self, agents)

    async def take(self, taker: _Pulled) -> Delivery:
        """Return the next wake-up for a consumer."""
        while True:
            self._fire_timers()
            message = self._next_ready(taker)
            if message is not None:
                return self._hand_out(message, taker)
            delay_s = self._until_next(taker.agents, taker)
            if delay_s is None:
                await self._changes.wait()
            else:
                await self._changes.wait_at_most(delay_s, self._clock)

    def changed(self) -> None:
        """Have all consumers look again."""
        self._changes.notify()

    def _fire_timers(self) -> None:
        now = self._clock.now()
        due = [(key, timer) for key, timer in self._timers.items() if timer.due_at <= now]
        for key, timer in sorted(due, key=lambda item: item[1].due_at):
            del self._timers[key]
            self.put(timer.wakeup)

    def _next_ready(self, taker: _Pulled) -> _Message | None:
        """Return the first that is ready of the class whose turn it is."""
        now = self._clock.monotonic()
        first: dict[Priority, _Message] = {}
        for message in self._messages.values():
            if message.ready_for(taker) <= now and message.wakeup.agent in taker.agents:
                first.setdefault(message.wakeup.priority, message)
        if not first:
            return None
        chosen = taker.turns.next(first)
        taker.turns.take(chosen, first)
        return first[chosen]

    def _hand_out(self, message: _Message, taker: object) -> Delivery:
        message.attempts += 1
        message.taker, message.left_by = taker, None
        message.ready_at = self._clock.monotonic() + self._ack_wait_s
        return Delivery(message.wakeup, f"{message.number}.{message.attempts}", message.attempts)

    def _until_next(self, agents: frozenset[str], taker: object) -> float | None:
        monotonic, now = self._clock.monotonic(), self._clock.now()
        redeliveries = [
            m.ready_for(taker) - monotonic for m in self._messages.values() if m.wakeup.agent in agents
        ]
        timers = [t.due_at - now for t in self._timers.values() if t.wakeup.agent in agents]
        return min((*redeliveries, *timers), default=None)

    async def ack(self, token: str) -> None:
        """Acknowledge a delivery, even if the token is stale."""
        await checkpoint()
        self._messages.pop(_number_in(token), None)

    async def nak(self, token: str, delay_s: float = 0.0) -> None:
        """Give a delivery back: it is redelivered, to any consumer, after the delay."""
        message = await self._postponed(token, delay_s)
        if message is not None and delay_s:
            message.left_by = message.taker

    async def extend(self, token: str) -> None:
        """Send a heartbeat: restart the time after which the wake-up is redelivered."""
        await self._postponed(token, self._ack_wait_s)

    async def waiting(self, agents: frozenset[str]) -> dict[str, int]:
        """Return the number of wake-ups of each of these agents that no consumer has taken yet."""
        await checkpoint()
        found = dict.fromkeys(agents, 0)
        for message in self._messages.values():
            if message.wakeup.agent in found and not message.attempts:
                found[message.wakeup.agent] += 1
        return found

    async def sweep(self) -> int:
        """Remove nothing: an acknowledged wake-up is gone at once."""
        await checkpoint()
        return 0

    async def _postponed(self, token: str, delay_s: float) -> _Message | None:
        await checkpoint()
        message = self._messages.get(_number_in(token))
        if message is not None:
            message.ready_at = self._clock.monotonic() + delay_s
            self._changes.notify()
        return message


class _Pulled(Takes[Delivery]):
    """The deliveries of one consumer."""

    def __init__(self, wakeups: MemoryWakeups, agents: frozenset[str]) -> None:
        super().__init__(self._delivery)
        self._wakeups, self.agents, self.turns = wakeups, agents, Turns()

    async def _delivery(self) -> Delivery:
        return await self._wakeups.take(self)

    async def serve(self, agents: frozenset[str]) -> None:
        """Yield those of these agents, too."""
        await checkpoint()
        self.agents |= agents
        self._wakeups.changed()


class MemoryTimers:
    """`Timers` in memory, stored together with the wake-ups that they become."""

    def __init__(self, wakeups: MemoryWakeups) -> None:
        self._wakeups = wakeups

    async def set(self, timer: Timer) -> None:
        """Set or replace the timer."""
        await checkpoint()
        self._wakeups.put_timer(timer)

    async def cancel(self, timer: Timer) -> None:
        """Remove the timer, if it is still set."""
        await checkpoint()
        self._wakeups.drop_timer(timer)

    async def named(self, timer_id: str) -> AsyncIterator[Wakeup]:
        """Yield the wake-ups of all timers with this id that are set."""
        await checkpoint()
        for wakeup in self._wakeups.timers_named(timer_id):
            yield wakeup


def _number_in(token: str) -> int:
    return int(token.partition(".")[0])
