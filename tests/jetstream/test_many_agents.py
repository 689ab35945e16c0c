"""A worker that serves hundreds of agents starts at the first try."""

import asyncio

import pytest
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.jetstream.wakeups import CONSUMERS_AT_ONCE, JetStreamWakeups
from foldlog.eventlog.jetstream.wire import Unanswered
from foldlog.eventlog.ports import Wakeup

AGENTS = frozenset(f"agent-{number}" for number in range(100))


async def test_the_consumers_of_many_agents_are_made_a_few_at_a_time_and_those_without_an_answer_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make, under_way, most, unanswered = JetStreamWakeups._make_consumer, 0, 0, {"agent-7", "agent-50"}

    async def counted(self: JetStreamWakeups, shard: int, agent: str) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            if agent in unanswered:
                unanswered.discard(agent)
                raise Unanswered("the server is busy")
            await make(self, shard, agent)
        finally:
            under_way -= 1

    monkeypatch.setattr(JetStreamWakeups, "_make_consumer", counted)
    caplog.set_level("INFO")
    async with EphemeralServer() as server, JetStreamLog.open(server.url, shards=1) as log:
        wakeup = Wakeup(shard=0, agent="agent-99", root="r", run="r", cause=1)
        await log.wakeups.send(wakeup)
        async with log.wakeups.pull(AGENTS) as deliveries, asyncio.timeout(120):
            assert (await anext(deliveries)).wakeup == wakeup
    assert most == CONSUMERS_AT_ONCE
    assert "300 of 300 consumers of wake-ups are ready" in caplog.text
