"""A log that misbehaves on demand: wraps any `Log` and lets planned faults happen at counted operations.

    log = FaultyLog(MemoryLog(), [LostAck(3), CrashAt(12, after=True)])

Operations are named `port.method`, e.g. `events.append`, and counted from 1, each by its name and all together under
`*`. What a stream hands out counts as an operation of it (`wakeups.pull`, `events.follow`, `leases.deaths`,
`drafts.follow`); entering one does not. A run without faults therefore tells in `log.operations` through how many
points a test has to go.

A wrapper is one incarnation of one process: after a `CrashAt` each of its calls raises `Crash`, also those under way,
while the wrapped log, and other wrappers around it, go on.
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

    `operations` counts what was called, by name; `fired` lists the faults that happened, in order. `on_crash` is
    called once, at the moment of the death.
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

    @property
    def operations(self) -> Counter[str]:
        """How often each operation was called; `*` counts all."""
        return self._core.operations

    @property
    def fired(self) -> list[Fault]:
        """The faults that happened, in order."""
        return self._core.fired

    @property
    def crashed(self) -> bool:
        """Return whether this incarnation is dead."""
        return self._core.crashed

    def crash(self) -> None:
        """Kill this incarnation between two operations."""
        self._core.kill()

    async def wait_until_crashed(self) -> None:
        """Return as soon as this incarnation is dead, so that its tasks can be ended with it."""
        await self._core.wait_until_dead()

    async def release(self) -> None:
        """Let late appends land (or be refused), and end outages and stale reads. Works after a crash too."""
        await self._core.release()
