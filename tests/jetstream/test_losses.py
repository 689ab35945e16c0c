"""No loss is silent: each way to damage the files of a stopped server is found, and nothing else is called one."""

# Files are what these tests are about.

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import nats
import pytest
from foldlog.eventlog import (
    NEW,
    At,
    ChildStarted,
    Commit,
    CommitWrite,
    Custom,
    KeyRecorded,
    LaneEntry,
    LaneUpdated,
    LogCorrupted,
    LogUnavailable,
    Shard,
    Status,
    Subject,
    Timer,
    TimerWrite,
    Wakeup,
    WakeWrite,
    digest_of_bytes,
    encode,
)
from foldlog.eventlog.embedded import EphemeralServer, StoreDamaged, TailLost, ensure_server, stop_server
from foldlog.eventlog.embedded.damage import damage
from foldlog.eventlog.jetstream import JetStreamLog, seals
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.jetstream.wire import Done

FAMILIES = 160
FAMILY_BYTES = 120_000
"""Enough for three blocks of the server, which are of 8 MB."""
STREAM = "FL_default_00"
SEALED_EVERY = 50


def commit(run: str, *events: object, root: str = "", rev: int = 1, prev: str = "") -> bytes:
    return encode(
        Commit(
            run=run,
            root=root or run,
            rev=rev,
            append="a",
            prev=prev,
            epoch=0,
            at=1.0,
            path="x",
            events=events,
        )
    )


