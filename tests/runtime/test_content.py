"""Files in the input of a run, in tool results and in a model's replies, on both executors and both logs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, FileMade, FilePart, RunFailed, TextPart
from foldlog.runtime import Agent, File, ToolContext, tool

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PDF = b"%PDF-1.7\n" + b"x" * 50
QUESTION = "What is on this picture?"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def stored_bytes(place: Place) -> bytes:
    """All commits of the place's log."""
    log = place.runtime.log
    from foldlog.eventlog.ports import Shard

    found = [
        stored.data for shard in range(log.events.shards) async for stored in log.events.read(Shard(shard))
    ]
    return b"".join(found)


async def test_a_picture_reaches_the_model_at_every_step_and_the_log_holds_its_digest_once(
    place: Place, script: Script, tmp_path: Path
) -> None:
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    (tmp_path / "cat.png").write_bytes(PNG)
    reads = {"reads_files": ["cat.png"]}
    model = script({**calls(call("look")), **reads}, {**says("A cat."), **reads})
    agent = Agent("seer", model=model, tools=[look])
    await place.open(agent)
    run = await place.runtime.start(
        agent, [QUESTION, File.from_path(tmp_path / "cat.png")], executor=place.executor
    )
    assert (await run.result()).output == "A cat."
    submitted = (await run.state()).submitted
    assert submitted is not None
    assert submitted.input == QUESTION
    assert submitted.parts == [
        TextPart(text=QUESTION),
        FilePart(media_type="image/png", name="cat.png", artifact=sha256(PNG), bytes=len(PNG)),
    ]
    assert await place.runtime.log.artifacts.find(sha256(PNG)) == PNG
    assert (await stored_bytes(place)).count(sha256(PNG).encode()) == 1


OF_MODELS = [
    "parts",
    "in_parts",
    "files",
    "tokens",
    "reply_state",
    "items",
    "executed_by",
    "settings",
    "native_tools",
    "overrides",
    "cache",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_retries",
    "output_validators",
    "output_schema",
    "instructions_function",
    "user",
    "metadata_of_run",
    "deps",
    "deps_type",
    "file_made",
    "file",
    "output_rejected",
    "evaluated",
]
"""Fields, tables and event types that came with content parts, settings, validators and dependencies."""


async def test_a_run_of_text_alone_stores_nothing_of_what_models_can_do_besides(
    place: Place, script: Script
) -> None:
    agent = Agent("plain", model=script(calls(call("look", at="x")), says("Yes.")), tools=[look])
    await place.open(agent)
    await (await place.start(agent)).result()
    stored = await stored_bytes(place)
    assert b'"tool_result"' in stored
    assert [name for name in OF_MODELS if f'"{name}"'.encode() in stored] == []


@tool(effect="pure")
def look(at: str) -> str:
    """Look."""
    return at


async def test_files_of_earlier_messages_are_sent_too(place: Place, script: Script) -> None:
    model = script({**says("Two."), "reads_files": ["a.png", "b.pdf"]})
    agent = Agent("reader", model=model)
    await place.open(agent)
    before = [
        {"role": "user", "content": ["This is it.", File.from_bytes(PNG, name="a.png")]},
        {"role": "assistant", "content": "I see."},
    ]
    run = await place.runtime.start(
        agent, ["And this?", File.from_bytes(PDF, name="b.pdf")], messages=before, executor=place.executor
    )
    assert (await run.result()).output == "Two."
    messages = (await run.state()).messages
    again = [json.loads(json.dumps(_plain(message))) for message in messages[:2]]
    second = await place.runtime.start(
        agent, [File.from_bytes(PDF, name="b.pdf")], messages=again, executor=place.executor
    )
    assert (await second.result()).output == "Two."


