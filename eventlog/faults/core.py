"""The core of fault injection: counts operations, draws their faults, and keeps track of the faults in force."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..clock import Clock
from ..errors import AppendUnsure, Conflict, FoldlogError, LogUnavailable
from ..memory.waiting import Signal
from .plan import (
    ANY,
    Crash,
    CrashAt,
    Delay,
    Fault,
    LateAppend,
    LostAck,
    Outage,
    Plan,
    Refused,
    SpuriousConflict,
    StaleRead,
)

T = TypeVar("T")


class Core:
    """One incarnation of a process, shared by its ports."""

    def __init__(self, clock: Clock, plan: Plan, on_crash: Callable[[], None] | None = None) -> None:
        self.operations: Counter[str] = Counter()
        self.fired: list[Fault] = []
        self.crashed = False
        self.known: float = math.inf
        """The last position that reads return."""
        self.abandoned: list[object] = []
        """Contexts of a dead process: they are never left, because a dead process does not clean up."""
        self._clock = clock
        self._plan, self._on_crash = plan, on_crash
        self._down_until = -math.inf
        self._late: deque[Callable[[], Awaitable[object]]] = deque()
        self._released = Signal()
        self._died = Signal()

    def count(self, operation: str) -> Fault | None:
        """Count the operation and return its fault, if it has one."""
        self.check_alive()
        self.operations[operation] += 1
        self.operations[ANY] += 1
        fault = self._plan(operation, self.operations[operation], self.operations[ANY])
        if fault is not None:
            self.fired.append(fault)
        return fault

    def check_alive(self) -> None:
        """Raise `Crash` if the process is dead."""
        if self.crashed:
            raise Crash("this incarnation has crashed")

    def die(self) -> Crash:
        """Kill the process, and return the crash to raise."""
        self.kill()
        return Crash("crashed as planned")

    def kill(self) -> None:
        """Kill the process."""
        if self.crashed:
            return
        self.crashed = True
        self._died.notify()
        if self._on_crash is not None:
            self._on_crash()

    async def wait_until_dead(self) -> None:
        """Return as soon as the process is dead."""
        if not self.crashed:
            await self._died.wait()

    async def call(self, operation: str, perform: Callable[[], Awaitable[T]]) -> T:
        """Perform the operation with its fault."""
        fault = self.count(operation)
        self._begin(fault)
        self._check_up()
        try:
            result = await self._with(fault, operation, perform)
        except FoldlogError:
            self.check_alive()
            if isinstance(fault, CrashAt):
                raise self.die() from None
            raise
        self.check_alive()
        return result

    def _begin(self, fault: Fault | None) -> None:
        match fault:
            case Outage(duration_s=duration_s):
                self._down_until = self._clock.monotonic() + (math.inf if duration_s is None else duration_s)
            case StaleRead(position=position):
                self.known = position
            case CrashAt(after=False):
                raise self.die()
            case _:
                pass

    def _check_up(self) -> None:
        if self._clock.monotonic() < self._down_until:
            raise LogUnavailable("the log cannot be reached: a planned outage")

    async def _with(self, fault: Fault | None, operation: str, perform: Callable[[], Awaitable[T]]) -> T:
        match fault:
            case LateAppend():
                self._late.append(perform)
                raise unanswered(operation)
            case Refused():
                raise unanswered(operation)
            case SpuriousConflict():
                raise Conflict("another append is in flight: a planned conflict")
            case Delay(delay_s=delay_s, after=False):
                await self._clock.sleep(delay_s)
                self.check_alive()
            case _:
                pass
        result = await perform()
        match fault:
            case LostAck():
                raise unanswered(operation)
            case CrashAt():
                raise self.die()
            case Delay(delay_s=delay_s, after=True):
                await self._clock.sleep(delay_s)
            case _:
                pass
        return result

    async def hand_out(self, fault: Fault | None) -> None:
        """Execute the fault of a stream's item, and wait until the item gets through."""
        self._begin(fault)
        if isinstance(fault, Delay):
            await self._clock.sleep(fault.delay_s)
        while (remaining_s := self._down_until - self._clock.monotonic()) > 0:
            if remaining_s == math.inf:
                await self._released.wait()
            else:
                await self._released.wait_at_most(remaining_s, self._clock)
        self.check_alive()
        if isinstance(fault, CrashAt):
            raise self.die()

    async def release(self) -> None:
        """End the faults in force, and execute late appends."""
        self.known = math.inf
        self._down_until = -math.inf
        self._released.notify()
        while self._late:
            perform = self._late.popleft()
            with contextlib.suppress(FoldlogError):
                await perform()


def unanswered(operation: str) -> LogUnavailable:
    """Return the error of an operation without a reply; the outcome of an append is then unknown."""
    if operation == "events.append":
        return AppendUnsure("the append got no reply: a planned fault")
    return LogUnavailable(f"{operation} got no reply: a planned fault")
