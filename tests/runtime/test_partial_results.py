"""Reports of a call before it is done: stored, shown, and its result if it times out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, MemoryLog, ToolResult, ToolSpec
from foldlog.replay import check_parity, check_trace, load_trace, replay, rerun
from foldlog.runtime import Agent, Registry, Retryable, Runtime, ToolContext, tool

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
TURNS = (calls(call("search")), says("done"))
NOTE = "[partial: the call timed out before it was done]"


@tool(effect="pure", timeout_s=0.1, on_timeout="partial")
async def search(context: ToolContext) -> list[str]:
    """Find two things, and never the third."""
    context.partial(["one"])
    context.partial(["one", "two"])
    await asyncio.Event().wait()
    return ["all"]


async def result_of(place: Place, agent: Agent[Any]) -> tuple[ToolResult, list[Any], list[str]]:
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    shown = [event.value async for event in run.stream() if event.type == "tool_partial"]
    (result,) = [event for event in await place.events(run) if isinstance(event, ToolResult)]
    return result, shown, [message.content for message in await run.history() if message.role == "tool"]


async def test_a_call_that_times_out_has_its_last_partial_result(place: Place, script: Script) -> None:
    result, shown, told = await result_of(place, Agent("a", model=script(*TURNS), tools=[search]))
    assert (result.success, result.result, result.error) == (True, ["one", "two"], None)
    assert (result.metadata["status"], result.metadata["partial"]) == ("success", 2)
    assert shown == [["one"], ["one", "two"]]
    assert told == [f'["one","two"]\n{NOTE}']


async def test_without_permission_or_without_a_report_a_timeout_is_an_error(
    cheap: Place, script: Script
) -> None:
    @tool(effect="pure", timeout_s=0.1)
    async def search(context: ToolContext) -> None:
        """Report, without the permission to end with it."""
        context.partial("something")
        await asyncio.Event().wait()

    result, shown, _ = await result_of(cheap, Agent("a", model=script(*TURNS), tools=[search]))
    assert (result.success, result.metadata["status"]) == (False, "timed_out")
    assert "partial" not in result.metadata
    assert shown == ["something"]


async def test_a_call_that_reports_nothing_times_out_as_ever(cheap: Place, script: Script) -> None:
    @tool(effect="pure", timeout_s=0.1, on_timeout="partial")
    async def search() -> None:
        """Report nothing."""
        await asyncio.Event().wait()

    result, _, _ = await result_of(cheap, Agent("a", model=script(*TURNS), tools=[search]))
    assert (result.success, result.metadata["status"]) == (False, "timed_out")


async def test_a_call_that_ends_in_time_or_fails_has_its_own_result(cheap: Place, script: Script) -> None:
    ends: list[Callable[[], Any]] = [lambda: "whole", lambda: 1 / 0]

    @tool(effect="pure", on_timeout="partial")
    async def search(context: ToolContext) -> Any:
        """Report, and end."""
        context.partial("something")
        return ends.pop(0)()

    model = script(calls(call("search", "c1")), calls(call("search", "c2")), says("done"))
    agent = Agent("a", model=model, tools=[search])
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result()
    results = [event for event in await cheap.events(run) if isinstance(event, ToolResult)]
    assert [(each.success, each.result) for each in results] == [(True, "whole"), (False, None)]


async def test_further_attempts_come_first_and_the_last_report_of_all_counts(
    cheap: Place, script: Script
) -> None:
    attempts: list[int] = []

    @tool(effect="pure", timeout_s=0.1, max_attempts=2, on_timeout="partial")
    async def search(context: ToolContext) -> None:
        """Get further the second time."""
        attempts.append(1)
        context.partial("first")
        if len(attempts) == 1:
            raise Retryable("again", after_s=0.01)
        context.partial("second")
        await asyncio.Event().wait()

    result, shown, _ = await result_of(cheap, Agent("a", model=script(*TURNS), tools=[search]))
    assert (result.result, result.metadata["partial"], shown) == ("second", 2, ["first", "second"])


async def test_a_report_from_a_thread_and_a_large_one_are_kept(place: Place, script: Script) -> None:
    large = "x" * 100_000

    @tool(effect="idempotent", timeout_s=1, on_timeout="partial")
    def search(context: ToolContext) -> None:
        """Report from a thread."""
        context.partial({"text": large})
        while not context.cancelled:
            time.sleep(0.01)

    result, shown, _ = await result_of(place, Agent("a", model=script(*TURNS), tools=[search]))
    assert result.result == {"text": large}
    assert shown == [{"text": large}]


async def test_the_process_that_takes_over_ends_the_call_with_what_the_first_one_reported(
    script: Script,
) -> None:
    log, attempts = MemoryLog(), list[int]()

    @tool(effect="idempotent", timeout_s=2, on_timeout="partial")
    async def search(context: ToolContext) -> None:
        """Report in the first process alone."""
        attempts.append(1)
        if len(attempts) == 1:
            context.partial("found before the crash")
        await asyncio.Event().wait()

    agent = Agent("a", model=script(*TURNS), tools=[search])
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as first:
        run = await first.start(agent, "go")
        async for event in run.stream():
            if event.type == "tool_partial":
                break
    async with Runtime.open(log=log, registry=registry) as second:
        await second.drive(run.run_id)
        await second.get_run(run.run_id).result()
        trace = await load_trace(log, run.run_id)
    (result,) = [event for event in trace.events if isinstance(event, ToolResult)]
    assert len(attempts) == 2
    assert (result.success, result.result) == (True, "found before the crash")
    assert not check_trace(trace)
    assert replay(trace).divergence is None
    again = await rerun(trace)
    (repeated,) = [event for event in again.events if isinstance(event, ToolResult)]
    assert (repeated.result, repeated.metadata["partial"]) == ("found before the crash", 1)


async def test_both_executors_agree_on_a_partial_result() -> None:
    agent = Agent("a", model="openai:m", tools=[search])
    report = await check_parity(agent, "go", script={"turns": list(TURNS)})
    assert report.equal, report.render()


async def test_an_unsafe_call_in_doubt_never_ends_with_a_partial_result(cheap: Place, script: Script) -> None:
    @tool(timeout_s=0.1, on_error="report", on_timeout="partial")
    async def search(context: ToolContext) -> None:
        """Have no doubts."""
        context.partial("sent one")
        await asyncio.Event().wait()

    result, _, _ = await result_of(cheap, Agent("a", model=script(*TURNS), tools=[search]))
    assert (result.success, result.result) == (True, "sent one")
    with pytest.raises(ConfigError, match="tool 'send': on_timeout='partial' is never used"):

        @tool(on_timeout="partial")
        async def send() -> None:
            """Send."""

    with pytest.raises(ConfigError, match="on_timeout 'perhaps' is none of error, partial"):

        @tool(on_timeout="perhaps")  # type: ignore[call-overload]
        async def wrong() -> None:
            """Be wrong."""


async def test_a_report_that_json_cannot_hold_fails_the_call_and_stores_nothing(
    cheap: Place, script: Script
) -> None:
    @tool(effect="pure", on_timeout="partial")
    async def search(context: ToolContext) -> None:
        """Report what is not JSON."""
        context.partial(object())

    result, shown, _ = await result_of(cheap, Agent("a", model=script(*TURNS), tools=[search]))
    assert "a partial result cannot be stored as JSON" in (result.error or "")
    assert shown == []


def test_a_tool_says_in_its_specification_what_a_timeout_comes_to() -> None:
    spec: ToolSpec = search.spec
    assert spec.on_timeout == "partial"
