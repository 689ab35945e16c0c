"""The suite for `Leases`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

import msgspec
from anyio import fail_after

from ..ports import Lease, Log, Offer, Presence, served
from .suite import Suite, new_name

Kill = Callable[[], Awaitable[None]]


class LeasesSuite(Suite):
    """Subclass it and override `log` and `mortal`."""

    hears_deaths: ClassVar[bool] = True
    """True if the log notices the end of a connection; otherwise leases can only expire."""

    def mortal(self, log: Log, worker: str) -> AbstractAsyncContextManager[tuple[Log, Kill]]:
        """Return a handle on `log`'s namespace for this worker, and a function that cuts its connection. Override."""
        raise NotImplementedError("override `mortal`")

    def lease(self, **fields: object) -> Lease:
        """Return a lease with a new worker and a new run."""
        run = new_name("run")
        defaults: dict[str, object] = {"worker": new_name("worker"), "run": run, "root": run}
        return Lease(**{"shard": 0, "agent": "a", "epoch": 1, **defaults, **fields})  # type: ignore[arg-type]

    async def live(self, log: Log, lease: Lease) -> bool:
        """Return whether the lease is live."""
        return await log.leases.live(lease.run, lease.worker, lease.epoch)

    async def over(self, log: Log, lease: Lease) -> None:
        """Return when the lease is over."""
        with fail_after(self.patience_s):
            while await self.live(log, lease):
                await log.clock.sleep(0.05)

    async def test_a_lease_is_live_for_its_run_worker_and_epoch_only(self, log: Log) -> None:
        lease = self.lease(epoch=3)
        await log.leases.vouch(lease, 30)
        assert await log.leases.live(lease.run, lease.worker, 3)
        assert not await log.leases.live(lease.run, lease.worker, 4)
        assert not await log.leases.live(lease.run, new_name("worker"), 3)
        assert not await log.leases.live(new_name("run"), lease.worker, 3)

    async def test_a_lease_that_is_not_renewed_ends_and_one_that_is_goes_on(self, log: Log) -> None:
        silent, renewed = self.lease(), self.lease()
        for lease in (silent, renewed):
            await log.leases.vouch(lease, 2)
        assert await self.live(log, silent)
        await log.leases.vouch(renewed, 30)
        await self.over(log, silent)
        assert await self.live(log, renewed)

    async def test_a_lease_that_was_ended_is_over_at_once_and_its_siblings_are_not(self, log: Log) -> None:
        worker = new_name("worker")
        ended, kept = self.lease(worker=worker), self.lease(worker=worker)
        for lease in (ended, kept):
            await log.leases.vouch(lease, 30)
        await log.leases.end(ended)
        assert not await self.live(log, ended)
        assert await self.live(log, kept)

    async def test_the_leases_in_force_are_listed_with_the_time_of_their_renewal(self, log: Log) -> None:
        ended, kept, other = (
            self.lease(),
            self.lease(token=new_name("token"), revision=4),
            self.lease(epoch=7),
        )
        begin = log.clock.now()
        for lease in (ended, kept, other):
            await log.leases.vouch(lease, 30)
        await log.leases.end(ended)
        own = {ended.run, kept.run, other.run}
        found = {each.lease.run: each for each in await log.leases.held() if each.lease.run in own}
        assert {run: each.lease for run, each in found.items()} == {kept.run: kept, other.run: other}
        assert all(begin - 1 <= each.renewed_at <= log.clock.now() + 1 for each in found.values())

    async def test_a_lease_can_be_held_again_after_it_was_ended(self, log: Log) -> None:
        lease = self.lease()
        await log.leases.vouch(lease, 30)
        await log.leases.end(lease)
        await log.leases.vouch(lease, 30)
        assert await self.live(log, lease)

    async def test_the_leases_of_a_vanished_worker_become_news_as_declared(self, log: Log) -> None:
        worker = new_name("worker")
        held = self.lease(
            worker=worker, epoch=2, token=new_name("token"), revision=4, agent="searcher", shard=1
        )
        ended, others = self.lease(worker=worker), self.lease()
        await log.leases.vouch(others, 30)
        async with (
            log.leases.deaths() as deaths,
            self.mortal(log, worker) as (mine, kill),
            mine.leases.presence(Presence(worker=worker)),
        ):
            for lease in (ended, msgspec.structs.replace(held, epoch=1)):
                await mine.leases.vouch(lease, 30)
                await mine.leases.end(lease)
            await mine.leases.vouch(held, 30 if self.hears_deaths else 1)
            await kill()
            if self.hears_deaths:
                assert await self.take(deaths, 1) == [held]
            await self.over(log, held)
        assert await self.live(log, others)

    async def test_a_death_is_reported_to_every_listener(self, log: Log) -> None:
        worker = new_name("worker")
        held = [self.lease(worker=worker) for _ in range(3)]
        async with (
            log.leases.deaths() as one,
            log.leases.deaths() as two,
            self.mortal(log, worker) as (mine, kill),
            mine.leases.presence(Presence(worker=worker)),
        ):
            for lease in held:
                await mine.leases.vouch(lease, 30)
            await kill()
            told = [await self.take(deaths, 3) for deaths in (one, two) if self.hears_deaths]
        expected = [set(held)] * 2 if self.hears_deaths else []
        assert [set(leases) for leases in told] == expected

    async def test_workers_are_present_with_what_they_announce_while_they_are_there(self, log: Log) -> None:
        shared, own = new_name("agent"), new_name("agent")
        worker = Presence(
            worker=new_name("worker"),
            serves=(shared,),
            concurrency=7,
            host="a-host",
            pid=42,
            release="1.2.3",
            build="b7",
            since=5.5,
        )
        vanished = Presence(worker=new_name("worker"), serves=(shared, own))

        async def present() -> set[Presence]:
            return {worker, vanished} & set(await log.leases.present())

        assert await present() == set()
        async with (
            log.leases.presence(worker),
            self.mortal(log, vanished.worker) as (mine, kill),
            mine.leases.presence(vanished),
        ):
            both = await present()
            assert both == {worker, vanished}
            assert served(both) == {shared, own}
            await kill()
            with fail_after(self.patience_s):
                while await present() != {worker}:
                    await log.clock.sleep(0.05)
        assert await present() == set()

    async def test_a_worker_announces_again_what_has_changed_about_it(self, log: Log) -> None:
        worker = Presence(worker=new_name("worker"))
        offer = Offer(tools=("a", "b"), mcp_servers={"docs": [{"command": "x", "args": ["1"]}]})
        changed = msgspec.structs.replace(worker, serves=("agent",), offer=offer)
        async with log.leases.presence(worker) as announce:
            assert worker in await log.leases.present()
            await announce(changed)
            assert [each for each in await log.leases.present() if each.worker == worker.worker] == [changed]
        assert changed not in await log.leases.present()

    async def test_a_worker_that_shuts_down_ends_its_leases_and_is_not_reported_dead(self, log: Log) -> None:
        orderly, vanished = new_name("worker"), new_name("worker")
        quiet, news = self.lease(worker=orderly), self.lease(worker=vanished)
        async with log.leases.deaths() as deaths:
            async with log.leases.presence(Presence(worker=orderly)):
                await log.leases.vouch(quiet, 30)
                assert await self.live(log, quiet)
            await self.over(log, quiet)
            async with (
                self.mortal(log, vanished) as (mine, kill),
                mine.leases.presence(Presence(worker=vanished)),
            ):
                await mine.leases.vouch(news, 30)
                await kill()
                if self.hears_deaths:
                    assert await self.take(deaths, 1) == [news]
