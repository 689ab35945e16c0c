"""A plan of faults that a test changes while it is in force."""

from __future__ import annotations

import asyncio

from foldlog.eventlog.faults import Delay, Fault, plan_of


class Steer:
    """Faults of named calls, and stalls of all that a process asks its log for."""

    def __init__(self, *faults: Fault) -> None:
        self.once: dict[str, Fault] = {}
        """Decide the fault of the next call of an operation."""
        self.stalls: dict[tuple[str, int], float] = {}
        """At this call the process stands still for so many seconds: just behind its effect."""
        self._until_s = 0.0
        self._plan = plan_of(faults)

    def stall(self, for_s: float) -> None:
        """Stand still from now on: nothing reaches the log, and nothing comes from it."""
        self._until_s = asyncio.get_running_loop().time() + for_s

    def __call__(self, operation: str, call: int, number: int) -> Fault | None:
        """The plan."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._until_s:
            return Delay(call, operation, self._until_s - now_s)
        if (operation, call) in self.stalls:
            self.stall(self.stalls[operation, call])
            return Delay(call, operation, self.stalls[operation, call], after=True)
        return self.once.pop(operation, None) or self._plan(operation, call, number)
