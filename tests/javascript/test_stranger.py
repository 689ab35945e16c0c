"""The log read by a stranger: the JavaScript NATS client, and nothing of foldlog but its exported JSON Schema."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from foldlog.eventlog import (
    Family,
    Status,
    Stored,
    commit_schema,
    decode,
    digest_of_bytes,
    encode,
)
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.replay import load_trace
from foldlog.runtime import Runtime

from tests.docs.markdown import ROOT, blocks
from tests.javascript.packages import READ_S, installed_packages, output_of
from tests.processes import workshop


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def reader(anyio_backend: str) -> Callable[..., list[str | Path]]:
    """Return the command of the reader."""
    node, directory = await installed_packages()
    return lambda *arguments: [node, directory / "read_run.js", *arguments]


@pytest.fixture
async def runtime(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runtime]:
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    async with (
        EphemeralServer() as server,
        Runtime.open(server.url, namespace="stranger", registry=workshop.registry) as runtime,
    ):
        yield runtime


async def read(
    runtime: Runtime, run_id: str, reader: Callable[..., list[str | Path]], directory: Path
) -> tuple[int, list[dict[str, Any]], str]:
    """Return the reader's result for the family of a run: exit code, events, standard error."""
    schema = directory / "commit.schema.json"
    schema.write_text(json.dumps(commit_schema()))
    subject, layout = await runtime.locate(run_id), Layout(runtime.log.namespace)
    family = layout.selected(Family(subject.shard, subject.root)).decode()
    command = reader(runtime.log.url, layout.shard(subject.shard), family, schema)  # type: ignore[attr-defined]
    code, output, errors = await output_of(*command, cwd=directory)
    return code, [json.loads(line) for line in output.splitlines()], errors


@pytest.mark.parametrize("agent", ["clerk", "chief", "walker"])
async def test_a_stranger_reads_what_we_read(
    runtime: Runtime, reader: Callable[..., list[str | Path]], tmp_path: Path, agent: str
):
    run = await runtime.start(workshop.registry.agent(agent), "Größe 🌍?", metadata={"a": [1, 2.5, None]})
    await run.result(timeout_s=READ_S)
    code, events, errors = await read(runtime, run.run_id, reader, tmp_path)
    assert (code, errors) == (0, "")
    ours = [
        json.loads(msgspec.json.encode(event)) for event in (await load_trace(runtime.log, run.run_id)).events
    ]
    for event in ours:
        del event["cursor"]
    assert events == ours


async def test_the_reader_of_the_documents_finds_a_run_whose_caller_chose_its_id_and_follows_what_lies_beside_the_log(
    runtime: Runtime, reader: Callable[..., list[str | Path]], monkeypatch: pytest.MonkeyPatch
):
    (block,) = (b for b in blocks(ROOT / "docs/how-to/reading-the-log.md") if b.language == "javascript")
    node, script = reader()
    fresh = Path(script).parent / "read.mjs"  # beside its packages
    fresh.write_text(block.text)
    monkeypatch.setattr("foldlog.eventlog.offload.FIELD_BYTES_MAX", 24)
    monkeypatch.setenv("NATS_URL", runtime.log.url)  # type: ignore[attr-defined]
    for run_id in ("chosen", "chosen-too", None):
        run = await runtime.start(workshop.registry.agent("clerk"), "question", run_id=run_id)
        await run.result(timeout_s=READ_S)
        code, output, errors = await output_of(node, fresh, run.run_id, "stranger", cwd=fresh.parent)
        assert code == 0, errors
        trace = await load_trace(runtime.log, run.run_id)
        mine = [event for event in trace.events if event.run_id == run.run_id]
        assert [line.split(" ")[:2] for line in output.splitlines()] == [
            [str(event.revision), event.type] for event in mine
        ]
    code, _, errors = await output_of(node, fresh, "nowhere", "stranger", cwd=fresh.parent)
    assert code == 1
    assert "no run nowhere" in errors


def of_an_unknown_type(commit: dict[str, Any]) -> None:
    commit["events"] = [{"type": "of tomorrow", "anything": [1]}]


def with_a_wrong_field(commit: dict[str, Any]) -> None:
    commit["events"] = [{"type": "status", "status": "asleep"}]


def of_a_broken_chain(commit: dict[str, Any]) -> None:
    commit["prev"] = "0" * 64


def of_a_later_revision(commit: dict[str, Any]) -> None:
    commit["rev"] += 1


def summed(commit: dict[str, Any]) -> bytes:
    body = json.dumps(commit, separators=(",", ":")).encode()
    return body[:-1] + f',"sum":"{digest_of_bytes(body)[:16]}"'.encode() + b"}"


FORGERIES = [
    (of_an_unknown_type, None),
    (with_a_wrong_field, "data/events/0"),
    (of_a_broken_chain, "its predecessor is another commit"),
    (of_a_later_revision, "begins at revision"),
    (None, "wrong sum"),
]


@pytest.mark.parametrize(("change", "complaint"), FORGERIES)
async def test_a_stranger_finds_what_the_schema_and_the_chain_forbid(
    runtime: Runtime,
    reader: Callable[..., list[str | Path]],
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None] | None,
    complaint: str | None,
):
    run = await runtime.start(workshop.quick, "question")
    await run.result(timeout_s=READ_S)
    subject = await runtime.locate(run.run_id)
    head = await runtime.log.events.head(subject)
    assert head is not None
    commit = json.loads(next_commit(head))
    del commit["sum"]
    if change is not None:
        change(commit)
    data = summed(commit)
    if change is None:
        data = data.replace(b"completed", b"cancelled")
    connection = await nats.connect(runtime.log.url)  # type: ignore[attr-defined]
    await connection.jetstream().publish(Layout("stranger").subject(subject).decode(), data)
    await connection.close()
    code, _, errors = await read(runtime, run.run_id, reader, tmp_path)
    assert code == (0 if complaint is None else 1)
    assert (complaint or "") in errors


def next_commit(head: Stored) -> bytes:
    """A commit as it could follow."""
    last = decode(head.data)
    return encode(
        msgspec.structs.replace(
            last,
            rev=last.rev + len(last.events),
            prev=digest_of_bytes(head.data),
            append="next",
            events=(Status(status="completed"),),
        )
    )
