"""Archives in a directory, in memory and in S3 (moto, on loopback): what is kept is what the log had, once."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from foldlog.adapters.archive import ObjectArchive
from foldlog.adapters.archive.store import family_digest
from foldlog.eventlog import ConfigError, RunGone
from foldlog.eventlog.faults import Crash, CrashAt, FaultyLog
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import check_trace, replay
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.burying.bury import Order, bury
from foldlog.runtime.burying.family import read_family
from foldlog.runtime.ports.archives import ArchiveUnavailable, archive_at
from foldlog.runtime.ports.models import Finished, ModelRequest, TextDelta

from tests.fakes.object_store import s3_server

pytestmark = pytest.mark.anyio
LARGE = "much of it " * 5_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as environ, pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        yield "s3://bucket/foldlog"


@pytest.fixture(params=["file", "memory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    return f"file://{tmp_path}/archive" if request.param == "file" else f"memory://{tmp_path.name}"


class Echo:
    """Answers with the input, after a call of `tell`."""

    def check(self, model: str) -> None:
        pass

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        yield TextDelta(text=f"it is {request.messages[-1].content[:40]}")
        yield Finished(reason="stop")

    async def aclose(self) -> None:
        pass


@tool(effect="pure")
async def tell() -> str:
    """Tell much."""
    return LARGE


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[tuple[Runtime, Agent[Any]]]:
    agent = Agent("echo", model="echo:1", tools=[tell])
    registry = Registry(agents=[agent], providers={"echo": Echo()})
    async with Runtime.open(log=MemoryLog(), registry=registry) as rt:
        yield rt, agent


async def test_an_archived_run_is_read_from_its_copy(url: str) -> None:
    async with opened() as (rt, agent):
        run = await rt.start(agent, LARGE, session="s")
        await run.result()
        live = [event async for event in run.stream()]
        state, history = await run.state(), await run.history()
        subject = await rt.locate(run.run_id)
        receipt = await rt.archive(run.run_id, to=url, by="ann")
        (erased,) = receipt.erased
        assert (erased.how, erased.url.rpartition("/")[0]) == ("archived", url)
        assert len([s async for s in rt.log.events.read(subject)]) == 1

        again = rt.get_run(run.run_id, agent)
        assert [event async for event in again.stream()] == live
        assert [message.content for message in await again.history()] == [m.content for m in history]
        assert (await again.state()).messages_digest == state.messages_digest
        assert (await again.result()).output == (await rt.get_run(run.run_id).result()).output
        assert await again.cancel() == "already_completed"
        copy = await archive_at(url).read(erased.url)
        trace = copy.trace()  # type: ignore[attr-defined]
        assert (check_trace(trace, ended=True), replay(trace).divergence) == ([], None)
        fork = await rt.fork(run.run_id, at=state.head.rev - 3)
        assert (await fork.result()).output.startswith("it is ")
        row = await (await rt.index()).run(run.run_id)
        assert (row.buried, row.url) == ("archived", erased.url)
        assert (await rt.history("s")).turns == ()
        with pytest.raises(RunGone, match=f"its copy is {erased.url}"):
            await run.inject("more")

        found = [each async for each in archive_at(url).list()]
        assert [(each.run_id, each.digest, each.url) for each in found] == [
            (run.run_id, erased.digest, erased.url)
        ]
        gone = await rt.delete(run.run_id, archive=url)
        assert [(copy.kind, copy.at, copy.erased) for copy in gone.copies] == [("archive", erased.url, True)]
        with pytest.raises(RunGone, match=f"its copy {erased.url} is not there any more"):
            await rt.get_run(run.run_id).state()
        assert [each async for each in archive_at(url).list()] == []


async def test_a_copy_is_created_once_and_compared_whoever_was_first(url: str) -> None:
    async with opened() as (rt, agent):
        run = await rt.start(agent, "question")
        await run.result()
        root = await rt.locate(run.run_id)
        digest, store = (await read_family(rt.log, root)).digest, ObjectArchive(url)
        first = await store.keep(rt.log, root, digest)
        assert await store.keep(rt.log, root, digest) == first
        other = await rt.start(agent, "other")
        await other.result()
        found = await obstore.get_async(store._store, first.rpartition("/")[2])
        data = bytes(await found.bytes_async())
        there = await rt.locate(other.run_id)
        name = f"{other.run_id}-{(await read_family(rt.log, there)).digest}.jsonl.gz"
        await obstore.put_async(store._store, name, data)
        with pytest.raises(ArchiveUnavailable, match="holds something else"):
            await store.keep(rt.log, there, (await read_family(rt.log, there)).digest)
        assert await rt.get_run(other.run_id).status() == "completed"


async def test_what_was_cut_or_altered_in_an_archive_is_found(url: str) -> None:
    async with opened() as (rt, agent):
        run = await rt.start(agent, "question")
        await run.result()
        root = await rt.locate(run.run_id)
        store = ObjectArchive(url)
        kept = await store.keep(rt.log, root, (await read_family(rt.log, root)).digest)
        name = kept.rpartition("/")[2]
        found = await obstore.get_async(store._store, name)
        whole = bytes(await found.bytes_async())
        text = gzip.decompress(whole)
        for data in (
            whole[:-20],
            b"nothing",
            gzip.compress(text.replace(b"question", b"answer..")),
            gzip.compress(b"{}"),
        ):
            await obstore.put_async(store._store, name, data)
            with pytest.raises(Exception, match=r"damaged|cut off|not an?"):
                await store.read(kept)
        await obstore.put_async(store._store, name, whole)
        assert family_digest(await store.read(kept)) == (await read_family(rt.log, root)).digest
        with pytest.raises(KeyError):
            await store.read(kept.replace(run.run_id, "nobody"))


async def test_nothing_is_erased_if_the_archive_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    async with opened() as (rt, agent):
        run = await rt.start(agent, "question")
        await run.result()
        with pytest.raises(ArchiveUnavailable, match="taken"):
            await rt.archive(run.run_id, to=f"file://{tmp_path}/taken")
        for url in ("nowhere", "ftp://host/path", "file://", ""):
            with pytest.raises(ConfigError):
                await rt.archive(run.run_id, to=url or "://")
        assert await run.status() == "completed"


async def test_a_copy_in_another_archive_is_told_as_left_by_the_receipt_of_what_was_erased() -> None:
    async with opened() as (rt, agent):
        for name in ("first", "second"):
            run = await rt.start(agent, "question", run_id=name, user="ada")
            await run.result()
            receipt = await rt.delete(user="ada", archive=f"memory://{name} archive")
        assert [(each.run_id, each.before) for each in receipt.erased] == [("first", True), ("second", False)]
        (left,) = receipt.left
        assert (left.kind, left.of, left.at.partition("/first-")[0]) == (
            "archive",
            "first",
            "memory://first archive",
        )


async def test_a_reaper_that_dies_on_its_way_leaves_the_run_or_its_copy() -> None:
    async with opened() as (rt, agent):
        store = ObjectArchive("memory://crashes")
        number, crashed = 0, True
        while crashed:
            number += 1
            run = await rt.start(agent, "question")
            await run.result()
            root = await rt.locate(run.run_id)
            faulty = FaultyLog(rt.log, [CrashAt(number, after=number % 2 == 0)])

            async def keep(root: Any, digest: str, log: Any = faulty) -> str:
                return await store.keep(log, root, digest)

            crashed = False
            try:
                await bury(faulty, root, Order(), keep)
            except Crash:
                crashed = True
            assert (await rt.get_run(run.run_id).history())[-1].content == "it is question"
            await bury(rt.log, root, Order(), lambda root, digest: store.keep(rt.log, root, digest))
            assert len([s async for s in rt.log.events.read(root)]) == 1
            assert (await rt.get_run(run.run_id).history())[-1].content == "it is question"
        assert number > 15
