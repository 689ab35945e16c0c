"""The log on JetStream beyond the conformance suites: real outages, deaths, damage and refusals."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from anyio import create_task_group, fail_after
from foldlog.eventlog import (
    NEW,
    AppendUnsure,
    At,
    Chain,
    CommitWrite,
    Conflict,
    DraftPiece,
    Family,
    Lease,
    LogCorrupted,
    LogUnavailable,
    Selector,
    Shard,
    Stored,
    Subject,
    Timer,
    TimerWrite,
    WakeWrite,
)
from foldlog.eventlog.conformance.suite import Writer, closing, everything, new_name, run_in, wakeup_for
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog, follower, leases
from foldlog.eventlog.jetstream.layout import Layout, queue_of
from foldlog.eventlog.jetstream.streams import read_all
from foldlog.eventlog.jetstream.wire import Done
from foldlog.eventlog.ports import Presence, served
from foldlog.eventlog.priorities import PRIORITIES, Priority

from tests.jetstream.support import (
    PATIENCE_S,
    Gate,
    again,
    cut_off,
    down,
    keep_writing,
    look_again,
    opened,
    take,
    until,
    up,
)
from tests.unit.test_compose import free_ports

DEATH_S = 120.0
"""Bounds a death's way to its listeners; the leases of these tests take longer to expire."""
LAYOUT = Layout("default")


# ---- outages