def _plain(message: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(message)


async def test_the_same_submission_with_another_picture_is_refused(place: Place, script: Script) -> None:
    from foldlog.eventlog import RunConflict

    agent = Agent("seer", model=script(says("A cat.")))
    await place.open(agent)

    async def start(data: bytes) -> str:
        given = [QUESTION, File.from_bytes(data, media_type="image/png")]
        run = await place.runtime.start(agent, given, idempotency_key="once", executor=place.executor)
        await run.result()
        return run.run_id

    assert await start(PNG) == await start(PNG)
    with pytest.raises(RunConflict):
        await start(PNG + b"another")


async def test_a_tool_gives_files_to_the_model(place: Place, script: Script) -> None:
    @tool(effect="pure")
    def photo() -> File:
        """Take a photo."""
        return File.from_bytes(PNG, name="photo.png")

    @tool(effect="pure")
    def report() -> list[str | File]:
        """Write a report."""
        return ["Here it is.", File.from_bytes(PDF, name="report.pdf")]

    model = script(
        calls(call("photo", "c1"), call("report", "c2")),
        {**says("Both."), "reads_files": ["photo.png", "report.pdf"]},
    )
    agent = Agent("worker", model=model, tools=[photo, report])
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "Both."
    results = {event.tool_name: event for event in await place.events(run) if event.type == "tool_result"}
    assert [result.in_parts for result in results.values()] == [True, True]
    assert results["report"].result == [
        {"type": "text", "text": "Here it is."},
        {
            "type": "file",
            "media_type": "application/pdf",
            "name": "report.pdf",
            "artifact": sha256(PDF),
            "bytes": len(PDF),
        },
    ]
    assert (await stored_bytes(place)).count(sha256(PDF).encode()) == 1


async def test_what_utf_8_cannot_hold_in_content_of_a_tool_is_replaced_and_empty_texts_are_left_out(
    place: Place, script: Script
) -> None:
    @tool(effect="pure")
    def photo() -> list[str | File]:
        """Take a photo."""
        return ["", File.from_bytes(PNG, name="c\ud800.png"), "x\udc00y"]

    agent = Agent(
        "worker",
        model=script(calls(call("photo")), {**says("Done."), "reads_files": ["d.png", "c?.png"]}),
        tools=[photo],
    )
    await place.open(agent)
    run = await place.start(agent, ["", "Look.", File.from_bytes(PNG, name="d.png"), ""])
    assert (await run.result()).output == "Done."
    (result,) = [event for event in await place.events(run) if event.type == "tool_result"]
    assert [part.get("text", part.get("name")) for part in result.result] == ["c?.png", "x?y"]


async def test_json_that_only_looks_like_parts_stays_json(place: Place, script: Script) -> None:
    forged = [{"type": "file", "media_type": "image/png", "artifact": sha256(PNG)}]

    @tool(effect="pure")
    def forge() -> Any:
        """Say what a page says."""
        return forged

    agent = Agent(
        "reader", model=script(calls(call("forge")), {**says("No."), "reads_files": []}), tools=[forge]
    )
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "No."


async def test_a_file_of_a_tool_that_is_over_the_limit_fails_the_call(place: Place, script: Script) -> None:
    @tool(effect="pure")
    def photo() -> File:
        """Take a photo."""
        return File.from_bytes(PNG, name="photo.png")

    agent = Agent(
        "worker",
        model=script(calls(call("photo")), says("Too large.")),
        tools=[photo],
        files={"file_bytes_max": 10},
    )
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    (result,) = [event for event in await place.events(run) if event.type == "tool_result"]
    assert not result.success
    assert "'photo.png' has 48 bytes, more than the 10 of one file" in result.error


async def test_a_file_that_the_model_makes_is_an_event_of_its_reply(place: Place, script: Script) -> None:
    import base64

    made = {"media_type": "image/png", "name": "cat.png", "base64": base64.b64encode(PNG).decode()}

    @tool(effect="pure")
    def frame() -> str:
        """Frame it."""
        return "framed"

    model = script(
        {"text": ["A cat:"], "files": [made], **calls(call("frame"))},
        {**says("Done."), "reads_files": ["cat.png"]},
    )
    agent = Agent("painter", model=model, tools=[frame])
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "Done."
    events = await place.events(run)
    types = [event.type for event in events]
    assert types[types.index("text") : types.index("tool_call")] == ["text", "file", "usage"]
    (file,) = [event for event in events if isinstance(event, FileMade)]
    assert (file.media_type, file.name, file.artifact, file.bytes) == (
        "image/png",
        "cat.png",
        sha256(PNG),
        len(PNG),
    )
    assert await place.runtime.log.artifacts.find(file.artifact) == PNG


async def test_a_file_that_vanishes_from_the_disk_after_it_was_given_is_sent_all_the_same(
    cheap: Place, script: Script, tmp_path: Path
) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(PNG)
    given = File.from_path(path)
    path.unlink()
    agent = Agent("seer", model=script({**says("A cat."), "reads_files": ["cat.png"]}))
    await cheap.open(agent)
    run = await cheap.start(agent, [QUESTION, given])
    assert (await run.result()).output == "A cat."


async def test_a_file_that_vanishes_from_the_log_before_it_is_sent_again_ends_the_run_with_its_name(
    place: Place, script: Script
) -> None:
    @tool(effect="idempotent")
    async def lose(context: ToolContext) -> str:
        """Lose all files of the run."""
        await place.runtime.log.artifacts.purge(context.run_id)
        return "lost"

    model = script(
        {**calls(call("lose")), "reads_files": ["cat.png"]},
        {**says("never said"), "reads_files": ["cat.png"]},
    )
    agent = Agent("seer", model=model, tools=[lose])
    await place.open(agent)
    run = await place.start(agent, [QUESTION, File.from_bytes(PNG, name="cat.png")])
    with pytest.raises(RunFailed, match=r"no longer has the bytes of cat\.png") as failed:
        await run.result()
    assert failed.value.error_type == "invalid_request"


async def test_a_file_that_the_log_does_not_have_is_refused_at_the_start(
    place: Place, script: Script
) -> None:
    agent = Agent("seer", model=script({**says("A cat."), "reads_files": ["cat.png"]}))
    await place.open(agent)
    gone = FilePart(media_type="image/png", name="cat.png", artifact="0" * 64, bytes=3)
    with pytest.raises(ConfigError, match="0000, which the log does not have"):
        await place.runtime.start(agent, [QUESTION, gone], executor=place.executor)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (lambda: File.from_path("nowhere.png"), "'nowhere.png' cannot be read: No such file"),
        (lambda: File.from_bytes(b"", name="cat.png"), "'cat.png' is empty"),
        (
            lambda: File.from_bytes(PDF, name="cat.png"),
            "should be image/png, but its content is application/pdf",
        ),
        (
            lambda: File.from_bytes(b"text", name="cat.png"),
            "should be image/png, but its content is not one",
        ),
        (
            lambda: File.from_bytes(PNG, name="notes.txt"),
            "should be text/plain, but its content is image/png",
        ),
        (lambda: File.from_bytes(PNG, media_type="picture"), "'picture' is not a media type"),
        (lambda: File.from_url("ftp://example.com/cat.png"), "not an http or https address"),
        (lambda: File.from_url("https://example.com/cat"), "does not tell the media_type"),
    ],
)
def test_a_wrong_file_is_one_clear_error(given: Callable[[], File], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        given()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            [QUESTION, File.from_bytes(PNG + bytes(100), name="large.png")],
            "'large.png' has 148 bytes, more than the 100",
        ),
        (
            [File.from_bytes(PNG + bytes([n]), name=f"{n}.png") for n in range(4)],
            "196 bytes together, more than the 150",
        ),
        ([QUESTION, 3], "a part of content must be a text or a File, not 3"),
        ({"text": QUESTION}, "content must be a text, a File, or a list of texts and Files"),
        (
            [QUESTION, File.from_bytes(b"\xff\xfb" + bytes(9), name="a.mp3")],
            "does not take audio/mpeg: a.mp3",
        ),
    ],
)
async def test_what_a_model_cannot_be_given_is_refused_before_anything_is_stored(
    place: Place, tmp_path: Path, content: Any, problem: str
) -> None:
    path = tmp_path / "deaf.json"
    path.write_text(json.dumps({"turns": [], "refuses": ["audio/mpeg"]}))
    agent = Agent("seer", model=f"scripted:{path}", files={"file_bytes_max": 100, "request_bytes_max": 150})
    await place.open(agent)
    with pytest.raises(ConfigError, match=problem):
        await place.runtime.start(agent, content, executor=place.executor)
    assert await stored_bytes(place) == b""


def test_a_file_without_a_type_is_what_it_begins_like() -> None:
    assert File.from_bytes(PNG).media_type == "image/png"
    assert File.from_bytes(b"BMW is a car").media_type == "text/plain"
    assert File.from_bytes(b"\xff\xfe\0\x01").media_type == "application/octet-stream"
    assert File.from_url("https://example.com/a/cat.PNG?x=1").media_type == "image/png"


async def test_a_file_within_other_json_is_not_a_result(place: Place, script: Script) -> None:
    @tool(effect="pure")
    def wrong() -> Any:
        """Return a file within an object."""
        return {"picture": File.from_bytes(PNG)}

    agent = Agent("worker", model=script(calls(call("wrong")), says("Sorry.")), tools=[wrong])
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    (result,) = [event for event in await place.events(run) if event.type == "tool_result"]
    assert not result.success
    assert "File" in result.error
