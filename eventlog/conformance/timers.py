"""The suite for `Timers`. They may be half a second late, so tests check their order and that none is early."""

from __future__ import annotations

import pytest

from ..ports import Log, Timer, TimerWrite, Wakeup
from .suite import Suite, new_name, run_in, wakeup_for


class TimersSuite(Suite):
    """Subclass it and override `log` and `reopened`."""

    @pytest.fixture
    def agent(self) -> str:
        """Return an agent name that no other test uses."""
        return new_name("agent")

    async def fired(self, log: Log, agent: str, count: int = 1) -> list[Wakeup]:
        """Return the next wake-up of the agent."""
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            return await self.woken(log, deliveries, count)

    async def test_a_timer_fires_not_before_it_is_due_with_all_that_it_says(
        self, log: Log, agent: str
    ) -> None:
        wakeup = Wakeup(
            shard=1, agent=agent, root="r", run="r-1", kind="timer", cause=5, lane_cause=2, ref="t-1"
        )
        due_at = log.clock.now() + 0.5
        await log.timers.set(Timer(id="t-1", due_at=due_at, wakeup=wakeup))
        assert await self.fired(log, agent) == [wakeup]
        assert log.clock.now() >= due_at

    async def test_timers_fire_in_the_order_in_which_they_are_due(self, log: Log, agent: str) -> None:
        now = log.clock.now()
        for cause, delay_s in ((2, 1.5), (1, 0.5)):
            await log.timers.set(Timer(id=f"t{cause}", due_at=now + delay_s, wakeup=wakeup_for(agent, cause)))
        assert [wakeup.cause for wakeup in await self.fired(log, agent, 2)] == [1, 2]

    async def test_setting_a_timer_again_replaces_it(self, log: Log, agent: str) -> None:
        run, now = run_in(log).subject.id, log.clock.now()
        first, second = (wakeup_for(agent, cause, run=run) for cause in (1, 2))
        other = wakeup_for(agent, 3)
        await log.timers.set(Timer(id="t", due_at=now + 1.0, wakeup=first))
        await log.timers.set(Timer(id="t", due_at=now + 2.0, wakeup=second))
        await log.timers.set(Timer(id="t", due_at=now + 1.4, wakeup=other))
        assert await self.fired(log, agent, 2) == [other, second]

    async def test_a_timer_can_be_set_to_an_earlier_time(self, log: Log, agent: str) -> None:
        run, now = run_in(log).subject.id, log.clock.now()
        late, early = (wakeup_for(agent, cause, run=run) for cause in (1, 2))
        await log.timers.set(Timer(id="t", due_at=now + 3600, wakeup=late))
        await log.timers.set(Timer(id="t", due_at=now + 0.2, wakeup=early))
        assert await self.fired(log, agent) == [early]

    async def test_timers_of_one_id_belong_to_their_runs(self, log: Log, agent: str) -> None:
        wakeups = [wakeup_for(agent, cause) for cause in (1, 2)]
        for wakeup in wakeups:
            await log.timers.set(Timer(id="t", due_at=log.clock.now() + 0.2, wakeup=wakeup))
        assert sorted(await self.fired(log, agent, 2), key=lambda w: w.cause) == wakeups

    async def test_a_cancelled_timer_does_not_fire(self, log: Log, agent: str) -> None:
        now = log.clock.now()
        cancelled = Timer(id="t", due_at=now + 1.0, wakeup=wakeup_for(agent, 1))
        kept = Timer(id="t", due_at=now + 1.6, wakeup=wakeup_for(agent, 2))
        for timer in (cancelled, kept):
            await log.timers.set(timer)
        await log.timers.cancel(cancelled)
        await log.timers.cancel(cancelled)
        assert await self.fired(log, agent) == [kept.wakeup]

    async def test_the_timers_of_one_id_are_found_whatever_their_run_until_they_fire_or_are_cancelled(
        self, log: Log, agent: str
    ) -> None:
        name, now = new_name("timer"), log.clock.now()
        wakeups = [wakeup_for(agent, cause) for cause in (1, 2, 3, 4)]
        cancelled, fired = (Timer(id=name, due_at=now + 3600, wakeup=each) for each in wakeups[:2])
        others = [Timer(id=name, due_at=now + 3600, wakeup=each) for each in wakeups[2:]]
        for timer in (cancelled, fired, *others):
            await log.timers.set(timer)
        await log.timers.set(Timer(id=f"{name}-other", due_at=now + 3600, wakeup=wakeup_for(agent, 5)))
        await log.timers.cancel(cancelled)
        await log.timers.set(Timer(id=name, due_at=now, wakeup=fired.wakeup))
        assert await self.fired(log, agent) == [fired.wakeup]
        found = [each async for each in log.timers.named(name)]
        assert sorted(found, key=lambda each: each.cause) == wakeups[2:]
        assert [each async for each in log.timers.named(new_name("timer"))] == []

    async def test_an_overdue_timer_fires_before_one_that_is_not_due(self, log: Log, agent: str) -> None:
        now = log.clock.now()
        due, overdue = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.timers.set(Timer(id="t", due_at=now + 1.0, wakeup=due))
        await log.timers.set(Timer(id="t", due_at=now - 3600, wakeup=overdue))
        assert await self.fired(log, agent, 2) == [overdue, due]

    async def test_a_timer_fires_once_and_its_wake_up_stays_until_it_is_acknowledged(
        self, log: Log, agent: str
    ) -> None:
        once, marker = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.timers.set(Timer(id="t", due_at=log.clock.now(), wakeup=once))
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            first, again = await self.take(deliveries, 2)
            await log.wakeups.ack(again.token)
        assert [(d.wakeup, d.attempt) for d in (first, again)] == [(once, 1), (once, 2)]
        await log.timers.set(Timer(id="t", due_at=log.clock.now() + 0.6, wakeup=marker))
        assert await self.fired(log, agent) == [marker]

    async def test_a_timer_that_is_due_while_nobody_serves_its_agent_is_kept(
        self, log: Log, agent: str
    ) -> None:
        now, unserved = log.clock.now(), new_name("agent")
        kept, marker = wakeup_for(unserved, 1), wakeup_for(agent, 2)
        await log.timers.set(Timer(id="t", due_at=now, wakeup=kept))
        await log.timers.set(Timer(id="t", due_at=now + 0.6, wakeup=marker))
        assert await self.fired(log, agent) == [marker]
        assert await self.fired(log, unserved) == [kept]

    async def test_a_timer_of_a_batch_replaces_one_that_was_set_alone(self, log: Log, agent: str) -> None:
        run, now = run_in(log), log.clock.now()
        old, new = (wakeup_for(agent, cause, run=run.subject.id) for cause in (1, 2))
        await log.timers.set(Timer(id="t", due_at=now + 1.0, wakeup=old))
        await run.append("parked", TimerWrite(Timer(id="t", due_at=now + 1.6, wakeup=new)))
        assert await self.fired(log, agent) == [new]

    async def test_timers_survive_as_declared(self, log: Log, agent: str) -> None:
        now = log.clock.now()
        kept, marker = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.timers.set(Timer(id="t", due_at=now + 0.2, wakeup=kept))
        async with self.reopened(log) as again:
            await again.timers.set(Timer(id="t", due_at=now + 0.8, wakeup=marker))
            assert await self.fired(again, agent) == [kept if self.durable else marker]
