"""Runs that start later: stored at once, parked by their first commit, and started by their timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from foldlog.eventlog import ConfigError, MemoryLog, decode
from foldlog.replay import load_trace, replay
from foldlog.runtime import Agent, Registry, Runtime, Worker
from foldlog.runtime.driving.host import Host

from tests.runtime.conftest import JumpingClock, Place, says

Script = Callable[..., str]


async def test_a_run_starts_at_its_time_and_not_before(place: Place, script: Script) -> None:
    agent = Agent("late", model=script(says("done")))
    runtime = await place.open(agent)
    at = datetime.fromtimestamp(place.log.clock.now() + 1.5, UTC)
    run = await place.start(agent, "go", at=at, idempotency_key="k")
    again = await place.start(agent, "go", at=at + timedelta(days=1), idempotency_key="k")
    assert (again.run_id, again.is_new) == (run.run_id, False)
    await run.result()
    subject = await runtime.locate(run.run_id)
    commits = [decode(each.data) async for each in place.log.events.read(subject)]
    assert [event.type for event in commits[0].events] == ["submitted", "status", "parked"]
    assert commits[1].at >= at.timestamp()
    assert [event.type for event in commits[1].events][:2] == ["claimed", "timer_fired"]
    assert replay(await load_trace(place.log, run.run_id)).agrees


async def test_a_run_that_starts_later_can_be_cancelled_before(place: Place, script: Script) -> None:
    agent = Agent("late", model=script(says("done")))
    await place.open(agent)
    at = datetime.fromtimestamp(place.log.clock.now() + 3600, UTC)
    run = await place.start(agent, "go", at=at)
    (row,) = await place.runtime.list_runs()
    assert (row.status, row.waiting_for) == ("queued", "timer")
    assert await run.cancel() == "cancelled"


async def test_a_later_start_outlives_the_process_that_asked_for_it(script: Script) -> None:
    clock = JumpingClock()
    agent = Agent("late", model=script(says("done")))
    log, registry = MemoryLog(clock=clock), Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "go", at=datetime.fromtimestamp(clock.now() + 86400, UTC))
    worker = Worker(Host(log=log, registry=registry, worker="w"))
    task = asyncio.create_task(worker.serve())
    clock.jump(86401)
    async with Runtime.open(log=log) as other:
        assert (await other.get_run(run.run_id).result()).output == "done"
    worker.stop()
    await task


async def test_a_time_that_has_come_starts_at_once(place: Place, script: Script) -> None:
    agent = Agent("late", model=script(says("done")))
    await place.open(agent)
    run = await place.start(agent, "go", at=datetime(2020, 1, 1, tzinfo=UTC))
    await run.result()
    assert (await run.state()).submitted.start_at is None  # type: ignore[union-attr]


async def test_a_start_that_cannot_be_later_is_refused(place: Place, script: Script) -> None:
    agent = Agent("late", model=script(says("done")))
    runtime = await place.open(agent)
    at = datetime.fromtimestamp(place.log.clock.now() + 3600, UTC)
    with pytest.raises(ConfigError, match="a run in a session cannot start later"):
        await place.start(agent, "go", at=at, session="s")
    for wrong in (datetime(2999, 1, 1), 17.0, "tomorrow"):  # noqa: DTZ001 - on purpose
        with pytest.raises(ConfigError, match="must be an aware datetime"):
            await place.start(agent, "go", at=wrong)
    assert await runtime.list_runs() == []
