"""Snapshots: a load reads what is behind them, and nothing but the time it takes depends on one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from foldlog.eventlog import (
    Chain,
    ConfigError,
    Log,
    LogCorrupted,
    LogUnavailable,
    MemoryLog,
    Selector,
    Stored,
    Subject,
)
from foldlog.eventlog.faults import FaultyLog
from foldlog.eventlog.memory.snapshots import MemorySnapshots
from foldlog.projections.fold import fold_commit
from foldlog.projections.run_state import RunState
from foldlog.projections.snapshot import FOLD, decode_state, encode_state
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.driving.host import Host
from foldlog.runtime.journal.cancel import cancel_family
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.journal.snapshots import SNAPSHOT_EVENTS as DEFAULT_EVENTS

from tests.runtime.conftest import SNAPSHOT_EVENTS, call, calls, says

STEPS = 8
Script = Callable[..., str]


class CountedEvents:
    """`EventLog` that counts what is read of it, read by read."""

    def __init__(self, inner: Log) -> None:
        self._inner, self.shards = inner.events, inner.events.shards
        self.append, self.head = inner.events.append, inner.events.head
        self.find, self.follow = inner.events.find, inner.events.follow
        self.last_position = inner.events.last_position
        self.reads: list[int] = []

    async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        self.reads.append(0)
        number = len(self.reads) - 1
        async for stored in self._inner.read(selector, after):
            self.reads[number] += 1
            yield stored


class CountedLog(FaultyLog):
    """A log that counts what is read of it."""

    def __init__(self, inner: Log) -> None:
        super().__init__(inner)
        self.events: Any = CountedEvents(inner)

    @property
    def reads(self) -> list[int]:
        """Numbers of commits that the reads returned."""
        counted: list[int] = self.events.reads
        return counted


@tool(effect="pure")
async def look(at: int) -> str:
    """Look."""
    return f"saw {at}"


@tool(effect="unsafe")
async def deploy() -> str:
    """Deploy."""
    return "deployed"


def ops(script: Script, *last: dict[str, Any]) -> Agent[str]:
    """Looks often, deploys, and answers."""
    looks = [calls(call("look", f"c{n}", at=n)) for n in range(STEPS)]
    model = script(*looks, *(last or (calls(call("deploy", "d")), says("done"))))
    return Agent("ops", model=model, tools=[look, deploy], hitl_tools=["deploy"], max_steps=20)


def a_worker(log: Log, agent: Agent[str], name: str, events: int = SNAPSHOT_EVENTS) -> Worker:
    host = Host(log=log, registry=Registry(agents=[agent]), worker=name, snapshot_events=events)
    return Worker(host, grace_s=2.0)


async def a_parked_run(log: Log, agent: Agent[str]) -> Subject:
    """A run that a worker, gone by now, brought to its approval; and then it was told something."""
    worker = a_worker(log, agent, "first")
    serving = asyncio.create_task(worker.serve())
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
        subject = await runtime.locate(run.run_id)
        await Journal(log, subject).follow_until(lambda state: state.parked is not None)
        worker.stop()
        await serving
        await run.inject("hurry")
    return subject


async def folded(log: Log, subject: Subject, upto: int | None = None) -> RunState:
    """The state as the log says, with no snapshot; after the commit that holds the revision `upto`, if it is given."""
    state, chain = RunState(run=subject.id, root=subject.root), Chain()
    async for stored in log.events.read(subject):
        if upto is None or state.head.rev < upto:
            fold_commit(state, chain.verify(stored))
    return state


async def tail_of(log: Log, subject: Subject) -> int:
    """Return the number of commits of the run after its snapshot."""
    data = await log.snapshots.get(subject.id)
    snapshot = decode_state(data, subject) if data is not None else None
    assert snapshot is not None
    tail = [stored async for stored in log.events.read(subject, snapshot.head.position)]
    # One that is due while the last is still being stored is left out: on a busy machine the tail is longer.
    assert SNAPSHOT_EVENTS < STEPS * 2 < snapshot.head.rev + len(tail)
    return len(tail)


# --- on both logs -----------------------------------------------------------------------------------------------------


async def test_a_takeover_reads_the_tail_after_the_snapshot(log: Log, script: Script) -> None:
    agent = ops(script)
    subject = await a_parked_run(log, agent)
    tail, counted = await tail_of(log, subject), CountedLog(log)
    async with Runtime.open(log=counted, registry=Registry(agents=[agent])) as runtime:
        run = runtime.get_run(subject.id)
        state = await run.state()
        assert state == await folded(log, subject)
        await run.resolve(next(iter(state.approvals)), "approved")
        assert counted.reads == [tail + 1] * 2  # with the commit where the snapshot stands
        counted.reads.clear()
        worker = a_worker(counted, agent, "second")
        serving = asyncio.create_task(worker.serve())
        assert (await run.result()).output == "done"
        assert counted.reads[0] == tail + 2
        assert max(counted.reads) <= tail + SNAPSHOT_EVENTS + 2
        worker.stop()
        await serving
    journal = Journal(log, subject)
    assert await journal.load() == await folded(log, subject)
    assert journal.snapshot_rev > 0


async def test_a_cancel_reads_the_tail(log: Log, script: Script) -> None:
    subject = await a_parked_run(log, ops(script))
    tail, counted = await tail_of(log, subject), CountedLog(log)
    assert await cancel_family(counted, subject, "enough") == "cancelled"
    assert counted.reads == [tail + 1]


# --- a cache ----------------------------------------------------------------------------------------------------------


def of_other_code(data: bytes) -> bytes:
    return data.replace(FOLD.encode(), b"0" * len(FOLD))


def altered(data: bytes) -> bytes:
    return data.replace(b"saw 1", b"saw 2")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def empty(_: bytes) -> bytes:
    return b""


def no_text(_: bytes) -> bytes:
    return b'{"fold": "\xff"}'


def something_else(_: bytes) -> bytes:
    return b'{"fold": 1}'


def of_another_run(data: bytes) -> bytes:
    return changed(data, run="other")


def ahead_of_the_log(data: bytes) -> bytes:
    return moved(data, position=1_000_000)


def of_another_log(data: bytes) -> bytes:
    return moved(data, digest="0" * 64)


def out_of_step_with_the_tail(data: bytes) -> bytes:
    return moved(data, rev=3)


def moved(data: bytes, **changes: Any) -> bytes:
    return changed(data, head=msgspec.structs.replace(state_of(data).head, **changes))


def changed(data: bytes, **changes: Any) -> bytes:
    return encode_state(msgspec.structs.replace(state_of(data), **changes))


def state_of(data: bytes) -> RunState:
    return msgspec.convert(msgspec.json.decode(data)["state"], RunState)


DAMAGES = [
    *(of_other_code, altered, cut, empty, no_text, something_else),
    *(of_another_run, ahead_of_the_log, of_another_log, out_of_step_with_the_tail),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_snapshot_that_this_code_did_not_make_of_this_log_is_as_good_as_none(
    script: Script, damage: Callable[[bytes], bytes]
) -> None:
    log = MemoryLog()
    subject = await a_parked_run(log, ops(script))
    kept = log.snapshots.kept[subject.id]
    log.snapshots.kept[subject.id] = damage(kept)
    assert log.snapshots.kept[subject.id] != kept
    counted = CountedLog(log)
    journal = Journal(counted, subject)
    assert await journal.load() == await folded(log, subject)
    assert counted.reads[-1] == len(log.events.stored)
    assert journal.snapshot_rev == 0


async def test_without_its_snapshots_a_log_says_the_same(script: Script) -> None:
    log = MemoryLog()
    subject = await a_parked_run(log, ops(script))
    with_it = await Journal(log, subject).load()
    log.snapshots.kept.clear()
    assert await Journal(log, subject).load() == with_it


async def test_an_older_snapshot_in_the_place_of_a_newer_makes_the_tail_longer_and_nothing_else(
    script: Script,
) -> None:
    log = MemoryLog()
    subject = await a_parked_run(log, ops(script))
    older = await folded(log, subject, upto=SNAPSHOT_EVENTS)
    log.snapshots.kept[subject.id] = encode_state(older)
    journal = Journal(log, subject)
    assert await journal.load() == await folded(log, subject)
    assert journal.snapshot_rev == older.head.rev


async def test_a_damaged_tail_is_found_from_a_snapshot_too(script: Script) -> None:
    log = MemoryLog()
    subject = await a_parked_run(log, ops(script))
    commits = log.events._commits[subject]
    commits[-1] = msgspec.structs.replace(commits[-1], data=commits[-1].data.replace(b"hurry", b"worry"))
    with pytest.raises(LogCorrupted, match="do not match its checksum"):
        await Journal(log, subject).load()


# --- beside the driving -----------------------------------------------------------------------------------------------


async def test_a_short_run_costs_no_request_for_snapshots(script: Script) -> None:
    log, agent = FaultyLog(MemoryLog()), ops(script, says("done"))
    worker = a_worker(log, agent, "worker", DEFAULT_EVENTS)
    serving = asyncio.create_task(worker.serve())
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        for executor in ("durable", "local"):
            assert (await runtime.run(agent, "question", executor=executor)).output == "done"
    worker.stop()
    await serving
    assert [operation for operation in log.operations if operation.startswith("snapshots")] == []


async def test_no_snapshots_are_stored_if_none_are_wanted(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_SNAPSHOT_EVENTS", "0")
    log, agent = MemoryLog(), ops(script, says("done"))
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        await runtime.run(agent, "question")
    assert log.snapshots.kept == {}


class Unkept(MemorySnapshots):
    """Snapshots that are not to be had, each in its way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.asked = how, 0

    async def put(self, run: str, data: bytes) -> None:
        await self._fail()

    async def get(self, run: str) -> bytes | None:
        await self._fail()

    async def _fail(self) -> None:
        self.asked += 1
        if self.how == "away":
            raise LogUnavailable("the stream is gone")
        if self.how == "broken":
            raise RuntimeError("a bug")
        await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["away", "broken", "silent"])
