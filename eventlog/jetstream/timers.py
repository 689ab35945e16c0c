"""Timers: schedules of JetStream, which become wake-ups in the same stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..errors import AppendUnsure
from ..ports import Timer, TimerWrite, Wakeup
from .events import JetStreamEvents
from .layout import Layout
from .messages import read_wakeup
from .streams import read_lasts
from .wire import Done, Wire


class JetStreamTimers:
    """`Timers` on the streams of the shards. The server checks schedules four times a second."""

    def __init__(self, wire: Wire, layout: Layout, events: JetStreamEvents) -> None:
        self._wire, self._layout, self._events = wire, layout, events

    async def set(self, timer: Timer) -> None:
        """Set or replace the timer, with one retry if no reply comes. Raises `LogUnavailable`."""
        try:
            await self._events.append(TimerWrite(timer))
        except AppendUnsure:
            await self._events.append(TimerWrite(timer))

    async def cancel(self, timer: Timer) -> None:
        """Remove the timer, if it is still set. Raises `LogUnavailable`."""
        stream = self._layout.shard(timer.wakeup.shard)
        body = {"filter": self._layout.timer(timer).decode()}
        await self._wire.api(f"STREAM.PURGE.{stream}", body, Done)

    async def named(self, timer_id: str) -> AsyncIterator[Wakeup]:
        """Yield the wake-ups of all timers with this id that are set. Raises `LogUnavailable`."""
        for shard in range(self._events.shards):
            subject = self._layout.timers_named(shard, timer_id)
            async for message in read_lasts(self._wire, self._layout.shard(shard), subject):
                yield read_wakeup(message.data)
