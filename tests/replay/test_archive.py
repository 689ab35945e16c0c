"""Archives keep every byte: what is exported, imported and exported again is the same, and damage is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from foldlog.eventlog.commits import decode
from foldlog.eventlog.errors import ConfigError, LogCorrupted, RunConflict, RunNotFound
from foldlog.eventlog.events import ToolResult
from foldlog.eventlog.faults import FaultyLog, LostAck, plan_of
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Log, Shard
from foldlog.replay import (
    canonical,
    check,
    check_log,
    export,
    import_archive,
    load_trace,
    read_archive,
    replay,
    to_jsonl,
)
from foldlog.replay.parity.parity import check_parity
from foldlog.runtime import Agent, Registry, Runtime, ToolContext, tool
from foldlog.runtime.ports.knowledge import KnowledgeItem

from tests.replay.conftest import played
from tests.replay.scenarios import SCENARIOS


async def exported(log: Log, run: str | None = None, *, artifacts: bool = True) -> bytes:
    return b"".join([line async for line in export(log, run, artifacts=artifacts)])


async def commits(log: Log) -> list[bytes]:
    shards = range(log.events.shards)
    return sorted([s.data for shard in shards async for s in log.events.read(Shard(shard))])


@pytest.mark.parametrize("name", SCENARIOS)
async def test_what_is_imported_elsewhere_is_the_same_byte_for_byte(name: str) -> None:
    world, archive = played(name)
    target = MemoryLog("other", shards=3)
    found = await import_archive(archive, target)
    assert await commits(target) == await commits(world.log)
    assert (found.commits, found.skipped) == (len(archive.stored), ())
    for root, trace in archive.traces.items():
        there = await load_trace(target, root)
        assert (
            canonical(there).digest
            == canonical(trace).digest
            == canonical(await load_trace(world.log, root)).digest
        )
    again = read_archive(await exported(target))
    assert {s.subject.id for s in again.stored} == {s.subject.id for s in archive.stored}
    assert check(again) == check(archive) == await check_log(target)


async def test_one_family_is_exported_by_the_id_of_any_member() -> None:
    world, archive = played("child")
    for subject in archive.runs:
        assert read_archive(await exported(world.log, subject.id)).stored == archive.stored
    with pytest.raises(RunNotFound):
        await exported(world.log, "nobody")


async def test_events_of_a_newer_writer_survive_the_round_trip() -> None:
    _world, archive = played("from_a_newer_writer")
    target = MemoryLog("other")
    await import_archive(archive, target)
    last = [s async for s in target.events.read(Shard(0))][-1]
    assert b'"type":"rated","stars":5' in last.data
    assert check(read_archive(await exported(target))).newer == 1
    assert decode(last.data).events[0].type == "unknown"


async def test_an_import_can_be_repeated_and_one_that_broke_off_is_completed() -> None:
    _world, archive = played("retries")
    target = MemoryLog("other")
    half = msgspec.structs.replace(archive, stored=archive.stored[:5])
    assert (await import_archive(half, target)).commits == 5
    assert (await import_archive(archive, target)).commits == len(archive.stored) - 5
    again = await import_archive(archive, target)
    assert (again.commits, again.runs, len(again.skipped)) == (0, (), 1)
    assert (await import_archive(half, target)).commits == 0


async def test_a_run_that_exists_with_other_commits_is_refused_and_nothing_is_stored() -> None:
    _world, archive = played("retries")
    _other_world, other = played("injected")
    target = MemoryLog("other")
    await import_archive(archive, target)
    ours, theirs = archive.stored[0].subject, other.stored[0].subject
    before = await commits(target)
    forged = read_archive(to_jsonl(archive))
    changed = forged.stored[-1]
    commit = decode(changed.data)
    from foldlog.eventlog.commits import encode

    data = encode(msgspec.structs.replace(commit, at=commit.at + 1))
    stored = (*other.stored, *forged.stored[:-1], msgspec.structs.replace(changed, data=data))
    with pytest.raises(RunConflict, match=ours.id):
        await import_archive(msgspec.structs.replace(forged, stored=stored), target)
    assert await commits(target) == before
    assert await target.events.find(theirs.shard, theirs.id) is None


async def test_a_lost_answer_does_not_store_a_commit_twice() -> None:
    _world, archive = played("retries")
    target = MemoryLog("other")
    faulty = FaultyLog(target, plan_of([LostAck(call=2)]))
    assert (await import_archive(archive, faulty)).commits == len(archive.stored)
    assert await commits(target) == sorted(stored.data for stored in archive.stored)


async def test_an_export_without_its_artifacts_says_what_is_missing() -> None:
    world, archive = played("emitted")
    bare = read_archive(await exported(world.log, artifacts=False))
    assert (len(check(archive).missing), len(check(bare).missing)) == (0, 1)
    with pytest.raises(ConfigError, match="--artifacts"):
        await import_archive(bare, MemoryLog("other"))
    result = next(
        e for e in archive.trace().events if e.type == "tool_result" and e.tool_call_id == "call-0-1"
    )
    assert len(result.result) == 40_000  # type: ignore[attr-defined]


def test_every_kind_of_damage_to_a_file_is_named() -> None:
    _world, archive = played("emitted")
    data = to_jsonl(archive)
    lines = data.splitlines(keepends=True)
    with pytest.raises(LogCorrupted, match="checksum"):
        read_archive(data.replace(b"done", b"dune"))
    with pytest.raises(LogCorrupted, match="commits are missing"):
        read_archive(b"".join([*lines[:2], *lines[3:]]))
    with pytest.raises(LogCorrupted, match="do not match its digest"):
        read_archive(data.replace(b'"base64":"Ij', b'"base64":"IT'))
    with pytest.raises(ConfigError, match="line 2 is not a line of an export"):
        read_archive(lines[0] + b'{"hello": 1}\n')
    with pytest.raises(ConfigError, match="line 1 is not a line of an export"):
        read_archive(b"not json\n")
    with pytest.raises(ConfigError, match="holds no run"):
        read_archive(b"").trace()


async def test_a_run_that_is_still_going_is_exported_up_to_now() -> None:
    world, archive = played("waiting")
    assert len(check(archive).open) == 3
    assert (await check_log(world.log)).open == check(archive).open


async def test_what_tools_stored_and_what_a_model_may_read_on_in_comes_along() -> None:
    @tool(effect="pure")
    async def keep(context: ToolContext) -> str:
        """Keep something, and say much."""
        await context.artifact(b"kept", "text/plain")
        return "much " * 20_000

    agent = Agent("keeper", model="scripted:none", tools=[keep])
    script = [{"tool_calls": [{"id": "1", "name": "keep", "arguments": {}}]}, {"text": ["done"]}]
    report = await check_parity(agent, "question", script=script, log=(log := MemoryLog()))
    archive = read_archive(await exported(log, report.traces["local"].root))
    elsewhere = MemoryLog()
    await import_archive(archive, elsewhere)
    assert check(archive).missing == ()
    (result,) = [event for event in report.traces["local"].events if event.type == "tool_result"]
    assert isinstance(result, ToolResult)
    (evidence,) = result.metadata["evidence"]
    assert await elsewhere.artifacts.find(evidence["id"]) == b"kept"
    assert await elsewhere.artifacts.find(result.metadata["offloaded_artifact_id"]) == b"much " * 20_000


async def test_all_that_lies_beside_the_log_goes_with_the_archive(tmp_path: Path) -> None:
    class Shelf:
        async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
            return [KnowledgeItem(id="1", text="k" * 50_000)]

        async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
            return ()

    @tool(effect="pure")
    async def part(context: ToolContext) -> str:
        """Do one part."""
        return str(len(await context.memo("part", lambda: "m" * 50_000)))

    path, asks = tmp_path / "script.json", [{"id": "c", "name": "part"}]
    path.write_text(json.dumps({"turns": [{"text": "x" * 1_000_000, "tool_calls": asks}, {"text": "done"}]}))
    agent = Agent("helper", model=f"scripted:{path}", tools=[part], memory={"scope": "session"})
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent], knowledge=Shelf())) as runtime:
        for text in ("q" * 50_000, "again"):
            handle = await runtime.start(agent, text, session="s")
            await handle.result()
    archive = read_archive(await exported(log, handle.run_id))
    assert (check(archive).missing, check(archive).artifacts) == ((), 4)
    (trace,) = archive.traces.values()
    assert replay(trace).divergence is None
    target = MemoryLog()
    await import_archive(archive, target)
    assert canonical(await load_trace(target, handle.run_id)).digest == canonical(trace).digest
