"""The suite for `EventLog` (W1, W5, W25)."""

from __future__ import annotations

import msgspec
import pytest
from anyio import create_task_group

from ..commits import Chain, head_of
from ..errors import Conflict, PayloadTooLarge
from ..events import Text
from ..names import key_subject, lane_subject
from ..ports import (
    COMMIT_BYTES_MAX,
    NEW,
    At,
    Family,
    Log,
    Selector,
    Shard,
    Stored,
    Subject,
    Timer,
    TimerWrite,
    WakeWrite,
)
from .suite import Suite, Writer, closing, everything, new_name, run_in, wakeup_for


class EventLogSuite(Suite):
    """Subclass it and override `log` and `reopened`."""

    async def test_commits_read_back_as_they_were_appended_in_order_at_rising_positions(
        self, log: Log
    ) -> None:
        run = run_in(log)
        for text in ("one", "zwei ✓\n\"'\\", ""):
            await run.append(text)
        stored = await everything(log.events.read(run.subject))
        assert stored == run.stored
        positions = [commit.position for commit in stored]
        assert positions == sorted(set(positions))
        assert len(stored) == 3
        assert positions[0] > 0

    async def test_append_returns_the_position_of_every_write_in_their_order(self, log: Log) -> None:
        first, second = run_in(log), run_in(log)
        wakeup = wakeup_for(new_name("agent"))
        one, _, two = await log.events.append(first.write(), WakeWrite(wakeup), second.write())
        assert 0 < one < two
        heads = [await log.events.head(writer.subject) for writer in (first, second)]
        assert [head and head.position for head in heads] == [one, two]

    @pytest.mark.parametrize("expected", ["none", "an older one", "one that never was"])
    async def test_append_at_the_wrong_position_conflicts_and_writes_nothing(
        self, log: Log, expected: str
    ) -> None:
        run = run_in(log)
        first = await run.append("first")
        last = await run.append("last")
        wrong = {
            "none": NEW,
            "an older one": At(first.position),
            "one that never was": At(last.position + 1_000_000),
        }
        with pytest.raises(Conflict):
            await log.events.append(run.write("wrong", expected=wrong[expected]))
        await run.append("right")
        assert await everything(log.events.read(run.subject)) == run.stored

    async def test_append_to_a_subject_that_must_exist_conflicts_when_it_does_not(self, log: Log) -> None:
        run = run_in(log)
        with pytest.raises(Conflict):
            await log.events.append(run.write(expected=At(1)))
        assert await everything(log.events.read(run.subject)) == []

    async def test_a_batch_of_commits_wake_up_and_timer_is_stored_as_a_whole(self, log: Log) -> None:
        parent, agent = run_in(log), new_name("agent")
        child = run_in(log, root=parent.subject.root)
        now, due = (wakeup_for(agent, cause, run=parent.subject.id) for cause in (1, 2))
        timer = Timer(id="t", due_at=log.clock.now(), wakeup=due)
        writes = (parent.write("p"), child.write("c"), WakeWrite(now), TimerWrite(timer))
        positions = await log.events.append(*writes)
        expected = [parent.accept(writes[0], positions[0]), child.accept(writes[1], positions[1])]
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            woken = await self.take(deliveries, 2)
        assert {delivery.wakeup for delivery in woken} == {now, due}
        assert await everything(log.events.read(Family(0, parent.subject.root))) == expected

    async def test_a_conflict_in_the_second_subject_of_a_batch_stores_nothing_of_it(self, log: Log) -> None:
        new, old, agent = run_in(log), run_in(log), new_name("agent")
        await old.append("old")
        lost, lost_timer, kept = (wakeup_for(agent, cause) for cause in (1, 2, 3))
        early, late = (
            Timer(id="t", due_at=log.clock.now() + delay_s, wakeup=wakeup)
            for delay_s, wakeup in ((0.0, lost_timer), (0.8, kept))
        )
        with pytest.raises(Conflict):
            await log.events.append(new.write(), old.write(expected=NEW), WakeWrite(lost), TimerWrite(early))
        await log.timers.set(late)
        async with log.wakeups.pull(frozenset({agent})) as deliveries:
            (delivery,) = await self.take(deliveries, 1)
        assert delivery.wakeup == kept
        assert await everything(log.events.read(new.subject)) == []
        assert await everything(log.events.read(old.subject)) == old.stored

    async def test_a_batch_on_two_runs_conflicts_when_either_has_moved(self, log: Log) -> None:
        runs = [run_in(log), run_in(log)]
        for run in runs:
            await run.append("first")
        stale = [run.write("stale") for run in runs]
        for moved in (0, 1):
            await runs[moved].append("moved")
            fresh = [run.write("fresh") for run in runs]
            with pytest.raises(Conflict):
                await log.events.append(*(stale[i] if i == moved else fresh[i] for i in (0, 1)))
        for run in runs:
            assert await everything(log.events.read(run.subject)) == run.stored

    async def test_writes_of_two_shards_in_one_append_are_refused(self, log: Log) -> None:
        here, there = run_in(log, shard=0), run_in(log, shard=1)
        with pytest.raises(ValueError, match="shard"):
            await log.events.append(here.write(), there.write())
        with pytest.raises(ValueError, match="shard"):
            await log.events.append(here.write(), WakeWrite(wakeup_for(new_name("agent"), shard=1)))
        assert await everything(log.events.read(here.subject)) == []

    async def test_commits_of_one_subject_in_one_append_are_stored_in_order(self, log: Log) -> None:
        run, other = run_in(log), run_in(log)
        await run.append("first")
        before = run.head.position
        writes = []
        for text in ("a", "b", "c"):
            writes.append(run.write(text, expected=At(before)))
            run.accept(writes[-1], 0)
        positions = await log.events.append(*writes[:2], other.write("other"), writes[2])
        stored = await everything(log.events.read(run.subject, before))
        assert [one.data for one in stored] == [write.data for write in writes]
        assert [one.position for one in stored] == [positions[0], positions[1], positions[3]]
        with pytest.raises(Conflict):
            await log.events.append(*writes)
        assert await everything(log.events.read(run.subject, before)) == stored

    async def test_commits_of_one_subject_in_one_append_that_expect_different_positions_are_refused(
        self, log: Log
    ) -> None:
        run = run_in(log)
        with pytest.raises(ValueError, match="same position"):
            await log.events.append(run.write("a"), run.write("b", expected=At(1)))
        assert await everything(log.events.read(run.subject)) == []

    async def test_eight_concurrent_writers_on_one_run_lose_nothing_and_fork_nothing(self, log: Log) -> None:
        subject = run_in(log).subject

        async def write(name: int) -> None:
            for turn in range(5):
                await _append_with_retries(log, Writer(log, subject), f"{name}.{turn}")

        async with create_task_group() as tasks:
            for name in range(8):
                tasks.start_soon(write, name)
        chain = Chain()
        recorded = [chain.verify(stored) async for stored in log.events.read(subject)]
        texts = [event.text for r in recorded for event in r.commit.events if isinstance(event, Text)]
        assert sorted(texts) == sorted(f"{name}.{turn}" for name in range(8) for turn in range(5))
        for name in range(8):
            assert [t for t in texts if t.startswith(f"{name}.")] == [f"{name}.{turn}" for turn in range(5)]

    async def test_of_many_appends_at_once_each_stands_or_falls_with_its_own_condition(
        self, log: Log
    ) -> None:
        runs = [run_in(log) for _ in range(40)]
        for run in runs[::10]:
            await run.append("first")
        writes = [run.write("next", expected=NEW) for run in runs]
        positions, conflicts = dict[int, int](), set[int]()

        async def append(number: int) -> None:
            try:
                (positions[number],) = await log.events.append(writes[number])
            except Conflict:
                conflicts.add(number)

        async with create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(append, number)
        assert conflicts == {0, 10, 20, 30}
        for number, position in positions.items():
            write = writes[number]
            assert await everything(log.events.read(write.subject)) == [
                Stored(write.subject, position, write.data)
            ]
        assert [await everything(log.events.read(run.subject)) for run in runs[::10]] == [
            run.stored for run in runs[::10]
        ]

    async def test_read_after_a_position_yields_what_follows_it(self, log: Log) -> None:
        run = run_in(log)
        for _ in range(4):
            await run.append()
        for count in range(1, 5):
            after = run.stored[count - 1].position
            assert await everything(log.events.read(run.subject, after)) == run.stored[count:]
            assert await everything(log.events.read(run.subject, after - 1)) == run.stored[count - 1 :]

    async def test_a_subject_without_commits_is_empty_next_to_one_with_commits(self, log: Log) -> None:
        run, other = run_in(log), run_in(log)
        await run.append()
        assert await everything(log.events.read(other.subject)) == []
        assert await log.events.head(other.subject) is None
        assert await everything(log.events.read(Family(0, other.subject.root))) == []
        assert await everything(log.events.read(run.subject)) == run.stored

    async def test_a_family_reads_as_one_sequence_of_its_own_runs(self, log: Log) -> None:
        root = run_in(log)
        child = run_in(log, root=root.subject.root)
        stranger = run_in(log)
        written = [await writer.append() for _ in range(2) for writer in (root, child, stranger)]
        family = [stored for stored in written if stored.subject.root == root.subject.root]
        selector = Family(0, root.subject.root)
        assert await everything(log.events.read(selector)) == family
        assert await everything(log.events.read(selector, family[1].position)) == family[2:]
        assert len(family) == 4

    async def test_a_shard_reads_as_one_sequence_of_its_runs_without_lanes_and_keys(self, log: Log) -> None:
        before = await self._marked(log, shard=0)
        lane, key = _in_shard_0(log)
        runs = [run_in(log), run_in(log)]
        elsewhere = run_in(log, shard=1)
        for writer in (lane, key, elsewhere):
            await writer.append()
        written = [await writer.append() for _ in range(2) for writer in runs]
        mine = {writer.subject for writer in (*runs, lane, key, elsewhere)}
        read = [s async for s in log.events.read(Shard(0), before) if s.subject in mine]
        assert read == written

    async def _marked(self, log: Log, shard: int) -> int:
        return (await run_in(log, shard).append("marker")).position

    async def test_lanes_and_keys_are_sequences_of_their_own(self, log: Log) -> None:
        for writer in _in_shard_0(log):
            await writer.append("a")
            await writer.append("b")
            with pytest.raises(Conflict):
                await log.events.append(writer.write(expected=NEW))
            assert await everything(log.events.read(writer.subject)) == writer.stored
            assert await log.events.head(writer.subject) == writer.stored[-1]
            assert await log.events.last_position(writer.subject) == writer.stored[-1].position

    async def test_the_head_is_the_last_commit(self, log: Log) -> None:
        run = run_in(log)
        for _ in range(3):
            stored = await run.append()
            assert await log.events.head(run.subject) == stored

    async def test_the_head_of_a_family_and_of_a_shard_is_the_last_commit_of_any_of_their_runs(
        self, log: Log
    ) -> None:
        root = run_in(log, shard=1)
        child = run_in(log, shard=1, root=root.subject.root)
        family = Family(1, root.subject.root)
        assert await log.events.head(family) is None
        await root.append()
        stored = await child.append()
        assert await log.events.head(family) == stored
        other = await run_in(log, shard=1).append()
        assert await log.events.head(family) == stored
        assert await log.events.head(Shard(1)) == other

    async def test_the_heads_of_a_kind_are_the_last_commits_of_its_registers(self, log: Log) -> None:
        writers = [Writer(log, Subject(0, "sched", "", new_name("s"))) for _ in range(3)]
        others = [*_in_shard_0(log), Writer(log, Subject(1, "sched", "", new_name("s")))]
        for writer in (*writers, *writers, *others):
            await writer.append()
        heads = {stored.subject: stored async for stored in log.events.heads(0, "sched")}
        assert [heads[writer.subject] for writer in writers] == [writer.stored[-1] for writer in writers]
        assert {(subject.shard, subject.kind) for subject in heads} == {(0, "sched")}
        assert [stored.subject async for stored in log.events.heads(1, "sched")].count(
            others[-1].subject
        ) == 1

    async def test_a_run_is_found_by_its_id_in_its_shard_only(self, log: Log) -> None:
        root = run_in(log, shard=1)
        child = run_in(log, shard=1, root=root.subject.root)
        await root.append()
        await child.append()
        assert await log.events.find(1, root.subject.id) == root.subject
        assert await log.events.find(1, child.subject.id) == child.subject
        assert await log.events.find(0, root.subject.id) is None
        assert await log.events.find(1, run_in(log).subject.id) is None

    async def test_follow_yields_the_past_and_then_what_is_appended(self, log: Log) -> None:
        run = run_in(log)
        for _ in range(3):
            await run.append()
        async with closing(log.events.follow(run.subject, run.stored[0].position)) as commits:
            assert await self.take(commits, 2) == run.stored[1:]
            for _ in range(3):
                await run.append()
            assert await self.take(commits, 3) == run.stored[3:]

    async def test_who_follows_to_the_end_has_everything_when_the_run_ends(self, log: Log) -> None:
        run = run_in(log)
        await run.append()
        async with closing(log.events.follow(run.subject, to_end=True)) as commits:
            assert await self.take(commits, 1) == run.stored
            for _ in range(3):
                await run.append()
            await run.store(msgspec.structs.replace(run.write(), ends=True))
            assert await self.take(commits, 4) == run.stored[1:]

    async def test_follow_waits_for_a_subject_that_does_not_exist_yet(self, log: Log) -> None:
        run = run_in(log)
        taken: list[Stored] = []

        async def follow() -> None:
            async with closing(log.events.follow(run.subject)) as commits:
                taken.extend(await self.take(commits, 2))

        async with create_task_group() as tasks:
            tasks.start_soon(follow)
            await run.append()
            await run.append()
        assert taken == run.stored

    async def test_a_follower_that_comes_back_goes_on_where_it_was(self, log: Log) -> None:
        run = run_in(log)
        taken: list[Stored] = []
        for _ in range(3):
            await run.append()
            await run.append()
            async with closing(log.events.follow(run.subject, taken[-1].position if taken else 0)) as commits:
                taken += await self.take(commits, 2)
        assert taken == run.stored

    @pytest.mark.parametrize("kind", ["subject", "family", "shard"])
    async def test_follow_under_concurrent_writers_loses_nothing_and_doubles_nothing(
        self, log: Log, kind: str
    ) -> None:
        before = await self._marked(log, shard=1)
        root = run_in(log, shard=1)
        runs = (
            [root]
            if kind == "subject"
            else [root, run_in(log, 1, root.subject.id), run_in(log, 1, root.subject.id)]
        )
        selectors: dict[str, Selector] = {
            "subject": root.subject,
            "family": Family(1, root.subject.root),
            "shard": Shard(1),
        }

        async def write(writer: Writer) -> None:
            for _ in range(20):
                await writer.append()

        async with (
            create_task_group() as tasks,
            closing(log.events.follow(selectors[kind], before)) as commits,
        ):
            for writer in runs:
                tasks.start_soon(write, writer)
            taken = await self.take(commits, 20 * len(runs))
        written = sorted((stored for writer in runs for stored in writer.stored), key=lambda s: s.position)
        assert taken == written
        assert await everything(log.events.read(selectors[kind], before)) == written

    async def test_a_long_history_reads_whole(self, log: Log) -> None:
        root = run_in(log)
        runs = [run_in(log, root=root.subject.root) for _ in range(8)]

        async def write(writer: Writer) -> None:
            for _ in range(50):
                await writer.append("x" * 500)

        async with create_task_group() as tasks:
            for writer in runs:
                tasks.start_soon(write, writer)
        written = sorted((stored for writer in runs for stored in writer.stored), key=lambda s: s.position)
        assert await everything(log.events.read(Family(0, root.subject.root))) == written
        assert len(written) == 400

    async def test_the_largest_commit_is_stored_and_one_byte_more_is_refused(self, log: Log) -> None:
        run = run_in(log)
        await run.store(run.write(size_bytes=COMMIT_BYTES_MAX))
        with pytest.raises(PayloadTooLarge) as refusal:
            await log.events.append(run.write(size_bytes=COMMIT_BYTES_MAX + 1))
        assert (refusal.value.size_bytes, refusal.value.limit_bytes) == (
            COMMIT_BYTES_MAX + 1,
            COMMIT_BYTES_MAX,
        )
        await run.append("after")
        assert await everything(log.events.read(run.subject)) == run.stored

    async def test_commits_survive_as_declared(self, log: Log) -> None:
        run = run_in(log)
        await run.append()
        await run.append()
        async with self.reopened(log) as again:
            read = await everything(again.events.read(run.subject))
        assert read == (run.stored if self.durable else [])
        assert await everything(log.events.read(run.subject)) == run.stored

    async def test_a_purge_takes_the_first_commits_and_the_others_stay_where_they_are(self, log: Log) -> None:
        run, other = run_in(log), run_in(log)
        for text in ("a", "b", "c"):
            await run.append(text)
            await other.append(text)
        gone = {run.subject: run.stored[2].position}
        for _ in range(2):
            await log.events.purge(gone)
        assert await everything(log.events.read(run.subject)) == run.stored[2:]
        assert await everything(log.events.read(other.subject)) == other.stored
        assert await log.events.head(run.subject) == run.stored[2]
        assert await log.events.find(0, run.subject.id) == run.subject
        family = Family(run.subject.shard, run.subject.root)
        assert await everything(log.events.read(family)) == run.stored[2:]
        with pytest.raises(Conflict):
            await log.events.append(run.write("wrong", expected=NEW))
        await run.append("d")
        assert await everything(log.events.read(run.subject)) == run.stored[2:]

    async def test_a_count_is_that_of_the_commits_which_a_read_yields(self, log: Log) -> None:
        run = run_in(log)
        child = run_in(log, root=run.subject.root)
        for writer in (run, child, run, child, run):
            await writer.append("one")
        await log.events.purge({run.subject: run.stored[1].position})
        shard = Shard(run.subject.shard)
        assert await log.events.count(run.subject) == 2
        for selector in (run.subject, child.subject, Family(shard.shard, run.subject.root), shard):
            for after in (0, child.stored[0].position, run.stored[-1].position):
                read = await everything(log.events.read(selector, after))
                assert await log.events.count(selector, after) == len(read)

    async def test_a_run_of_which_all_is_purged_is_no_longer_found(self, log: Log) -> None:
        run, child = (first := run_in(log)), run_in(log, root=first.subject.root)
        for writer in (run, child):
            await writer.append("one")
        await log.events.purge({child.subject: child.stored[-1].position + 1})
        assert await log.events.find(0, child.subject.id) is None
        assert await log.events.head(child.subject) is None
        assert await log.events.last_position(child.subject) == 0
        assert await everything(log.events.read(Family(0, run.subject.root))) == run.stored

    async def test_a_follower_goes_on_behind_a_purge(self, log: Log) -> None:
        run = run_in(log)
        for text in ("a", "b"):
            await run.append(text)
        async with closing(log.events.follow(run.subject)) as commits:
            assert await self.take(commits, 2) == run.stored
            await run.append("c")
            await log.events.purge({run.subject: run.stored[2].position})
            await run.append("d")
            assert await self.take(commits, 2) == run.stored[2:]

    async def test_a_sweep_leaves_the_last_commit_of_a_key_and_all_of_a_run_and_a_lane(
        self, log: Log
    ) -> None:
        run, (lane, key) = run_in(log), _in_shard_0(log)
        for writer in (run, lane, key):
            for text in ("a", "b", "c"):
                await writer.append(text)
        assert await log.events.sweep() >= 2
        assert await everything(log.events.read(key.subject)) == key.stored[2:]
        for writer in (run, lane):
            assert await everything(log.events.read(writer.subject)) == writer.stored
        await key.append("d")
        assert await log.events.head(key.subject) == key.stored[3]


async def _append_with_retries(log: Log, writer: Writer, text: str) -> None:
    for _ in range(1000):
        chain = Chain()
        async for stored in log.events.read(writer.subject):
            writer.head = head_of(chain.verify(stored))
        try:
            await writer.append(text)
        except Conflict:
            continue
        return
    pytest.fail("another writer was first a thousand times")


def _in_shard_0(log: Log) -> tuple[Writer, Writer]:
    return Writer(log, lane_subject(new_name("lane"), 1)), Writer(log, key_subject(new_name("key"), 1))
