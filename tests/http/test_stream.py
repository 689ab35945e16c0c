"""The stream: what viewers get is what the log says, once and in order, whatever happens to connections and servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import httpx2 as httpx
import pytest
from foldlog.adapters.console.streaming import feeds, frames, lists, snapshots, viewer
from foldlog.adapters.console.streaming.viewer import wanted_topics
from foldlog.adapters.http.server import served
from foldlog.eventlog import Log, MemoryLog
from foldlog.eventlog.events import ParentLink, Status, Submitted
from foldlog.eventlog.faults import FaultyLog, Outage
from foldlog.eventlog.ports import NEW, At, CommitWrite
from foldlog.runtime import Runtime

from tests.http.api import Api, api, bearer, paused, triager
from tests.unit.traces import Family, final_step, step_completed, usage


class Got(NamedTuple):
    """A frame as a viewer got it."""

    event: str
    data: Any
    id: str


def parsed(block: bytes) -> Got | None:
    lines = dict(line.split(b": ", 1) for line in block.strip().split(b"\n") if not line.startswith(b":"))
    if not lines:
        return None
    return Got(lines[b"event"].decode(), json.loads(lines[b"data"]), lines.get(b"id", b"").decode())


class Viewer:
    """A reader of the stream, without a connection between."""

    def __init__(self, served: Api, *topics: str, last: str = "") -> None:
        self.topics, self.id, self._served, self._last = topics, last, served, last
        self.frames: Any = None

    async def next(self) -> Got:
        """Return the next frame that is not a comment."""
        if self.frames is None:
            streams = self._served.door.streams
            self.frames = streams.frames(await streams.prepared(wanted_topics(self.topics, self._last)))
        while True:
            async with asyncio.timeout(120):
                got = parsed(await anext(self.frames))
            if got is not None:
                self.id = got.id or self.id
                return got

    async def until(self, event: str, **wanted: Any) -> list[Got]:
        """Return the frames up to the first of this event with these data."""
        found = [await self.next()]
        while found[-1].event != event or any(found[-1].data.get(k) != v for k, v in wanted.items()):
            found.append(await self.next())
        return found

    async def rows(self, until: str) -> list[Any]:
        """Return the rows up to the first of this type."""
        found: list[Any] = []
        while not found or found[-1]["type"] != until:
            got = await self.next()
            found += got.data["rows"] if got.event == "run" else []
        return found

    async def aclose(self) -> None:
        if self.frames is not None:
            await self.frames.aclose()


@contextlib.asynccontextmanager
async def viewing(served: Api, *topics: str, last: str = "") -> AsyncIterator[Viewer]:
    found = Viewer(served, *topics, last=last)
    try:
        yield found
    finally:
        await found.aclose()


async def stored(served: Api, run_id: str) -> list[Any]:
    """Return the rows of a run's events, as they are when they are read at once from its log."""
    async with served.client("viewer") as client:
        rows: list[Any] = (await client.get(f"/runs/{run_id}/timeline?level=engine")).json()["rows"]
        assert [row["revision"] for row in rows] == list(range(1, len(rows) + 1))
        return rows


async def done(runtime: Runtime, **options: Any) -> str:
    run = await runtime.start(triager(), "It is broken", **options)
    await run.result()
    return run.run_id


async def test_a_viewer_of_a_run_gets_its_events_and_its_head_line() -> None:
    async with api(MemoryLog()) as served:
        run_id = await done(served.runtime)
        async with viewing(served, f"run:{run_id}") as reader:
            got = await reader.next()
            assert got.data["rows"] == await stored(served, run_id)
            assert (got.event, got.data["topic"], got.data["head"]["status"]) == (
                "run",
                f"run:{run_id}",
                "completed",
            )
            assert dict(parse_qsl(got.id)) == {f"run:{run_id}": got.data["rows"][-1]["cursor"]}


