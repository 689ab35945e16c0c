"""One key, one run: across deploys, across purges by hand, and in another log (W26)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import nats
import pytest
from foldlog.eventlog import Log, RunConflict, RunPurged
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Family, Shard
from foldlog.replay import read_archive
from foldlog.replay.traces.archive import export, import_archive
from foldlog.runtime import Agent, Registry, RunHandle, Runtime
from foldlog.runtime.journal import lanes

from .conftest import says

Script = Callable[..., str]


async def purge(log: Log, run: RunHandle[Any]) -> None:
    """Purge a run as `nats stream purge --subject` does."""
    subject = await run._runtime.locate(run.run_id)
    if isinstance(log, MemoryLog):
        for selector in (subject, Family(subject.shard, subject.root), Shard(subject.shard)):
            kept = [each for each in log.events._commits[selector] if each.subject != subject]
            log.events._commits[selector][:] = kept
        del log.events._runs[subject.shard, subject.id]
        return
    connection = await nats.connect(log._wire.url)  # type: ignore[attr-defined]
    stream, name = f"FL_{log.namespace}_{subject.shard:02x}", subject.id
    purged = await connection.jetstream().purge_stream(stream, subject=f"fl.*.*.run.{name}.{name}")
    assert purged
    await connection.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "PURGED_LOOKS", 2)


@pytest.fixture
async def runtime(log: Log) -> AsyncIterator[Runtime]:
    async with Runtime.open(log=log, registry=Registry()) as opened:
        yield opened


async def test_a_redelivery_after_a_deploy_with_another_prompt_finds_its_run(
    runtime: Runtime, script: Script
) -> None:
    agent = Agent("clerk", model=script(says("done")), instructions="Be brief.")
    run = await runtime.start(agent, "question", idempotency_key="k")
    await run.result()
    deployed = Agent("clerk", model=script(says("other")), instructions="Be kind.", max_steps=3)
    again = await runtime.start(deployed, "question", idempotency_key="k")
    assert again.run_id == run.run_id
    assert (await again.result()).output == "done"
    with pytest.raises(RunConflict, match="with another input"):
        await runtime.start(deployed, "another", idempotency_key="k")
    with pytest.raises(RunConflict, match="with another agent"):
        await runtime.start(Agent("baker", model=script(says("x"))), "question", idempotency_key="k")


async def test_a_run_that_was_purged_does_not_start_again_under_its_key(
    log: Log, runtime: Runtime, script: Script
) -> None:
    agent = Agent("clerk", model=script(says("done")))
    run = await runtime.start(agent, "question", idempotency_key="k")
    await run.result()
    await purge(log, run)
    with pytest.raises(RunPurged, match=run.run_id) as gone:
        await runtime.start(agent, "question", idempotency_key="k")
    assert (gone.value.run_id, gone.value.key) == (run.run_id, "k")


async def test_a_key_whose_submitter_died_before_the_run_was_stored_starts_it(
    runtime: Runtime, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("clerk", model=script(says("done")))
    local = runtime.executor("local")
    submit = local.submit

    async def dies(*_: object) -> bool:
        monkeypatch.setattr(local, "submit", submit)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "submit", dies)
    with pytest.raises(KeyboardInterrupt):
        await runtime.start(agent, "question", idempotency_key="k")
    run = await runtime.start(agent, "question", idempotency_key="k")
    assert (await run.result()).output == "done"


async def test_a_session_whose_last_run_was_purged_goes_on_and_names_what_is_missing(
    log: Log, runtime: Runtime, script: Script
) -> None:
    agent = Agent("clerk", model=script(says("done")))
    first = await runtime.start(agent, "one", session="s")
    await first.result()
    second = await runtime.start(agent, "two", session="s")
    await second.result()
    await purge(log, second)
    third = await runtime.start(agent, "three", session="s")
    assert (await third.result()).output == "done"
    history = await runtime.history("s")
    assert ([turn.run for turn in history.turns], history.purged) == (
        [first.run_id, third.run_id],
        (second.run_id,),
    )


async def test_an_open_run_that_was_purged_leaves_its_session_to_the_next(
    log: Log, runtime: Runtime, script: Script
) -> None:
    agent = Agent("clerk", model=script(says("done")))
    open_run = await runtime.start(agent, "one", session="s", executor="durable")
    waiting = await runtime.start(agent, "two", session="s", executor="durable")
    await purge(log, open_run)
    third = await runtime.start(agent, "three", session="s")
    assert (await waiting.pending()).behind == ()
    assert (await third.pending()).behind == (waiting.run_id,)
    assert (await runtime.history("s")).purged == (open_run.run_id,)


async def test_an_import_restores_keys_and_turns_of_finished_runs(script: Script) -> None:
    log, other = MemoryLog(), MemoryLog("other")
    agent = Agent("clerk", model=script(says("done")))
    async with contextlib.AsyncExitStack() as stack:
        here = await stack.enter_async_context(Runtime.open(log=log, registry=Registry()))
        there = await stack.enter_async_context(Runtime.open(log=other, registry=Registry()))
        runs = []
        for text in ("one", "two"):
            run = await here.start(agent, text, session="s", idempotency_key=text)
            await run.result()
            runs.append(run.run_id)
        archive = read_archive(b"".join([line async for line in export(log, artifacts=True)]))
        for _ in range(2):
            await import_archive(archive, other)
        assert [turn.run for turn in (await there.history("s")).turns] == runs
        assert (await there.start(agent, "one", session="s", idempotency_key="one")).run_id == runs[0]
        taken = MemoryLog("taken")
        elsewhere = await stack.enter_async_context(Runtime.open(log=taken, registry=Registry()))
        await elsewhere.start(agent, "one", session="s", idempotency_key="one")
        with pytest.raises(RunConflict, match="the key of run"):
            await import_archive(archive, taken)


async def test_a_run_that_was_purged_and_imported_again_is_found_by_its_key_and_its_session(
    script: Script,
) -> None:
    log = MemoryLog()
    agent = Agent("clerk", model=script(says("done")))
    async with Runtime.open(log=log, registry=Registry()) as runtime:
        run = await runtime.start(agent, "one", session="s", idempotency_key="k")
        await run.result()
        archive = read_archive(b"".join([line async for line in export(log, artifacts=True)]))
        await purge(log, run)
        assert (await runtime.history("s")).purged == (run.run_id,)
        await import_archive(archive, log)
        assert [turn.run for turn in (await runtime.history("s")).turns] == [run.run_id]
        assert (await runtime.start(agent, "one", session="s", idempotency_key="k")).run_id == run.run_id
