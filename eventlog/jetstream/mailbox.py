"""A queue between handlers, which must not wait, and one reader, which does."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items in order of arrival. A reader whose wait is cancelled loses nothing."""

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self._waiters: set[asyncio.Future[None]] = set()

    def post(self, item: T) -> None:
        """Add an item and wake the reader."""
        self.items.append(item)
        self.wake()

    def wake(self) -> None:
        """Wake the reader, whether or not there is an item."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when there is an item, at the next `wake`, or after `timeout_s`."""
        if not self.items:
            await self.news(timeout_s)

    async def news(self, timeout_s: float | None = None) -> None:
        """Return when an item is added, at the next `wake`, or after `timeout_s`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        alarm = loop.call_later(timeout_s, self.wake) if timeout_s is not None else None
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if alarm is not None:
                alarm.cancel()
