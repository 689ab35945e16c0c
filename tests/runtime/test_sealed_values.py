"""Sealed values: what is stored is unreadable without the key, and with an erased one everywhere (W58 to W60)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from foldlog.adapters.archive import ObjectArchive
from foldlog.eventlog import (
    ConfigError,
    KeyErased,
    KeyMissing,
    Log,
    LogCorrupted,
    MemoryLog,
    RunCancelled,
    RunOpen,
    Shard,
)
from foldlog.eventlog.commits import decode
from foldlog.eventlog.events import Submitted, Text, ToolCall, Usage
from foldlog.eventlog.offload import references
from foldlog.eventlog.sealing import HeldKeys, KeyRecord, SealedLog, generated, sealed_log, wrapper_at
from foldlog.eventlog.sealing.cipher import Cipher, is_sealed
from foldlog.eventlog.sealing.keyring import Added, owner_of
from foldlog.replay import check_log, check_trace, export, import_archive, load_trace, read_archive, replay
from foldlog.runtime import Agent, File, Registry, RunHandle, Runtime, Schedule, tool
from foldlog.runtime.burying.erased_keys import erase_key
from foldlog.runtime.driving.host import Host
from foldlog.runtime.executors.starting import WorkerStarter
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.triggers.firing import START_ATTEMPTS, Firing

from .conftest import HeldTool, Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
WORDS = "the-secret-words"
LARGE = "much-of-the-secret " * 4_000
KEY, NEXT, OTHER = b"k" * 32, b"n" * 32, b"o" * 32


def wrapper(*keys: bytes) -> HeldKeys:
    return HeldKeys(keys or (KEY,), "env:SEAL")


@pytest.fixture
async def sealed(log: Log, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Both executors on both logs, whose content is sealed, with the checks of every place."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(await sealed_log(log, wrapper()), request.param, stack)
        yield place
        await place.check_rules()


@pytest.fixture
async def inside() -> AsyncIterator[Place]:
    """A worker on a sealed log in memory."""
    async with contextlib.AsyncExitStack() as stack:
        yield Place(SealedLog(MemoryLog(), wrapper()), "durable", stack)


both = pytest.mark.parametrize("sealed", ["local", "durable"], indirect=True)


@tool(effect="pure")
async def tell(what: str) -> str:
    """Tell much."""
    return f"{what} {LARGE}"


def teller(script: Script) -> Agent[Any]:
    return Agent(
        "teller", model=script(calls(call("tell", what=WORDS)), says(f"it is {WORDS}")), tools=[tell]
    )


async def ended(place: Place, agent: Any, text: str = WORDS, **options: Any) -> RunHandle[Any]:
    run = await place.start(agent, text, **options)
    await run.result()
    return run


async def commits_of(log: Log) -> list[bytes]:
    return [s.data for shard in range(log.events.shards) async for s in log.events.read(Shard(shard))]


async def stored_bytes(log: Log, but: str = "") -> bytes:
    """All that the log has of its runs: commits, artifacts that they name, snapshots and keys of submissions.

    Without those of the root run `but`.
    """
    found = [data for data in await commits_of(log) if decode(data).root != but]
    inner = log.inner if isinstance(log, SealedLog) else log
    for digest in [digest for data in found for digest in references(decode(data).events)]:
        found += [await inner.artifacts.find(digest)]
    if isinstance(inner, MemoryLog):
        found += [*inner.snapshots.kept.values()]
        found += [data for family in inner.artifacts._families.values() for data in family.values()]
    for shard in range(log.events.shards):
        found += [each.data async for each in log.events.heads(shard, "key")]
    return b"".join(found)


@both
async def test_no_word_is_stored_in_clear_and_callers_see_no_difference(
    sealed: Place, script: Script
) -> None:
    agent = teller(script)
    runtime = await sealed.open(agent)
    content: Any = [WORDS, File(media_type="text/plain", data=WORDS.encode() * 9, name="secret.txt")]
    run = await ended(sealed, agent, content, user="ada", idempotency_key="once")
    assert (await run.result()).output == f"it is {WORDS}"
    events = await sealed.events(run)
    assert WORDS in next(e.arguments["what"] for e in events if isinstance(e, ToolCall))
    assert not any(event.sealed for event in events)
    assert (await sealed.start(agent, content, user="ada", idempotency_key="once")).run_id == run.run_id
    raw = await stored_bytes(sealed.log)
    assert b"secret" not in raw
    stored = [event for data in await commits_of(sealed.log) for event in decode(data).events]
    (row,) = await (await runtime.index()).runs()
    assert (row.input, row.user, row.status, row.steps) == ("(sealed)", "ada", "completed", 2)
    texts = [event for event in stored if isinstance(event, Text)]
    assert [(event.text, event.sealed is not None, event.step) for event in texts] == [("", True, 2)]
    assert all(event.usage.total_tokens for event in stored if isinstance(event, Usage))


@both
async def test_an_erased_key_makes_runs_unreadable_and_leaves_their_outside(
    sealed: Place, script: Script
) -> None:
    agent = teller(script)
    runtime = await sealed.open(agent)
    assert isinstance(sealed.log, SealedLog)
    run, kept = (
        await ended(sealed, agent, user="ada", session="s"),
        await ended(sealed, agent, user="bob", session="s"),
    )
    fork = await sealed.fork(run, at=(await run.state()).head.rev - 3, tools="run")
    await fork.result()
    sealed._started.pop(run.run_id), sealed._started.pop(fork.run_id)
    receipt = await erase_key(sealed.log, await runtime.index(), "user:ada", "eve", "asked")
    assert receipt is not None
    assert (receipt.owner, receipt.by, receipt.wrapped_by) == ("user:ada", "eve", wrapper().name)
    assert run.run_id in receipt.runs
    assert await erase_key(sealed.log, await runtime.index(), "user:ada") is None
    for gone in (run, fork):
        with pytest.raises(KeyErased, match=r"made unreadable on .* by eve"):
            await gone.result()
        with pytest.raises(KeyErased):
            await sealed.events(gone)
    rows = {row.run_id: row for row in await (await runtime.index()).runs()}
    assert rows[run.run_id].status == "completed"
    assert rows[run.run_id].usage == rows[kept.run_id].usage
    assert (await kept.result()).output == f"it is {WORDS}"
    checked = await check_log(sealed.log)
    assert (checked.families, checked.missing, checked.open) == (3, (), ())
    again = await ended(sealed, agent, user="ada", session="s")
    assert (await again.result()).output == f"it is {WORDS}"


async def test_a_session_goes_on_without_the_turns_that_nobody_can_read(
    inside: Place, script: Script
) -> None:
    agent = Agent("chat", model=script(says("one")))
    runtime = await inside.open(agent)
    assert isinstance(inside.log, SealedLog)
    first, second = (
        await ended(inside, agent, session="s"),
        await ended(inside, agent, user="bob", session="s"),
    )
    assert await erase_key(inside.log, await runtime.index(), "session:s") is not None
    third = await ended(inside, agent, user="bob", session="s")
    history = await runtime.history("s")
    assert [turn.run for turn in history.turns] == [second.run_id, third.run_id]
    with pytest.raises(KeyErased):
        await first.state()


async def test_a_key_is_not_erased_while_a_run_needs_it(inside: Place, script: Script) -> None:
    held = HeldTool()
    agent = Agent("waiter", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    runtime = await inside.open(agent)
    assert isinstance(inside.log, SealedLog)
    run = await inside.start(agent, user="ada")
    await held.entered.wait()
    with pytest.raises(RunOpen):
        await erase_key(inside.log, await runtime.index(), "user:ada")
    held.let_go.set()
    assert (await run.result()).output == "done"


async def test_a_run_whose_key_was_erased_meanwhile_is_cancelled_by_the_worker_that_finds_it(
    inside: Place, script: Script
) -> None:
    agent = Agent("chat", model=script(says("one")))
    await inside.open(agent, workers=0)
    assert isinstance(inside.log, SealedLog)
    run = await inside.start(agent, WORDS, user="ada")
    assert await inside.log.ring.erase("user:ada")
    await inside.add_worker("late")
    with pytest.raises((RunCancelled, KeyErased)):
        await run.result()
    rows = await (await inside.runtime.index()).runs()
    assert [(row.status, row.run_id) for row in rows] == [("cancelled", run.run_id)]


async def test_a_process_without_the_key_says_so_and_loses_nothing(script: Script) -> None:
    log = MemoryLog()
    agent = Agent("chat", model=script(says(WORDS)))
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry, seal=wrapper()) as runtime:
        run_id = (await runtime.run(agent, WORDS, user="ada")).run_id
    for strange in (None, wrapper(OTHER)):
        async with Runtime.open(log=log, registry=registry, seal=strange) as runtime:
            for attempt in (runtime.get_run(run_id).state(), runtime.run(agent, WORDS, user="ada")):
                with pytest.raises(KeyMissing, match="wrapp"):
                    await attempt
            assert [row.run_id for row in await (await runtime.index()).runs()] == [run_id]
    async with Runtime.open(log=log, registry=registry, seal=wrapper()) as runtime:
        assert (await runtime.get_run(run_id).state()).output == WORDS


async def test_a_worker_without_the_key_leaves_the_run_to_one_that_has_it(script: Script) -> None:
    log = MemoryLog(ack_wait_s=5.0)
    agent = Agent("chat", model=script(says(WORDS)))
    async with contextlib.AsyncExitStack() as stack:
        able = Place(SealedLog(log, wrapper()), "durable", stack)
        await able.open(agent, workers=0)
        unable = Place(SealedLog(log, wrapper(OTHER)), "durable", stack)
        await unable.open(agent, workers=0)
        run = await able.start(agent, WORDS, user="ada")
        with pytest.raises(KeyMissing):
            await Journal(unable.log, await able.runtime.locate(run.run_id)).load()
        await able.add_worker("able")
        assert (await run.result()).output == WORDS


async def test_a_process_that_was_open_before_the_first_key_stores_nothing_more_in_clear(
    script: Script,
) -> None:
    log = MemoryLog()
    agent = Agent("chat", model=script(says(WORDS)))
    registry = Registry(agents=[agent])
    async with (
        Runtime.open(log=log, registry=registry) as early,
        Runtime.open(log=log, registry=registry, seal=wrapper()) as runtime,
    ):
        before = await early.run(agent, "hello", user="ada")
        sealed = await runtime.run(agent, WORDS, user="ada")
        for submitting in (
            early.run(agent, WORDS, user="ada"),
            early.run(agent, WORDS, idempotency_key="k"),
            early.fork(before.run_id, at=3, input=WORDS, executor="local"),
        ):
            with pytest.raises(KeyMissing, match="has sealed values since this process opened it"):
                await submitting
        with pytest.raises(KeyMissing):
            await early.get_run(sealed.run_id).state()
        assert (await early.get_run(before.run_id).state()).output == WORDS
        assert WORDS.encode() not in await stored_bytes(log, but=before.run_id)


async def test_a_time_of_a_schedule_is_left_to_a_worker_that_has_the_key(script: Script) -> None:
    log = MemoryLog()
    agent = Agent("chat", model=script(says(WORDS)))
    async with contextlib.AsyncExitStack() as stack:
        able = Place(SealedLog(log, wrapper()), "durable", stack)
        runtime = await able.open(agent, workers=0)
        await runtime.schedules.apply(Schedule("daily", "chat", every="1d", input=WORDS))
        await runtime.schedules.trigger("daily")
        strange = Host(log=SealedLog(log, None), registry=runtime.registry, worker="strange")
        async with log.wakeups.pull(frozenset({"chat"})) as deliveries:
            delivery = await anext(aiter(deliveries))
            with pytest.raises(KeyMissing):
                await Firing(strange.log, WorkerStarter(strange)).judge(
                    msgspec.structs.replace(delivery, attempt=START_ATTEMPTS)
                )
            await log.wakeups.nak(delivery.token)
        await able.add_worker("able")
        async with asyncio.timeout(120), contextlib.aclosing(runtime.follow()) as events:
            assert await anext(event.is_end async for event in events if event.is_end)
        counts = (await runtime.schedules.get("daily")).counts
        assert counts.skipped == 0


async def test_after_a_rotation_the_old_wrapping_key_is_needed_no_longer(
    inside: Place, script: Script
) -> None:
    agent = Agent("chat", model=script(says(WORDS)))
    await inside.open(agent)
    assert isinstance(inside.log, SealedLog)
    run = await ended(inside, agent, user="ada")
    during = SealedLog(inside.log.inner, wrapper(NEXT, KEY))
    assert (await during.ring.rotate(), await during.ring.rotate()) == (1, 0)
    subject = await inside.runtime.locate(run.run_id)
    assert (await Journal(SealedLog(inside.log.inner, wrapper(NEXT)), subject).load()).output == WORDS
    with pytest.raises(KeyMissing, match="is wrapped by the key"):
        await Journal(SealedLog(inside.log.inner, wrapper(KEY)), subject).load()


async def test_an_export_is_sealed_and_reads_where_its_keys_are(inside: Place, script: Script) -> None:
    agent = teller(script)
    await inside.open(agent)
    assert isinstance(inside.log, SealedLog)
    run = await ended(inside, agent, user="ada")
    data = b"".join([line async for line in export(inside.log, run.run_id, artifacts=True)])
    archive = read_archive(data)
    assert all(is_sealed(content) for content in archive.artifacts.values())
    assert b"secret" not in data + b"".join(archive.artifacts.values())
    with pytest.raises(KeyMissing):
        archive.trace()
    elsewhere = MemoryLog()
    await import_archive(archive, elsewhere)
    there = SealedLog(elsewhere, wrapper())
    with pytest.raises(KeyMissing, match="which namespace 'default' does not have"):
        await load_trace(there, run.run_id)
    exported = [record async for record in inside.log.ring.records()]
    assert await there.ring.add(exported) == Added(1)
    trace = await load_trace(there, run.run_id)
    assert check_trace(trace, ended=True) == []
    assert replay(trace).divergence is None
    assert await there.ring.erase("user:ada")
    assert await there.ring.add(exported) == Added(0)
    assert await inside.log.ring.add([record async for record in there.ring.records()]) == Added(
        0, ("user:ada",)
    )
    with pytest.raises(KeyErased):
        await load_trace(there, run.run_id)


async def test_an_archived_run_reads_with_its_key_and_is_a_loss_of_words_without(
    inside: Place, script: Script, tmp_path: Path
) -> None:
    agent = teller(script)
    runtime = await inside.open(agent)
    assert isinstance(inside.log, SealedLog)
    run, bad = await ended(inside, agent, user="ada"), await ended(inside, agent, user="bob")
    url = (tmp_path / "archive").as_uri()
    assert await inside.log.ring.erase("user:bob")
    receipt = await runtime.archive(run.run_id, bad.run_id, to=url)
    assert {erased.run_id for erased in receipt.erased} == {run.run_id, bad.run_id}
    assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "archive").iterdir())
    assert (await runtime.get_run(run.run_id).state()).output == f"it is {WORDS}"
    with pytest.raises(KeyErased):
        await runtime.get_run(bad.run_id).state()
    fork = await runtime.fork(run.run_id, at=3, tools="run", executor="durable")
    assert (await fork.result()).output == f"it is {WORDS}"
    assert len([each async for each in ObjectArchive(url).list()]) == 2


async def test_content_of_before_the_opt_in_stays_readable(script: Script) -> None:
    log = MemoryLog()
    agent = Agent("chat", model=script(says(WORDS)))
    async with Runtime.open(log=log) as runtime:
        before = await runtime.run(agent, WORDS, user="ada")
    async with Runtime.open(log=log, seal=wrapper()) as runtime:
        assert (await runtime.get_run(before.run_id).state()).output == WORDS
        sealed = await runtime.run(agent, WORDS, user="ada")
        assert (await runtime.get_run(sealed.run_id).state()).output == WORDS


async def test_a_word_that_looks_sealed_is_a_word(inside: Place, script: Script) -> None:
    agent = Agent("chat", model=script(says('{"$sealed": 1}')))
    await inside.open(agent)
    assert (
        await (await ended(inside, agent, '{"sealed": {"key": "x"}}')).result()
    ).output == '{"$sealed": 1}'


def test_sealed_bytes_open_only_for_their_key_and_place() -> None:
    one, two = Cipher("a.1", KEY), Cipher("a.1", OTHER)
    data = one.seal(b"words", "root")
    assert one.open(data, "root") == b"words"
    assert one.seal(b"words", "root") != data
    assert one.seal(b"words", "d", alike=True) == one.seal(b"words", "d", alike=True)
    assert is_sealed(data)
    assert not is_sealed(data[:-1])
    for cipher, place in ((two, "root"), (one, "other")):
        with pytest.raises(ValueError, match="altered"):
            cipher.open(data, place)


def test_the_key_of_a_run_is_its_users_else_its_sessions_else_its_own() -> None:
    def submitted(**fields: Any) -> Submitted:
        return Submitted(kind="agent", config={}, config_digest="", input="", input_digest="", **fields)

    assert owner_of(submitted(user="ada", session="s"), "r") == "user:ada"
    assert owner_of(submitted(metadata={"memory": {"scope": {"user_id": "ada"}}}), "r") == "user:ada"
    assert owner_of(submitted(session="s"), "r") == "session:s"
    assert owner_of(submitted(), "r") == "run:r"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("env:FOLDLOG_NO_SUCH", "FOLDLOG_NO_SUCH, which holds the wrapping key, is not set"),
        ("file:/no/such/file", "cannot be read: No such file"),
        ("env:PATH", "PATH holds something that is not a wrapping key"),
        ("vault:x", "is env:NAME, file:PATH or kms:NAME, not 'vault:x'"),
        ("env:", "is env:NAME"),
    ],
)
def test_a_source_of_keys_that_cannot_be_used_is_named_with_its_fault(source: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        wrapper_at(source)


def test_a_file_may_hold_the_keys_of_a_rotation(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{generated()}\n{generated()}\n")
    assert len(wrapper_at(f"file:{file}")._keys) == 2  # type: ignore[attr-defined]


def test_a_record_of_keys_says_nothing_of_the_key() -> None:
    record = KeyRecord(owner="user:ada")
    assert msgspec.json.decode(msgspec.json.encode(record))["key"] is None


async def test_a_replica_that_lags_behind_a_submission_is_read_again_and_not_taken_for_damage(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, agent = MemoryLog(), teller(script)
    first, second = (SealedLog(inner, wrapper()) for _ in range(2))
    async with Runtime.open(log=first, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, WORDS)
        await run.result(timeout_s=30)
    read, lags = inner.events.read, [True]  # from here on nobody else reads or sleeps

    async def nothing() -> AsyncIterator[Any]:
        return
        yield

    async def caught_up(_: float) -> None:
        lags[0] = False

    monkeypatch.setattr(inner.events, "read", lambda *at: nothing() if lags[0] else read(*at))
    monkeypatch.setattr(inner.clock, "sleep", caught_up)
    cipher = await second.sealed_artifacts.of(run.run_id).cipher()
    assert not lags[0]
    assert cipher.id == (await first.sealed_artifacts.of(run.run_id).cipher()).id
    with pytest.raises(LogCorrupted, match="its submission, which is missing"):
        await second.sealed_artifacts.of("00-none").cipher()
