"""The projector folds each commit once, whatever stops it, and never folds over damage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from foldlog.eventlog.clock import Clock, SystemClock
from foldlog.eventlog.commits import Recorded
from foldlog.eventlog.errors import ConfigError, LogCorrupted, LogUnavailable, RunNotFound
from foldlog.eventlog.events import ApprovalRequested
from foldlog.eventlog.faults import FaultyLog, Outage
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import At, CommitWrite, Log, Selector, Shard, Stored, Subject
from foldlog.projections.approvals import Approvals
from foldlog.projections.operating.costs import Costs
from foldlog.projections.projection import Projection, fold
from foldlog.projections.projector import CHUNK_COMMITS, STANDSTILL_MAX_S, Projector, RunIndex
from foldlog.projections.run_list import RunList, RunRow
from foldlog.replay import trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from .traces import Family, cancelled_trace, canonical_trace, child_trace, parallel_trace, step_started

Rows = dict[str, dict[str, Any]]


class Writer:
    """Appends the commits of families to a log, each family to one shard."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.positions: dict[Subject, int] = {}
        self.stored: list[Stored] = []

    async def write(self, stored: Stored) -> None:
        shard = sum(stored.subject.root.encode()) % self.log.events.shards
        subject = msgspec.structs.replace(stored.subject, shard=shard)
        expected = At(self.positions.get(subject, 0))
        (position,) = await self.log.events.append(CommitWrite(subject, expected, stored.data))
        self.positions[subject] = position
        self.stored.append(Stored(subject, position, stored.data))

    async def write_all(self, *families: Family) -> None:
        for family in families:
            for stored in family.stored:
                await self.write(stored)

    def expected(self) -> Rows:
        """Return the rows that every way of folding must produce."""
        trace = trace_of(self.stored)
        return {p.name: fold(p, trace.commits) for p in (RunList(), Approvals(), Costs())}


def rows_in(projector: Projector) -> Rows:
    found: Rows = {}
    for projection in projector.projections:
        rows = {}
        for run in rows_keys(projector, projection):
            rows[run] = projector.rows.get(projection, run)
        found[projection.name] = rows
    return found


def rows_keys(projector: Projector, projection: Projection[Any]) -> list[str]:
    query = f"SELECT key FROM rows_{projection.name} ORDER BY key"
    return [key for (key,) in projector.rows._db.execute(query).fetchall()]


@contextlib.asynccontextmanager
async def index_of(log: Log, path: Path | None = None) -> AsyncIterator[RunIndex]:
    index = await RunIndex.open(log, path)
    try:
        yield index
    finally:
        await index.aclose()


# --- crashes and sharing, as properties -------------------------------------------------------------------------------


class Died(Exception):
    """The process is gone."""


class Mortal(RunList):
    """Dies at the n-th commit that it folds."""

    def __init__(self, at: int) -> None:
        self.left = at

    def evolve(self, row: RunRow | None, recorded: Recorded) -> RunRow:
        self.left -= 1
        if self.left < 0:
            raise Died
        return super().evolve(row, recorded)


def interleaved(names: Sequence[str], random: Random) -> list[Stored]:
    """Some families, commit by commit, in one of the orders that the log may hold them in."""
    queues = [list(LEGAL_BY_SALT[name](f"{name[:3]}{number}").stored) for number, name in enumerate(names)]
    order = []
    while queues := [queue for queue in queues if queue]:
        order.append(random.choice(queues).pop(0))
    return order


LEGAL_BY_SALT: dict[str, Callable[[str], Family]] = {
    "canonical": canonical_trace,
    "parallel": parallel_trace,
    "child": child_trace,
    "cancelled": cancelled_trace,
}

histories = st.lists(st.sampled_from(sorted(LEGAL_BY_SALT)), min_size=1, max_size=4)
randoms = st.randoms(use_true_random=False)


