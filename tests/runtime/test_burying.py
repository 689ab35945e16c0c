"""Erasing runs: what is gone, what stays, and what callers, keys, sessions and lists see (R35, W48 to W53)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import (
    Buried,
    ConfigError,
    Family,
    Log,
    RunCancelled,
    RunGone,
    RunNotFound,
    RunOpen,
    RunPurged,
    Shard,
    Subject,
    decode,
)
from foldlog.eventlog.conformance.suite import everything
from foldlog.eventlog.faults import Crash, CrashAt, FaultyLog
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.names import lane_subject
from foldlog.projections.projector import RunIndex
from foldlog.runtime import Agent, RunHandle, ToolContext, tool
from foldlog.runtime.burying.bury import Order, bury
from foldlog.runtime.core.submission import lane_of

from .conftest import HeldTool, Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
WORDS = "the-secret-of-" + "x" * 50
LARGE = "much-of-the-secret " * 4_000


@pytest.fixture
async def durable(log: Log) -> AsyncIterator[Place]:
    """Workers on a log of either kind. Runs that were erased are not checked: there is nothing left to check."""
    async with contextlib.AsyncExitStack() as stack:
        yield Place(log, "durable", stack)


@pytest.fixture
async def inside() -> AsyncIterator[Place]:
    """Workers on a log in memory."""
    async with contextlib.AsyncExitStack() as stack:
        yield Place(MemoryLog(), "durable", stack)


@tool(effect="pure")
async def tell() -> str:
    """Tell much."""
    return LARGE


def teller(script: Script) -> Agent[Any]:
    return Agent("teller", model=script(calls(call("tell")), says(f"it is {WORDS}")), tools=[tell])


async def ended(place: Place, agent: Any, text: str = WORDS, **options: Any) -> RunHandle[Any]:
    run = await place.start(agent, text, **options)
    await run.result()
    return run


async def bytes_of(log: Log) -> bytes:
    """All commits of a log, of registers too as far as they can be selected."""
    return b"".join(
        [s.data for shard in range(log.events.shards) async for s in log.events.read(Shard(shard))]
    )


async def test_of_an_erased_run_there_is_a_tombstone_and_nothing_else(durable: Place, script: Script) -> None:
    runtime = await durable.open(teller(script))
    agent = durable.registry.agent("teller")
    run, other = await ended(durable, agent), await ended(durable, agent, "something else")
    subject = await runtime.locate(run.run_id)
    before = await everything(durable.log.events.read(subject))
    assert WORDS.encode() in await bytes_of(durable.log)
    receipt = await runtime.delete(run.run_id, by="ann", reason="request 7")

    (erased,) = receipt.erased
    assert (erased.run_id, erased.how, erased.commits) == (run.run_id, "deleted", len(before))
    (left,) = await everything(durable.log.events.read(Family(subject.shard, subject.root)))
    (tombstone,) = decode(left.data).events
    assert isinstance(tombstone, Buried)
    assert tombstone.revisions == decode(left.data).rev - 1
    assert (tombstone.digest, tombstone.members) == (erased.digest, [])
    assert WORDS.encode() not in left.data
    for digest in erased.artifacts:
        with pytest.raises(KeyError):
            await durable.log.artifacts.of(run.run_id).get(digest)
    assert erased.artifacts
    assert await durable.log.snapshots.get(run.run_id) is None
    assert [message.role for message in await other.history()][-1] == "assistant"


async def test_every_way_to_read_an_erased_run_says_how_and_when(inside: Place, script: Script) -> None:
    runtime = await inside.open(teller(script))
    agent = inside.registry.agent("teller")
    run = await ended(inside, agent, run_id="chosen")
    await runtime.delete(run.run_id, by="ann", reason="request 7")
    again = runtime.get_run(run.run_id)

    async def streamed() -> list[Any]:
        return [event async for event in again.stream()]

    for read in (
        again.state,
        again.status,
        again.result,
        again.history,
        again.pending,
        again.cancel,
        again.usage,
        streamed,
        functools.partial(again.inject, "more"),
        functools.partial(again.signal, "more"),
        functools.partial(runtime.fork, run.run_id, at=1),
        functools.partial(runtime.start, agent, WORDS, run_id="chosen", executor="durable"),
    ):
        with pytest.raises(RunGone, match=r"was deleted on .* by ann \(request 7\)") as gone:
            await read()
        assert (gone.value.run_id, gone.value.how, gone.value.url) == (run.run_id, "deleted", "")
    assert gone.value.at > 0


async def test_a_key_keeps_its_run_gone_and_is_forgotten_when_it_is_told_to(
    durable: Place, script: Script
) -> None:
    runtime = await durable.open(teller(script))
    agent, key = durable.registry.agent("teller"), {"idempotency_key": "invoice 7"}
    run = await ended(durable, agent, **key)
    await runtime.delete(run.run_id)
    for said in (WORDS, WORDS, "other words"):
        with pytest.raises(RunGone, match=run.run_id):
            await durable.start(agent, said, **key)
    subject = await runtime.locate(run.run_id)
    (stored,) = await everything(durable.log.events.read(subject))
    tombstone = decode(stored.data).events[0]
    assert isinstance(tombstone, Buried)
    shard, _, name = tombstone.key.partition(".")
    register = Subject(int(shard, 16), "key", "", name)
    records = await everything(durable.log.events.read(register))
    assert len(records) == 1
    assert WORDS.encode() not in records[0].data

    other = await ended(durable, agent, idempotency_key="invoice 8")
    await runtime.delete(other.run_id, keys_s=0)

    async def forgotten() -> bool:
        with contextlib.suppress(RunGone):
            fresh = await durable.start(agent, WORDS, idempotency_key="invoice 8")
            return bool(fresh.run_id != other.run_id)
        return False

    while not await forgotten():
        await durable.log.clock.sleep(0.05)


async def test_a_session_passes_over_what_was_erased(durable: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("answered")), memory={"scope": "session"})
    runtime = await durable.open(agent)
    runs = [await ended(durable, agent, f"question {number}", session="s") for number in range(4)]
    receipt = await runtime.delete(runs[1].run_id)
    assert {copy.at for copy in receipt.copies} == {runs[2].run_id, runs[3].run_id}
    assert {(copy.kind, copy.erased) for copy in receipt.copies} == {("memory", False)}
    history = await runtime.history("s")
    assert [turn.run for turn in history.turns] == [runs[n].run_id for n in (0, 2, 3)]
    assert history.purged == ()
    fifth = await ended(durable, agent, "question 5", session="s")
    said = [message.content for message in await fifth.history() if message.role == "user"]
    assert said == ["question 0", "question 2", "question 3", "question 5"]

    lane = lane_subject(lane_of("s"), durable.log.events.shards)
    before = len(await everything(durable.log.events.read(lane)))
    await runtime.delete(runs[0].run_id)
    after = len(await everything(durable.log.events.read(lane)))
    assert 0 < after < before
    history = await runtime.history("s")
    assert [turn.run for turn in history.turns] == [runs[2].run_id, runs[3].run_id, fifth.run_id]
    receipt = await runtime.delete(session="s")
    assert len(receipt.erased) == 5
    assert sum(each.before for each in receipt.erased) == 2
    assert (await runtime.history("s")).turns == ()
    last = await ended(durable, agent, "question 6", session="s")
    assert [turn.run for turn in (await runtime.history("s")).turns] == [last.run_id]


async def test_an_open_run_is_refused_by_its_name_and_nothing_is_erased(
    inside: Place, script: Script
) -> None:
    asking = Agent(
        "asking", model=script(calls(call("tell")), says("done")), tools=[tell], hitl_tools=["tell"]
    )
    runtime = await inside.open(asking, teller(script))
    done = await ended(inside, inside.registry.agent("teller"), user="u")
    waiting = await inside.start(asking, WORDS, user="u")
    while await waiting.status() != "paused":
        await inside.log.clock.sleep(0.01)
    with pytest.raises(RunOpen, match=f"run {waiting.run_id} is open"):
        await runtime.delete(done.run_id, waiting.run_id)
    assert await done.status() == "completed"
    receipt = await runtime.delete(user="u")
    assert [each.run_id for each in receipt.erased] == [done.run_id]
    assert receipt.open == (waiting.run_id,)
    assert await waiting.status() == "paused"
    await waiting.cancel()
    assert [each.run_id for each in (await runtime.delete(user="u")).erased if not each.before] == [
        waiting.run_id
    ]


async def test_a_run_that_waits_calls_has_a_child_or_starts_later_is_refused_by_its_name(
    inside: Place, script: Script
) -> None:
    @tool(effect="pure")
    async def doze(context: ToolContext) -> str:
        await context.wait_for("wake")
        return "awake"

    held = HeldTool()
    dozing = Agent("dozing", model=script(calls(call("doze")), says("done")), tools=[doze])
    holding = Agent("holding", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    above = Agent(
        "above", model=script(calls(call("dozing", input="x")), says("done")), tools=[dozing.as_tool()]
    )
    runtime = await inside.open(dozing, holding, above)
    runs = [await inside.start(agent, user="u") for agent in (dozing, holding, above)]
    runs.append(await inside.start(dozing, user="u", at=datetime.now(UTC) + timedelta(hours=1)))
    await held.entered.wait()
    while await runs[0].status() != "paused":
        await inside.log.clock.sleep(0.01)
    for run in runs:
        with pytest.raises(RunOpen, match=f"run {run.run_id} is open"):
            await runtime.delete(run.run_id)
    assert set((await runtime.delete(user="u")).open) == {run.run_id for run in runs}
    for run in runs:
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout_s=60)
    assert {each.run_id for each in (await runtime.delete(user="u")).erased} == {run.run_id for run in runs}


async def test_whoever_reads_a_run_while_it_ends_and_is_erased_sees_its_end_or_that_it_is_gone(
    durable: Place, script: Script
) -> None:
    held = HeldTool()
    agent = Agent("holding", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    runtime = await durable.open(agent)
    run = await durable.start(agent)
    await held.entered.wait()
    erased, shown = asyncio.Event(), asyncio.Event()

    async def viewed(*, slowly: bool) -> bool:
        async for event in run.stream(detailed=True):
            shown.set()
            if slowly:
                await erased.wait()
            if event.is_end:
                return True
        return False

    async def resulted() -> bool:
        return (await runtime.get_run(run.run_id).result(timeout_s=60)).output == "done"

    reading = asyncio.gather(viewed(slowly=True), viewed(slowly=False), resulted(), return_exceptions=True)
    await shown.wait()
    held.let_go.set()
    await run.result(timeout_s=60)
    await runtime.delete(run.run_id)
    erased.set()
    async with asyncio.timeout(60):
        seen = await reading
    assert [each for each in seen if each is not True and not isinstance(each, RunGone)] == []


@pytest.mark.parametrize(
    ("ids", "options", "named"),
    [
        ((), {}, "select what to erase"),
        (("a",), {"user": "u"}, "not both"),
        ((), {"user": "u", "keys_s": -1}, "keys_s"),
        ((), {"user": "u", "wen": 1}, "unknown option 'wen'"),
        ((), {"user": "u", "archive": "nowhere"}, "archive"),
    ],
)
async def test_a_selection_that_means_nothing_is_refused(
    inside: Place, script: Script, ids: tuple[str, ...], options: dict[str, Any], named: str
) -> None:
    runtime = await inside.open(teller(script))
    with pytest.raises(ConfigError, match=named):
        await runtime.delete(*ids, **options)


async def test_a_family_goes_as_a_whole_and_by_its_root(durable: Place, script: Script) -> None:
    inner = Agent("inner", model=script(says(f"inner {WORDS}")))
    outer = Agent(
        "outer",
        model=script(calls(call("inner", input=WORDS)), says("outer")),
        tools=[inner.as_tool()],
    )
    runtime = await durable.open(outer, inner)
    run = await ended(durable, outer)
    subject = await runtime.locate(run.run_id)
    index = await runtime.index()
    (child,) = [row.run_id for row in await index.runs(root_id=run.run_id) if row.parent]
    whole = (await index.totals([await index.run(run.run_id)]))[run.run_id]
    with pytest.raises(ConfigError, match=f"run {child} is below run {run.run_id}"):
        await runtime.delete(child)
    await runtime.delete(run.run_id)
    assert len(await everything(durable.log.events.read(Family(subject.shard, subject.root)))) == 1
    with pytest.raises(RunGone, match=child):
        await runtime.get_run(child).state()
    for rebuilt in (False, True):
        index = RunIndex(durable.log) if rebuilt else await runtime.index()
        row = await index.run(run.run_id)
        assert (row.status, row.buried, row.reason) == ("completed", "deleted", "deleted")
        total = (await index.totals([row]))[run.run_id]
        assert (total.usage, total.cost_usd, total.steps) == (whole.usage, whole.cost_usd, whole.steps)
        with pytest.raises(RunNotFound):
            await index.run(child)
        assert [each.run_id for each in await index.runs(buried=True)] == [run.run_id]
        assert await index.runs(buried=False) == []


async def test_forks_own_what_they_share_and_are_told_of(durable: Place, script: Script) -> None:
    runtime = await durable.open(teller(script))
    run = await ended(durable, durable.registry.agent("teller"))
    revision = (await run.state()).head.rev - 3
    fork = await durable.fork(run, at=revision, tools="run")
    await fork.result()
    said = [message.content for message in await fork.history()]
    dry = await runtime.delete(run.run_id, dry_run=True)
    assert [(copy.kind, copy.at, copy.erased) for copy in dry.copies] == [("fork", fork.run_id, False)]
    assert await run.status() == "completed"
    receipt = await runtime.delete(run.run_id)
    assert receipt.left == dry.copies
    assert [message.content for message in await fork.history()] == said
    third = await ended(durable, durable.registry.agent("teller"))
    second = await durable.fork(third, at=revision, tools="run")
    await second.result()
    receipt = await runtime.delete(third.run_id, with_copies=True)
    assert {each.run_id for each in receipt.erased} == {third.run_id, second.run_id}
    assert receipt.left == ()


async def test_projections_in_a_file_hold_nothing_of_what_was_erased(
    inside: Place, script: Script, tmp_path: Path
) -> None:
    asking = Agent(
        "asking",
        model=script(calls(call("keep", text=WORDS)), says("done")),
        tools=[keep],
        hitl_tools=["keep"],
    )
    runtime = await inside.open(asking)
    run = await inside.start(asking, "go", metadata={"note": WORDS})
    path = tmp_path / "index.sqlite3"
    index = RunIndex(inside.log, path)
    while not await index.approvals():
        await inside.log.clock.sleep(0.01)
    await run.resolve((await index.approvals())[0].approval_id, "rejected", note=WORDS)
    await run.result()
    await index.catch_up()
    assert WORDS.encode() in bytes_in(tmp_path)
    await runtime.delete(run.run_id)
    await index.catch_up()
    assert await index.approvals(pending=None) == []
    assert WORDS.encode() not in bytes_in(tmp_path)
    await index.aclose()
    assert WORDS.encode() not in bytes_in(tmp_path)


def bytes_in(directory: Path) -> bytes:
    """The bytes of all files of a database."""
    return b"".join(path.read_bytes() for path in directory.glob("index.sqlite3*"))


@tool
async def keep(text: str) -> str:
    """Keep a text."""
    return text


async def test_a_projection_goes_on_after_the_commit_it_had_folded_last_was_erased(
    inside: Place, script: Script
) -> None:
    runtime = await inside.open(teller(script))
    run = await ended(inside, inside.registry.agent("teller"))
    index = RunIndex(inside.log)
    await index.catch_up()
    await runtime.delete(run.run_id)
    assert (await index.run(run.run_id)).buried == "deleted"
    other = await ended(inside, inside.registry.agent("teller"))
    assert (await index.run(other.run_id)).status == "completed"


async def test_a_follower_of_all_runs_passes_over_tombstones(inside: Place, script: Script) -> None:
    runtime = await inside.open(teller(script))
    run = await ended(inside, inside.registry.agent("teller"))
    await runtime.delete(run.run_id)
    other = await ended(inside, inside.registry.agent("teller"))
    async with contextlib.aclosing(runtime.follow()) as events:
        async for event in events:
            assert event.run_id == other.run_id
            if event.is_end:
                break


async def count_of_operations(log: MemoryLog, root: Subject) -> int:
    faulty = FaultyLog(log)
    await bury(faulty, root, Order())
    return faulty.operations["*"]


async def test_a_reaper_may_die_at_any_operation_and_another_or_a_worker_completes_its_work(
    script: Script,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(), "durable", stack)
        runtime = await place.open(teller(script))
        agent = place.registry.agent("teller")
        probe = await ended(place, agent, idempotency_key="probe")
        operations = await count_of_operations(place.log, await runtime.locate(probe.run_id))
        assert operations > 10
        for number in range(1, operations + 1):
            for after in (False, True):
                key = f"{number}-{after}"
                run = await ended(place, agent, idempotency_key=key)
                root = await runtime.locate(run.run_id)
                with contextlib.suppress(Crash):
                    await bury(FaultyLog(place.log, [CrashAt(number, after=after)]), root, Order())
                last = await place.log.events.head(root)
                assert last is not None
                if isinstance(decode(last.data).events[-1], Buried):
                    with pytest.raises(RunGone):
                        await place.start(agent, WORDS, idempotency_key=key)
                else:
                    assert (await run.history())[-1].content == f"it is {WORDS}"
                await runtime.delete(run.run_id)
                assert len(await everything(place.log.events.read(Family(root.shard, root.root)))) == 1


async def test_a_worker_completes_a_purge_that_its_reaper_began(
    durable: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.runtime.burying.bury.PURGE_AFTER_S", 0.2)
    runtime = await durable.open(teller(script))
    run = await ended(durable, durable.registry.agent("teller"))
    root = await runtime.locate(run.run_id)
    with contextlib.suppress(Crash):
        await bury(FaultyLog(durable.log, [CrashAt(1, "events.purge")]), root, Order())
    while len(await everything(durable.log.events.read(Family(root.shard, root.root)))) > 1:
        await durable.log.clock.sleep(0.05)
    with pytest.raises(RunGone):
        await run.state()


async def test_a_stranger_who_purges_a_finished_run_is_found_and_wedges_nothing(
    script: Script, server: Any
) -> None:
    async with (
        JetStreamLog.open(server.url, namespace="stranger", request_timeout_s=30) as log,
        contextlib.AsyncExitStack() as stack,
    ):
        place = Place(log, "durable", stack)
        agent = Agent("helper", model=script(says("answered")), memory={"scope": "session"})
        runtime = await place.open(agent)
        kept = await ended(place, agent, "kept", session="t")
        run = await ended(place, agent, "first", session="s", idempotency_key="k")
        subject = await runtime.locate(run.run_id)
        await log._wire.api(
            f"STREAM.PURGE.{log._layout.shard(subject.shard)}",
            {"filter": log._layout.subject(subject).decode()},
            dict,
        )
        audit = await log.audit()
        assert [loss.shard for loss in audit.losses] == [subject.shard] * len(audit.losses)
        assert run.run_id in {missing.run for missing in audit.missing}
        with pytest.raises(RunPurged):
            await place.start(agent, "first", session="s", idempotency_key="k")
        second = await ended(place, agent, "second", session="s")
        assert [turn.run for turn in (await runtime.history("s")).turns] == [second.run_id]
        before = audit.losses
        await runtime.delete(kept.run_id)
        assert (await log.audit()).losses == before


async def test_an_audit_knows_what_was_erased_from_what_was_lost(script: Script, server: Any) -> None:
    async with (
        JetStreamLog.open(server.url, namespace="audited", request_timeout_s=30) as log,
        contextlib.AsyncExitStack() as stack,
    ):
        place = Place(log, "durable", stack)
        runtime = await place.open(teller(script))
        agent = place.registry.agent("teller")
        runs = [await ended(place, agent, session="s", idempotency_key=str(n)) for n in range(4)]
        for shard in range(log.events.shards):
            await log.events.sealer._seal(shard, 1)
        await runtime.delete(*(run.run_id for run in runs[:3]))
        assert await log.wakeups.sweep() > 0
        audit = await log.audit()
        assert (audit.losses, audit.missing) == ((), ())
    async with JetStreamLog.open(server.url, namespace="audited", request_timeout_s=30) as log:
        assert (await log.audit()).losses == ()
