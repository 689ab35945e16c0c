"""The suite for `Wakeups` (W9, W15, W16).

Where a test could wait for nothing to happen, it waits for what must happen first.
"""

from __future__ import annotations

import msgspec
import pytest
from anyio import create_task_group

from ..ports import Log, Wakeup, WakeWrite
from ..priorities import PRIORITIES
from .suite import Suite, everything, new_name, run_in, wakeup_for


class WakeupsSuite(Suite):
    """Subclass it and override `log` and `reopened`. The log's `ack_wait_s` should be about a second."""

    @pytest.fixture
    def agent(self) -> str:
        """Return an agent name that no other test uses."""
        return new_name("agent")

    async def test_a_wake_up_is_delivered_with_all_that_it_says(self, log: Log, agent: str) -> None:
        full = Wakeup(
            shard=1,
            agent=agent,
            root="root-1",
            run="run_1",
            kind="child",
            cause=7,
            lane_cause=3,
            root_cause=4,
            ref="child-1",
        )
        plain = wakeup_for(agent)
        await log.wakeups.send(full)
        await log.wakeups.send(plain)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            taken = await self.woken(log, deliveries, 2)
        assert sorted(taken, key=lambda w: w.shard) == [plain, full]

    async def test_wake_ups_of_a_shard_are_delivered_in_the_order_they_were_sent(
        self, log: Log, agent: str
    ) -> None:
        sent = [wakeup_for(agent, cause) for cause in range(10)]
        for wakeup in sent:
            await log.wakeups.send(wakeup)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            assert await self.woken(log, deliveries, 10) == sent

    async def test_of_several_priorities_each_gets_its_turns_in_the_order_of_its_own(
        self, log: Log, agent: str
    ) -> None:
        replace = msgspec.structs.replace
        sent = [
            replace(wakeup_for(agent, cause), priority=each)
            for each in reversed(PRIORITIES)
            for cause in range(6)
        ]
        for wakeup in sent:
            await log.wakeups.send(wakeup)
        assert await log.wakeups.waiting(frozenset({agent})) == {agent: len(sent)}
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            taken = await self.woken(log, deliveries, len(sent))
        for each in PRIORITIES:
            assert [wakeup.cause for wakeup in taken if wakeup.priority == each] == list(range(6))
        places = {each: [n for n, w in enumerate(taken) if w.priority == each] for each in PRIORITIES}
        assert sum(places["urgent"]) < sum(places["normal"]) < sum(places["background"])
        assert places["background"][0] < places["normal"][-1]
        await log.wakeups.sweep()
        assert await log.wakeups.waiting(frozenset({agent})) == {agent: 0}

    async def test_a_consumer_that_waits_gets_what_is_sent_later(self, log: Log, agent: str) -> None:
        wakeup = wakeup_for(agent)
        taken: list[Wakeup] = []

        async def consume() -> None:
            async with log.wakeups.pull(frozenset({agent})) as deliveries:
                taken.extend(await self.woken(log, deliveries, 1))

        async with create_task_group() as tasks:
            tasks.start_soon(consume)
            await log.clock.sleep(0.05)  # so that the wake-up finds it waiting, whichever way the log waits
            await log.wakeups.send(wakeup)
        assert taken == [wakeup]

    async def test_an_unacknowledged_wake_up_is_delivered_again_and_counted(
        self, log: Log, agent: str
    ) -> None:
        wakeup = wakeup_for(agent)
        await log.wakeups.send(wakeup)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            taken = await self.take(deliveries, 3)
            await log.wakeups.ack(taken[-1].token)
        assert [delivery.wakeup for delivery in taken] == [wakeup] * 3
        assert [delivery.attempt for delivery in taken] == [1, 2, 3]
        assert len({delivery.token for delivery in taken}) == 3

    async def test_what_a_consumer_left_behind_is_delivered_to_the_next(self, log: Log, agent: str) -> None:
        wakeup = wakeup_for(agent)
        await log.wakeups.send(wakeup)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            assert [delivery.attempt for delivery in await self.take(deliveries, 1)] == [1]
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            (again,) = await self.take(deliveries, 1)
            await log.wakeups.ack(again.token)
        assert (again.wakeup, again.attempt) == (wakeup, 2)

    async def test_what_is_acknowledged_is_never_delivered_again(self, log: Log, agent: str) -> None:
        done, open_ = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.wakeups.send(done)
        await log.wakeups.send(open_)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            first, second = await self.take(deliveries, 2)
            await log.wakeups.ack(first.token)
            later = await self.take(deliveries, 2)
            await log.wakeups.ack(later[-1].token)
        assert (first.wakeup, second.wakeup) == (done, open_)
        assert [delivery.wakeup for delivery in later] == [open_, open_]

    async def test_a_nak_delivers_again_without_waiting_for_the_holder(self, log: Log, agent: str) -> None:
        held, refused = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.wakeups.send(held)
        await log.wakeups.send(refused)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            first, second = await self.take(deliveries, 2)
            await log.wakeups.nak(second.token)
            (again,) = await self.take(deliveries, 1)
            await log.wakeups.ack(first.token)
            await log.wakeups.ack(again.token)
        assert (again.wakeup, again.attempt) == (refused, 2)

    async def test_a_nak_with_a_delay_lets_others_go_first(self, log: Log, agent: str) -> None:
        delayed, other = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.wakeups.send(delayed)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            (first,) = await self.take(deliveries, 1)
            naked_at = log.clock.monotonic()
            await log.wakeups.nak(first.token, 1.0)
            await log.wakeups.send(other)
            taken = await self.woken(log, deliveries, 1)
            taken += await self.woken(log, deliveries, 1)
            arrived_at = log.clock.monotonic()
        assert taken == [other, delayed]
        assert arrived_at - naked_at > 0.99  # never early; the log's clock may be another than this one

    async def test_extending_holds_a_wake_up_past_the_redelivery_of_another(
        self, log: Log, agent: str
    ) -> None:
        held, let_go = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.wakeups.send(held)
        await log.wakeups.send(let_go)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            first, _ = await self.take(deliveries, 2)
            await log.clock.sleep(self.ack_wait_s / 2)
            await log.wakeups.extend(first.token)
            (second,) = await self.take(deliveries, 1)
            await log.wakeups.ack(second.token)
            (third,) = await self.take(deliveries, 1)
            await log.wakeups.ack(third.token)
        assert (second.wakeup, second.attempt) == (let_go, 2)
        assert (third.wakeup, third.attempt) == (held, 2)

    async def test_a_stale_acknowledgement_is_accepted_and_ends_the_wake_up(
        self, log: Log, agent: str
    ) -> None:
        stale, other = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.wakeups.send(stale)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            first, second = await self.take(deliveries, 2)
            assert (first.wakeup, second.wakeup, second.attempt) == (stale, stale, 2)
            await log.wakeups.ack(first.token)
            await log.wakeups.ack(first.token)
            await log.wakeups.send(other)
            taken = await self.take(deliveries, 2)
            await log.wakeups.ack(taken[-1].token)
        assert [delivery.wakeup for delivery in taken] == [other, other]

    async def test_a_stale_nak_delivers_again_what_is_still_open(self, log: Log, agent: str) -> None:
        wakeup = wakeup_for(agent)
        await log.wakeups.send(wakeup)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            first, _ = await self.take(deliveries, 2)
            await log.wakeups.nak(first.token)
            (third,) = await self.take(deliveries, 1)
            await log.wakeups.ack(third.token)
            await log.wakeups.nak(first.token)
            await log.wakeups.send(wakeup_for(agent, 9))
            (next_,) = await self.take(deliveries, 1)
            await log.wakeups.ack(next_.token)
        assert (third.wakeup, third.attempt) == (wakeup, 3)
        assert next_.wakeup.cause == 9

    async def test_two_consumers_share_the_wake_ups_without_taking_one_twice(
        self, log: Log, agent: str
    ) -> None:
        sent = [wakeup_for(agent, cause) for cause in range(20)]
        taken: list[Wakeup] = []

        async with create_task_group() as tasks:

            async def consume() -> None:
                async with log.wakeups.pull(frozenset({agent})) as deliveries:
                    async for delivery in deliveries:
                        await log.wakeups.ack(delivery.token)
                        taken.append(delivery.wakeup)
                        if len(taken) == len(sent):
                            tasks.cancel_scope.cancel()

            tasks.start_soon(consume)
            tasks.start_soon(consume)
            for wakeup in sent:
                await log.wakeups.send(wakeup)
        assert sorted(wakeup.cause for wakeup in taken) == list(range(20))

    async def test_a_wake_up_without_a_worker_is_kept_until_one_serves_it(self, log: Log, agent: str) -> None:
        served, unserved = wakeup_for(agent), wakeup_for(new_name("agent"))
        await log.wakeups.send(unserved)
        await log.wakeups.send(served)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            assert await self.woken(log, deliveries, 1) == [served]
        async with log.wakeups.pull(frozenset({unserved.agent})) as deliveries:
            (first,) = await self.take(deliveries, 1)
            await log.wakeups.ack(first.token)
        assert (first.wakeup, first.attempt) == (unserved, 1)

    async def test_one_consumer_serves_several_agents(self, log: Log, agent: str) -> None:
        sent = [wakeup_for(name) for name in (agent, new_name("agent"), new_name("agent"))]
        for wakeup in sent:
            await log.wakeups.send(wakeup)
        async with log.wakeups.pull(frozenset({sent[0].agent, sent[2].agent})) as deliveries:
            taken = await self.woken(log, deliveries, 2)
        assert {wakeup.agent for wakeup in taken} == {sent[0].agent, sent[2].agent}

    async def test_a_consumer_that_waits_serves_another_agent_once_it_is_told_to(
        self, log: Log, agent: str
    ) -> None:
        later = wakeup_for(new_name("agent"))
        await log.wakeups.send(later)
        taken: list[Wakeup] = []
        async with log.wakeups.pull(frozenset()) as deliveries, create_task_group() as tasks:

            async def consume() -> None:
                taken.extend(await self.woken(log, deliveries, 2))

            tasks.start_soon(consume)
            await log.clock.sleep(0.05)  # so that it waits, whichever way the log waits
            await deliveries.serve(frozenset({later.agent}))
            await deliveries.serve(frozenset({later.agent, agent}))
            await log.wakeups.send(wakeup_for(agent))
        assert {wakeup.agent for wakeup in taken} == {later.agent, agent}

    async def test_the_same_wake_up_sent_twice_is_delivered_twice(self, log: Log, agent: str) -> None:
        wakeup = wakeup_for(agent)
        await log.wakeups.send(wakeup)
        await log.wakeups.send(wakeup)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            taken = await self.take(deliveries, 2)
            for delivery in taken:
                await log.wakeups.ack(delivery.token)
        assert [(delivery.wakeup, delivery.attempt) for delivery in taken] == [(wakeup, 1), (wakeup, 1)]

    async def test_a_worker_with_the_wake_up_of_a_batch_can_read_its_commit(
        self, log: Log, agent: str
    ) -> None:
        run = run_in(log)
        wakeup = wakeup_for(agent, 1, run=run.subject.id)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            await run.append("first", WakeWrite(wakeup))
            assert await self.woken(log, deliveries, 1) == [wakeup]
            assert await everything(log.events.read(run.subject)) == run.stored

    async def test_wake_ups_survive_as_declared(self, log: Log, agent: str) -> None:
        kept, marker = wakeup_for(agent, 1), wakeup_for(agent, 2)
        await log.wakeups.send(kept)
        async with self.reopened(log) as again:
            await again.wakeups.send(marker)
            async with again.wakeups.pull(frozenset({agent})) as deliveries:
                (first,) = await self.take(deliveries, 1)
                await again.wakeups.ack(first.token)
        assert first.wakeup == (kept if self.durable else marker)

    async def test_the_wake_ups_that_nobody_has_taken_are_counted_by_agent(
        self, log: Log, agent: str
    ) -> None:
        other, never = new_name("agent"), new_name("agent")
        asked = frozenset({agent, other, never})
        for cause in range(3):
            await log.wakeups.send(wakeup_for(agent, cause))
        await log.wakeups.send(wakeup_for(other))
        assert await log.wakeups.waiting(asked) == {agent: 3, other: 1, never: 0}
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            await self.woken(log, deliveries, 3)
            assert await log.wakeups.waiting(asked) == {agent: 0, other: 1, never: 0}

    async def test_a_sweep_takes_no_wake_up_that_is_not_acknowledged(self, log: Log, agent: str) -> None:
        wakeups = [wakeup_for(agent, cause) for cause in range(1, 6)]
        for wakeup in wakeups:
            await log.wakeups.send(wakeup)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            taken = await self.take(deliveries, 5)
            for delivery in (*taken[:2], taken[3]):
                await log.wakeups.ack(delivery.token)
            await log.wakeups.sweep()
            for delivery in (taken[2], taken[4]):
                await log.wakeups.nak(delivery.token)
            again = await self.take(deliveries, 2)
            for delivery in again:
                await log.wakeups.ack(delivery.token)
        assert [delivery.wakeup.cause for delivery in again] == [3, 5]
