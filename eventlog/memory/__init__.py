"""The reference log: all eight ports over plain dictionaries, in one process.

It defines the meaning of the ports, and is small enough to be read in one sitting. Nothing runs in the background:
consumers that wait in `pull` find timers that are due and wake-ups whose time for a heartbeat is over. Time comes only
from the `Clock`, and every order is that of insertion, so that a simulation with a virtual clock replays exactly.

Each operation lets other tasks run once and then takes effect at once: an operation that is cancelled has not happened.
"""

from __future__ import annotations

from ..clock import Clock, SystemClock
from .artifacts import MemoryArtifacts
from .drafts import MemoryDrafts
from .events import MemoryEvents
from .keys import MemoryKeys
from .leases import MemoryLeases
from .positions import Positions
from .snapshots import MemorySnapshots
from .wakeups import MemoryTimers, MemoryWakeups

__all__ = ["MemoryLog"]


class MemoryLog:
    """A namespace that exists as long as this object; several runtimes of one process may share it.

    `ack_wait_s` is the time without a heartbeat after which a wake-up is redelivered.
    """

    def __init__(
        self,
        namespace: str = "default",
        *,
        clock: Clock | None = None,
        shards: int = 1,
        ack_wait_s: float = 30.0,
    ) -> None:
        self.namespace = namespace
        self.clock: Clock = clock or SystemClock()
        positions = Positions(shards)
        self.wakeups = MemoryWakeups(self.clock, positions, ack_wait_s)
        self.timers = MemoryTimers(self.wakeups)
        self.events = MemoryEvents(positions, self.wakeups)
        self.leases = MemoryLeases(self.clock)
        self.drafts = MemoryDrafts(self.clock)
        self.artifacts = MemoryArtifacts()
        self.snapshots = MemorySnapshots()
        self.keys = MemoryKeys()

    def disconnect(self, worker: str) -> None:
        """Simulate the end of a worker's connection: `leases.deaths()` reports its leases, and they end."""
        self.leases.disconnect(worker)