async def test_a_reply_in_many_messages_is_late_only_if_none_comes_for_as_long_as_that(
    log: JetStreamLog,
) -> None:
    wire, asked = log._wire, asyncio.get_running_loop().create_future()
    sid = await wire.subscribe(b"slow", lambda _, reply, *__: asked.set_result(reply))
    replying = asyncio.ensure_future(wire.request_many(b"slow", b""))
    reply = await asked
    call = wire._calls[reply.rpartition(b".")[2]]
    for count in (1, 2):
        before = call.deadline
        wire.publish(reply, b"a message")
        await until(lambda count=count: len(call.parts) == count)
        assert call.deadline > before
    wire.publish(reply, header=b"NATS/1.0 204 EOB\r\n\r\n")
    assert [data for _, data in await replying] == [b"a message", b"a message", b""]
    wire.unsubscribe(sid)


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_under_load(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    root = run_in(log)
    writers = [root, *(run_in(log, root=root.subject.root) for _ in range(7))]
    acknowledged: list[Stored] = []
    troubles: list[LogUnavailable] = []
    followed: list[Stored] = []
    async with (
        opened(server.url) as elsewhere,
        closing(elsewhere.events.follow(Family(0, root.subject.root))) as commits,
        create_task_group() as tasks,
    ):
        for writer in writers:
            tasks.start_soon(keep_writing, writer, acknowledged, troubles, 60)
        followed += await take(commits, 100)
        await server.restart()
        followed += await take(commits, 8 * 60 - 100)
    stored = await everything(log.events.read(Family(0, root.subject.root)))
    chain = Chain()
    for commit in stored:
        chain.verify(commit)
    assert {commit.position for commit in acknowledged} <= {commit.position for commit in stored}
    assert any(isinstance(trouble, AppendUnsure) for trouble in troubles)
    assert followed == stored[: len(followed)]


async def test_two_connections_writing_one_run_never_fork_it(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    subject = run_in(log).subject

    async def write(through: JetStreamLog) -> None:
        writer = Writer(through, subject)
        for turn in range(20):
            while True:
                try:
                    await writer.append(f"{turn}")
                    break
                except Conflict:
                    await look_again(writer)

    async with opened(server.url) as other, create_task_group() as tasks:
        tasks.start_soon(write, log)
        tasks.start_soon(write, other)
    chain = Chain()
    assert len([chain.verify(commit) async for commit in log.events.read(subject)]) == 40


async def test_an_append_in_flight_fails_at_once_when_the_connection_breaks(gate: Gate) -> None:
    async with opened(gate.url, request_timeout_s=1000) as log:
        run = run_in(log)
        await run.append()
        for writes in ([run.write()], [run.write(), WakeWrite(wakeup_for("a"))]):
            await up(log)
            await log.events.head(run.subject)  # settles the doubt that the reconnect raised
            gate.block()
            append = asyncio.ensure_future(log.events.append(*writes))
            await until(lambda: gate.blocked_bytes)
            gate.cut()
            with pytest.raises(AppendUnsure):
                await append
        assert await everything(log.events.read(run.subject)) == run.stored


async def test_a_connection_that_talks_nonsense_is_made_again(gate: Gate) -> None:
    async with opened(gate.url) as log:
        run = run_in(log)
        await run.append()
        gate.babble(b"MSG a b c\r\n")
        await until(lambda: log._wire._link.stats["reconnects"])
        await up(log)
        await run.append()
        assert await everything(log.events.read(run.subject)) == run.stored


async def test_reads_and_appends_made_during_an_outage_wait_for_its_end(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    run = run_in(log)
    await run.append("before")
    server.kill()
    await down(log)
    async with create_task_group() as tasks:
        tasks.start_soon(run.append, "during")
        await server.restart()
    assert await everything(log.events.read(run.subject)) == run.stored


@pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")  # how nats-py calls aiohttp
async def test_a_log_is_reached_through_a_websocket_also_after_an_outage() -> None:
    (port,) = free_ports(1)
    async with (
        EphemeralServer(extra_config=f"websocket {{ port: {port}, no_tls: true }}") as server,
        opened(f"ws://127.0.0.1:{port}", shards=1) as log,
        opened(server.url) as other,
    ):
        run = run_in(log)
        commits = log.events.follow(run.subject)
        assert [await run.append("one")] == await take(commits, 1)
        large = await run.append("x" * 200_000)
        async with again(log):
            await server.restart()
        last = await run.append("three")
        assert await take(commits, 2) == [large, last]
        await commits.aclose()
        assert await everything(other.events.read(run.subject)) == run.stored


async def test_an_outage_that_lasts_is_told_with_the_url_and_without_doubt_about_the_append(
    server: EphemeralServer,
) -> None:
    async with opened(server.url) as log:
        log._wire.request_timeout_s = 0.2
        run = run_in(log)
        server.kill()
        await down(log)
        with pytest.raises(LogUnavailable, match=server.url) as trouble:
            await run.append()
        assert not isinstance(trouble.value, AppendUnsure)
        with pytest.raises(LogUnavailable, match="NATS_URL"):
            await everything(log.events.read(run.subject))


async def test_a_server_that_hangs_leaves_an_append_unsure_and_a_read_failed(server: EphemeralServer) -> None:
    async with opened(server.url) as log, AsyncExitStack() as stack:
        log._wire.request_timeout_s = 0.3
        os.kill(server.pid, signal.SIGSTOP)
        stack.callback(os.kill, server.pid, signal.SIGCONT)
        await until(lambda: psutil.Process(server.pid).status() == psutil.STATUS_STOPPED)
        with pytest.raises(AppendUnsure, match="did not reply"):
            await run_in(log).append()
        with pytest.raises(LogUnavailable, match="did not reply"):
            await log.events.head(run_in(log).subject)


async def test_a_closed_log_says_so(server: EphemeralServer) -> None:
    async with opened(server.url) as log:
        pass
    with pytest.raises(LogUnavailable, match="closed"):
        await log.events.head(run_in(log).subject)


async def test_who_waits_on_a_log_that_is_closed_is_told(server: EphemeralServer) -> None:
    async with opened(server.url) as log, log.wakeups.pull(frozenset({"a"})) as deliveries:
        waiting = [
            asyncio.ensure_future(anext(stream)) for stream in (deliveries, log.events.follow(Shard(0)))
        ]
        await asyncio.sleep(0.01)
        await log._wire.close()
        for wait in waiting:
            with pytest.raises(LogUnavailable, match="closed"):
                await wait


async def test_leases_and_drafts_work_again_after_the_server_forgot_its_memory(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    run = new_name("run")
    lease = Lease(shard=0, agent="a", root=run, run=run, epoch=1, worker="w")
    piece = DraftPiece(run=run, step=1, attempt=1, epoch=1, channel="text", offset=0, text="x")
    async with log.drafts.follow(run) as pieces:
        async with again(log):
            await server.restart()
        await log.leases.vouch(lease, 30)
        assert await log.leases.live(run, "w", 1)
        await until_published(log, run, piece)
        assert await take(pieces, 1) == [piece]
    async with log.drafts.follow(run) as late:
        assert await take(late, 1) == [piece]


async def test_pieces_of_one_turn_leave_as_few_and_the_first_does_not_wait_for_the_others(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    run, sent = new_name("run"), list[DraftPiece]()
    texts = ["a", "bc", "", *(f"{n} " for n in range(200))]
    sid = await log._wire.subscribe(
        LAYOUT.draft(run, run), lambda *message: sent.append(msgspec.json.decode(message[3], type=DraftPiece))
    )
    piece = DraftPiece(run=run, step=1, attempt=1, epoch=1, channel="reasoning", offset=0, text="")
    for channel in ("reasoning", "text"):
        offset = 0
        for text in texts:
            await log.drafts.publish(
                run, msgspec.structs.replace(piece, channel=channel, offset=offset, text=text)
            )
            offset += len(text)
    await log._wire.barrier()
    await until(lambda: sum(len(piece.text) for piece in sent) == 2 * offset)
    log._wire.unsubscribe(sid)
    assert sent[0].text == "a"
    assert len(sent) < 20
    for channel in ("reasoning", "text"):
        told = [piece for piece in sent if piece.channel == channel]
        assert "".join(piece.text for piece in told) == "".join(texts)
        assert [piece.offset for piece in told] == [
            sum(len(before.text) for before in told[:n]) for n in range(len(told))
        ]
    assert [piece.channel for piece in sent] == sorted(piece.channel for piece in sent)


async def until_published(log: JetStreamLog, root: str, piece: DraftPiece) -> None:
    while True:
        with suppress(LogUnavailable):
            return await log.drafts.publish(root, piece)
        await asyncio.sleep(0.01)


async def test_timers_of_one_batch_fire_and_the_log_is_whole_after_a_kill(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    run, agent = run_in(log), new_name("agent")
    timers = [Timer(id=f"t{n}", due_at=log.clock.now(), wakeup=wakeup_for(agent, n)) for n in range(3)]
    await run.append("parked", *(TimerWrite(timer) for timer in timers))
    async with log.wakeups.pull(frozenset({agent})) as deliveries:
        fired = await take(deliveries, 3)
        server.kill()
        async with again(log):
            await server.restart()
        assert await everything(log.events.read(run.subject)) == run.stored
    assert {delivery.wakeup.cause for delivery in fired} == {0, 1, 2}
    await run.append("on")


async def test_a_wake_up_whose_delivery_the_killed_server_forgot_can_be_acknowledged_all_the_same(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    agent = new_name("agent")
    await log.wakeups.send(wakeup_for(agent))
    async with log.wakeups.pull(frozenset({agent})) as deliveries:
        before = (await take(deliveries, 1))[0]
        async with again(log):
            await server.restart()
        await log.wakeups.ack(before.token)
    marker = wakeup_for(agent, 9)
    await log.wakeups.send(marker)
    async with log.wakeups.pull(frozenset({agent})) as deliveries:
        while (delivery := (await take(deliveries, 1))[0]).wakeup != marker:
            await log.wakeups.ack(delivery.token)  # forgotten, so delivered again


# ---- following


def dropping(log: JetStreamLog, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the next republished messages on their way."""
    link, left = log._wire._link, [count]
    hand_on = link.message

    def message(sid: bytes, subject: bytes, *rest: bytes) -> None:
        if subject.startswith(b"live.") and left[0]:
            left[0] -= 1
        else:
            hand_on(sid, subject, *rest)

    monkeypatch.setattr(link, "message", message)


@pytest.mark.parametrize("kind", ["subject", "family", "shard"])
async def test_a_commit_that_is_lost_on_the_way_is_read_before_its_successor(
    log: JetStreamLog, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(log)
    kinds: dict[str, Selector] = {
        "subject": run.subject,
        "family": Family(0, run.subject.root),
        "shard": Shard(0),
    }
    async with closing(log.events.follow(kinds[kind])) as commits:
        await run.append()
        assert await take(commits, 1) == run.stored
        dropping(log, 2, monkeypatch)
        for _ in range(3):
            await run.append()
        assert await take(commits, 3) == run.stored[1:]


async def test_a_last_commit_that_is_lost_on_the_way_is_found_in_the_silence(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "IDLE_S", 0.05)
    run = run_in(log)
    async with closing(log.events.follow(Family(0, run.subject.root))) as commits:
        await run.append()
        assert await take(commits, 1) == run.stored
        dropping(log, 1, monkeypatch)
        await run.append()
        assert await take(commits, 1) == run.stored[1:]


async def test_who_waits_for_the_end_of_a_run_is_woken_by_that_alone(log: JetStreamLog) -> None:
    run = run_in(log)
    async with closing(log.events.follow(run.subject, to_end=True)) as commits:
        await run.append()
        assert await take(commits, 1) == run.stored
        waiting = asyncio.ensure_future(take(commits, 3))
        await asyncio.sleep(0)
        for _ in range(2):
            await run.append()
        await log._wire.barrier()
        assert not commits._inbox.items
        assert not waiting.done()
        await run.store(msgspec.structs.replace(run.write(), ends=True))
        assert await waiting == run.stored[1:]


async def test_an_end_without_a_notification_is_found_after_a_silence(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "IDLE_S", 0.05)
    run = run_in(log)
    async with closing(log.events.follow(run.subject, to_end=True)) as commits:
        await run.append()
        assert await take(commits, 1) == run.stored
        await run.append()
        assert await take(commits, 1) == run.stored[1:]


async def test_an_end_whose_writer_died_before_it_told_is_known_as_the_writer_is_gone(
    server: EphemeralServer, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no worker is left that could tell of the death."""
    monkeypatch.setattr(follower, "IDLE_S", 600.0)
    run = run_in(log)
    lease = Lease(shard=0, agent="a", root=run.subject.id, run=run.subject.id, epoch=1, worker="w", token="t")
    async with (
        opened(server.url) as mine,
        mine.leases.presence(Presence(worker="w")),
        closing(log.events.follow(run.subject, to_end=True)) as commits,
    ):
        await mine.leases.vouch(lease, 600)
        await run.append()
        assert await take(commits, 1) == run.stored
        waiting = asyncio.ensure_future(take(commits, 1))
        await run.append()
        await log._wire.barrier()
        assert not waiting.done()
        await mine._wire.close()
        assert await waiting == run.stored[1:]
    await log._wire.barrier()
    assert not log.events._deaths._sids


async def test_a_follower_that_falls_behind_reads_what_was_dropped(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "BEHIND_MAX", 3)
    run = run_in(log)
    async with closing(log.events.follow(run.subject)) as commits:
        await run.append()
        assert await take(commits, 1) == run.stored
        for _ in range(20):
            await run.append()
        assert await take(commits, 20) == run.stored[1:]


async def test_a_follower_whose_wait_is_cancelled_loses_nothing(log: JetStreamLog) -> None:
    run = run_in(log)
    commits = log.events.follow(run.subject)
    for _ in range(3):
        with suppress(TimeoutError):
            await asyncio.wait_for(anext(commits), 0.01)
    await run.append()
    assert await take(commits, 1) == run.stored
    await commits.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(commits)


async def test_a_lane_is_followed_too(log: JetStreamLog) -> None:
    lane = Writer(log, Subject(0, "lane", "", new_name("lane")))
    async with closing(log.events.follow(lane.subject)) as commits:
        for count in range(3):
            await lane.append()
            assert await take(commits, 1) == lane.stored[count:]


@pytest.mark.parametrize("kind", ["subject", "shard"])
async def test_a_follower_goes_on_without_gap_when_its_connection_breaks(
    log: JetStreamLog, gate: Gate, kind: str
) -> None:
    run = run_in(log)
    async with opened(gate.url) as reader:
        selector: Selector = run.subject if kind == "subject" else Shard(0)
        async with closing(reader.events.follow(selector)) as commits:
            for round_ in range(5):
                await run.append()
                assert await take(commits, 1) == run.stored[-1:]
                gate.cut()
                for _ in range(round_):
                    await run.append()
                assert await take(commits, round_) == run.stored[len(run.stored) - round_ :]


# ---- wake-ups


async def test_a_worker_that_asks_for_nothing_more_holds_nothing_that_another_could_do(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    agents = frozenset({new_name("agent")})
    sent = [wakeup_for(agent, n, shard=n % 2) for agent in agents for n in range(6)]
    async with (
        opened(server.url) as other,
        log.wakeups.pull(agents) as busy,
        other.wakeups.pull(agents) as idle,
    ):
        first = asyncio.ensure_future(anext(busy))
        await asyncio.sleep(0.01)
        for wakeup in sent:
            await log.wakeups.send(wakeup)
        mine = (await first).wakeup
        rest = [delivery.wakeup for delivery in await take(idle, 5)]
    assert sorted(w.cause for w in [mine, *rest]) == list(range(6))


async def test_wake_ups_come_again_after_the_server_was_killed(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    agent = new_name("agent")
    async with log.wakeups.pull(frozenset({agent})) as deliveries:
        waiting = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0.01)
        await server.restart()
        await log.wakeups.send(wakeup_for(agent, 7))
        with fail_after(PATIENCE_S):
            delivery = await waiting
        await log.wakeups.ack(delivery.token)
    assert delivery.wakeup.cause == 7


@pytest.mark.parametrize("priority", PRIORITIES)
async def test_a_consumer_that_was_deleted_is_made_again(log: JetStreamLog, priority: Priority) -> None:
    agent = new_name("agent")
    queue = queue_of(agent, priority)
    async with log.wakeups.pull(frozenset({agent})) as deliveries:
        waiting = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0.01)
        for shard in range(2):
            await log._wire.api(f"CONSUMER.DELETE.FL_default_{shard:02x}.{queue}", None, Done)
        await log.wakeups.send(msgspec.structs.replace(wakeup_for(agent, 7), priority=priority))
        with fail_after(PATIENCE_S):
            assert (await waiting).wakeup.cause == 7


async def test_a_wake_up_that_nobody_can_read_blocks_no_other(
    log: JetStreamLog, caplog: pytest.LogCaptureFixture
) -> None:
    agent = new_name("agent")
    await log._wire.request(f"fl.default.00.wake.{agent}.r".encode(), b"nonsense")
    await log.wakeups.send(wakeup_for(agent, 7))
    async with log.wakeups.pull(frozenset({agent})) as deliveries:
        assert (await take(deliveries, 1))[0].wakeup.cause == 7
    assert "nonsense" in caplog.text


@pytest.mark.parametrize("token", ["", "fl.default.00.run.a.a", "$JS.ACK.x\r\nPUB y 0\r\n"])
async def test_what_is_not_a_token_is_refused(log: JetStreamLog, token: str) -> None:
    for use in (log.wakeups.ack, log.wakeups.nak, log.wakeups.extend):
        with pytest.raises(ValueError, match="not the token"):
            await use(token)


# ---- deaths

WORKER = """
import asyncio, sys
from foldlog.eventlog import Lease
from foldlog.eventlog.ports import Presence
from foldlog.eventlog.jetstream import JetStreamLog

async def main():
    url, worker, *runs = sys.argv[1:]
    async with JetStreamLog.open(url) as log, log.leases.presence(Presence(worker=worker)):
        for run in runs:
            lease = Lease(shard=0, agent="a", root=run, run=run, epoch=1, worker=worker, token=f"token-of-{run}")
            await log.leases.vouch(lease, 600)
        print("here", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def worker(url: str, name: str, *runs: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """A worker process that holds these runs; yields how to kill it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, url, name, *runs, stdout=asyncio.subprocess.PIPE
    )

    async def kill() -> int:
        process.kill()
        return await process.wait()

    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"here\n"
        yield kill
    finally:
        if process.returncode is None:
            await kill()


async def test_the_death_of_a_worker_process_is_told_with_its_tokens(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    async with log.leases.deaths() as deaths, worker(server.url, "w1", "r1", "r2") as kill:
        assert await kill() == -signal.SIGKILL
        told = await take(deaths, 2, within_s=DEATH_S)
        assert {(lease.worker, lease.token) for lease in told} == {
            ("w1", "token-of-r1"),
            ("w1", "token-of-r2"),
        }
        assert not await log.leases.live("r1", "w1", 1)


async def test_a_death_that_no_process_heard_is_reported_to_the_next_listener(
    server: EphemeralServer, log: JetStreamLog
) -> None:
    async with worker(server.url, "w1", "r1") as kill:
        await kill()
    async with log.leases.deaths() as deaths:
        assert [lease.run for lease in await take(deaths, 1, within_s=DEATH_S)] == ["r1"]


async def test_a_restart_of_the_server_kills_no_worker(server: EphemeralServer, log: JetStreamLog) -> None:
    lease = Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="alive")
    async with (
        log.leases.deaths() as deaths,
        opened(server.url) as mine,
        mine.leases.presence(Presence(worker="alive")),
    ):
        async with again(mine):
            await server.restart()
        await mine.leases.vouch(lease, 600)
        async with worker(server.url, "dead", "r1") as kill:
            await kill()
            assert [lease.worker for lease in await take(deaths, 1, within_s=DEATH_S)] == ["dead"]
        assert await log.leases.live("r", "alive", 1)


async def test_a_worker_that_is_connected_but_silent_does_not_hide_the_others(
    server: EphemeralServer, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stopped process is, and as one looks whose connection breaks while it is asked."""
    monkeypatch.setattr(
        leases, "_ANSWER_S", 0.05
    )  # too little for a busy machine at times: it is asked again
    async with (
        Gate(server.port) as gate,
        log.leases.presence(Presence(worker="here", serves=("a",))),
        opened(gate.url) as mine,
        mine.leases.presence(Presence(worker="silent", serves=("b",))),
    ):
        await until_served(log, {"a", "b"})
        gate.mute()
        await until_served(log, {"a"})
        async with again(mine):
            gate.cut()
        await until_served(log, {"a", "b"})


async def until_served(log: JetStreamLog, agents: set[str]) -> None:
    with fail_after(PATIENCE_S):
        while served(await log.leases.present()) != agents:
            pass


SYSTEM_EVENTS = """
accounts {
  SYS { users: [{user: sys, password: sys}], exports: [{stream: "$SYS.ACCOUNT.*.DISCONNECT", accounts: [A]}] }
  A { jetstream: enabled, users: [{user: me, password: p}],
      imports: [{stream: {account: SYS, subject: "$SYS.ACCOUNT.A.DISCONNECT"}}] }
}
system_account: SYS
no_auth_user: me
"""


@pytest.mark.parametrize("config", ["", SYSTEM_EVENTS], ids=["consumer", "disconnects"])
async def test_a_worker_that_is_cut_off_and_connects_again_at_once_keeps_its_runs(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SECOND_LOOK_S", 1.0)  # "at once" takes a busy machine longer
    lease = Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="alive")
    async with (
        EphemeralServer(extra_config=config) as server,
        Gate(server.port) as gate,
        opened(server.url, shards=2) as log,
        log.leases.deaths() as deaths,
        opened(gate.url, name="alive") as mine,
        mine.leases.presence(Presence(worker="alive")),
    ):
        await mine.leases.vouch(lease, 600)
        for _ in range(5):
            await cut_off(mine, gate)
            await until(lambda: not deaths._checks)
        async with worker(server.url, "dead", "r1") as kill:
            await kill()
            assert [lease.worker for lease in await take(deaths, 1, within_s=DEATH_S)] == ["dead"]
        assert await log.leases.live("r", "alive", 1)


async def test_a_worker_is_known_by_the_name_of_its_connection_where_the_system_tells_of_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        leases, "GONE_AFTER_S", 3600.0
    )  # so that it is not the end of its consumer that tells
    lease = Lease(shard=0, agent="a", root="r", run="r", epoch=1, worker="w1", token="t")
    async with (
        EphemeralServer(extra_config=SYSTEM_EVENTS) as server,
        opened(server.url) as log,
        log.leases.deaths() as deaths,
        opened(server.url, name="w1") as mine,
        mine.leases.presence(Presence(worker="w1")),
    ):
        await mine.leases.vouch(lease, 600)
        link = mine._wire._link
        link.options["allow_reconnect"] = False
        link._transport._io_writer.transport.abort()
        assert await take(deaths, 1, within_s=DEATH_S) == [lease]


# ---- damage


def flip_a_byte(server: EphemeralServer, text: str) -> None:
    block = next(server.store.rglob("FL_default_00/msgs/1.blk"))
    data = bytearray(block.read_bytes())
    data[data.find(f'"{text}"'.encode()) + 1] ^= 1
    block.write_bytes(data)


async def ten_commits(log: JetStreamLog) -> Writer:
    run = run_in(log)
    for number in range(10):
        await run.append(f"text {number}")
    return run


@pytest.mark.parametrize(("flipped", "revision"), [(4, 5), (9, 10)])
async def test_a_flipped_byte_on_disk_is_found_by_every_reader(
    server: EphemeralServer, flipped: int, revision: int
) -> None:
    async with opened(server.url) as log:
        run = await ten_commits(log)
    await server.terminate()
    flip_a_byte(server, f"text {flipped}")
    await server.restart()
    async with opened(server.url) as log:
        chain = Chain()
        with pytest.raises(LogCorrupted) as damage:
            [chain.verify(commit) async for commit in log.events.read(run.subject)]
        assert (damage.value.run, damage.value.revision) == (run.subject.id, revision)
        with pytest.raises(LogCorrupted):
            await everything(log.events.read(Shard(0)))
        commits = log.events.follow(run.subject)
        assert len(await take(commits, 9)) == 9
        with pytest.raises(LogCorrupted):
            await anext(commits)
        await commits.aclose()


async def test_a_run_whose_last_commit_cannot_be_read_is_neither_headless_nor_written_to(
    server: EphemeralServer,
) -> None:
    async with opened(server.url) as log:
        run = await ten_commits(log)
    await server.terminate()
    flip_a_byte(server, "text 9")
    await server.restart()
    async with opened(server.url) as log:
        with pytest.raises(LogCorrupted):
            await log.events.head(run.subject)
        run.log = log
        with pytest.raises(LogCorrupted):
            await run.append("on")
        with pytest.raises(LogCorrupted):
            await log.events.append(run.write("on", expected=At(run.stored[-2].position)))


async def test_a_tail_that_the_server_dropped_after_a_crash_is_noticed_by_processes_that_were_connected(
    server: EphemeralServer,
) -> None:
    async with opened(server.url) as log, opened(server.url) as reader:
        run = await ten_commits(log)
        commits = reader.events.follow(run.subject)
        assert await take(commits, 10) == run.stored
        server.kill()
        await down(log)
        flip_a_byte(server, "text 4")
        await server.restart()
        with pytest.raises(LogCorrupted, match="ends at position 4, but 10 was stored"):
            await log.events.head(run.subject)
        with pytest.raises(LogCorrupted):
            await run.append("on")
        with pytest.raises(LogCorrupted):
            await take(commits, 1)
        await commits.aclose()


async def test_an_altered_artifact_is_found_and_a_half_stored_one_is_completed(
    server: EphemeralServer, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"x" * 1_200_000
    artifacts = log.artifacts.of("run-1")
    digest = await artifacts.put(data)
    await log._wire.api(
        "STREAM.PURGE.FL_default_artifacts", {"filter": f"artifact.default.run-1.{digest}.3.1"}, Done
    )
    with pytest.raises(LogCorrupted):
        await artifacts.get(digest)
    await artifacts.put(data)
    assert await artifacts.get(digest) == data
    wrong = "0" * 64
    await log._wire.request(f"artifact.default.run-1.{wrong}.1.0".encode(), b"not this")
    with pytest.raises(LogCorrupted):
        await artifacts.get(wrong)


async def test_of_a_run_no_more_is_kept_than_its_newest_snapshot(log: JetStreamLog) -> None:
    run, other = new_name("run"), new_name("run")
    await log.snapshots.put(other, b"other")
    for number in range(5):
        await log.snapshots.put(run, b"%d" % number * 1_100_000)
    chunks = await everything(read_all(log._wire, LAYOUT.snapshots, LAYOUT.snapshots_of(run)))
    assert len(chunks) == 3
    assert await log.snapshots.get(other) == b"other"


async def test_a_snapshot_that_was_put_half_leaves_the_one_before(log: JetStreamLog) -> None:
    run, data = new_name("run"), b"whole" * 300_000
    await log.snapshots.put(run, data)
    half = LAYOUT.snapshot(run, "0" * 32, 0, 2)
    await log._wire.request(half, b"half of it")
    assert await log.snapshots.get(run) == data
    await log.snapshots.put(run, b"next")
    assert await log.snapshots.get(run) == b"next"


async def test_of_chunks_of_two_writers_none_is_taken_for_the_others(log: JetStreamLog) -> None:
    run, name = new_name("run"), "0" * 32
    for index in range(2):
        await log._wire.request(LAYOUT.snapshot(run, name, index, 2), b"chunk")
    assert await log.snapshots.get(run) is None


async def test_a_log_without_its_stream_of_snapshots_has_none_and_says_that_it_keeps_none(
    log: JetStreamLog,
) -> None:
    await log._wire.api(f"STREAM.DELETE.{LAYOUT.snapshots}", None, Done)
    with pytest.raises(LogUnavailable):
        await log.snapshots.get(new_name("run"))
    with pytest.raises(LogUnavailable):
        await log.snapshots.put(new_name("run"), b"state")


# ---- a cluster


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[list[EphemeralServer]]:
    routes = free_ports(3)
    extra = 'cluster {{ name: c, listen: "127.0.0.1:{}", routes: [{}] }}'
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    servers: list[Any] = [
        EphemeralServer(directory / f"n{n}", extra_config=extra.format(port, urls), name=f"n{n}")
        for n, port in enumerate(routes)
    ]
    async with AsyncExitStack() as stack:
        async with create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(stack.enter_async_context, server)
        yield servers


async def one_of_many_batches_wins(logs: list[JetStreamLog]) -> None:
    """Writers race for a new subject, each with a batch of three commits of it: one is stored, whole and unmixed."""
    subject = run_in(logs[0]).subject
    batches: list[list[CommitWrite]] = []
    for number in range(8):
        writer = Writer(logs[number % 2], subject)
        batches.append([])
        for text in "abc":
            batches[-1].append(writer.write(f"{number}{text}", expected=NEW))
            writer.accept(batches[-1][-1], 0)
    answers = await asyncio.gather(
        *(logs[n % 2].events.append(*batch) for n, batch in enumerate(batches)), return_exceptions=True
    )
    (won,) = [n for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
    assert all(isinstance(answer, Conflict) for n, answer in enumerate(answers) if n != won), answers
    stored = await everything(logs[0].events.read(subject))
    assert [each.data for each in stored] == [write.data for write in batches[won]]


async def of_many_at_once_only_the_stale_conflict(log: JetStreamLog) -> None:
    runs = [run_in(log) for _ in range(40)]
    await asyncio.gather(*(run.append() for run in runs))
    writes = [run.write(expected=NEW if n % 5 else None) for n, run in enumerate(runs)]
    answers = await asyncio.gather(*(log.events.append(write) for write in writes), return_exceptions=True)
    assert [isinstance(answer, Conflict) for answer in answers] == [n % 5 > 0 for n in range(40)], answers
    for n, run in enumerate(runs):
        await until_visible(log, run.subject, 1 if n % 5 else 2)


async def until_visible(log: JetStreamLog, subject: Subject, count: int) -> None:
    """A read of a follower may be a moment behind."""
    with fail_after(PATIENCE_S):
        while len(await everything(log.events.read(subject))) < count:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)
    assert len(await everything(log.events.read(subject))) == count


async def test_a_cluster_of_three_keeps_the_log_on_three_servers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        url = ",".join(server.url for server in servers)
        async with (
            opened(url, shards=2, request_timeout_s=5.0) as log,  # what has no leader yet does not answer
            opened(servers[2].url, request_timeout_s=5.0) as reader,
        ):
            run, agent = run_in(log), new_name("agent")
            async with closing(reader.events.follow(Family(0, run.subject.root))) as commits:
                for _ in range(5):
                    await run.append("x", WakeWrite(wakeup_for(agent)))
                assert await take(commits, 5) == run.stored
            async with reader.wakeups.pull(frozenset({agent})) as deliveries:
                for delivery in await take(deliveries, 5):
                    await reader.wakeups.ack(delivery.token)
            assert await everything(log.events.read(run.subject)) == run.stored
            with pytest.raises(Conflict):
                await log.events.append(run.write(expected=NEW))
            await one_of_many_batches_wins([log, reader])
            await of_many_at_once_only_the_stale_conflict(log)
            async with reader.leases.deaths() as deaths, worker(servers[0].url, "w", "r") as kill:
                await kill()
                assert [lease.run for lease in await take(deaths, 1)] == ["r"]
        for server in servers:
            assert list(server.store.rglob("FL_default_00")) != []
