"""Fault injection: wraps any `Log` and makes planned faults happen at counted operations.

    log = FaultyLog(MemoryLog(), [LostAck(3), CrashAt(12, after=True)])

Operations are named `port.method`, such as `events.append`, and counted from 1, each by its name and all together under
`*`. Each item of a stream counts as an operation (`wakeups.pull`, `events.follow`, `leases.deaths`, `drafts.follow`);
entering a stream does not. After a run without faults, `log.operations` is the number of points that a test has to try.

A wrapper is one incarnation of one process: after a `CrashAt` each of its calls raises `Crash`, including those in
progress, while the wrapped log and other wrappers of it continue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ..clock import Clock
from ..ports import Log
from .core import Core
from .plan import (
    Crash,
    CrashAt,
    Delay,
    DuplicateDelivery,
    Fault,
    LateAppend,
    LostAck,
    Outage,
    Plan,
    Refused,
    SpuriousConflict,
    StaleRead,
    plan_of,
)
from .ports import (
    FaultyArtifacts,
    FaultyDrafts,
    FaultyEvents,
    FaultyKeys,
    FaultyLeases,
    FaultySnapshots,
    FaultyTimers,
    FaultyWakeups,
)

__all__ = [
    "Crash",
    "CrashAt",
    "Delay",
    "DuplicateDelivery",
    "Fault",
    "FaultyLog",
    "LateAppend",
    "LostAck",
    "Outage",
    "Plan",
    "Refused",
    "SpuriousConflict",
    "StaleRead",
    "plan_of",
]


class FaultyLog:
    """A `Log` around `inner` in which the plan's faults happen.

    `operations` counts the calls by name; `fired` lists the faults that happened, in order. `on_crash` is called once,
    at the crash.
    """

    def __init__(
        self, inner: Log, faults: Iterable[Fault] | Plan = (), *, on_crash: Callable[[], None] | None = None
    ) -> None:
        self.inner = inner
        self.namespace = inner.namespace
        self.clock: Clock = inner.clock
        self._core = Core(inner.clock, faults if callable(faults) else plan_of(faults), on_crash)
        self.events = FaultyEvents(inner, self._core)
        self.wakeups = FaultyWakeups(inner, self._core)
        self.timers = FaultyTimers(inner, self._core)
        self.leases = FaultyLeases(inner, self._core)
        self.drafts = FaultyDrafts(inner, self._core)
        self.artifacts = FaultyArtifacts(inner, self._core)
        self.snapshots = FaultySnapshots(inner, self._core)
        self.keys = FaultyKeys(inner, self._core)

    @property
    def operations(self) -> Counter[str]:
        """The number of calls of each operation; `*` counts all."""
        return self._core.operations

    @property
    def fired(self) -> list[Fault]:
        """The faults that happened, in order."""
        return self._core.fired

    @property
    def crashed(self) -> bool:
        """True if this incarnation is dead."""
        return self._core.crashed

    def crash(self) -> None:
        """Kill this incarnation between two operations."""
        self._core.kill()

    async def wait_until_crashed(self) -> None:
        """Return as soon as this incarnation is dead, so that its tasks can be cancelled."""
        await self._core.wait_until_dead()

    async def release(self) -> None:
        """Execute late appends (which may be refused), and end outages and stale reads; also after a crash."""
        await self._core.release()
