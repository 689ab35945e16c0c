"""Heartbeats: while a drive is running, and only then, its lease is renewed on time (W17).

A lease is a hint to others when to take over, and never a lock: the claim in the log is what fences. A lease that
ends too early costs a takeover and a fenced driver. A lease that is renewed too long costs a run, since the others
wait for a drive that does not exist. So leases belong to drives and not to processes: one begins with the drive
(before the claim is stored, so that no stored claim is without one), and ends when the drive ends, for whatever
reason.

Each beat renews two things: the lease, which others read before they claim, and what brings the run back if this
process dies: the redelivery of the wake-up that it holds, or, for a local run, the watch timer. Three beats fit into
a lease, so one may be lost. After an outage of the log the beats come at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from ...eventlog.errors import LogUnavailable
from ...eventlog.ports import Lease
from ..journal.outages import OUTAGE_POLL_S
from ..journal.timers import watch_timer
from .driver import Driver
from .host import Host

logger = logging.getLogger("foldlog.lease")
BEATS_PER_LEASE = 3


class Beating(msgspec.Struct, frozen=True):
    """A drive that is running, and the wake-up it holds (empty for a local run, which has a watch instead)."""

    driver: Driver
    token: str


class LeaseKeeper:
    """The heartbeats of all drives of one process."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._beating: dict[int, Beating] = {}
        self._task: asyncio.Task[None] | None = None
        self._said: set[asyncio.Task[None]] = set()

    @property
    def drivers(self) -> list[Driver]:
        """The drives that are running."""
        return [beating.driver for beating in self._beating.values()]

    def drives(self, run: str, epoch: int) -> bool:
        """Return whether a drive under this claim is running; of two deliveries of one wake-up only one may win it."""
        return any((driver.state.run, driver.epoch) == (run, epoch) for driver in self.drivers)

    @contextlib.asynccontextmanager
    async def beat_for(self, driver: Driver, token: str = "") -> AsyncIterator[None]:
        """Vouch for the drive while the context is open."""
        beating = Beating(driver, token)
        self._beating[id(driver)] = beating
        driver.renew = lambda: self._vouch(beating)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        self._later(lambda: self._vouch(beating))
        try:
            yield
        finally:
            del self._beating[id(driver)]
            driver.renew = None
            if not self.drives(driver.state.run, driver.epoch):
                self._later(lambda: self._host.log.leases.end(self._lease(beating)))

    async def aclose(self) -> None:
        """Stop beating."""
        if self._task is not None:
            self._task.cancel()
        tasks = [task for task in (self._task, *self._said) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        """Beat on time; after an outage at once, before others take the silence for the end of the drives."""
        away = False
        while True:
            await self._host.log.clock.sleep(OUTAGE_POLL_S if away else self._host.lease_s / BEATS_PER_LEASE)
            heard = await asyncio.gather(*map(self._beat, self._beating.values()))
            if not all(heard) and not away:
                logger.warning("the log is away: the leases of %d runs are not renewed", len(heard))
            away = not all(heard)

    async def _beat(self, beating: Beating) -> bool:
        """Say once more that the drive is running; whether the log heard it."""
        since = self._host.log.clock.monotonic()
        try:
            await self._host.log.leases.vouch(self._lease(beating), self._host.lease_s)
            if beating.token:
                await self._host.log.wakeups.extend(beating.token)
            else:
                due_at = self._host.log.clock.now() + self._host.lease_s
                await self._host.log.timers.set(watch_timer(beating.driver.journal, due_at))
        except LogUnavailable:
            return False
        beating.driver.renewed(since)
        return True

    async def _vouch(self, beating: Beating) -> None:
        since = self._host.log.clock.monotonic()
        await self._host.log.leases.vouch(self._lease(beating), self._host.lease_s)
        beating.driver.renewed(since)

    def _lease(self, beating: Beating) -> Lease:
        driver = beating.driver
        return Lease(
            shard=driver.journal.subject.shard,
            agent=driver.state.agent,
            root=driver.state.root,
            run=driver.state.run,
            epoch=driver.epoch,
            worker=self._host.worker,
            revision=driver.state.head.rev,
            token=beating.token,
        )

    def _later(self, saying: Callable[[], Awaitable[None]]) -> None:
        """Say it without making anybody wait: leases are hints."""

        async def say() -> None:
            with contextlib.suppress(LogUnavailable):
                await saying()

        task = asyncio.create_task(say())
        self._said.add(task)
        task.add_done_callback(self._said.discard)