async def test_a_viewer_that_comes_back_to_another_server_loses_and_doubles_nothing() -> None:
    """It is cut off after each number of events, while the run goes on, and comes back to a server that just began."""
    log = MemoryLog()
    async with api(log) as first:
        run_id, approval = await paused(first.runtime)
        whole = await stored(first, run_id)
        cursors = [row["cursor"] for row in whole]
        await first.runtime.get_run(run_id).resolve(approval, "approved")
        await first.runtime.get_run(run_id).result()
        whole = await stored(first, run_id)
    for number, cursor in enumerate(cursors):
        async with (
            api(log) as later,
            viewing(later, f"run:{run_id}", last=f"run%3A{run_id}={cursor}") as reader,
        ):
            got: list[Any] = []
            while len(got) < len(whole) - number - 1:
                got += (await reader.next()).data["rows"]
            assert whole[: number + 1] + got == whole


async def test_all_viewers_of_a_family_share_one_reader_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    init = feeds.FamilyFeed.__init__

    def counted(self: Any, *args: Any) -> None:
        made.append(self)
        init(self, *args)

    monkeypatch.setattr(feeds.FamilyFeed, "__init__", counted)
    async with api(MemoryLog()) as served, contextlib.AsyncExitStack() as stack:
        run_id = await done(served.runtime)
        readers = [await stack.enter_async_context(viewing(served, f"run:{run_id}")) for _ in range(20)]
        rows = [(await reader.next()).data["rows"] for reader in readers]
        assert len(made) == 1
        assert all(each == rows[0] for each in rows)


async def test_text_in_the_making_is_shown_until_the_reply_is_stored(tmp_path: Path) -> None:
    turns = {"turns": [{"text": ["The first ", "words, ", "and ", "the last."], "chunk_delay_ms": 40}]}
    (tmp_path / "triage.json").write_text(json.dumps(turns))
    async with api(MemoryLog()) as served:
        run = await served.runtime.start(triager(), "It is broken")
        async with viewing(served, f"run:{run.run_id}") as reader:
            text, got = "", await reader.next()
            while not (got.event == "run" and got.data["head"]["status"] == "completed"):
                if got.event == "draft":
                    assert (got.data["run_id"], got.data["step"], got.data["attempt"]) == (run.run_id, 1, 1)
                    text = text[: got.data["offset"]] + got.data["text"]
                got = await reader.next()
            assert text == "The first words, and the last."[: len(text)] != ""
        async with viewing(served, f"run:{run.run_id}") as later:  # who comes later has no use for them
            assert (await later.next()).data["rows"] == await stored(served, run.run_id)
            assert all(entry is None or entry.event == "row" for entry in _entries(served))


async def test_text_of_an_attempt_that_failed_is_cut_back(tmp_path: Path) -> None:
    failing = {"type": "transient", "times": 1, "after_chunks": 2}
    turns = {
        "turns": [
            {
                "text": ["The first ", "words, ", "and ", "the last."],
                "chunk_delay_ms": 40,
                "error": failing,
                "retry_text": ["Other words", ", and ", "the end."],
            }
        ]
    }
    (tmp_path / "triage.json").write_text(json.dumps(turns))
    async with api(MemoryLog()) as served:
        run = await served.runtime.start(triager(), "It is broken")
        async with viewing(served, f"run:{run.run_id}") as reader:
            text, cuts, got = "", 0, await reader.next()
            while not (got.event == "run" and got.data["head"]["status"] == "completed"):
                if got.event in {"draft", "draft_reset"}:
                    text = text[: got.data["offset"]] + got.data.get("text", "")
                    cuts += got.event == "draft_reset"
                got = await reader.next()
            assert (cuts, text) == (1, "Other words, and the end."[: len(text)])


def _entries(served: Api) -> list[Any]:
    ((feed, _task),) = served.door.streams._feeds._feeds.values()
    return list(feed.entries)


