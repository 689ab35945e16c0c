"""The time that one attempt at a tool call may take. It stands still while a run below the call waits for people."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from ..eventlog.clock import Clock


class CallTime:
    """An async context that raises `TimeoutError` after `seconds` (null: never), in which nobody below has waited."""

    def __init__(self, seconds: float | None, clock: Clock) -> None:
        self._limit, self._clock = asyncio.timeout(seconds), clock
        self._open = False
        self._waiting = 0
        self._stopped: tuple[float, float] | None = None
        """Since when (monotonic) the time stands still, and when it was to be over."""

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        await self._limit.__aexit__(kind, error, trace)

    @property
    def expired(self) -> bool:
        """Whether it is over."""
        return self._limit.expired()

    def wait(self) -> None:
        """Somebody below waits for people."""
        self._waiting += 1
        over_at = self._limit.when() if self._open and not self.expired else None
        if over_at is not None and self._stopped is None:
            self._stopped = self._clock.monotonic(), over_at
            self._limit.reschedule(None)

    def go_on(self) -> None:
        """One that waited does not any more."""
        self._waiting -= 1
        if self._stopped is not None and not self._waiting and self._open and not self.expired:
            since, over_at = self._stopped
            self._stopped = None
            self._limit.reschedule(over_at + self._clock.monotonic() - since)