async def test_a_run_goes_on_whatever_becomes_of_its_snapshots(
    script: Script, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_SNAPSHOT_EVENTS", str(SNAPSHOT_EVENTS))
    log, agent = MemoryLog(), ops(script, says("done"))
    log.snapshots = unkept = Unkept(how)
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        assert (await runtime.run(agent, "question")).output == "done"
    assert unkept.asked > 0


async def test_a_driver_that_leaves_a_run_stores_the_snapshot_that_is_due(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    class Slow(MemorySnapshots):
        async def put(self, run: str, data: bytes) -> None:
            begun.set()
            await may_end.wait()
            await super().put(run, data)

    monkeypatch.setenv("FOLDLOG_SNAPSHOT_EVENTS", str(SNAPSHOT_EVENTS))
    log, agent = MemoryLog(), ops(script)
    log.snapshots = slow = Slow()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        journal = Journal(log, await runtime.locate(run.run_id))
        await journal.follow_until(lambda state: state.parked is not None)
        await begun.wait()
        may_end.set()
    assert run.run_id in slow.kept


@pytest.mark.parametrize("given", ["-1", "many", "2.5"])
async def test_a_number_of_events_that_is_none_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_SNAPSHOT_EVENTS", given)
    with pytest.raises(ConfigError, match="FOLDLOG_SNAPSHOT_EVENTS is"):
        async with Runtime.open("memory://"):
            pass