async def test_a_viewer_of_a_run_is_told_why_it_waits_and_when_it_no_longer_does() -> None:
    async with api(MemoryLog()) as served:
        run_id, approval = await paused(served.runtime)
        async with viewing(served, f"run:{run_id}") as reader:
            got = await reader.next()
            while got.data.get("why") is None:
                got = await reader.next()
            assert got.data["why"]["kind"] == "approval"
            async with served.client("viewer") as client:
                assert got.data["why"] == (await client.get(f"/runs/{run_id}")).json()["why"]
            await served.runtime.get_run(run_id).resolve(approval, "approved")
            while got.data.get("why", "unknown") is not None or got.data["head"]["status"] != "completed":
                got = await reader.next()


async def test_viewers_are_told_who_drives_and_who_holds_as_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "PERIOD_S", 0.02)
    async with api(MemoryLog()) as served, viewing(served, "workers", "lanes") as reader:
        first = {got.data["topic"]: got.data["whole"] for got in [await reader.next(), await reader.next()]}
        assert first["workers"] == {"rows": [], "lost": []}
        assert first["lanes"] == {"agents": [], "lanes": [], "slots": [], "breakers": []}
        run_id, _ = await paused(served.runtime, session="ada")
        while True:
            got = await reader.next()
            if got.data["topic"] == "lanes" and got.data["whole"]["lanes"]:
                break
        assert [run["run_id"] for run in got.data["whole"]["lanes"][0]["runs"]] == [run_id]


async def test_viewers_of_the_monitor_are_told_of_each_violation() -> None:
    log, family = MemoryLog(), Family("broken")
    family.begin()
    family.commit(Status(status="completed"))
    family.commit(Status(status="completed"))
    async with api(log) as served, viewing(served, "monitor") as reader:
        got = await reader.next()
        assert (got.event, got.data["count"]) == ("violation", 0)
        await done(served.runtime)
        position = NEW
        for each in family.stored:
            (at,) = await log.events.append(CommitWrite(each.subject, position, each.data))
            position = At(at)
        got = await reader.next()
        assert (got.data["count"], got.data["violations"][0]["rule"]) == (1, "R6")
        async with viewing(served, "monitor") as later:
            assert (await later.next()).data["violations"] == got.data["violations"]


async def test_a_list_tells_which_runs_it_has_now_and_which_no_longer() -> None:
    async with api(MemoryLog()) as served, viewing(served, "runs?status=paused", "approvals") as reader:
        first = [await reader.next(), await reader.next()]
        assert {got.data["topic"] for got in first} == {"runs?status=paused", "approvals"}
        assert all(got.id for got in first)
        run_id, approval = await paused(served.runtime)
        got = (await reader.until("list", topic="runs?status=paused"))[-1].data
        assert [row["run_id"] for row in got["upserts"]] == [run_id]
        assert got["counts"]["paused"] == 1
        await served.runtime.get_run(run_id).resolve(approval, "rejected", by="ada")
        await served.runtime.get_run(run_id).result()
        gone: set[str] = set()
        while gone != {run_id, approval}:
            got = (await reader.until("list"))[-1].data
            gone |= set(got["removes"])


async def test_a_list_that_comes_back_is_told_what_has_changed_meanwhile() -> None:
    log = MemoryLog()
    async with api(log) as served, viewing(served, "runs?agent=triager") as reader:
        await reader.next()
        first = await done(served.runtime)
        while True:
            got = await reader.next()
            if got.data["counts"]["completed"] == 1:
                break
        last = reader.id
    async with api(log) as other:
        second = await done(other.runtime)
        await paused(other.runtime)
    async with api(log) as later, viewing(later, "runs?agent=triager", last=last) as reader:
        got = await reader.next()
        assert [row["run_id"] for row in got.data["upserts"]] == [second]
        assert first != second
        assert got.data["counts"] == {
            "queued": 0,
            "running": 0,
            "paused": 0,
            "completed": 2,
            "error": 0,
            "cancelled": 0,
        }


