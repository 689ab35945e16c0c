"""Schedules: a worker that serves the agent starts their runs, each once, on both logs."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from foldlog.eventlog import (
    ConfigError,
    MemoryLog,
    RunCancelled,
    ScheduleNotFound,
    ScheduleUpdated,
    decode,
)
from foldlog.eventlog.names import schedule_subject
from foldlog.eventlog.ports import Delivery, Wakeup
from foldlog.runtime import Agent, Registry, Runtime, Schedule, ScheduleRow, Worker
from foldlog.runtime.driving.host import Host
from foldlog.runtime.executors.starting import WorkerStarter
from foldlog.runtime.triggers.firing import EARLY_DELAY_MAX_S, Firing

from tests.runtime.conftest import HeldTool, JumpingClock, Place, call, calls, says

Script = Callable[..., str]
HOUR = 3600.0


class Served:
    """A runtime and a worker on a log whose time a test sets."""

    def __init__(self, runtime: Runtime, clock: JumpingClock) -> None:
        self.runtime, self.clock = runtime, clock
        self.schedules = runtime.schedules

    async def until(self, name: str, holds: Callable[[ScheduleRow], bool]) -> ScheduleRow:
        """Return the schedule once this holds."""
        log = self.runtime.log
        subject = schedule_subject(name, log.events.shards)
        async with asyncio.timeout(120), contextlib.aclosing(log.events.follow(subject)) as stored:  # type: ignore[type-var]
            async for each in stored:
                (event,) = decode(each.data).events
                assert isinstance(event, ScheduleUpdated)
                row = await self.schedules.get(name)
                if holds(row):
                    return row
        raise AssertionError

    async def inputs(self) -> list[str]:
        """Return the inputs of all runs, oldest first, when they are over."""
        rows = sorted(await self.runtime.list_runs(), key=lambda row: row.submitted_at)
        states = [await self.runtime.get_run(row.run_id).state() for row in rows]
        return [state.submitted.input for state in states if state.submitted is not None]


def an_agent(script: Script, *turns: Any, **options: Any) -> Agent:
    return Agent("briefer", model=script(*(turns or (says("done"),))), **options)


@pytest.fixture
async def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
async def served(clock: JumpingClock, script: Script) -> AsyncIterator[Served]:
    agent = an_agent(script, *(says("done"),) * 200)
    async for each in serving(clock, agent):
        yield each


async def serving(clock: JumpingClock, agent: Agent, *, workers: int = 2) -> AsyncIterator[Served]:
    log = MemoryLog(clock=clock)
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        working = [Worker(Host(log=log, registry=registry, worker=f"w{n}")) for n in range(workers)]
        tasks = [asyncio.create_task(each.serve()) for each in working]
        yield Served(runtime, clock)
        for each in working:
            each.stop()
        await asyncio.gather(*tasks)


def next_full(clock: JumpingClock, period_s: float = HOUR) -> float:
    return (clock.now() // period_s + 1) * period_s


async def test_each_time_starts_one_run_with_its_input(served: Served, clock: JumpingClock) -> None:
    first = next_full(clock)
    given = Schedule("hourly", "briefer", input="${schedule} at ${due_at}", every="1h")
    row = await served.schedules.apply(given, by="me")
    assert (row.next_at, row.by) == (first, "me")
    for number in range(3):
        clock.jump(first + number * HOUR - clock.now() + 1)
        await served.until("hourly", lambda row, n=number: row.counts.started == n + 1)
    row = await served.schedules.get("hourly")
    assert row.next_at == first + 3 * HOUR
    assert (row.counts.skipped, row.counts.missed) == (0, 0)
    told = [datetime.fromtimestamp(first + n * HOUR, UTC).isoformat() for n in range(3)]
    assert await served.inputs() == [f"hourly at {each}" for each in told]
    last = row.last
    assert last is not None
    state = await served.runtime.get_run(last.run).state()
    assert state.submitted is not None
    trigger = state.submitted.trigger
    assert trigger is not None
    assert (trigger.kind, trigger.name, trigger.due_at) == ("cron", "hourly", first + 2 * HOUR)
    assert trigger.fired_at is not None


async def test_a_wakeup_that_comes_a_moment_early_is_waited_for_and_not_given_back(
    clock: JumpingClock, script: Script
) -> None:
    """Else its time would start nothing while its worker is full of the runs of other times."""
    log, registry = MemoryLog(clock=clock), Registry(agents=[an_agent(script)])
    async with Runtime.open(log=log, registry=registry) as runtime:
        row = await runtime.schedules.apply(Schedule("hourly", "briefer", every="1h"))
        assert row.next_at is not None
        subject = schedule_subject("hourly", log.events.shards)
        wakeup = Wakeup(
            shard=subject.shard,
            agent="briefer",
            root=subject.id,
            run=subject.id,
            kind="schedule",
            cause=1,
            ref="hourly",
        )
        firing = Firing(log, WorkerStarter(Host(log=log, registry=registry, worker="w")))
        clock.jump(row.next_at - clock.now() - 60)
        assert await firing.judge(Delivery(wakeup, "token")) == ("nak", EARLY_DELAY_MAX_S)
        clock.jump(row.next_at - clock.now() - 0.2)
        assert await firing.judge(Delivery(wakeup, "token")) == ("ack", 0.0)
        assert (await runtime.schedules.get("hourly")).counts.started == 1


async def test_a_worker_of_either_log_starts_each_time_once(place: Place, script: Script) -> None:
    runtime = await place.open(an_agent(script, *(says("done"),) * 20))
    if place.executor != "durable":
        await place.add_worker("one")
    await place.add_worker("two")
    await runtime.schedules.apply(Schedule("often", "briefer", input="go", every="1s"))
    async with asyncio.timeout(120), contextlib.aclosing(runtime.follow()) as events:
        ends = 0
        async for event in events:
            ends += event.is_end
            if ends == 3:
                break
    await runtime.schedules.delete("often")
    times = [row.trigger.due_at for row in await runtime.list_runs() if row.trigger is not None]
    assert len(times) == len(set(times)) >= 3
    assert await runtime.schedules.list() == []


# --- overlap ----------------------------------------------------------------------------------------------------------


async def overlapping(clock: JumpingClock, script: Script, overlap: str) -> tuple[ScheduleRow, list[str]]:
    """Let a time come while the run of the one before is open; return the schedule and the statuses of its runs."""
    held = HeldTool()
    agent = an_agent(script, calls(call("wait")), says("done"), says("done"), says("done"), tools=[held.wait])
    async for served in serving(clock, agent):
        first = next_full(clock)
        given = Schedule("hourly", "briefer", input="go", every="1h", overlap=overlap)  # type: ignore[arg-type]
        await served.schedules.apply(given)
        clock.jump(first - clock.now() + 1)
        await asyncio.wait_for(held.entered.wait(), 120)
        clock.jump(HOUR)
        row = await served.until("hourly", lambda row, then=first + 2 * HOUR: row.next_at == then)
        before = [each.status for each in reversed(await served.runtime.list_runs())]
        held.let_go.set()
        for each in await served.runtime.list_runs():
            with contextlib.suppress(RunCancelled):
                await served.runtime.get_run(each.run_id).result()
        return row, before
    raise AssertionError


async def test_skip_leaves_a_time_out_while_the_last_run_is_open(clock: JumpingClock, script: Script) -> None:
    row, statuses = await overlapping(clock, script, "skip")
    assert statuses == ["running"]
    assert (row.counts.started, row.counts.skipped) == (1, 1)
    assert row.last is not None
    assert row.recent[-1].outcome == "skipped"
    assert row.recent[-1].reason == f"run {row.last.run} is still open"


async def test_cancel_ends_the_last_run_first(clock: JumpingClock, script: Script) -> None:
    row, statuses = await overlapping(clock, script, "cancel")
    assert statuses[0] == "cancelled"
    assert row.counts.started == 2


async def test_queue_runs_one_after_the_other(clock: JumpingClock, script: Script) -> None:
    row, statuses = await overlapping(clock, script, "queue")
    assert statuses == ["running", "queued"]
    assert row.counts.started == 2


async def test_allow_starts_them_beside_each_other(clock: JumpingClock, script: Script) -> None:
    row, statuses = await overlapping(clock, script, "allow")
    assert statuses[0] == "running"
    assert len(statuses) == 2
    assert row.counts.started == 2


# --- missed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "catchup_s", "started", "lost"),
    [
        ("last", 86400.0, [9], 9),
        ("skip", 86400.0, [], 10),
        ("all", 86400.0, list(range(10)), 0),
        ("all", 4000.0, [9], 9),
    ],
)
async def test_what_was_due_while_no_worker_ran_is_made_up_for_as_asked(
    clock: JumpingClock, script: Script, missed: str, catchup_s: float, started: list[int], lost: int
) -> None:
    agent = an_agent(script, *(says("done"),) * 20)
    log, registry = MemoryLog(clock=clock), Registry(agents=[agent])
    first = next_full(clock)
    async with Runtime.open(log=log, registry=registry) as runtime:
        given = Schedule(
            "hourly",
            "briefer",
            input="go",
            every="1h",
            overlap="allow",
            missed=missed,  # type: ignore[arg-type]
            catchup_s=catchup_s,
        )
        await runtime.schedules.apply(given)
        clock.jump(first + 9 * HOUR + 1800 - clock.now())
        worker = Worker(Host(log=log, registry=registry, worker="late"))
        task = asyncio.create_task(worker.serve())
        row = await Served(runtime, clock).until("hourly", lambda row: row.next_at == first + 10 * HOUR)
        worker.stop()
        await task
        times = sorted(row.trigger.due_at or 0.0 for row in await runtime.list_runs() if row.trigger)
    assert times == [first + number * HOUR for number in started]
    assert (row.counts.started, row.counts.missed) == (len(started), lost)
    assert all(each.reason for each in row.recent if each.outcome == "missed")


# --- commands ---------------------------------------------------------------------------------------------------------


async def test_a_paused_schedule_starts_nothing_and_counts_what_it_left_out(
    served: Served, clock: JumpingClock
) -> None:
    first = next_full(clock)
    await served.schedules.apply(Schedule("hourly", "briefer", input="go", every="1h"))
    assert (await served.schedules.pause("hourly", by="ada")).next_at is None
    assert (await served.schedules.pause("hourly")).by == "ada"
    clock.jump(3 * HOUR)
    row = await served.schedules.resume("hourly")
    assert row.next_at == first + 3 * HOUR
    assert row.counts.skipped == 3
    assert row.recent[-1].reason == "the schedule was paused"
    clock.jump(HOUR)
    row = await served.until("hourly", lambda row: row.counts.started == 1)
    assert row.counts.missed == 0


async def test_a_run_is_started_by_hand_even_while_it_is_paused(served: Served) -> None:
    await served.schedules.apply(Schedule("daily", "briefer", input="go", cron="@daily", tz="UTC"))
    await served.schedules.pause("daily")
    await served.schedules.trigger("daily", by="ada")
    row = await served.until("daily", lambda row: row.counts.started == 1)
    assert (row.paused, row.wanted, row.recent[-1].by) == (True, 0, "ada")


async def test_a_backfill_starts_each_time_of_the_past_that_has_no_run(
    served: Served, clock: JumpingClock
) -> None:
    first = next_full(clock)
    await served.schedules.apply(Schedule("hourly", "briefer", input="go", every="1h", overlap="allow"))
    clock.jump(first - clock.now() + 1)
    await served.until("hourly", lambda row: row.counts.started == 1)
    start, end = (datetime.fromtimestamp(first + n * HOUR, UTC) for n in (-30, 0))
    await served.schedules.backfill("hourly", start, end + timedelta(seconds=1))
    await served.until("hourly", lambda row: row.wanted == 0 and row.counts.started == 32)
    times = sorted(row.trigger.due_at or 0.0 for row in await served.runtime.list_runs() if row.trigger)
    assert times == [first + n * HOUR for n in range(-30, 1)]  # the last one had its run


async def test_an_edit_takes_a_time_that_has_come_along(clock: JumpingClock, script: Script) -> None:
    """W40: the time was due under the old times, and no worker had decided it."""
    agent = an_agent(script, says("done"))
    log, registry = MemoryLog(clock=clock), Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        first = next_full(clock)
        await runtime.schedules.apply(Schedule("s", "briefer", input="go", every="1h"))
        clock.jump(first - clock.now() + 1)
        row = await runtime.schedules.apply(Schedule("s", "briefer", input="other", every="1d"))
        assert row.next_at == first
        again = await runtime.schedules.apply(Schedule("s", "briefer", input="other", every="1d"), by="x")
        assert again.by == ""  # it was so already
        worker = Worker(Host(log=log, registry=registry, worker="late"))
        task = asyncio.create_task(worker.serve())
        row = await Served(runtime, clock).until("s", lambda row: row.counts.started == 1)
        worker.stop()
        await task
        assert row.next_at == next_full(clock, 86400)


async def test_an_edit_takes_all_times_along_that_have_come(clock: JumpingClock, script: Script) -> None:
    """W40: none is lost, and none of the new times is made up for."""
    agent = an_agent(script, *(says("done"),) * 3)
    log, registry = MemoryLog(clock=clock), Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        first = next_full(clock)
        options: dict[str, Any] = {"missed": "all", "overlap": "allow", "catchup_s": 3.5 * HOUR}
        before = Schedule("s", "briefer", input="go", every="1h", **options)
        await runtime.schedules.apply(before)
        clock.jump(first + 4 * HOUR - clock.now() + 1)  # five have come, the first is older than the catch-up
        row = await runtime.schedules.apply(Schedule("s", "briefer", input="go", every="10m", **options))
        assert (row.next_at, row.wanted, row.counts.missed) == (next_full(clock, 600), 4, 1)
        worker = Worker(Host(log=log, registry=registry, worker="late"))
        task = asyncio.create_task(worker.serve())
        await Served(runtime, clock).until("s", lambda row: row.wanted == 0)
        worker.stop()
        await task
        times = {row.trigger.due_at for row in await runtime.list_runs() if row.trigger}
        assert {first + n * HOUR for n in range(1, 5)} <= times
        assert not times & {first, first + 4 * HOUR - 600}


@pytest.mark.parametrize("overlap", ["skip", "cancel"])
async def test_an_edit_takes_the_last_time_along_if_one_run_excludes_another(
    clock: JumpingClock, overlap: Any
) -> None:
    async with Runtime.open(log=MemoryLog(clock=clock)) as runtime:
        first = next_full(clock)
        missed: Any = "all" if overlap == "cancel" else "last"
        await runtime.schedules.apply(Schedule("s", "briefer", every="1h", missed=missed, overlap=overlap))
        clock.jump(first + 2 * HOUR - clock.now() + 1)
        row = await runtime.schedules.apply(
            Schedule("s", "briefer", every="1d", missed=missed, overlap=overlap)
        )
        assert (row.next_at, row.wanted, row.counts.missed) == (first + 2 * HOUR, 0, 2)


async def test_an_edit_of_a_paused_schedule_counts_the_times_that_passed(clock: JumpingClock) -> None:
    async with Runtime.open(log=MemoryLog(clock=clock)) as runtime:
        first = next_full(clock)
        await runtime.schedules.apply(Schedule("s", "briefer", every="1h"))
        await runtime.schedules.pause("s")
        clock.jump(first + 2 * HOUR - clock.now() + 1)
        await runtime.schedules.apply(Schedule("s", "briefer", every="10m"))
        row = await runtime.schedules.resume("s")
        assert (row.next_at, row.counts.skipped) == (next_full(clock, 600), 3)


async def test_a_time_whose_run_cannot_be_started_is_skipped_with_the_reason(
    clock: JumpingClock, script: Script
) -> None:
    long = an_agent(script, instructions="x" * 906_000)  # too long for the first commit of a run
    async for served in serving(clock, long):
        await served.schedules.apply(Schedule("s", "briefer", every="1h"))
        await served.schedules.trigger("s")
        row = await served.until("s", lambda row: row.counts.skipped == 1)
        assert "it could not be started: the input of the run" in row.recent[-1].reason
        assert await served.runtime.list_runs() == []


async def test_commands_to_a_schedule_that_is_not_there_name_the_nearest(served: Served) -> None:
    await served.schedules.apply(Schedule("hourly", "briefer", every="1h"))
    for command in (
        served.schedules.pause,
        served.schedules.resume,
        served.schedules.trigger,
        served.schedules.delete,
    ):
        with pytest.raises(ScheduleNotFound, match="did you mean 'hourly'"):
            await command("hurly")
    with pytest.raises(ScheduleNotFound):
        await served.schedules.get("hurly")
    await served.schedules.delete("hourly")
    with pytest.raises(ScheduleNotFound):
        await served.schedules.pause("hourly")
    assert (await served.schedules.apply(Schedule("hourly", "briefer", every="1h"))).paused is False


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cron": "0 7 * * *"}, "cron needs its time zone"),
        ({"cron": "0 7 * * *", "tz": "Mars/Base"}, "is not a time zone"),
        ({"cron": "0 0 30 2 *", "tz": "UTC"}, "a day that never comes"),
        ({"cron": "0 7 * * *", "tz": "UTC", "every": "1h"}, "either cron or every"),
        ({}, "either cron or every"),
        ({"every": "500ms"}, "every is written 30s"),
        ({"every": "0s"}, "every is written 30s"),
        ({"every": "1h", "tz": "UTC"}, "tz belongs to cron"),
        ({"every": "1h", "from_": "2026-03-01T07:00:00"}, "needs an offset"),
        ({"every": "1h", "from_": "soon"}, "from is written"),
        ({"cron": "@daily", "tz": "UTC", "from_": "2026-03-01T07:00:00+01:00"}, "from belongs to every"),
        ({"every": "1h", "missed": "all"}, "contradicts"),
        ({"every": "1h", "overlap": "never"}, "Invalid enum value"),
        ({"every": "1h", "input": "${due}"}, "there are due_at, last_run, schedule"),
        ({"every": "1h", "input": "${due_at"}, "without its }"),
        ({"every": "1h", "catchup_s": -1.0}, "catchup_s must be a number"),
        ({"every": "1h", "jitter_s": float("nan")}, "jitter_s"),
        ({"every": "1h", "agent": "no such name"}, "the agent"),
        ({"every": "1h", "agent": 7}, "its agent must be one"),
        ({"every": "1h", "metadata": {"a": 1j}}, "complex"),
        ({"every": "1h", "input": "x" * 70_000}, "at most 65536 bytes"),
        ({"every": "1h", "name": "a/b"}, "the schedule 'a/b'"),
    ],
    ids=lambda given: str(given)[:60],
)
async def test_a_schedule_that_can_never_work_is_refused_and_nothing_stored(
    served: Served, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        await served.schedules.apply(Schedule(**({"name": "s", "agent": "briefer"} | given)))
    assert await served.schedules.list() == []


async def test_an_agent_that_is_not_registered_here_is_told_and_accepted(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await served.schedules.apply(Schedule("s", "elsewhere", every="1h"))
    assert "the agent 'elsewhere' is not registered in this process" in caplog.text
    assert [row.name for row in await served.schedules.list()] == ["s"]


async def test_a_backfill_needs_aware_times_in_the_past_and_not_too_many(
    served: Served, clock: JumpingClock
) -> None:
    await served.schedules.apply(Schedule("s", "briefer", every="1s"))
    now = datetime.fromtimestamp(clock.now(), UTC)
    day = timedelta(days=1)
    for start, end, told in (
        (now.replace(tzinfo=None), now, "aware"),
        (now, now - day, "a start before its end"),
        (now - day, now + day, "not in the future"),
        (now - day, now, "more than 1000 times"),
    ):
        with pytest.raises(ConfigError, match=told):
            await served.schedules.backfill("s", start, end)


async def test_the_runs_of_a_schedule_have_its_priority(served: Served) -> None:
    daily = Schedule(name="daily", agent="briefer", every="1d", priority=0)
    await served.schedules.apply(daily)
    await served.schedules.trigger("daily")
    row = await served.until("daily", lambda row: row.last is not None)
    assert row.last is not None
    assert (await served.runtime.get_run(row.last.run).state()).priority == "background"
    wrong: Any
    for wrong in (10, "x", None):
        with pytest.raises(ConfigError, match=f"schedule 'daily': a priority is urgent, .*, not {wrong!r}"):
            await served.schedules.apply(Schedule(name="daily", agent="briefer", every="1d", priority=wrong))
