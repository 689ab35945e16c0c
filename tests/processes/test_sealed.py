"""Sealed runs in real workers that are killed: they are taken over by the key, and not without it (W58, W59, W60)."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from foldlog.eventlog import CancelRequested, KeyErased, McpProgress, RunCancelled, Shard
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.sealing import SealedLog, generated
from foldlog.replay import compare
from foldlog.runtime import RunHandle

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Nursery, Place, Process, stored, undisturbed

WORDS = "the secret question"
ANSWER = "At last"


@pytest.fixture
async def place(
    server: EphemeralServer, nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    monkeypatch.setenv("SEAL_KEY", generated())
    monkeypatch.setenv("FOLDLOG_SEAL", "env:SEAL_KEY")
    async with Place(server.url, f"sealed-{tmp_path.name[-8:]}", tmp_path, nursery).opened() as place:
        yield place


async def worker(place: Place) -> Process:
    return await place.worker(SEAL_KEY=os.environ["SEAL_KEY"], FOLDLOG_SEAL="env:SEAL_KEY")


async def started(place: Place) -> tuple[Process, RunHandle[str]]:
    """A worker, and a run of which it has called the tool."""
    victim = await worker(place)
    run = await place.runtime.start(workshop.waiter, WORDS, user="ada", executor="durable")
    await stored(run, McpProgress)
    return victim, run


async def test_a_sealed_run_of_a_killed_worker_goes_on_in_another_and_nothing_is_stored_in_clear(
    place: Place,
) -> None:
    victim, run = await started(place)
    victim.kill()
    await victim.gone()
    workshop.open_gate()
    await worker(place)
    assert (await run.result(timeout_s=PATIENCE_S)).output == ANSWER
    assert compare(await place.form(run), await undisturbed(workshop.waiter, WORDS), by="shape").equal
    shards = range(place.log.events.shards)
    kept = [each.data for shard in shards async for each in place.log.events.read(Shard(shard))]
    assert not any(words.encode() in data for data in kept for words in (WORDS, ANSWER))


async def test_a_run_whose_key_was_erased_after_its_worker_died_is_cancelled_by_the_next(
    place: Place,
) -> None:
    victim, run = await started(place)
    victim.kill()
    await victim.gone()
    assert isinstance(place.log, SealedLog)
    assert await place.log.ring.erase("user:ada", "eve", "asked")
    workshop.open_gate()
    await worker(place)
    await stored(run, CancelRequested)
    with pytest.raises((RunCancelled, KeyErased)):
        await run.result(timeout_s=PATIENCE_S)
    (row,) = await place.runtime.list_runs()
    assert (row.status, row.input) == ("cancelled", "(sealed)")
    assert workshop.read_diary().count(ANSWER) == 0