async def test_the_rows_of_a_list_have_the_totals_of_their_families_and_follow_the_runs_below() -> None:
    def read(row: Any) -> tuple[int, int, int]:
        return row["family"]["runs"], row["family"]["steps"], row["family"]["usage"]["total_tokens"]

    log, family = MemoryLog(), Family("swarm")
    positions: dict[str, At] = {}
    top, middle, low = family.root, "child-swarm-1", "child-swarm-2"

    async def store() -> None:
        for each in family.stored:
            position = positions.get(each.subject.id, NEW)
            (at,) = await log.events.append(CommitWrite(each.subject, position, each.data))
            positions[each.subject.id] = At(at)
        family.stored.clear()

    for run, above in ((top, None), (middle, top), (low, middle)):
        parent = ParentLink(run=above) if above is not None else None
        config = {"name": "agent"}
        begun = Submitted(
            kind="agent", config=config, config_digest="c", input="x", input_digest="i", parent=parent
        )
        family.commit(begun, Status(status="starting"), run=run)
    family.commit(*final_step(1), run=top)
    family.commit(usage(1, tokens=4), step_completed(1), run=middle)
    await store()
    async with api(log) as served, served.client("viewer") as client:
        rows = (await client.get("/runs")).json()["rows"]
        assert {row["run_id"]: read(row) for row in rows} == {
            top: (3, 2, 11),
            middle: (2, 1, 4),
            low: (1, 0, 0),
        }
        page = (await client.get("/runs?children=0")).json()
        assert [read(row) for row in page["rows"]] == [(3, 2, 11)]
        async with (
            viewing(served, f"runs?children=0@{page['cursor']}") as roots,
            viewing(served, "runs", "approvals") as reader,
        ):
            for _ in range(2):
                await reader.next()
            family.commit(*final_step(1), run=low)
            await store()
            got = (await reader.until("list", topic="runs"))[-1].data["upserts"]
            assert {row["run_id"]: read(row) for row in got} == {
                top: (3, 3, 18),
                middle: (2, 2, 11),
                low: (1, 1, 7),
            }
            (row,) = (await roots.next()).data["upserts"]
            assert (row["run_id"], row["usage"]["total_tokens"], read(row)) == (top, 7, (3, 3, 18))


async def test_every_change_reaches_a_list_however_the_connection_is_cut() -> None:
    log = MemoryLog()
    seen: dict[str, str] = {}
    async with api(log) as served:
        starting = asyncio.create_task(_many(served.runtime, 12))
        last = ""
        while len(seen) < 12 or set(seen.values()) != {"completed"}:
            async with viewing(served, "runs", last=last) as reader:
                got = await reader.next()  # one frame for each connection
                assert got.event == "list"
                seen |= {row["run_id"]: row["status"] for row in got.data["upserts"]}
                last = reader.id
        assert set(seen) == set(await starting)


async def _many(runtime: Runtime, count: int) -> list[str]:
    return [await done(runtime) for _ in range(count)]


async def test_a_viewer_of_a_run_that_is_erased_is_told_that_it_is_gone_and_so_is_one_that_comes_back() -> (
    None
):
    async with api(MemoryLog()) as served:
        run_id = await done(served.runtime)
        async with viewing(served, f"run:{run_id}") as reader:
            await reader.next()
            await served.runtime.delete(run_id, by="ann")
            gone = await reader.next()
        async with viewing(served, f"run:{run_id}", last=gone.id) as reader:
            again = await reader.next()
    for got in (gone, again):
        assert (got.event, got.data["error"]) == ("damage", "RunGone")
        assert f"run {run_id} was deleted on" in got.data["detail"]


