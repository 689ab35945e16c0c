"""Waiting for other tasks and for the clock, without a task in the background."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from ..clock import Clock

T = TypeVar("T")


async def checkpoint() -> None:
    """Let other tasks run, as a log on a server does."""
    await asyncio.sleep(0)


class Signal:
    """Wakes all waiters. A waiter then checks its condition again."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # a set that keeps its order

    def notify(self) -> None:
        """Wake all current waiters, in the order of their arrival."""
        for waiter in self._waiters:
            _wake(waiter)
        self._waiters.clear()

    async def wait(self) -> None:
        """Return at the next `notify`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def wait_at_most(self, delay_s: float, clock: Clock) -> None:
        """Return at the next `notify`, or after the delay."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        alarm = asyncio.ensure_future(clock.sleep(delay_s))
        alarm.add_done_callback(lambda _: _wake(waiter))
        try:
            await waiter
        finally:
            alarm.cancel()
            self._waiters.pop(waiter, None)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Takes(Generic[T]):
    """An iterator over the values of `take`. Cancelling a wait loses nothing: the next wait continues."""

    def __init__(self, take: Callable[[], Awaitable[T]]) -> None:
        self._take = take
        self._closed = False

    def __aiter__(self) -> Takes[T]:
        return self

    async def __anext__(self) -> T:
        await checkpoint()
        if self._closed:
            raise StopAsyncIteration
        return await self._take()

    async def aclose(self) -> None:
        """End the iterator."""
        self._closed = True


class Mailbox(Takes[T]):
    """An iterator over posted items, in order."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        super().__init__(self._next)
        self._items = deque(items)
        self._arrivals = Signal()

    def post(self, items: Iterable[T]) -> None:
        """Add items for the reader."""
        self._items.extend(items)
        self._arrivals.notify()

    async def _next(self) -> T:
        while not self._items:
            await self._arrivals.wait()
        return self._items.popleft()