@contextlib.contextmanager
def a_path() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "deep" / "rows.sqlite"


@settings(max_examples=40, deadline=None)
@given(histories, randoms, st.lists(st.integers(0, 12), max_size=4))
def test_rows_are_those_of_the_fold_wherever_the_projector_was_stopped(
    names: list[str], random: Random, deaths: list[int]
):
    async def check(path: Path) -> None:
        writer = Writer(MemoryLog(shards=2))
        history = interleaved(names, random)
        cuts = sorted(random.sample(range(len(history) + 1), k=min(len(deaths), len(history))))
        begin = 0
        for cut, death in zip(cuts, deaths, strict=False):
            for stored in history[begin:cut]:
                await writer.write(stored)
            begin = cut
            mortal = Projector(writer.log, (Mortal(death), Approvals(), Costs()), path)
            with contextlib.suppress(Died):
                await mortal.catch_up()
            await mortal.aclose()
        for stored in history[begin:]:
            await writer.write(stored)
        async with index_of(writer.log, path) as index:
            await index.catch_up()
            assert rows_in(index) == writer.expected()
            assert await index.lag() == 0
            await index.rebuild()
            assert rows_in(index) == writer.expected()

    with a_path() as path:
        asyncio.run(check(path))


@settings(max_examples=25, deadline=None)
@given(histories, randoms)
def test_two_that_share_a_file_fold_each_commit_once(names: list[str], random: Random):
    async def check(path: Path) -> None:
        writer = Writer(MemoryLog(shards=2))
        async with index_of(writer.log, path) as one, index_of(writer.log, path) as other:
            for stored in interleaved(names, random):
                await writer.write(stored)
                first, second = (one, other) if random.random() < 0.5 else (other, one)
                await asyncio.gather(first.catch_up(), second.catch_up())
                if random.random() < 0.1:
                    await first.rebuild()
            assert rows_in(one) == rows_in(other) == writer.expected()

    with a_path() as path:
        asyncio.run(check(path))


