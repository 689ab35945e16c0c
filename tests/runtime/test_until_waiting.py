"""A stream up to a pause that is still open, for the one who has to answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from foldlog.eventlog import ApprovalRequested, Event, Status, Text
from foldlog.runtime import Agent, RunHandle, Runtime, ToolContext, tool

from tests.runtime.conftest import Place, call, calls, says, when
from tests.runtime.test_approvals import Deployer

Script = Callable[..., str]


async def seen(run: RunHandle[Any], after: str | None = None, **options: Any) -> list[Event]:
    async with asyncio.timeout(120):
        return [event async for event in run.until_waiting(after, detailed=True, **options)]


def shown(events: list[Event]) -> tuple[list[str], str]:
    """The cursors of what is stored but texts, and the text, which comes in pieces if it is being written."""
    texts = [event.text for event in events if isinstance(event, Text)]
    return [e.cursor for e in events if e.cursor and not isinstance(e, Text)], "".join(texts)


async def test_a_stream_ends_at_each_pause_that_is_open_and_goes_on_after_the_answer(
    place: Place, script: Script
) -> None:
    deployer = Deployer(script, "web", "db")
    await place.open(deployer.agent)
    run = await place.start(deployer.agent)
    first = await seen(run)
    web, db = [event.approval_id for event in first if isinstance(event, ApprovalRequested)]
    assert not first[-1].is_end
    assert await seen(run, first[-1].cursor) == []  # it is still open
    await run.resolve(web, "approved")
    async with Runtime.open(log=place.log) as elsewhere:
        second = await seen(elsewhere.get_run(run.run_id), first[-1].cursor)
        await run.resolve(db, "approved")
        last = second[-1].cursor if second else first[-1].cursor
        third = await seen(elsewhere.get_run(run.run_id), last)
    assert third[-1].is_end
    whole = [event async for event in run.stream(detailed=True)]
    assert shown([*first, *second, *third]) == shown(whole)


async def test_a_pause_in_the_past_does_not_end_a_stream(cheap: Place, script: Script) -> None:
    @tool(effect="pure")
    async def deploy(service: str) -> str:
        """Deploy."""
        return service

    turns = [calls(call("deploy", f"c{n}", service="web")) for n in range(2)]
    agent = Agent("ops", model=script(*turns, says("done")), tools=[deploy], hitl_tools=["deploy"])
    await cheap.open(agent)
    run = await cheap.start(agent)
    for number in (1, 2):
        events = await seen(run)  # from the beginning
        asked = [event.approval_id for event in events if isinstance(event, ApprovalRequested)]
        assert len(asked) == number
        await run.resolve(asked[-1], "approved")
    assert [e.status for e in await seen(run) if isinstance(e, Status)] == [
        "starting",
        *["paused", "resumed"] * 2,
        "completed",
    ]


async def test_a_pause_of_a_run_below_ends_the_stream_also_without_its_events(
    cheap: Place, script: Script
) -> None:
    @tool(effect="pure")
    async def look(at: str) -> str:
        """Look."""
        return at

    spawn = call("spawn_self", task="count", additional_context="", tool_names=["look"])
    scene = when("count", calls(call("look", at="sky")), says("two"))
    model = script(calls(spawn), says("done"), scenes=[scene])
    agent = Agent("lead", model=model, tools=[look], hitl_tools=["look"], allow_self_spawn=True)
    await cheap.open(agent)
    run = await cheap.start(agent)
    own = await seen(run, family=False)
    assert {event.run_id for event in own} == {run.run_id}
    (asked,) = [event for event in await seen(run) if isinstance(event, ApprovalRequested)]
    assert asked.run_id != run.run_id
    await run.resolve(asked.approval_id, "approved")
    assert (await seen(run, family=False))[-1].is_end


async def test_a_wait_for_a_signal_ends_a_stream_and_a_wait_for_a_time_does_not(
    cheap: Place, script: Script
) -> None:
    until = datetime.now(UTC) + timedelta(seconds=0.3)

    @tool(effect="pure")
    async def rest(context: ToolContext) -> str:
        """Rest, and wait for a call."""
        await context.sleep(until=until)
        await context.wait_for("call")
        return "rested"

    agent = Agent("idle", model=script(calls(call("rest")), says("done")), tools=[rest])
    await cheap.open(agent)
    run = await cheap.start(agent)
    waits = [event.type for event in await seen(run) if event.type.startswith("wait")]
    assert waits == ["wait_started", "wait_ended", "wait_started"]
    await run.signal("call")
    assert (await seen(run))[-1].is_end


async def test_a_stream_of_a_paused_run_ends_until_it_is_resumed_or_cancelled(
    cheap: Place, script: Script
) -> None:
    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await runs[0].pause()
        return "seen"

    runs: list[RunHandle[Any]] = []
    agent = Agent("idle", model=script(calls(call("look")), says("done")), tools=[look])
    await cheap.open(agent)
    for end in (RunHandle.resume, RunHandle.cancel):
        runs[:] = [await cheap.start(agent)]
        assert not (await seen(runs[0]))[-1].is_end
        await end(runs[0])
        assert (await seen(runs[0]))[-1].is_end
