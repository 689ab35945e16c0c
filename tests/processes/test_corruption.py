"""A damaged log is reported to readers by run and revision; a worker leaves the run alone and serves others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import nats
import pytest
from foldlog.eventlog import (
    Commit,
    LogCorrupted,
    McpProgress,
    Status,
    Stored,
    decode,
    digest_of_bytes,
    encode,
)
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.runtime import RunHandle

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, observed, stored


@pytest.fixture
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    """One for each test, since its store is damaged."""
    async with EphemeralServer() as server:
        yield server


async def commits(place: Place, run: RunHandle[str]) -> list[Stored]:
    subject = await run._located()
    return [commit async for commit in place.log.events.read(subject)]


async def assert_named_by_every_reader(place: Place, run_id: str, revision: int) -> None:
    """Each way to look at the run says which is damaged and where, and none hangs."""
    run: RunHandle[str] = place.runtime.get_run(run_id)
    readings: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "result": lambda: run.result(timeout_s=PATIENCE_S),
        "stream": lambda: observed(run),
        "detailed stream": lambda: observed(run, detailed=True),
        "state": run.state,
        "history": run.history,
        "cancel": run.cancel,
        "inject": lambda: run.inject("hello"),
        "trace": lambda: place.trace(run_id),
    }
    for name, read in readings.items():
        with pytest.raises(LogCorrupted) as damage:
            await read()
        assert (name, damage.value.run) == (name, run_id)
        if name not in {"stream", "detailed stream", "trace", "cancel"}:  # these read a family
            assert (name, damage.value.revision) == (name, revision)
        else:
            assert damage.value.revision in {0, revision}


async def assert_worker_serves_others(place: Place) -> None:
    other = await place.runtime.start(workshop.quick, "question", executor="durable")
    assert (await other.result(timeout_s=PATIENCE_S)).output == "Done"


# --- a flipped byte on disk -------------------------------------------------------------------------------------------


def flip(server: EphemeralServer, commit: Stored) -> None:
    """Change one byte of a stored commit, in the middle of what it says."""
    (block,) = [path for path in server.store.rglob("*.blk") if commit.data in path.read_bytes()]
    data = bytearray(block.read_bytes())
    data[data.find(commit.data) + len(commit.data) // 2] ^= 1
    block.write_bytes(data)


@pytest.mark.parametrize("number", [0, 3, -1], ids=["first", "middle", "last"])
async def test_a_byte_flipped_while_the_server_was_down_is_found(
    place: Place, server: EphemeralServer, number: int
):
    # Who loads a run from its snapshot does not read what stands before it.
    await place.worker(FOLDLOG_SNAPSHOT_EVENTS="5" if number == -1 else "0")
    run = await place.runtime.start(workshop.walker, "question", executor="durable")
    await run.result(timeout_s=PATIENCE_S)
    stored_commits = await commits(place, run)
    damaged = stored_commits[number]
    await server.terminate()
    flip(server, damaged)
    await server.restart()
    async with Place(server.url, place.namespace, place.directory, place._nursery).opened() as fresh:
        await assert_named_by_every_reader(fresh, run.run_id, decode(damaged.data).rev)
    await assert_worker_serves_others(place)


async def test_a_tail_that_the_server_lost_after_a_crash_is_noticed_by_processes_that_were_connected(
    place: Place, server: EphemeralServer
):
    run = await place.runtime.start(workshop.waiter, "question")
    await stored(run, McpProgress)
    damaged = (await commits(place, run))[1]
    server.kill()
    flip(server, damaged)
    await server.restart()
    workshop.open_gate()
    with pytest.raises(LogCorrupted):
        await run.result(timeout_s=PATIENCE_S)
    with pytest.raises(LogCorrupted):
        await run.state()


# --- a forged message -------------------------------------------------------------------------------------------------


def garbage(head: Stored) -> bytes:
    return b'{"v":1,"events":"none"}'


def of_a_broken_chain(head: Stored) -> bytes:
    return forged(head, prev="0" * 64)


def of_a_later_revision(head: Stored) -> bytes:
    return forged(head, skipped=3)


def of_another_run(head: Stored) -> bytes:
    return forged(head, run="somebody-else")


def forged(
    head: Stored, *, prev: str | None = None, skipped: int = 0, run: str | None = None, epoch: int = 0
) -> bytes:
    """A terminal that the library never wrote, well formed but for one thing."""
    last = decode(head.data)
    return encode(
        Commit(
            run=run or last.run,
            root=last.root,
            rev=last.rev + len(last.events) + skipped,
            append="forged",
            prev=digest_of_bytes(head.data) if prev is None else prev,
            epoch=epoch,
            at=last.at,
            path=last.path,
            events=(Status(status="completed"),),
        )
    )


async def publish(place: Place, head: Stored, data: bytes) -> None:
    """Store a message under the run's subject, as anybody with access to the server can."""
    connection = await nats.connect(place.url)
    await connection.jetstream().publish(Layout(place.namespace).subject(head.subject).decode(), data)
    await connection.close()


@pytest.mark.parametrize("forge", [garbage, of_a_broken_chain, of_a_later_revision, of_another_run])
async def test_a_forged_message_is_named_by_every_reader_and_left_alone_by_workers(
    place: Place, forge: Callable[[Stored], bytes]
):
    await place.worker()
    run = await place.runtime.start(workshop.waiter, "question", executor="durable")
    await stored(run, McpProgress)
    live = asyncio.create_task(observed(run))
    head = (await commits(place, run))[-1]
    revision = decode(head.data).rev + len(decode(head.data).events)
    await publish(place, head, forge(head))
    with pytest.raises(LogCorrupted):
        await live
    there = await commits(place, run)
    workshop.open_gate()  # the tool's result cannot be stored behind it
    await assert_worker_serves_others(place)
    await place.worker()
    await assert_worker_serves_others(place)
    await assert_named_by_every_reader(place, run.run_id, revision)
    assert await commits(place, run) == there


async def test_a_commit_of_an_executor_without_a_claim_is_refused_by_the_fold(place: Place):
    await place.worker()
    run = await place.runtime.start(workshop.waiter, "question", executor="durable")
    await stored(run, McpProgress)
    head = (await commits(place, run))[-1]
    await publish(place, head, forged(head, epoch=7))
    workshop.open_gate()
    for read in (run.state, run.history, run.pause, lambda: run.inject("hello")):
        with pytest.raises(LogCorrupted, match="an executor of epoch 7 wrote while epoch 1 was in force"):
            await asyncio.wait_for(read(), PATIENCE_S)
    await assert_worker_serves_others(place)
