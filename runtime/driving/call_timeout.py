"""The timeout of an attempt at a call. It stops counting while a run below a tool call waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...eventlog.clock import Clock
from .eager import EagerCall

T = TypeVar("T")


class PausableTimeout:
    """Bounds a call to `seconds` (null: for ever) without waits below. A call that never suspends has no timer."""

    def __init__(self, seconds: float | None, clock: Clock) -> None:
        self._seconds, self._clock = seconds, clock
        self._over_at: float | None = None
        """The end by the event loop's time."""
        self._limit: asyncio.Timeout | None = None
        self._open = False
        self._waiting = 0
        self._stopped_at: float | None = None
        """The monotonic time since which the timeout has not been counting."""

    async def of(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the call's result. Raises `TimeoutError`, and the errors of the call. Use once."""
        if self._seconds is not None:
            self._over_at = asyncio.get_running_loop().time() + self._seconds
        begun: EagerCall[T] = EagerCall(call)
        if not begun.waits:
            return begun.value
        stopped = self._stopped_at is not None
        async with asyncio.timeout_at(None if stopped else self._over_at) as self._limit:
            self._open = True
            try:
                return await begun
            finally:
                self._open = False

    @property
    def expired(self) -> bool:
        """Return whether the timeout has passed."""
        return self._limit is not None and self._limit.expired()

    def move(self, over_at: float) -> None:
        """Move the end to another time of the event loop."""
        self._over_at = over_at
        self._set(over_at)

    def wait(self) -> None:
        """Stop counting: a run below waits for a person."""
        self._waiting += 1
        if self._over_at is not None and self._stopped_at is None:
            self._stopped_at = self._clock.monotonic()
            self._set(None)

    def go_on(self) -> None:
        """Count again, once no run below waits any more."""
        self._waiting -= 1
        if self._over_at is not None and self._stopped_at is not None and not self._waiting:
            self.move(self._over_at + self._clock.monotonic() - self._stopped_at)
            self._stopped_at = None

    def _set(self, over_at: float | None) -> None:
        if self._open and self._limit is not None and not self._limit.expired():
            self._limit.reschedule(over_at)
