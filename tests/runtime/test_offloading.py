"""Large tool results are shown in part and read on from the artifacts, on both executors and both logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from foldlog.eventlog import Context
from foldlog.projections.messages import sha256_hex
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent, tool

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
TEXT = "".join(f"line {n}\n" for n in range(2000))
ID = sha256_hex(TEXT.encode())


@tool(effect="pure")
async def read() -> str:
    """Read much."""
    return TEXT


async def test_a_large_result_is_shown_in_part_and_can_be_read_on(place: Place, script: Script) -> None:
    agent = Agent(
        "helper",
        model=script(
            calls(call("read")),
            calls(
                call("retrieve_artifact", "a", id=ID, offset=2000, limit=20),
                call("retrieve_artifact", "b", id="nothing"),
                call("retrieve_artifact", "c", id=ID, offset=-1),
            ),
            says("done"),
        ),
        tools=[read],
        context={"artifact_bytes_min": 4000},
    )
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    results = [e for e in await place.events(run) if e.type == "tool_result"]
    assert (results[0].result, results[0].metadata["offloaded_artifact_id"]) == (TEXT, ID)
    (told,) = [e for e in await place.events(run) if isinstance(e, Context)]
    assert (told.action, told.step, told.before_count, told.after_count) == ("offload", None, 3, 3)
    answers = [message.content for message in await run.history() if message.role == "tool"]
    cut = {"characters_before": len(TEXT), "characters_after": len(answers[0])}
    assert told.details == {"artifacts": [ID], **cut}
    assert answers[0].startswith(TEXT[:2000])
    assert answers[0].endswith(TEXT[-1000:])
    assert f'retrieve_artifact(id="{ID}", offset=2000)' in answers[0]
    assert answers[1] == f"{TEXT[2000:2020]}\n[characters 2000 to 2020 of {len(TEXT)}]"
    assert answers[2] == "error: there is no artifact 'nothing'"
    assert answers[3].startswith("error: ")
    recorded = await load_trace(place.log, run.run_id)
    again = await rerun(recorded)
    assert [e.digest for e in again.events if e.type == "model_requested"] == [
        e.digest for e in recorded.events if e.type == "model_requested"
    ]


async def test_into_a_long_conversation_results_are_offloaded_sooner(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def some(n: int) -> str:
        """Read some."""
        return "x" * 5000

    turns = [calls(call("some", f"c{n}", n=n)) for n in range(3)]
    agent = Agent(
        "helper",
        model=script(*turns, says("done")),
        tools=[some],
        context={"artifact_bytes_min": 8000, "offload_at_messages": 4, "overflow": "none"},
    )
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    shown = [len(message.content) for message in await run.history() if message.role == "tool"]
    assert shown[:2] == [5000, 5000]
    assert shown[2] < 3500


async def test_an_agent_without_a_context_table_gets_the_tool_with_its_first_large_result(
    place: Place, script: Script
) -> None:
    large = "ß" * 16_385

    @tool(effect="pure")
    async def pages(count: int) -> str:
        """Read so many bytes."""
        return large[: count // 2]

    agent = Agent(
        "helper",
        model=script(
            calls(call("pages", "a", count=32_768)),
            calls(call("pages", "b", count=32_770), call("retrieve_artifact", "early", id="x")),
            calls(
                call(
                    "retrieve_artifact",
                    "c",
                    id=sha256_hex(large.encode()),
                    offset=16_380,
                    limit=None,
                    why="y",
                )
            ),
            says("done"),
        ),
        tools=[pages],
        injected_tool_args={"why": "Why", "id": "The id of the ticket"},
    )
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    results = {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}
    assert "offloaded_artifact_id" not in results["a"].metadata
    assert results["b"].metadata["offloaded_artifact_id"] == sha256_hex(large.encode())
    assert "unknown tool 'retrieve_artifact'" in (results["early"].error or "")
    assert results["c"].result == "ßßßßß\n[characters 16380 to 16385 of 16385]"
    assert results["c"].metadata["injected_args"] == {"why": "y"}
    tools = (await run.state()).tools
    assert list(tools) == ["pages", "retrieve_artifact"]
    assert list(tools["retrieve_artifact"].parameters["properties"]) == ["id", "offset", "limit", "why"]
    again = await rerun(await load_trace(place.log, run.run_id))
    recorded = await load_trace(place.log, run.run_id)
    assert [e.digest for e in again.events if e.type == "model_requested"] == [
        e.digest for e in recorded.events if e.type == "model_requested"
    ]


async def test_a_result_of_a_few_characters_more_than_its_own_limit_is_shortened_too(
    place: Place, script: Script
) -> None:
    @tool(effect="pure")
    async def some() -> list[str]:
        """Read some."""
        return ["word"] * 200

    agent = Agent(
        "helper",
        model=script(calls(call("some")), says("done")),
        tools=[some],
        context={"artifact_bytes_min": 1000},
    )
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    (shown,) = [message.content for message in await run.history() if message.role == "tool"]
    assert shown.startswith('["word","word",')
    assert "[701 of 1401 characters are left out here; retrieve_artifact(id=" in shown
    assert "offset=467) reads on]" in shown
    assert shown.endswith('"word","word"]')
