"""Appends that queue leave as one batch, and nobody's append is worse off for it: conflicts, lost answers, deaths."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from anyio import create_task_group
from foldlog.eventlog import (
    AppendUnsure,
    At,
    Chain,
    CommitWrite,
    ConfigError,
    Conflict,
    LogUnavailable,
    Shard,
    Stored,
    WakeWrite,
    Write,
)
from foldlog.eventlog.conformance.suite import closing, everything, new_name, run_in, wakeup_for
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.jetstream.pace import WORTH
from foldlog.eventlog.jetstream.streams import read_page

from tests.jetstream.support import Gate, down, keep_writing, opened, take, until, up

MANY = 40
"""Far more than leave side by side."""


@pytest.fixture
def shards() -> int:
    return 1


async def all_at_once(log: JetStreamLog, appends: Sequence[Sequence[Write]]) -> list[object]:
    """Return the outcome of each: its positions, or its error."""
    return await asyncio.gather(*(log.events.append(*writes) for writes in appends), return_exceptions=True)


async def in_a_batch(log: JetStreamLog) -> set[int]:
    """The positions of what was stored with others."""
    page = await read_page(log._wire, Layout("default").shard(0), b"fl.default.00.run.>", count=500)
    headers = await asyncio.gather(*(header_at(log, message.position) for message in page.messages))
    return {
        message.position
        for message, header in zip(page.messages, headers, strict=True)
        if b"Batch-Id" in header
    }


async def header_at(log: JetStreamLog, position: int) -> bytes:
    stream = Layout("default").shard(0).encode()
    header, _ = await log._wire.request(b"$JS.API.DIRECT.GET." + stream, b'{"seq":%d}' % position)
    return header


async def test_many_appends_at_once_leave_in_one_batch_and_each_is_told_where_it_is(
    log: JetStreamLog,
) -> None:
    runs = [run_in(log) for _ in range(MANY)]
    writes = [run.write(f"{n}") for n, run in enumerate(runs)]
    answers = await all_at_once(log, [[write] for write in writes])
    stored = [await log.events.head(run.subject) for run in runs]
    assert stored == [
        Stored(write.subject, position, write.data)
        for write, (position,) in zip(writes, answers, strict=True)
    ]
    positions = [position for (position,) in answers]
    assert positions == sorted(positions)
    assert await in_a_batch(log) == set(positions[int(WORTH) :])


async def test_one_append_of_many_that_conflicts_stops_none_of_the_others(log: JetStreamLog) -> None:
    runs = [run_in(log) for _ in range(MANY)]
    await all_at_once(log, [[run.write("first")] for run in runs[::5]])
    answers = await all_at_once(log, [[run.write("next")] for run in runs])  # every fifth is taken
    assert [isinstance(answer, Conflict) for answer in answers] == [n % 5 == 0 for n in range(MANY)]
    for run in runs:
        assert len(await everything(log.events.read(run.subject))) == 1


async def test_appends_to_one_run_that_leave_together_are_told_apart(log: JetStreamLog) -> None:
    run, others = run_in(log), [run_in(log) for _ in range(MANY)]
    rivals = [run.write(f"{n}") for n in range(3)]
    mixed = [each.write() for each in others]
    mixed[20:20] = rivals
    answers = dict(zip(mixed, await all_at_once(log, [[write] for write in mixed]), strict=True))
    assert [isinstance(answers[rival], Conflict) for rival in rivals] == [False, True, True]
    assert not any(isinstance(answers[write], Exception) for write in mixed if write not in rivals)
    assert [stored.data for stored in await everything(log.events.read(run.subject))] == [rivals[0].data]


@pytest.mark.parametrize("spoils", [True, False])
async def test_batches_leave_with_others_and_stay_whole(log: JetStreamLog, spoils: bool) -> None:
    agent = new_name("agent")
    runs = [run_in(log) for _ in range(MANY)]
    spoilt = run_in(log)
    appends = [[run.write(), WakeWrite(wakeup_for(agent))] for run in runs]
    if spoils:  # then each gets another try, by itself
        appends[30:30] = [[spoilt.write(), CommitWrite(runs[0].subject, At(999), b"{}")]]
    answers = await all_at_once(log, appends)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, Conflict)] == [30] * spoils
    assert await everything(log.events.read(spoilt.subject)) == []
    if spoils:
        del appends[30], answers[30]
    for (write, _), (position, wake) in zip(appends, answers, strict=True):
        assert wake == position + 1
        assert await log.events.head(write.subject) == Stored(write.subject, position, write.data)
    async with log.wakeups.pull(frozenset({agent})) as deliveries:
        delivered = [await anext(deliveries) for _ in range(MANY)]
        assert {delivery.wakeup for delivery in delivered} == {wake.wakeup for _, wake in appends}
        await asyncio.gather(*(log.wakeups.ack(delivery.token) for delivery in delivered))


@contextmanager
def held(log: JetStreamLog) -> Iterator[None]:
    """Whatever is appended meanwhile leaves in one batch at the end."""
    appends = log.events._appends[0]
    appends._load += 1000  # as if so much were under way
    yield
    appends._load -= 1000
    appends._release()


async def queued(log: JetStreamLog, appends: Sequence[Sequence[Write]]) -> asyncio.Future[list[object]]:
    """As `all_at_once`, when all wait to leave."""
    pending = asyncio.ensure_future(all_at_once(log, appends))
    await until(lambda: len(log.events._appends[0]._waiting) == len(appends))
    return pending


async def test_a_batch_whose_answer_is_lost_is_stored_once_and_nobody_is_told_that_it_is_not(
    log: JetStreamLog, gate: Gate
) -> None:
    runs = [run_in(log) for _ in range(MANY)]
    writes = [run.write() for run in runs]
    async with (
        opened(gate.url, request_timeout_s=1000) as cut_off,
        closing(log.events.follow(Shard(0))) as commits,
    ):
        with held(cut_off):
            pending = await queued(cut_off, [[write] for write in writes])
            gate.mute()
        stored = await take(commits, MANY)
        gate.cut()
        assert all(isinstance(answer, AppendUnsure) for answer in await pending)
        assert {(each.subject, each.data) for each in stored} == {
            (each.subject, each.data) for each in writes
        }
        await up(cut_off)
        again = await all_at_once(cut_off, [[write] for write in writes])
        assert all(isinstance(answer, Conflict) for answer in again)
    assert await everything(log.events.read(Shard(0))) == stored


@pytest.mark.parametrize("count", [0, 100, 5_000, 15_000])
async def test_a_batch_that_breaks_off_on_its_way_is_stored_by_nobody(
    log: JetStreamLog, gate: Gate, count: int
) -> None:
    runs = [run_in(log) for _ in range(MANY)]
    async with opened(gate.url) as cut_off:
        with held(cut_off):
            pending = await queued(cut_off, [[run.write("1")] for run in runs])
            gate.cut_after(count)
        assert all(isinstance(answer, AppendUnsure) for answer in await pending)
        gate.cut()
        assert await everything(log.events.read(Shard(0))) == []
        await up(cut_off)
        answers = await all_at_once(cut_off, [[run.write("2")] for run in runs])
        assert not any(isinstance(answer, Exception) for answer in answers)


async def test_who_waits_to_leave_when_the_connection_breaks_leaves_after_it(gate: Gate) -> None:
    async with opened(gate.url, shards=1) as log:
        runs = [run_in(log) for _ in range(MANY)]
        gate.block()
        pending = asyncio.ensure_future(all_at_once(log, [[run.write()] for run in runs]))
        await until(lambda: log.events._appends[0]._waiting)
        gate.cut()
        answers = await pending
        assert [isinstance(answer, AppendUnsure) for answer in answers] == [n < WORTH for n in range(MANY)]
        assert len(await everything(log.events.read(Shard(0)))) == MANY - WORTH


async def test_who_waits_to_leave_during_an_outage_that_lasts_is_told_so_without_doubt(
    server: EphemeralServer,
) -> None:
    async with opened(server.url, shards=1) as log:
        log._wire.request_timeout_s = 0.2
        runs = [run_in(log) for _ in range(MANY)]
        with held(log):
            pending = await queued(log, [[run.write()] for run in runs])
            server.kill()
            await down(log)
        answers = await pending
        assert all(isinstance(answer, LogUnavailable) for answer in answers)
        assert not any(isinstance(answer, AppendUnsure) for answer in answers)


async def test_an_append_that_is_given_up_while_it_waits_is_never_stored(log: JetStreamLog) -> None:
    runs = [run_in(log) for _ in range(MANY)]
    with held(log):
        tasks = [asyncio.ensure_future(log.events.append(run.write())) for run in runs]
        await until(lambda: len(log.events._appends[0]._waiting) == MANY)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks[::2], return_exceptions=True)
    await asyncio.gather(*tasks[1::2])
    stored = await everything(log.events.read(Shard(0)))
    assert [each.subject for each in stored] == [run.subject for run in runs[1::2]]


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_between_and_in_batches(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    writers = [run_in(log) for _ in range(MANY)]
    acknowledged, troubles = list[Stored](), list[LogUnavailable]()
    async with (
        opened(server.url) as elsewhere,
        closing(elsewhere.events.follow(Shard(0))) as commits,
        create_task_group() as tasks,
    ):
        for writer in writers:
            tasks.start_soon(keep_writing, writer, acknowledged, troubles, 20)
        for _ in range(3):
            await take(commits, 4 * MANY)
            await server.restart()
    chain = Chain()
    stored = await everything(log.events.read(Shard(0)))
    for commit in stored:
        chain.verify(commit)
    assert {each.position for each in acknowledged} <= {each.position for each in stored}
    assert any(isinstance(trouble, AppendUnsure) for trouble in troubles)


NO_WAKE_UPS = """
accounts { A { jetstream: enabled, users: [
  {user: me, password: p}
  {user: silent, password: p, permissions: {publish: {deny: ["fl.*.*.wake.>"]}}}
]}}
no_auth_user: me
"""


@pytest.mark.parametrize("place", [0, 20, MANY])
async def test_a_message_that_the_server_denies_takes_no_other_with_it(place: int) -> None:
    async with (
        EphemeralServer(extra_config=NO_WAKE_UPS) as server,
        opened(server.url, shards=1),
        opened(server.url.replace("nats://", "nats://silent:p@")) as log,
    ):
        runs = [run_in(log) for _ in range(MANY)]
        appends: list[list[Write]] = [[run.write()] for run in runs]
        appends.insert(place, [WakeWrite(wakeup_for("agent"))])
        with held(log):
            pending = await queued(log, appends)
        answers = await pending
        assert [n for n, answer in enumerate(answers) if isinstance(answer, ConfigError)] == [place]
        assert len(await everything(log.events.read(Shard(0)))) == MANY
