"""A user is erased from a real server while others run: grep of the store's files finds none of the user's words."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.knowledge import SqliteKnowledge
from foldlog.eventlog import (
    NEW,
    At,
    Commit,
    CommitWrite,
    Event,
    Status,
    Submitted,
    Text,
    digest_of_bytes,
    encode,
)
from foldlog.eventlog.clock import SystemClock
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.names import new_run_id, run_subject
from foldlog.projections.projector import RunIndex
from foldlog.replay import check_log
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.burying.bury import Order
from foldlog.runtime.burying.erasure import Eraser, Selection
from foldlog.runtime.burying.retention import Retention, erase_due

from tests.runtime.conftest import call, calls, says, script

pytestmark = pytest.mark.anyio
USER, WORDS = "u-1", "the-words-of-one-user"
SYNC_S = 1
"""The server's sync interval, within which it gives the disk back."""
WAIT_S = 60.0
APPENDS_AT_ONCE = 64


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@contextlib.asynccontextmanager
async def server_in(directory: Path) -> AsyncIterator[EphemeralServer]:
    store = json.dumps(str(directory / "store"))
    quick = f'jetstream {{ store_dir: {store}, sync_interval: "{SYNC_S}s", limits {{ default_max_consumers: -1 }} }}'
    async with EphemeralServer(directory, sync="default", extra_config=quick) as server:
        yield server


def files_with(directory: Path, words: str) -> list[Path]:
    found = []
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # the server replaces its files
            if path.is_file() and words.encode() in path.read_bytes():
                found.append(path)
    return found


async def until_gone(directory: Path, words: str) -> list[Path]:
    """The files that still have the words after the sync ticks that they may take."""
    until = time.monotonic() + WAIT_S
    while (found := await asyncio.to_thread(files_with, directory, words)) and time.monotonic() < until:
        await SystemClock().sleep(SYNC_S)
    return found


