"""All readers of a run see the same, at any time and place; text shown early is corrected once, where it differs."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from foldlog.eventlog import (
    OBSERVABLE,
    Event,
    Reasoning,
    Status,
    Step,
    Text,
    TextReset,
    ToolCallDelta,
    to_json,
)
from foldlog.runtime import RunHandle

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, command, kinds, observed, stored

Shown = list[dict[str, Any]]


def joined(events: Sequence[Event]) -> tuple[Shown, dict[tuple[str, int | None, str], str]]:
    """Return a caller's view: all events but text, and the corrected text by run, step and channel."""
    rest, texts = Shown(), dict[tuple[str, int | None, str], str]()
    for event in events:
        match event:
            case Text() | Reasoning():
                key = (event.run_id, event.step, event.type)
                assert event.offset == len(texts.get(key, ""))
                texts[key] = texts.get(key, "") + event.text
            case TextReset():
                key = (event.run_id, event.step, event.channel)
                texts[key] = texts[key][: event.offset]
            case ToolCallDelta():
                pass
            case _:
                rest.append(to_json(event))
    return rest, texts


async def as_stored(
    place: Place, run: RunHandle[str]
) -> tuple[Shown, dict[tuple[str, int | None, str], str]]:
    """Return the events of the log, with the last one marked as the end, as in a stream of the run."""
    *events, end = [event for event in (await place.trace(run)).events if isinstance(event, OBSERVABLE)]
    return joined([*events, msgspec.structs.replace(end, is_end=True)])


def from_json(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.parametrize("agent", ["clerk", "chief"])
async def test_live_late_and_distant_readers_see_the_same(place: Place, agent: str):
    run = await place.runtime.start(workshop.registry.agent(agent), "question", executor="durable")
    live = asyncio.create_task(observed(run, detailed=True))
    distant = asyncio.create_task(command(place, "runs", "stream", run.run_id, "--detailed", "--json"))
    await place.worker()
    await run.result(timeout_s=PATIENCE_S)
    expected = await as_stored(place, run)
    assert joined(await live) == expected
    assert joined(await observed(run, detailed=True)) == expected
    assert joined(await observed(place.runtime.get_run(run.run_id), detailed=True)) == expected
    printed = from_json(await distant)
    assert [line for line in printed if line["type"] not in JOINED] == expected[0]
    texts: dict[tuple[str, int | None, str], str] = {}
    for line in printed:
        if line["type"] in {"text", "reasoning"}:
            key = (line["run_id"], line["step"], line["type"])
            texts[key] = texts.get(key, "") + line["text"]
    assert texts == expected[1]


JOINED = {"text", "reasoning", "tool_call_delta"}


async def test_a_live_reader_sees_the_text_in_pieces_before_it_is_stored(place: Place):
    run = await place.runtime.start(workshop.teller, "question", executor="durable")
    live = asyncio.create_task(observed(run, detailed=True))
    await place.worker(WORKSHOP_STALL="1")
    async with asyncio.timeout(PATIENCE_S):
        async for (
            event
        ) in run.stream():  # a second reader, which comes later and gets the same from the start
            if isinstance(event, Text):
                break
    assert (event.text, event.offset, event.revision) == ("Once upon ", 0, None)
    step = await stored(run, Step)
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.stream(after=step.cursor):  # one that comes back within the step
            if isinstance(event, Text):
                break
    assert (event.text, event.offset, event.revision) == ("Once upon ", 0, None)
    await run.cancel()
    assert kinds(await live) == [
        *("status(starting)", "step(started)", "reasoning", "reasoning", "text"),
        *("text_reset", "text_reset", "status(cancelled)"),
    ]


async def test_a_model_call_that_is_retried_with_another_text_shows_one_reset(place: Place):
    run = await place.runtime.start(workshop.teller, "question", executor="durable")
    for _ in range(2):
        await place.worker(WORKSHOP_STALL="1")
    seen: list[Event] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.stream():
            seen.append(event)
            if isinstance(event, Text) and event.offset == 0:
                (await place.owner(run)).kill()
    assert [(e.offset, e.channel, e.cause) for e in seen if isinstance(e, TextReset)] == [
        (5, "text", "retry")
    ]
    assert kinds(seen)[:3] == ["text", "text_reset", "text"]
    _, texts = joined(seen)
    assert texts == {(run.run_id, 1, "text"): "Once there was"}
    assert (await run.result()).output == "Once there was"
    late = await observed(run)
    assert kinds(late) == ["text", "status(completed)"]
    await place.form(run)


async def test_a_reader_comes_back_at_any_cursor_and_gets_what_follows(place: Place):
    await place.worker()
    run = await place.runtime.start(workshop.chief, "question", executor="durable")
    await run.result(timeout_s=PATIENCE_S)
    whole = await observed(run, detailed=True)
    assert [event.cursor for event in whole] == sorted(str(event.cursor) for event in whole)
    for number, event in enumerate(whole, start=1):
        rest = await observed(run, detailed=True, after=event.cursor)
        assert rest == whole[number:]


async def test_a_stream_shows_what_was_asked_for(place: Place):
    await place.worker()
    run = await place.runtime.start(workshop.chief, "question", executor="durable")
    await run.result(timeout_s=PATIENCE_S)
    details = {"step", "usage", "reasoning", "tool_result", "child_started", "child_finished"}
    everything = await observed(run, detailed=True)
    assert details | {"status", "tool_call", "text"} == {event.type for event in everything}
    assert {event.agent_path for event in everything} == {"chief", "chief/teller"}
    plain = [e for e in everything if e.type not in details and not is_starting(e)]
    assert await observed(run) == plain
    for events, detailed in ((everything, True), (plain, False)):
        own = [event for event in events if event.run_id == run.run_id]
        assert 0 < len(own) < len(events)
        assert await observed(run, detailed=detailed, family=False) == own
    child = next(event.run_id for event in everything if event.agent == "teller")
    *inner, end = await observed(place.runtime.get_run(child), detailed=True)
    assert end.is_end
    assert [*inner, msgspec.structs.replace(end, is_end=False)] == [
        event for event in everything if event.run_id == child
    ]


def is_starting(event: Event) -> bool:
    return isinstance(event, Status) and event.status == "starting"
