"""The time that an attempt at a call may take. It stands still while a run below a tool call waits for people."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...eventlog.clock import Clock
from .eager import EagerCall

T = TypeVar("T")


class PausableTimeout:
    """Bounds a call to `seconds` (null: for ever) in which nobody below waits. What never waits itself has no timer."""

    def __init__(self, seconds: float | None, clock: Clock) -> None:
        self._seconds, self._clock = seconds, clock
        self._over_at: float | None = None
        """When it is to be over, by the event loop's time."""
        self._limit: asyncio.Timeout | None = None
        self._open = False
        self._waiting = 0
        self._stopped_at: float | None = None
        """Since when (monotonic) the time stands still."""

    async def of(self, call: Coroutine[Any, Any, T]) -> T:
        """What the call gives. Raises `TimeoutError`, and what the call raises. Use once."""
        if self._seconds is not None:
            self._over_at = asyncio.get_running_loop().time() + self._seconds
        begun: EagerCall[T] = EagerCall(call)
        if not begun.waits:
            return begun.value
        stands = self._stopped_at is not None
        async with asyncio.timeout_at(None if stands else self._over_at) as self._limit:
            self._open = True
            try:
                return await begun
            finally:
                self._open = False

    @property
    def expired(self) -> bool:
        """Return whether it is over."""
        return self._limit is not None and self._limit.expired()

    def move(self, over_at: float) -> None:
        """Have it end at another time of the event loop."""
        self._over_at = over_at
        self._set(over_at)

    def wait(self) -> None:
        """Somebody below waits for people."""
        self._waiting += 1
        if self._over_at is not None and self._stopped_at is None:
            self._stopped_at = self._clock.monotonic()
            self._set(None)

    def go_on(self) -> None:
        """One that waited does not any more."""
        self._waiting -= 1
        if self._over_at is not None and self._stopped_at is not None and not self._waiting:
            self.move(self._over_at + self._clock.monotonic() - self._stopped_at)
            self._stopped_at = None

    def _set(self, over_at: float | None) -> None:
        if self._open and self._limit is not None and not self._limit.expired():
            self._limit.reschedule(over_at)