FILLED = Custom(name="filled", data=random.Random(1).randbytes(FAMILY_BYTES // 2).hex())


def is_due_soon(number: int) -> bool:
    return number % 6 == 0


async def timers_fired(url: str, count: int) -> None:
    """Wait until the server has stored the wake-ups of so many timers."""
    nc = await nats.connect(url)
    due = await nc.jetstream().subscribe("fl.default.00.due.>", ordered_consumer=True)
    for _ in range(count):
        await due.next_msg(timeout=120)
    await nc.close()


async def store_family(log: JetStreamLog, number: int) -> None:
    """A root run, for some a child, a key, a session, timers, a large value; and a second commit."""
    run = f"run-{number:03d}"
    wakeup = Wakeup(shard=0, agent="agent", root=run, run=run)
    events: list[object] = [Status(status="starting"), FILLED]
    if number % 20 == 0:
        digest = await log.artifacts.of(run).put(run.encode() * 20_000)
        events.append(Custom(name="large", data={"$artifact": digest, "size_bytes": 140_000}))
    first = commit(run, *events)
    writes = [CommitWrite(Subject(0, "run", run, run), NEW, first), WakeWrite(wakeup)]
    if number % 5 == 0:
        recorded = KeyRecorded(key=run, run=run, shard=0, input_digest="")
        writes.append(
            CommitWrite(Subject(0, "key", "", f"key-{number}"), NEW, commit(f"key-{number}", recorded))
        )
    if number % 7 == 0:
        queue = LaneUpdated(queue=[LaneEntry(run=run, agent="agent", revision=1)])
        writes.append(
            CommitWrite(Subject(0, "lane", "", f"lane-{number}"), NEW, commit(f"lane-{number}", queue))
        )
    if number % 3 == 0:
        due_at = log.clock.now() + (0.05 if is_due_soon(number) else 3600)
        writes.append(TimerWrite(Timer(id="t", due_at=due_at, wakeup=wakeup)))
    position = (await log.events.append(*writes))[0]
    if number % 4 == 0:
        await log.timers.set(Timer(id="alone", due_at=log.clock.now() + 3600, wakeup=wakeup))
    if number % 8 == 0:
        await log.timers.cancel(Timer(id="alone", due_at=0, wakeup=wakeup))
    child = ChildStarted(child_run=f"{run}-child", name="x", kind="sub_agent")
    second = commit(run, child, Custom(name="second"), rev=len(events) + 1, prev=digest_of_bytes(first))
    below = commit(f"{run}-child", Status(status="starting"), root=run)
    await log.events.append(
        CommitWrite(Subject(0, "run", run, run), At(position), second),
        CommitWrite(Subject(0, "run", run, f"{run}-child"), NEW, below),
    )


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a server that was stopped cleanly; `older` is a copy from when it held half as much."""
    place = tmp_path_factory.mktemp("losses")
    seal_every, seals.SEAL_EVERY = seals.SEAL_EVERY, SEALED_EVERY
    server = EphemeralServer(place / "log")
    async with server:
        for half in (range(FAMILIES // 2), range(FAMILIES // 2, FAMILIES)):
            async with JetStreamLog.open(server.url, shards=1) as log:
                for number in half[:-1]:
                    await store_family(log, number)
                # A seal covers what the process has stored: what the server stores after it could be lost unseen.
                await timers_fired(server.url, sum(map(is_due_soon, range(half[-1]))))
                await store_family(log, half[-1])
            await server.terminate()
            if half.start == 0:
                shutil.copytree(place / "log", place / "older")
            await server.restart()
    seals.SEAL_EVERY = seal_every
    return place


@pytest.fixture
def directory(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(stopped / "log", tmp_path / "log")
    return tmp_path / "log"


# --- the ways to damage it --------------------------------------------------------------------------------------------


def files(directory: Path, stream: str = STREAM) -> Path:
    (found,) = directory.rglob(f"streams/{stream}")
    return found


def blocks(directory: Path, stream: str = STREAM) -> list[Path]:
    return sorted((files(directory, stream) / "msgs").glob("*.blk"), key=lambda path: int(path.stem))


def end_of_last(block: Path, kind: bytes) -> int:
    """Return where the record of the last message of a kind ends: length, position, time, subject, data, checksum.

    A record of a position whose subject is empty says that the message there was removed, such as the schedule of a
    timer that has fired.
    """
    data, at, end = block.read_bytes(), 0, 0
    while at < len(data):
        length = (
            int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF
        )  # the highest bit says: with a header
        subject_length = int.from_bytes(data[at + 20 : at + 22], "little")
        subject = data[at + 22 : at + 22 + subject_length]
        at += length
        if kind in subject if kind else not subject:
            end = at
    assert end
    return end


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def swap(one: Path, other: Path) -> None:
    held, data = one.read_bytes(), other.read_bytes()
    one.write_bytes(data)
    other.write_bytes(held)


def without_index(directory: Path) -> None:
    for index in directory.rglob("index.db"):
        index.unlink()


def middle(directory: Path) -> Path:
    found = blocks(directory)
    assert len(found) == 3
    return found[len(found) // 2]


def size(path: Path) -> int:
    return path.stat().st_size


def put_back(directory: Path, stopped: Path, what: str) -> None:
    """Put an older copy of one stream in its place."""
    place = files(directory, what)
    shutil.rmtree(place)
    shutil.copytree(files(stopped / "older", what), place)


Damage = Callable[[Path, Path], object]
DAMAGES: dict[str, Damage] = {
    "a byte flipped in the head of the first block": lambda d, _: flip(blocks(d)[0], 2),
    "a byte flipped in the head of a middle block": lambda d, _: flip(middle(d), 2),
    "a byte flipped in the head of the last block": lambda d, _: flip(blocks(d)[-1], 2),
    "a byte flipped in a sequence number": lambda d, _: flip(middle(d), 6),
    "a byte flipped in a time stamp": lambda d, _: flip(middle(d), 14),
    "a byte flipped in a subject": lambda d, _: flip(middle(d), 30),
    "a byte flipped in a payload": lambda d, _: flip(middle(d), size(middle(d)) // 2),
    "a byte flipped in a payload of the first block": lambda d, _: flip(blocks(d)[0], 1500),
    "a byte flipped in a payload of the last block": lambda d, _: flip(blocks(d)[-1], 1500),
    "a byte flipped in the checksum at the end of a block": lambda d, _: flip(
        middle(d), end_of_last(middle(d), b".run.") - 1
    ),
    "a byte flipped in the checksum of a timer that has fired": lambda d, _: flip(
        middle(d), end_of_last(middle(d), b".due.") - 1
    ),
    "the last block truncated by a byte": lambda d, _: os.truncate(blocks(d)[-1], size(blocks(d)[-1]) - 1),
    "the last block truncated by half": lambda d, _: os.truncate(blocks(d)[-1], size(blocks(d)[-1]) // 2),
    "a middle block truncated by half": lambda d, _: os.truncate(middle(d), size(middle(d)) // 2),
    "the first block truncated by half": lambda d, _: os.truncate(blocks(d)[0], size(blocks(d)[0]) // 2),
    "a middle block emptied": lambda d, _: os.truncate(middle(d), 0),
    "the last block emptied": lambda d, _: os.truncate(blocks(d)[-1], 0),
    "the first block deleted": lambda d, _: blocks(d)[0].unlink(),
    "a middle block deleted": lambda d, _: middle(d).unlink(),
    "the last block deleted": lambda d, _: blocks(d)[-1].unlink(),
    "a middle block and the index deleted": lambda d, _: (middle(d).unlink(), without_index(d)),
    "the last block and the index deleted": lambda d, _: (blocks(d)[-1].unlink(), without_index(d)),
    "the last two blocks and the index deleted": lambda d, _: (
        [path.unlink() for path in blocks(d)[-2:]],
        without_index(d),
    ),
    "all blocks deleted": lambda d, _: [path.unlink() for path in blocks(d)],
    "two blocks swapped": lambda d, _: swap(blocks(d)[0], blocks(d)[1]),
    "two blocks swapped, and the index deleted": lambda d, _: (
        swap(blocks(d)[0], blocks(d)[1]),
        without_index(d),
    ),
    "a block replaced by another": lambda d, _: shutil.copy(blocks(d)[0], middle(d)),
    "a range of zeros in a block": lambda d, _: overwrite(middle(d), 2_000_000, bytes(300_000)),
    "a block of zeros": lambda d, _: overwrite(middle(d), 0, bytes(size(middle(d)))),
    "a range of noise in a block": lambda d, _: overwrite(
        middle(d), 20_000, random.Random(1).randbytes(9000)
    ),
    "a block replaced by an older copy": lambda d, old: shutil.copy(
        blocks(old / "older")[-1], blocks(d)[len(blocks(old / "older")) - 1]
    ),
    "all files of the shard replaced by older ones": lambda d, old: put_back(d, old, STREAM),
    "a block of the artifacts truncated": lambda d, _: os.truncate(
        blocks(d, "FL_default_artifacts")[0], 300_000
    ),
    "the artifacts replaced by older ones": lambda d, old: put_back(d, old, "FL_default_artifacts"),
    "a byte flipped in an artifact": lambda d, _: flip(blocks(d, "FL_default_artifacts")[0], 50_000),
    "all artifacts deleted": lambda d, _: [path.unlink() for path in blocks(d, "FL_default_artifacts")],
    "the directory of the artifacts deleted": lambda d, _: shutil.rmtree(files(d, "FL_default_artifacts")),
}


async def runs_in(log: JetStreamLog) -> set[str]:
    """All runs of which at least one commit can be read."""
    found, after = set[str](), 0
    try:
        async for stored in log.events.read(Shard(0), after):
            found.add(stored.subject.id)
    except LogCorrupted:  # in the end, where the server counts what it cannot read
        pass
    return found


EVERY_RUN = {f"run-{number:03d}{child}" for number in range(FAMILIES) for child in ("", "-child")}


@pytest.mark.parametrize("what", DAMAGES)
async def test_damage_is_found_and_the_runs_that_are_gone_are_named(
    what: str, directory: Path, stopped: Path
):
    DAMAGES[what](directory, stopped)
    async with EphemeralServer(directory) as server:
        assert (
            await damage(server.url, accept_loss=False) != []
        )  # what the keeper asks before it lets clients in
        async with JetStreamLog.open(server.url) as log:
            audit = await log.audit()
            gone = EVERY_RUN - await runs_in(log)
    assert audit.losses
    assert {missing.run for missing in audit.missing} == gone
    assert {loss.stream for loss in audit.losses} <= {STREAM, "FL_default_artifacts"}


@pytest.mark.parametrize("what", ["meta.inf", "meta.sum", "the directory"])
async def test_a_shard_that_the_server_no_longer_finds_is_not_created_again(what: str, directory: Path):
    if what == "the directory":
        shutil.rmtree(files(directory))
    else:
        (files(directory) / what).unlink()
    async with EphemeralServer(directory) as server:
        (first, *_) = await damage(server.url, accept_loss=False)
        assert f"shard 0 (stream {STREAM}): the stream is lost" in first
        with pytest.raises(LogCorrupted, match=f"there is no stream {STREAM}"):
            async with JetStreamLog.open(server.url):
                pass


# --- what is not damage -----------------------------------------------------------------------------------------------


UNDAMAGED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "the index deleted": without_index,
    "the consumers deleted": lambda d: [shutil.rmtree(path) for path in d.rglob("obs")],
    # No message is lost; where the server then takes more for unreadable, that is found.
    "a byte flipped in the record that a schedule was removed": lambda d: flip(
        middle(d), end_of_last(middle(d), b"") - 1
    ),
    "the schedules deleted": lambda d: [path.unlink() for path in d.rglob("sched.db")],
}


@pytest.mark.parametrize("what", UNDAMAGED)
async def test_an_undamaged_store_is_whole(what: str, directory: Path):
    UNDAMAGED[what](directory)
    async with EphemeralServer(directory) as server:
        assert await damage(server.url, accept_loss=False) == []
        async with JetStreamLog.open(server.url) as log:
            audit = await log.audit()
            assert await runs_in(log) == EVERY_RUN
    assert (audit.losses, audit.missing) == ((), ())
    assert audit.sealed[0] > 400


@pytest.mark.nightly
async def test_a_store_is_whole_after_kills_of_server_and_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seals, "SEAL_EVERY", 16)
    async with EphemeralServer(tmp_path / "log") as server:
        async with JetStreamLog.open(server.url, shards=1) as log:
            for attempt in range(4):
                writers = [
                    asyncio.create_task(store_family(log, number))
                    for number in range(attempt * 20, attempt * 20 + 20)
                ]
                await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED)
                server.kill()
                ends = await asyncio.gather(*writers, return_exceptions=True)
                assert all(end is None or isinstance(end, LogUnavailable) for end in ends)
                await server.restart()
            audit = await log.audit()
        assert audit.losses == ()
        async with JetStreamLog.open(server.url) as log:
            audit = await log.audit()
    assert (audit.losses, audit.missing) == ((), ())
    assert audit.sealed[0] > 0


async def test_many_writers_seal_one_chain_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seals, "SEAL_EVERY", 8)
    all_have_written = asyncio.Barrier(4)

    async def write(url: str, number: int) -> None:
        async with JetStreamLog.open(url) as log:
            for family in range(number * 10, number * 10 + 10):
                await store_family(log, family)
            await all_have_written.wait()

    async with EphemeralServer(tmp_path / "log") as server:
        async with JetStreamLog.open(server.url, shards=1):
            pass
        await asyncio.gather(*(write(server.url, number) for number in range(4)))
        async with JetStreamLog.open(server.url) as log:
            audit = await log.audit()
            chain = [seal async for _, seal in seals.read_seals(log._wire, Layout("default"), 0)]
            written = [stored.position async for stored in log.events.read(Shard(0), 0)]
    assert audit.losses == ()
    assert chain[-1] is not None
    assert chain[-1].last >= written[-1]
    assert len(chain) > 10
    assert [seal.number for seal in chain if seal is not None] == list(range(1, len(chain) + 1))


async def test_seals_continue_after_an_accepted_loss_and_the_next_loss_is_found(tmp_path: Path):
    async def lose(log: JetStreamLog, run: str) -> None:
        lost = {"filter": f"{Layout('default').prefix(0)}.run.{run}.>"}
        await log._wire.api(f"STREAM.PURGE.{STREAM}", lost, Done)

    async with EphemeralServer(tmp_path / "log") as server:
        async with JetStreamLog.open(server.url, shards=1) as log:
            await store_family(log, 1)
        async with JetStreamLog.open(server.url) as log:
            await store_family(log, 2)
            await store_family(log, 4)
            await lose(log, "run-002")  # which is not sealed yet
            before = await log.audit()
            await log.accept(before.losses)
        async with JetStreamLog.open(server.url) as log:
            after = await log.audit()
            await lose(log, "run-004")
            again = await log.audit()
    assert {missing.run for missing in before.missing} == {"run-002"}
    assert (after.losses, after.accepted) == ((), before.losses)
    assert after.sealed[0] > before.losses[-1].last
    assert again.losses
    known = {missing.run: missing.known_by for missing in again.missing}
    assert known["run-004"].startswith("seal ")


# --- a tail that is written again -------------------------------------------------------------------------------------


async def test_a_lost_end_that_was_written_again_is_found_by_the_seals(directory: Path, stopped: Path):
    put_back(directory, stopped, STREAM)
    async with EphemeralServer(directory) as server, JetStreamLog.open(server.url) as log:
        for number in range(1000, 1000 + FAMILIES):  # beyond where it ended before
            await store_family(log, number)
        audit = await log.audit()
    assert any("differ from seal" in loss.problem for loss in audit.losses)
    assert f"run-{FAMILIES - 1}" in {missing.run for missing in audit.missing}


# --- the embedded server ----------------------------------------------------------------------------------------------


@pytest.fixture
async def kept(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """The directory as one of a project, whose keeper ends in the end."""
    monkeypatch.setenv("FOLDLOG_KEEPER_IDLE_S", "30")
    yield directory
    await stop_server(directory)


async def test_the_embedded_server_starts_on_a_damaged_store_only_when_the_loss_is_accepted(kept: Path):
    middle(kept).unlink()
    for _ in range(2):
        with pytest.raises(
            StoreDamaged, match=r"shard 0 .*positions \d+ to \d+.*completely missing: run-.*accept"
        ):
            await ensure_server(kept)
    info = await ensure_server(kept, accept_loss=True)
    async with JetStreamLog.open(info.url) as log:
        audit = await log.audit()
    assert audit.losses == ()
    assert audit.accepted
    await stop_server(kept)
    os.utime(blocks(kept)[0])  # it is read again, and the loss is known
    await ensure_server(kept)


async def test_the_embedded_server_does_not_read_files_again_that_nobody_touched(kept: Path):
    await ensure_server(kept)
    await stop_server(kept)
    log = kept / "keeper.log"
    assert (kept / "clean_stop.json").exists()
    await ensure_server(kept)
    assert not (kept / "clean_stop.json").exists()
    assert "lost" not in log.read_text()


async def test_a_lost_tail_is_told_with_the_runs_that_were_in_it(kept: Path):
    await ensure_server(kept)
    await stop_server(kept)
    blocks(kept)[-1].unlink()
    without_index(kept)
    with pytest.raises(TailLost, match="completely missing: run-"):
        await ensure_server(kept)
