"""Sealed values on a real server: what its files and a backup hold, before and after a key is erased (W58)."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from foldlog.eventlog import KeyErased, KeyMissing
from foldlog.eventlog.backup import restoring, take_backup
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.jetstream.wire import Wire
from foldlog.eventlog.sealing import HeldKeys, SealedLog
from foldlog.eventlog.sealing.keyring import Added, name_of
from foldlog.replay import check_log
from foldlog.runtime import Agent, Registry, Runtime, tool

from tests.jetstream.test_erasure import files_with, server_in, until_gone
from tests.runtime.conftest import call, calls, says, script

__all__ = ["script"]
Script = Callable[..., str]
WORDS = "the-secret-words"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EphemeralServer]:
    (tmp_path / "server").mkdir()
    async with server_in(tmp_path / "server") as server:
        yield server


@tool(effect="pure")
async def tell() -> str:
    """Tell much."""
    return f"{WORDS} " * 40_000


async def test_an_erased_key_is_in_no_file_of_the_server_and_a_backup_of_before_is_unreadable(
    server: EphemeralServer, tmp_path: Path, script: Script
) -> None:
    wrapper = HeldKeys((b"k" * 32,), "env:SEAL")
    agent = Agent("teller", model=script(calls(call("tell")), says(WORDS)), tools=[tell])
    async with Runtime.open(server.url, registry=Registry(agents=[agent]), seal=wrapper) as runtime:
        log = runtime.log
        assert isinstance(log, SealedLog)
        run_id = (await runtime.run(agent, WORDS, user="ada", run_id="first")).run_id
        _position, record = await log.keys.get(name_of("user:ada")) or (0, b"")
        wrapped = msgspec.json.decode(record)["key"]["data"]
        assert len(base64.b64decode(wrapped)) > 32
        assert files_with(tmp_path / "server", wrapped)
        wire = await Wire.open(server.url, inbox=Layout("default").inbox("client"), name="test")
        backup = await take_backup(wire, Layout("default"), log.events.shards, tmp_path / "backup")
        await wire.close()
        async with restoring(server.url, *backup, "again") as work:
            await work.finish()
        kept = [record async for record in log.ring.records()]
        assert await log.ring.rotate() == 0
        assert await log.ring.erase("user:ada", "ann", "asked")
        assert not await until_gone(tmp_path, wrapped)
        assert not files_with(tmp_path / "server", WORDS) + files_with(tmp_path / "backup", WORDS)
        with pytest.raises(KeyErased):
            await runtime.get_run(run_id).state()
        assert (await check_log(log)).missing == ()
        told = [record async for record in log.ring.records()]
        async with restoring(server.url, *backup, "later") as work:
            await work.finish()
        assert not files_with(tmp_path / "server", WORDS)
    async with Runtime.open(server.url, namespace="later", seal=wrapper) as runtime:
        assert isinstance(runtime.log, SealedLog)
        with pytest.raises(KeyMissing, match="its keys were not restored"):
            await runtime.get_run(run_id).state()
        assert (await runtime.log.ring.add(told), await runtime.log.ring.add(kept)) == (Added(1), Added(0))
        with pytest.raises(KeyErased, match="ann"):
            await runtime.get_run(run_id).state()
    async with JetStreamLog.open(server.url, namespace="again") as copy:
        assert not await copy.keys.in_use()
        assert (await check_log(copy)).runs == 1
        async with Runtime.open(log=copy, seal=wrapper) as runtime:
            with pytest.raises(KeyMissing, match="its keys were not restored"):
                await runtime.get_run(run_id).state()
            # What the documents name as left: keys that were exported before, and the wrapping key of then.
            assert isinstance(runtime.log, SealedLog)
            assert await runtime.log.ring.add(kept) == Added(1)
            assert (await runtime.get_run(run_id).state()).output == WORDS
        async with Runtime.open(log=copy, seal=HeldKeys((b"n" * 32,), "env:SEAL")) as runtime:
            with pytest.raises(KeyMissing, match="is wrapped by the key"):
                await runtime.get_run(run_id).state()
