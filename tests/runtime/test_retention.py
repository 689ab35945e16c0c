"""Retention: what is due is erased, once, at a measured pace; and what the log no longer needs is swept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.configuration.retention import read_retention
from foldlog.eventlog import ConfigError, LogUnavailable, RunGone
from foldlog.eventlog.faults import FaultyLog, Outage
from foldlog.eventlog.memory import MemoryLog
from foldlog.projections.projector import RunIndex
from foldlog.runtime import Agent, Runtime
from foldlog.runtime.burying.erasure import Pace
from foldlog.runtime.burying.family import read_family
from foldlog.runtime.burying.retention import (
    AgentRetention,
    Retention,
    check_waits,
    erase_due,
    retain,
    take_turn,
)
from foldlog.runtime.ports.archives import ArchiveUnavailable

from .conftest import JumpingClock, Place, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
DAY_S = 86_400.0


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with contextlib.AsyncExitStack() as stack:
        yield Place(MemoryLog(clock=JumpingClock()), "local", stack)


def clock_of(place: Place) -> JumpingClock:
    assert isinstance(place.log.clock, JumpingClock)
    return place.log.clock


async def test_each_agent_has_its_time_and_a_session_goes_on(place: Place, script: Script) -> None:
    chat, audit = (Agent(name, model=script(says("answered"))) for name in ("chat", "audit"))
    runtime = await place.open(chat, audit)
    runs = [await place.start(agent, session=agent.name) for agent in (chat, audit, chat)]
    for run in runs:
        await run.result()
    index = RunIndex(place.log)
    retention = Retention(keep_s=30 * DAY_S, agents={"chat": AgentRetention(keep_s=7 * DAY_S)})
    assert (await erase_due(place.log, index, retention)).erased == ()
    clock_of(place).jump(8 * DAY_S)
    late = await place.start(chat, session="chat")
    await late.result()
    done = await erase_due(place.log, index, retention)
    assert {each.run_id for each in done.erased} == {runs[0].run_id, runs[2].run_id}
    assert {each.by for each in done.erased} == {"retention"}
    assert [turn.run for turn in (await runtime.history("chat")).turns] == [late.run_id]
    assert (await erase_due(place.log, index, retention)).erased == ()
    clock_of(place).jump(30 * DAY_S)
    done = await erase_due(place.log, index, retention)
    assert {each.run_id for each in done.erased} == {runs[1].run_id, late.run_id}


async def test_a_run_is_archived_where_its_agent_says_and_nothing_goes_without_its_copy(
    place: Place, script: Script, tmp_path: Any
) -> None:
    agent = Agent("chat", model=script(says("answered")))
    runtime = await place.open(agent)
    run = await place.start(agent)
    await run.result()
    clock_of(place).jump(DAY_S)
    index, taken = RunIndex(place.log), tmp_path / "taken"
    taken.write_text("a file")
    unusable = Retention(keep_s=1.0, archive=f"file://{taken}")
    with pytest.raises(ArchiveUnavailable):
        await erase_due(place.log, index, unusable)
    assert await run.status() == "completed"
    done = await erase_due(
        place.log,
        index,
        Retention(
            keep_s=1.0, archive=f"file://{taken}", agents={"chat": AgentRetention(archive="memory://kept")}
        ),
    )
    assert [each.url.rpartition("/")[0] for each in done.erased] == ["memory://kept"]
    assert await runtime.get_run(run.run_id).status() == "completed"


async def test_of_several_workers_one_does_a_pass(place: Place, script: Script) -> None:
    assert [await take_turn(place.log, 60) for _ in range(3)] == [True, False, False]
    clock_of(place).jump(61)
    assert sum(await asyncio.gather(*(take_turn(place.log, 60) for _ in range(5)))) == 1


async def test_workers_retain_through_an_outage(place: Place, script: Script) -> None:
    agent = Agent("chat", model=script(says("answered")))
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    clock_of(place).jump(DAY_S)
    faulty = FaultyLog(place.log, [Outage(1, duration_s=0.05)])
    retaining = asyncio.create_task(retain(faulty, RunIndex(place.log), Retention(keep_s=1.0), every_s=0.02))
    gone = False
    while not gone:
        await asyncio.sleep(0.01)
        try:
            await run.state()
        except RunGone:
            gone = True
    retaining.cancel()
    assert isinstance(faulty.fired[0], Outage)


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.said.put_nowait(record.getMessage())


async def test_a_worker_says_in_one_line_that_families_cannot_be_erased(
    place: Place, script: Script, tmp_path: Path
) -> None:
    """Their copies cannot be stored: the archive has something else under their names."""
    agent = Agent("chat", model=script(says("answered")))
    runtime = await place.open(agent)
    for _ in range(2):
        run = await place.start(agent)
        await run.result()
        family = await read_family(place.log, await runtime.locate(run.run_id))
        (tmp_path / f"{run.run_id}-{family.digest}.jsonl.gz").write_bytes(b"other")
    clock_of(place).jump(DAY_S)
    heard = _Heard()
    logging.getLogger("foldlog").addHandler(heard)
    retention = Retention(keep_s=1.0, archive=tmp_path.as_uri())
    retaining = asyncio.create_task(retain(place.log, RunIndex(place.log), retention))
    try:
        async with asyncio.timeout(60):
            told = await heard.said.get()
        assert re.match(r"retention: 2 families cannot be erased, such as run \S+: .* is damaged", told)
        assert heard.said.empty()
    finally:
        retaining.cancel()
        logging.getLogger("foldlog").removeHandler(heard)


async def test_an_unreachable_log_ends_a_pass(place: Place, script: Script) -> None:
    agent = Agent("chat", model=script(says("answered")))
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    clock_of(place).jump(DAY_S)
    faulty = FaultyLog(place.log, [Outage(1)])
    with pytest.raises(LogUnavailable):
        await erase_due(faulty, RunIndex(place.log), Retention(keep_s=1.0))
    assert await run.status() == "completed"


class CountingClock(JumpingClock):
    """A clock that stands still but for sleeps and the work that a test claims."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 0.0

    def monotonic(self) -> float:
        return self.at_s

    async def sleep(self, delay_s: float) -> None:
        self.at_s += delay_s


