"""Leases in memory: which worker drives which run, and until when."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from ..clock import Clock
from ..ports import Announce, HeldLease, Lease, Presence
from .waiting import Mailbox, checkpoint


class MemoryLeases:
    """`Leases` in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str, int], tuple[HeldLease, float]] = {}
        self._present: dict[str, Presence] = {}
        self._listeners: list[Mailbox[Lease]] = []

    async def vouch(self, lease: Lease, ttl_s: float) -> None:
        """Set or renew the lease for the next `ttl_s` seconds."""
        await checkpoint()
        held = HeldLease(lease=lease, renewed_at=self._clock.now())
        self._held[lease.run, lease.worker, lease.epoch] = held, self._clock.monotonic() + ttl_s

    async def end(self, lease: Lease) -> None:
        """End the lease."""
        await checkpoint()
        self._held.pop((lease.run, lease.worker, lease.epoch), None)

    async def live(self, run: str, worker: str, epoch: int) -> bool:
        """Return whether the worker has a lease on this run and epoch now."""
        await checkpoint()
        held = self._held.get((run, worker, epoch))
        return held is not None and self._clock.monotonic() < held[1]

    async def held(self) -> tuple[HeldLease, ...]:
        """Return all leases in force."""
        await checkpoint()
        return tuple(held for held, until in self._held.values() if self._clock.monotonic() < until)

    @contextlib.asynccontextmanager
    async def presence(self, announced: Presence) -> AsyncIterator[Announce]:
        """Announce the process while the context is open; leaving it ends its leases without a report."""
        self._present[announced.worker] = announced

        async def again(changed: Presence) -> None:
            await checkpoint()
            self._present[announced.worker] = changed

        try:
            yield again
        finally:
            self._present.pop(announced.worker, None)
            self._take_all(announced.worker)

    async def present(self) -> tuple[Presence, ...]:
        """Return the processes that are present now, by their names."""
        await checkpoint()
        return tuple(each for _, each in sorted(self._present.items()))

    @contextlib.asynccontextmanager
    async def deaths(self) -> AsyncIterator[AsyncIterator[Lease]]:
        """Yield the leases of workers whose connection ended unexpectedly."""
        mailbox = Mailbox[Lease]()
        self._listeners.append(mailbox)
        try:
            yield mailbox
        finally:
            self._listeners.remove(mailbox)

    def disconnect(self, worker: str) -> None:
        """Report the worker's leases to all listeners, and end them; without listeners, they expire."""
        self._present.pop(worker, None)
        if self._listeners:
            leases = self._take_all(worker)
            for mailbox in self._listeners:
                mailbox.post(leases)

    def _take_all(self, worker: str) -> list[Lease]:
        now = self._clock.monotonic()
        keys = [key for key, (held, _) in self._held.items() if held.lease.worker == worker]
        return [held.lease for held, until in map(self._held.pop, keys) if now < until]