async def test_a_viewer_of_a_damaged_run_gets_what_is_before_the_damage_and_then_its_place() -> None:
    log, family = MemoryLog(), Family("damaged")
    family.begin()
    family.claim(1)
    family.commit(Status(status="completed"), epoch=1)
    family.damage()
    position = NEW
    for each in family.stored:
        (at,) = await log.events.append(CommitWrite(each.subject, position, each.data))
        position = At(at)
    async with api(log) as served, viewing(served, f"run:{family.root}") as reader:
        got, damage = await reader.next(), await reader.next()
        assert (got.event, [row["revision"] for row in got.data["rows"]]) == ("run", [1, 2, 3])
        assert got.data["head"]["revision"] == 3
        assert (damage.event, damage.data["run"], damage.data["revision"]) == ("damage", family.root, 4)
        async with viewing(served, f"run:{family.root}", last=got.id) as again:
            assert (await again.next()).data == damage.data
        async with viewing(served, f"run:{family.root}", "runs", "approvals") as beside:
            told = {got.data["topic"]: got.event for got in [await beside.next() for _ in range(4)]}
        assert told == {"runs": "list", "approvals": "list", f"run:{family.root}": "damage"}


async def test_viewers_of_lists_read_again_when_a_run_is_found_damaged_and_each_list_names_it() -> None:
    log, family = MemoryLog(), Family("damaged")
    family.begin()
    family.claim(1)
    family.commit(Status(status="completed"), epoch=1)
    family.damage()
    *whole, last = family.stored
    position = NEW
    for each in whole:
        (at,) = await log.events.append(CommitWrite(each.subject, position, each.data))
        position = At(at)
    async with api(log) as served, viewing(served, "runs?status=paused", "approvals") as reader:
        for _ in range(2):
            assert (await reader.next()).event == "list"
        await log.events.append(CommitWrite(last.subject, position, last.data))
        told = [await reader.next() for _ in range(2)]
        assert {got.data["topic"] for got in told} == {"runs?status=paused", "approvals"}
        assert {got.event for got in told} == {"resync"}
        async with served.client("viewer") as client:
            for path in ("runs?status=paused", "approvals", "runs?damaged=1"):
                answer = (await client.get(path)).json()
                assert [row["run_id"] for row in answer["damaged"]] == [family.root]
                assert answer["damaged"][0]["damage"]["revision"] == 4
            (row,) = answer["rows"]
            assert row.pop("family")["runs"] == 1
            assert answer["damaged"] == [row]
            gauges = (await client.get("metrics")).text
        assert re.search(r"^foldlog_runs_damaged\{.*\} 1$", gauges, re.MULTILINE)


async def test_a_reader_that_is_too_slow_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "WAITING_BYTES_MAX", 10_000)
    async with api(MemoryLog()) as served:
        run_id, approval = await paused(served.runtime)
        async with viewing(served, f"run:{run_id}") as reader:
            await reader.next()
            run = served.runtime.get_run(run_id)
            for _ in range(20):
                await run.inject("x" * 1000)
            await run.resolve(approval, "approved")
            await run.result()
            got = await reader.until("resync")
            assert got[-1].data == {"topic": f"run:{run_id}"}
            whole = await stored(served, run_id)
            place = dict(parse_qsl(reader.id))[f"run:{run_id}"]
            seen = {row["revision"] for each in got if each.event == "run" for row in each.data["rows"]}
            left = [row for row in whole if row["cursor"] > place]
            assert len(seen) + len(left) < len(whole)


async def test_a_cursor_that_the_log_does_not_have_is_answered_with_read_again() -> None:
    async with api(MemoryLog()) as served:
        run_id = await done(served.runtime)
        places = f"run%3A{run_id}=00000000009999.00000&runs=9999"
        async with viewing(served, f"run:{run_id}", "runs", last=places) as reader:
            assert {(await reader.next()).event, (await reader.next()).event} == {"resync"}


async def test_viewers_hear_that_the_log_is_lost_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "PROBE_S", 0.05)
    log = FaultyLog(MemoryLog(), [Outage(3, operation="events.head")])
    async with api(log) as served, viewing(served, "runs") as reader:
        await reader.until("notice", log="lost")
        await log.release()
        await reader.until("notice", log="back")
        await done(served.runtime)
        await reader.until("list")