class Stored:
    """Runs that are written as they would be, without being driven."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log, self._ids = log, SystemClock()

    async def run(self, number: int, user: str, words: str) -> str:
        run = new_run_id(number % self._log.events.shards, self._ids)
        subject = run_subject(number % self._log.events.shards, run, run)
        config = {"name": "notes", "model": "none:1"}
        steps: list[tuple[Event, ...]] = [
            (
                Submitted(
                    kind="agent",
                    config=config,
                    input=f"{words} {number} " + "x" * 300,
                    executor="durable",
                    user=user,
                    input_digest="",
                    config_digest="",
                ),
                Status(status="starting"),
            ),
            (Text(step=1, text=f"{words} are noted, {number} " + "y" * 300),),
            (Status(status="completed"),),
        ]
        rev, prev, position = 1, "", 0
        for events in steps:
            data = encode(
                Commit(
                    run=run, root=run, rev=rev, append=self._ids.new_id(), prev=prev, epoch=0, at=time.time(),
                    path="notes", events=events,  # type: ignore[arg-type]
                )
            )  # fmt: skip
            (position,) = await self._log.events.append(
                CommitWrite(subject, At(position) if position else NEW, data)
            )
            rev, prev = rev + len(events), digest_of_bytes(data)
        return run

    async def runs(self, users: list[tuple[str, str]]) -> list[str]:
        free = asyncio.Semaphore(APPENDS_AT_ONCE)

        async def one(number: int, user: str, words: str) -> str:
            async with free:
                return await self.run(number, user, words)

        return list(await asyncio.gather(*(one(n, *each) for n, each in enumerate(users))))


def script_in(directory: Path) -> Any:
    return script.__wrapped__(directory)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("of_user", "of_others"),
    [
        pytest.param(12, 60, id="some"),
        pytest.param(1_000, 99_000, id="many", marks=[pytest.mark.nightly, pytest.mark.timeout(3_600)]),
    ],
)
async def test_nothing_of_a_users_words_is_left_in_the_files_of_the_store(
    tmp_path: Path, of_user: int, of_others: int
) -> None:
    @tool(effect="pure")
    async def tell() -> str:
        """Tell much."""
        return f"{WORDS} " * 4_000

    (tmp_path / "scripts").mkdir()
    made = script_in(tmp_path / "scripts")
    talker = Agent(
        "talker", model=made(calls(call("tell")), says(WORDS)), tools=[tell], memory={"scope": "session"}
    )
    other = Agent("other", model=made(says("nothing of it")))
    knowledge = SqliteKnowledge("default", tmp_path / "knowledge.sqlite3")
    registry = Registry(agents=[talker, other], knowledge=knowledge)
    async with (
        server_in(tmp_path / "server") as server,
        JetStreamLog.open(server.url, request_timeout_s=60) as log,
        Runtime.open(log=log, registry=registry) as rt,
    ):
        every = of_others // of_user
        users = [
            (USER, WORDS) if n % (every + 1) == 0 else (f"other-{n % 97}", "another text")
            for n in range(of_user * (every + 1))
        ]
        mine = {
            run for run, (user, _) in zip(await Stored(log).runs(users), users, strict=True) if user == USER
        }
        for number in range(3):  # with large values, snapshots, memory, a key and files of projections
            key = {"idempotency_key": f"note {number}"}
            run = await rt.start(talker, f"{WORDS} {number}", user=USER, session="s", **key)
            await run.result()
            mine.add(run.run_id)
        (moved,) = (await rt.archive(run.run_id, to=f"file://{tmp_path}/archive")).erased
        index = RunIndex(log, tmp_path / "index.sqlite3")
        await index.catch_up()
        assert await asyncio.to_thread(files_with, tmp_path / "server", WORDS)

        async def others() -> int:
            done = 0
            with contextlib.suppress(asyncio.CancelledError):
                while True:
                    await (await rt.start(other, "meanwhile", user="v")).result()
                    done += 1
            return done

        meanwhile = asyncio.create_task(others())
        eraser = Eraser(log, index, Order(by="ann", reason="request 7"), knowledge=knowledge)
        receipt = await eraser.erase(Selection(user=USER), with_copies=True)
        meanwhile.cancel()
        assert await meanwhile > 0

        assert {each.run_id for each in receipt.erased} == mine
        assert receipt.open == ()
        assert [(left.kind, left.of, left.at) for left in receipt.left] == [
            ("archive", run.run_id, moved.url)
        ]
        assert await until_gone(tmp_path / "server", WORDS) == []
        await index.aclose()
        assert [path for path in files_with(tmp_path, WORDS) if path.parent.name != "scripts"] == []
        checked = await check_log(log)
        assert (checked.erased, checked.missing) == (len(mine), ())
        assert checked.families >= len(users) - len(mine)
        audit = await log.audit()
        assert (audit.losses, audit.missing) == ((), ())


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.blk") if path.is_file())


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_the_disk_of_a_log_that_forgets_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.runtime.burying.erasure.PURGES_PER_S", 1_000)
    async with (
        server_in(tmp_path / "server") as server,
        JetStreamLog.open(server.url, shards=1, request_timeout_s=60) as log,
    ):
        index, sizes = RunIndex(log), list[int]()
        for _ in range(3):  # each is a month, of more than a block of the server (8 MB)
            await Stored(log).runs([("u", "a text " * 3_000)] * 500)
            largest = size_of(tmp_path / "server")
            await erase_due(log, index, Retention(keep_s=0.0))
            until = time.monotonic() + WAIT_S
            while size_of(tmp_path / "server") > largest / 2 and time.monotonic() < until:
                await log.clock.sleep(SYNC_S)
            sizes.append(size_of(tmp_path / "server"))
        assert largest > 20_000_000
        assert max(sizes) < 10_000_000  # the last block is not compacted
        assert (await log.audit()).losses == ()
