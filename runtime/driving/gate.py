"""A gate before tool calls: each waits for work of its own, which begins when the call is first asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar


class Wakeable(Protocol):
    """A driver that looks again at what may start."""

    def wake(self) -> None:
        """Look again soon."""
        ...


DriverT = TypeVar("DriverT", bound=Wakeable)


class Gate(Generic[DriverT]):
    """Admits a call once its work has ended with true. The driver is woken then."""

    def __init__(self, driver: DriverT) -> None:
        self._driver = driver
        self._taking: dict[str, asyncio.Task[bool]] = {}

    def admits(self, call_id: str) -> bool:
        """Return whether the call may start; its work begins if it has not."""
        taking = self._take(call_id)
        return taking is None or (taking.done() and not taking.cancelled() and taking.result())

    async def wait(self, call_id: str) -> bool:
        """Wait for the call's work; false if the call may not start, now or ever."""
        taking = self._take(call_id)
        return taking is None or await asyncio.shield(taking)

    def _work_for(self, call_id: str) -> Coroutine[Any, Any, bool] | None:
        """Return the work of a call; null for a call that needs none."""
        raise NotImplementedError

    def _take(self, call_id: str) -> asyncio.Task[bool] | None:
        if call_id not in self._taking:
            work = self._work_for(call_id)
            if work is None:
                return None
            taking = self._taking[call_id] = asyncio.create_task(work)
            taking.add_done_callback(lambda _: self._driver.wake())
        return self._taking[call_id]