async def test_a_comment_comes_while_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "COMMENT_S", 0.01)
    async with api(MemoryLog()) as served:
        streams = served.door.streams
        reading = streams.frames(await streams.prepared(wanted_topics(["runs"], "")))
        blocks = [await anext(reading) for _ in range(4)]
        assert blocks[0] == frames.COMMENT
        assert frames.COMMENT in blocks[1:]
        await reading.aclose()


async def test_whoever_may_not_look_any_more_is_shown_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "COMMENT_S", 0.01)
    may = [True, True, False]
    async with api(MemoryLog()) as served:
        streams = served.door.streams
        topics = await streams.prepared(wanted_topics(["runs"], ""))
        blocks = [block async for block in streams.frames(topics, lambda: may.pop(0))]
        assert blocks[0] == frames.COMMENT
        assert may == []


async def test_the_end_of_the_server_is_a_frame() -> None:
    async with api(MemoryLog()) as served, viewing(served, "runs") as reader:
        await reader.next()
        await served.door.aclose()
        assert (await reader.until("bye"))[-1].event == "bye"
        with pytest.raises(StopAsyncIteration):
            await reader.next()


@pytest.mark.parametrize(
    ("status", "topics"),
    [
        (422, ""),
        (422, "t=nothing"),
        (422, "t=runs?status=done"),
        (422, "t=run:"),
        (422, "t=approvals?kind=tool"),
        (422, "&".join(f"t=run:{n}" for n in range(65))),
        (404, "t=run:nobody"),
    ],
)
async def test_a_wrong_topic_is_refused_before_the_stream_begins(status: int, topics: str) -> None:
    async with api(MemoryLog()) as served, served.client("viewer") as client:
        assert (await client.get(f"/stream?{topics}")).status_code == status
    async with api(MemoryLog()) as served, served.client() as client:
        assert (await client.get("/stream?t=runs")).status_code == 401


@contextlib.asynccontextmanager
async def listening(log: Log) -> AsyncIterator[tuple[Api, str]]:
    async with api(log) as opened, served(opened.app, "127.0.0.1", 0, 2) as address:
        try:
            yield opened, address
        finally:
            await opened.door.aclose()


async def _frames(address: str, topics: str, last: str) -> AsyncIterator[Got]:
    headers = bearer("viewer") | ({"last-event-id": last} if last else {})
    async with (
        httpx.AsyncClient(timeout=120) as client,
        client.stream("GET", f"{address}/api/v1/stream?{topics}", headers=headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        buffer = b""
        async for chunk in answer.aiter_bytes():
            *blocks, buffer = (buffer + chunk).split(b"\n\n")
            for block in blocks:
                if (got := parsed(block)) is not None:
                    yield got


async def test_over_http_a_server_ends_its_streams_and_the_next_one_goes_on() -> None:
    log = MemoryLog()
    got: list[Any] = []
    last = ""
    async with listening(log) as (first, address):
        run_id, approval = await paused(first.runtime)
        begun = asyncio.Event()
        reading = asyncio.create_task(_collect(address, f"t=run:{run_id}", got, begun))
        await begun.wait()
    last = await reading
    async with listening(log) as (second, address):
        await second.runtime.get_run(run_id).resolve(approval, "approved")
        await second.runtime.drive(run_id)
        await second.runtime.get_run(run_id).result()
        whole = await stored(second, run_id)
        async with contextlib.aclosing(_frames(address, f"t=run:{run_id}", last)) as frames_:
            while len(got) < len(whole):
                got += (await anext(frames_)).data["rows"]
    assert got == whole


async def _collect(address: str, topics: str, into: list[Any], begun: asyncio.Event) -> str:
    last = ""
    async for got in _frames(address, topics, ""):
        last = got.id or last
        into += got.data.get("rows", [])
        begun.set()
        if got.event == "bye":
            break
    return last