async def test_many_commits_are_folded_piece_by_piece():
    writer = Writer(MemoryLog())
    await writer.write_all(*[canonical_trace(str(n)) for n in range(CHUNK_COMMITS // 3)])
    async with index_of(writer.log) as index:
        assert await index.lag() == len(writer.stored) > CHUNK_COMMITS
        await index.catch_up()
        assert rows_in(index) == writer.expected()


class Counting(RunList):
    """Counts the commits that it folds."""

    folded = 0

    def evolve(self, row: RunRow | None, recorded: Recorded) -> RunRow:
        self.folded += 1
        return super().evolve(row, recorded)


async def test_a_rebuild_that_was_cut_short_goes_on_where_it_ended(tmp_path: Path):
    writer, path = Writer(MemoryLog(shards=2)), tmp_path / "rows"
    await writer.write_all(*[canonical_trace(str(n)) for n in range(CHUNK_COMMITS // 2)])
    every = len(writer.stored)
    async with index_of(writer.log, path) as index:
        await index.catch_up()
    killed = Projector(writer.log, (Mortal(every // 2), Approvals(), Costs()), path)
    with contextlib.suppress(Died):
        await killed.rebuild()
    assert killed.rows.is_cut_short()
    await killed.aclose()
    counting = Counting()
    next_one = Projector(writer.log, (counting, Approvals(), Costs()), path)
    await next_one.rebuild()
    assert every // 2 <= counting.folded < every // 2 + CHUNK_COMMITS
    assert not next_one.rows.is_cut_short()
    assert rows_in(next_one) == writer.expected()
    counting.folded = 0
    await next_one.rebuild()
    assert counting.folded == every
    await next_one.aclose()


class Unanswering:
    """A log that does not answer each time after some commits were read, so many times."""

    def __init__(self, log: Log, after: int, times: int, clock: Clock) -> None:
        self._log, self._after, self.left = log, after, times
        self.namespace, self.events, self.clock = log.namespace, self, clock
        self.shards, self.head = log.events.shards, log.events.head

    async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        read = 0
        async for stored in self._log.events.read(selector, after):
            if read == self._after and self.left:
                self.left -= 1
                raise LogUnavailable("no answer")
            read += 1
            yield stored


class Skipping(SystemClock):
    """Time that passes only while somebody sleeps, and then at once."""

    passed_s = 0.0

    def monotonic(self) -> float:
        return self.passed_s

    async def sleep(self, delay_s: float) -> None:
        self.passed_s += delay_s
        await asyncio.sleep(0)


async def test_a_rebuild_asks_a_log_again_that_does_not_answer_and_gives_up_without_progress():
    clock = Skipping()
    writer = Writer(MemoryLog())
    await writer.write_all(*[canonical_trace(str(n)) for n in range(10)])
    slow = Unanswering(writer.log, 1, 10**9, clock)
    async with index_of(slow) as index:
        with pytest.raises(LogUnavailable):  # after the first commit it only reads that one again
            await index.rebuild()
        assert clock.monotonic() > STANDSTILL_MAX_S
        slow._after, slow.left = 2, len(writer.stored) - 2
        await index.rebuild()
        assert slow.left == 0
        assert rows_in(index) == writer.expected()


class Awaited(RunList):
    """Says when it has folded a run's terminal."""

    def __init__(self) -> None:
        self.over: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def evolve(self, row: RunRow | None, recorded: Recorded) -> RunRow:
        after = super().evolve(row, recorded)
        if after.over:
            self.over[after.run_id].set()
        return after


async def test_a_follower_folds_what_comes_also_after_a_rebuild_by_another_process(tmp_path: Path):
    writer, awaited = Writer(MemoryLog(shards=2)), Awaited()
    follower = Projector(writer.log, (awaited, Approvals(), Costs()), tmp_path / "rows")
    async with index_of(writer.log, tmp_path / "rows") as other:
        following = asyncio.ensure_future(follower.follow())
        await writer.write_all(canonical_trace("a"))
        await awaited.over["root-a"].wait()
        other.rows.clear()
        awaited.over.clear()
        later = [parallel_trace("b"), child_trace("c"), canonical_trace("d"), canonical_trace("e")]
        await writer.write_all(*later)
        for family in later:
            await awaited.over[family.root].wait()
        assert {stored.subject.shard for stored in writer.stored} == {0, 1}
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await follower.aclose()
        await other.catch_up()
        assert rows_in(other) == writer.expected()


async def test_a_follower_passes_over_a_damaged_run_and_tells_that_its_row_has_changed():
    writer, awaited = Writer(MemoryLog()), Awaited()
    await writer.write_all(canonical_trace("a"), canonical_trace("b"))
    follower = Projector(Tampered(writer.log, without=(3,)), (awaited, Approvals(), Costs()))
    async with contextlib.aclosing(follower.changes()) as changes:
        assert await anext(changes) is None
        following = asyncio.ensure_future(follower.follow())
        await awaited.over["root-b"].wait()
        assert await anext(changes) == {"root-a", "root-b"}
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    await follower.aclose()


# --- questions --------------------------------------------------------------------------------------------------------


async def test_runs_are_found_by_status_session_and_agent_the_newest_first():
    writer = Writer(MemoryLog())
    young = canonical_trace("young")
    old = Family("old", start=10.0)
    old.begin(path="elder")
    await writer.write_all(young, old, child_trace("kids"))
    async with index_of(writer.log) as index:
        everything = await index.runs()
        assert [row.submitted_at for row in everything] == sorted(
            (r.submitted_at for r in everything), reverse=True
        )
        assert [row.run_id for row in await index.runs(status="queued")] == ["root-old"]
        assert [row.run_id for row in await index.runs(agent="helper")] == ["child-kids-1", "child-kids-0"]
        assert await index.runs(session="none") == []
        assert len(await index.runs(limit=2)) == 2
        assert (await index.run("root-young")).status == "completed"


async def test_a_question_sees_what_was_stored_before_it():
    writer = Writer(MemoryLog())
    async with index_of(writer.log) as index:
        assert await index.runs() == []
        await writer.write_all(canonical_trace())
        assert len(await index.runs()) == 1


async def test_an_unknown_run_or_status_is_refused_by_name():
    async with index_of(MemoryLog()) as index:
        with pytest.raises(RunNotFound, match="nobody"):
            await index.run("nobody")
        with pytest.raises(ConfigError, match="queued, running"):
            await index.runs(status="sleeping")
        with pytest.raises(
            ConfigError, match="no run waits for 'godot'; known: approval, unverifiable, wait"
        ):
            await index.runs(waiting_for="godot")
        assert await index.runs(waiting_for="cancel") == []


async def test_pages_go_on_after_the_last_row_also_among_rows_of_the_same_time():
    index = RunIndex(MemoryLog())
    times = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 2.0, "e": 3.0}
    with index.rows.transaction():
        for run, at in times.items():
            row = RunRow(
                run_id=run, root_id=run, shard=0, agent="a", agent_path="a", submitted_at=at, updated_at=-at
            )
            index.rows.put(RunList(), run, row)
    for order, expected in (("submitted_at", "edcba"), ("updated_at", "adcbe")):
        pages, before = "", None
        while rows := await index.runs(2, before=before, order=order, status="queued"):
            pages += "".join(row.run_id for row in rows)
            before = getattr(rows[-1], order), rows[-1].run_id
        assert pages == expected


async def test_runs_are_counted_by_status_up_to_a_limit():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace("a"), canonical_trace("b"), cancelled_trace("c"))
    async with index_of(writer.log) as index:
        counts = await index.count_runs()
        assert (counts["completed"], counts["cancelled"], counts["queued"]) == (2, 1, 0)
        assert (await index.count_runs(1))["completed"] == 1
        assert await index.count_runs(status="completed", text="root-a") == {"completed": 1}
        with pytest.raises(ConfigError, match="metadata"):
            await index.count_runs(metadata={"a": "b"})


def plan_of(query: str, *values: Any) -> str:
    """Return how a query on the runs is answered."""
    rows = RunIndex(MemoryLog()).rows._db.execute(f"EXPLAIN QUERY PLAN {query}", values)
    (line,) = [line[-1] for line in rows if "rows_runs" in line[-1]]
    return str(line)


FILTERED = ("status", "session", "user", "agent", "worker", "error_type", "waiting_for", "executor", "model")


@pytest.mark.parametrize(
    ("column", "time"), [*((each, "submitted_at") for each in FILTERED), ("status", "updated_at")]
)
def test_a_page_of_any_filter_is_read_from_an_index_in_its_order(column: str, time: str):
    plan = plan_of(
        f'SELECT row FROM rows_runs WHERE "{column}" IS ? AND ("{time}", key) < (?, ?) '
        f'ORDER BY "{time}" DESC, key DESC LIMIT 50',
        *("x", 1.0, "k"),
    )
    assert plan.startswith(f"SEARCH rows_runs USING INDEX runs_by_{column}_{time}")
    assert plan.endswith(f"({column}=? AND ({time},key)<(?,?))")


def test_a_search_and_the_counts_of_it_read_the_texts_in_an_index():
    found = '(instr("input", ?) > 0 OR instr("key", ?) > 0)'
    select = plan_of(
        f"SELECT row FROM rows_runs WHERE {found} ORDER BY submitted_at DESC, key DESC LIMIT 50", "x", "x"
    )
    assert select == "SCAN rows_runs USING INDEX runs_by_submitted_at_key_input"
    each = [f"{column} IS ? AND status IS ?" for column in ("agent", "executor", "model")]
    for where in (f"status IS ? AND {found}", *each):
        values = ("x",) * where.count("?")
        count = plan_of(f"SELECT count(*) FROM (SELECT 1 FROM rows_runs WHERE {where} LIMIT ?)", *values, 9)
        assert "USING COVERING INDEX" in count


async def test_a_reader_of_changes_hears_of_every_run_once_and_of_a_rebuild():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace("a"))
    async with index_of(writer.log) as index:
        await index.catch_up()
        async with contextlib.aclosing(index.changes()) as changes:
            assert await anext(changes) is None
            await writer.write_all(canonical_trace("b"), child_trace("c"))
            await index.catch_up()
            assert await anext(changes) == {"root-b", "root-c", "child-c-0", "child-c-1"}
            await index.rebuild()
            assert await anext(changes) is None


async def test_a_reader_of_changes_hears_of_what_another_process_has_folded(tmp_path: Path):
    writer = Writer(MemoryLog())
    path = tmp_path / "rows.sqlite"
    async with index_of(writer.log, path) as index, index_of(writer.log, path) as other:
        following = asyncio.create_task(index.follow())
        async with contextlib.aclosing(index.changes()) as changes:
            assert await anext(changes) is None
            asyncio.get_running_loop().call_soon(lambda: None)
            await writer.write_all(canonical_trace("a"))
            await other.catch_up()
            assert await anext(changes) == {"root-a"}
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def test_approvals_are_listed_by_whether_they_wait_and_by_run():
    writer = Writer(MemoryLog())
    waiting = Family("waiting")
    waiting.begin()
    waiting.claim(1, *step_started(1), ApprovalRequested(approval_id="ap-waiting", kind="tool"))
    await writer.write_all(parallel_trace("done"), waiting)
    async with index_of(writer.log) as index:
        assert [a.approval_id for a in await index.approvals()] == ["ap-waiting"]
        assert [a.approval_id for a in await index.approvals(pending=False)] == ["ap-done"]
        assert {a.approval_id for a in await index.approvals(pending=None)} == {"ap-done", "ap-waiting"}
        assert await index.approvals(run_id="root-done") == []
        assert [a.approval_id for a in await index.approvals(pending=None, run_id="root-done")] == ["ap-done"]
        assert await index.approvals(run_id="nobody") == []


async def test_an_outage_of_the_log_is_an_error_that_passes():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    log = FaultyLog(writer.log, [Outage(1)])
    async with index_of(log) as index:
        with pytest.raises(LogUnavailable):
            await index.runs()
        await log.release()
        assert len(await index.runs()) == 1


# --- damage -----------------------------------------------------------------------------------------------------------


class TamperedEvents:
    """The events of a log, some left out, some replaced."""

    def __init__(self, inner: Log, without: Sequence[int], replaced: dict[int, bytes]) -> None:
        self._inner, self._without, self._replaced = inner.events, set(without), replaced
        self.shards = inner.events.shards

    async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        async for stored in self._inner.read(selector, after):
            if stored.position not in self._without:
                data = self._replaced.get(stored.position, stored.data)
                yield Stored(stored.subject, stored.position, data)

    async def follow(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        async for stored in self.read(selector, after):
            yield stored
        await asyncio.Event().wait()

    async def find(self, shard: int, run: str) -> Subject | None:
        found = [each.subject async for each in self.read(Shard(shard)) if each.subject.id == run]
        return found[0] if found else None


class Tampered:
    """A log whose stored commits were tampered with."""

    def __init__(
        self, inner: Log, without: Sequence[int] = (), replaced: dict[int, bytes] | None = None
    ) -> None:
        self.namespace, self.clock = inner.namespace, Instant()
        self.events = TamperedEvents(inner, without, replaced or {})


class Instant:
    """A clock that does not wait; it counts how long it was asked to."""

    slept_s = 0.0

    async def sleep(self, delay_s: float) -> None:
        self.slept_s += delay_s


async def test_of_a_run_with_a_missing_commit_the_row_stays_as_before_it_and_others_go_on():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace(), canonical_trace("b"))
    whole = writer.expected()["runs"]
    async with index_of(Tampered(writer.log, without=(3,))) as index:
        after, before = await index.runs()
        assert after == whole["root-b"]
        assert (before.run_id, before.revision, before.status) == ("root-a", 5, "running")
        assert before.damage is not None
        assert before.damage.revision == 6
        assert "the log of run root-a is damaged at revision 6: " in before.damage.detail
        assert "`foldlog runs delete root-a`" in before.damage.detail
        assert await index.damaged() == [before]
        with pytest.raises(LogCorrupted) as raised:
            await index.check_intact()
        assert (raised.value.run, raised.value.revision) == ("root-a", 6)


async def test_a_run_of_which_nothing_can_be_read_is_listed_as_damaged():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    async with index_of(Tampered(writer.log, without=(1,))) as index:
        (row,) = await index.runs()
        assert (row.run_id, row.root_id, row.agent, row.submitted_at) == ("root-a", "root-a", "", 0.0)
        assert row.damage is not None
        assert row.damage.expected.startswith("the next stored commit begins at revision")


async def test_an_altered_commit_is_found():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    altered = writer.stored[-1].data.replace(b"Final", b"Fatal")
    async with index_of(Tampered(writer.log, replaced={writer.stored[-1].position: altered})) as index:
        for _ in range(2):  # the damaged commit is the one that is read again
            (row,) = await index.runs()
            assert row.damage is not None
            assert "checksum" in row.damage.expected
        await writer.write_all(canonical_trace("b"))
        assert [each.damage is None for each in await index.runs()] == [True, False]


@pytest.mark.parametrize("told", ["differs from the one", "is missing"])
async def test_a_last_commit_that_is_damaged_after_it_was_folded_is_the_damage_of_its_run(
    tmp_path: Path, told: str
):
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    async with index_of(writer.log, tmp_path / "rows") as index:
        await index.catch_up()
    last = writer.stored[-1]
    await writer.write_all(canonical_trace("b"))
    if told == "is missing":
        log = Tampered(writer.log, without=(last.position,))
    else:
        log = Tampered(writer.log, replaced={last.position: last.data.replace(b"Final", b"Fatal")})
    async with index_of(log, tmp_path / "rows") as index:
        later, damaged = await index.runs()
        assert (later.run_id, later.damage, later.status) == ("root-b", None, "completed")
        assert (damaged.run_id, damaged.status) == ("root-a", "completed")
        assert damaged.damage is not None
        assert told in damaged.damage.expected


async def test_a_log_that_lost_its_tail_is_found_after_another_look(tmp_path: Path):
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    async with index_of(writer.log, tmp_path / "rows") as index:
        await index.catch_up()
    last = writer.stored[-1].position
    shortened = Tampered(writer.log, without=(last,))
    async with index_of(shortened, tmp_path / "rows") as index:
        with pytest.raises(LogCorrupted, match="the log ends before this event") as raised:
            await index.runs()
        assert (raised.value.run, raised.value.revision) == ("root-a", 17)
        assert 1.0 < shortened.clock.slept_s < 2.0
        assert str(tmp_path / "rows") in str(raised.value)


async def test_a_stale_read_is_not_a_lost_tail():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())

    class Stale(TamperedEvents):
        looks = 0

        async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
            self.looks += 1
            stale = 1 < self.looks < 4
            async for stored in super().read(selector, after):
                if not stale or stored.position < writer.stored[-1].position:
                    yield stored

    log = Tampered(writer.log)
    log.events = Stale(writer.log, (), {})
    async with index_of(log) as index:
        await index.catch_up()
        await writer.write_all(canonical_trace("b"))
        assert [row.run_id for row in await index.runs()] == ["root-b", "root-a"]


async def test_a_last_commit_that_is_another_one_now_is_found():
    writer, other = Writer(MemoryLog()), Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    await other.write_all(canonical_trace("b"))
    with a_path() as path:
        async with index_of(writer.log, path) as index:
            await index.catch_up()
        async with index_of(other.log, path) as index:
            with pytest.raises(LogCorrupted, match="differs from the one that the projections have folded"):
                await index.runs()


@pytest.mark.parametrize("garbage", [b"not a database at all" * 100, b""], ids=["garbage", "empty"])
async def test_a_file_that_is_not_a_database_is_rebuilt(tmp_path: Path, garbage: bytes):
    writer, path = Writer(MemoryLog()), tmp_path / "rows"
    await writer.write_all(canonical_trace())
    path.write_bytes(garbage)
    async with index_of(writer.log, path) as index:
        assert len(await index.runs()) == 1


async def test_a_file_that_is_damaged_in_the_middle_is_rebuilt_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    writer, path = Writer(MemoryLog()), tmp_path / "rows"
    await writer.write_all(*[canonical_trace(str(n)) for n in range(30)])
    async with index_of(writer.log, path) as index:
        await index.catch_up()
    pages = bytearray(path.read_bytes())
    pages[4096 * 2 :] = b"\xff" * (len(pages) - 4096 * 2)
    path.write_bytes(pages)
    with caplog.at_level(logging.WARNING, "foldlog.projections"):
        async with index_of(writer.log, path) as index:
            assert len(await index.runs()) == 30
            assert rows_in(index) == writer.expected()
    assert "is damaged" in caplog.text


async def test_a_row_that_cannot_be_read_is_rebuilt():
    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    async with index_of(writer.log) as index:
        await index.catch_up()
        index.rows._db.execute("UPDATE rows_runs SET row = ?", (b'{"run_id": 1}',))
        assert len(await index.runs()) == 1
        assert rows_in(index) == writer.expected()


async def test_rows_of_another_version_are_rebuilt(tmp_path: Path):
    class Newer(RunList):
        version = RunList.version + 1

        def evolve(self, row: RunRow | None, recorded: Recorded) -> RunRow:
            return msgspec.structs.replace(super().evolve(row, recorded), kind="newer")

    writer = Writer(MemoryLog())
    await writer.write_all(canonical_trace())
    for projection, kind in ((RunList(), "agent"), (Newer(), "newer"), (RunList(), "agent")):
        projector = Projector(writer.log, (projection,), tmp_path / "rows")
        await projector.catch_up()
        row = projector.rows.get(projection, "root-a")
        await projector.aclose()
        assert row is not None
        assert row.kind == kind


async def test_a_file_of_another_namespace_is_refused_and_left_alone(tmp_path: Path):
    writer = Writer(MemoryLog("one"))
    await writer.write_all(canonical_trace())
    async with index_of(writer.log, tmp_path / "rows") as index:
        await index.catch_up()
    with pytest.raises(ConfigError, match="belongs to the namespace 'one'"):
        await RunIndex.open(MemoryLog("two"), tmp_path / "rows")
    async with index_of(writer.log, tmp_path / "rows") as index:
        assert await index.lag() == 0


async def test_a_place_that_cannot_hold_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be opened"):
        await RunIndex.open(MemoryLog(), tmp_path / "file" / "rows")


async def test_a_file_that_another_process_keeps_locked_is_an_error_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("foldlog.projections.sqlite.LOCK_WAIT_S", 0.0)
    writer = Writer(MemoryLog())
    async with index_of(writer.log, tmp_path / "rows") as index:
        await writer.write_all(canonical_trace())
        with contextlib.closing(sqlite3.connect(tmp_path / "rows", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LogUnavailable, match="locked"):
                await index.runs()
            other.execute("ROLLBACK")
        assert len(await index.runs()) == 1


async def test_every_shard_has_its_own_checkpoint():
    writer = Writer(MemoryLog(shards=4))
    await writer.write_all(*[canonical_trace(str(n)) for n in range(8)])
    async with index_of(writer.log) as index:
        await index.catch_up()
        for shard in range(4):
            last = [stored.position async for stored in writer.log.events.read(Shard(shard))][-1:]
            assert [index.rows.checkpoint(shard).head.position] == (last or [0])


# --- parts of ids -----------------------------------------------------------------------------------------------------

IDS = st.lists(st.text("ab-_", min_size=1, max_size=12), min_size=1, max_size=12, unique=True)


def rows_of(ids: Sequence[str]) -> RunIndex:
    index = RunIndex(MemoryLog())
    with index.rows.transaction():
        for number, run in enumerate(ids):
            row = RunRow(
                run_id=run, root_id=run, shard=0, agent="a", agent_path="a", submitted_at=number, updated_at=0
            )
            index.rows.put(RunList(), run, row)
    return index


@settings(max_examples=60, deadline=None)
@given(IDS, st.text("ab-_", min_size=1, max_size=4))
def test_a_part_of_an_id_names_the_runs_that_begin_or_end_so(ids: list[str], part: str) -> None:
    async def check() -> None:
        found = [row.run_id for row in await rows_of(ids).runs_named(part, limit=100)]
        expected = (
            [part] if part in ids else [run for run in ids if run.startswith(part) or run.endswith(part)]
        )
        assert sorted(found) == sorted(expected)

    asyncio.run(check())


@settings(max_examples=60, deadline=None)
@given(IDS, st.integers(1, 6))
def test_the_end_that_a_run_is_shown_by_names_it_alone_and_a_shorter_one_does_not(
    ids: list[str], least: int
) -> None:
    async def check() -> None:
        index = rows_of(ids)
        for run, end in (await index.ends_of_ids(ids, least)).items():
            assert run.endswith(end)
            assert [row.run_id for row in await index.runs_named(end)] == [run]
            if len(end) > least and end != run:
                shorter = end[1:]
                assert [row.run_id for row in await index.runs_named(shorter)] != [run]

    asyncio.run(check())


async def test_runs_are_found_by_time_error_family_and_metadata() -> None:
    index = RunIndex(MemoryLog())
    with index.rows.transaction():
        for number, (run, fields) in enumerate(
            {
                "a": {
                    "error_type": "auth",
                    "metadata": {"team": "ops", "n": 1, "memory": {"scope": {"user_id": "u"}}},
                },
                "b": {"root_id": "a", "parent": "a"},
                "c": {"forked_from": "a", "error_type": "quota", "metadata": {"team": "sales", "a.b": "x"}},
            }.items()
        ):
            row = RunRow(
                **{"run_id": run, "root_id": run, "shard": 0, "agent": "a", "agent_path": "a", **fields},
                submitted_at=number,
                updated_at=0,
            )
            index.rows.put(RunList(), run, row)

    async def found(**query: Any) -> str:
        return "".join(row.run_id for row in await index.runs(**query))

    assert await found() == "cba"
    assert await found(since=1) == "cb"
    assert await found(until=2, since=1) == "b"
    assert await found(error_type="auth") == "a"
    assert await found(root_id="a") == "ba"
    assert await found(metadata={"team": "ops"}) == "a"
    assert await found(metadata={"n": "1", "memory.scope.user_id": "u"}) == "a"
    assert await found(metadata={"a.b": "x"}) == "c"
    assert await found(metadata={"team": "ops", "n": "2"}) == ""
    assert await found(metadata={"team.x": "ops"}) == ""
    assert await found(limit=1, metadata={"team": "ops"}) == "a"
    assert await found(children=False) == "ca"
    assert await found(forks=False) == "ba"
    assert await found(parent="a") == "b"
    assert await found(text="c") == "c"
