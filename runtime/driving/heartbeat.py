"""Heartbeats: while a drive is running, and only then, its lease is renewed on time (W17).

A lease tells other workers when to take a run over. It is a hint and never a lock: the claim in the log is what fences.
A lease that ends too early costs a takeover and a fenced driver. A lease that is renewed too long costs a run, because
the others wait for a drive that does not exist. So leases belong to drives and not to processes: a lease begins with
the drive (before the claim is stored, so that no stored claim is without one), and ends when the drive ends, for any
reason.

Each heartbeat renews two things: the lease, which others read before they claim, and the means to bring the run back if
this process dies: the redelivery of the wake-up that it holds, or, for a local run, the watch timer. There are three
heartbeats per lease, so one may be lost. After an outage of the log the next ones are sent at once.

A lease counts from the moment before it was sent (`Driver.renewed`), while other workers count from its arrival, so the
holder always considers it over first. Each lease that lapsed and came back gets a new number: a proof of ownership made
under an earlier number is void (see `driver`).
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
from ..shared.log_ids import at_no_work
from .driver import Driver
from .host import Host

logger = logging.getLogger("foldlog.lease")
BEATS_PER_LEASE = 3


class Beating(msgspec.Struct, frozen=True):
    """A running drive, and the wake-up it holds (empty for a local run, which has a watch instead)."""

    driver: Driver
    token: str


class LeaseKeeper:
    """Sends the heartbeats of all drives of one process."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._beating: dict[int, Beating] = {}
        self._task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def drivers(self) -> list[Driver]:
        """The running drives."""
        return [beating.driver for beating in self._beating.values()]

    def drives(self, run: str, epoch: int) -> bool:
        """Return whether a drive under this claim is running; of two deliveries of a wake-up only one may drive."""
        return any((driver.state.run, driver.epoch) == (run, epoch) for driver in self.drivers)

    @contextlib.asynccontextmanager
    async def beat_for(self, driver: Driver, token: str = "") -> AsyncIterator[None]:
        """Send heartbeats for the drive while the context is open."""
        beating = Beating(driver, token)
        self._beating[id(driver)] = beating
        driver.renew = lambda: self._vouch(beating)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), context=at_no_work())
        self._send(lambda: self._vouch(beating))
        try:
            yield
        finally:
            del self._beating[id(driver)]
            driver.renew = None
            if not self.drives(driver.state.run, driver.epoch):
                self._send(lambda: self._host.log.leases.end(self._lease(beating)))

    async def aclose(self) -> None:
        """Stop the heartbeats."""
        if self._task is not None:
            self._task.cancel()
        tasks = [task for task in (self._task, *self._sending) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        """Send heartbeats on time; after an outage at once, before other workers take the silence for a death."""
        away = False
        while True:
            await self._host.log.clock.sleep(OUTAGE_POLL_S if away else self._host.lease_s / BEATS_PER_LEASE)
            renewed = await asyncio.gather(*map(self._beat, self._beating.values()))
            if not all(renewed) and not away:
                logger.warning("the log is away: the leases of %d runs are not renewed", len(renewed))
            away = not all(renewed)

    async def _beat(self, beating: Beating) -> bool:
        """Renew the lease and the wake-up or watch; return whether the log accepted that."""
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
            priority=driver.state.priority,
        )

    def _send(self, request: Callable[[], Awaitable[None]]) -> None:
        """Send the request in the background: leases are hints, so no one waits for them."""

        async def send() -> None:
            with contextlib.suppress(LogUnavailable):
                await request()

        task = asyncio.create_task(send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