@pytest.mark.parametrize(("work_s", "each_s"), [(0.001, 0.05), (0.02, 0.05), (0.3, 0.6)])
async def test_purges_keep_their_pace_and_back_off_by_the_time_they_take(
    work_s: float, each_s: float
) -> None:
    clock = CountingClock()
    assert await ten_purges(Pace(clock), clock, work_s) == pytest.approx(10 * each_s)


async def test_a_pace_that_is_asked_for_counts_if_the_server_takes_no_longer() -> None:
    clock = CountingClock()
    assert await ten_purges(Pace(clock, 2.0), clock, 0.3) == pytest.approx(20.0)
    assert await ten_purges(Pace(clock, 2.0), clock, 1.5) == pytest.approx(20.0 + 30.0)
    with pytest.raises(ConfigError, match="interval_s must be a number of seconds"):
        async with Runtime.open(log=MemoryLog()) as runtime:
            await runtime.delete("x", interval_s=-1.0)


async def test_an_erasure_waits_between_two_families_but_not_for_what_is_erased_already(
    place: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = 0

    async def rest(_: Pace) -> None:
        nonlocal rests
        rests += 1

    monkeypatch.setattr(Pace, "rest", rest)
    agent = Agent("chat", model=script(says("answered")))
    runtime = await place.open(agent)
    for _ in range(3):
        await (await place.start(agent, user="ann")).result()
    assert [each.before for each in (await runtime.delete(user="ann")).erased] == [False] * 3
    assert rests == 2
    assert [each.before for each in (await runtime.delete(user="ann")).erased] == [True] * 3
    assert rests == 2


async def ten_purges(pace: Pace, clock: CountingClock, work_s: float) -> float:
    for _ in range(10):
        pace.begin()
        clock.at_s += work_s
        await pace.rest()
    return clock.at_s


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"keep": "30"}, "keep is a duration"),
        ({"keep": "0d"}, "keep is a duration"),
        ({"keep": 30}, "keep"),
        ({"kept": "30d"}, "unknown key 'kept'"),
        ({"keys": "ever"}, "keys is a duration"),
        ({"archive": "bucket"}, "archive is the URL"),
        ({"agents": {"chat": {"keep": "-1d"}}}, "agents.chat.keep is a duration"),
        ({"agents": {"chat": {"archived": "x"}}}, "unknown key 'archived'"),
    ],
)
def test_a_table_that_says_nothing_sensible_is_refused_by_file_and_key(table: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        read_retention(table, "foldlog.toml: [retention]")
    assert str(refused.value).startswith("foldlog.toml: [retention]")


def test_a_table_is_read_as_it_is_documented() -> None:
    read = read_retention(
        {
            "keep": "30d",
            "archive": "s3://bucket/foldlog",
            "keys": "12h",
            "agents": {"chat": {"keep": "10m"}, "audit": {"archive": ""}},
        },
        "here",
    )
    assert (read.keep_s, read.archive, read.keys_s) == (30 * DAY_S, "s3://bucket/foldlog", DAY_S / 2)
    assert (read.keep_of("chat"), read.archive_of("chat")) == (600.0, "s3://bucket/foldlog")
    assert (read.keep_of("audit"), read.archive_of("audit")) == (30 * DAY_S, "")


def test_runs_are_kept_for_as_long_as_their_approvals_may_wait() -> None:
    retention = Retention(keep_s=7 * DAY_S, agents={"chat": AgentRetention(keep_s=60.0)})
    check_waits(retention, {"other": 7 * DAY_S, "chat": 60.0})
    with pytest.raises(
        ConfigError, match="runs of chat are kept for 60 s, but an approval of it waits for 7 days"
    ):
        check_waits(retention, {"chat": 7 * DAY_S})
    check_waits(Retention(), {"chat": 7 * DAY_S})
