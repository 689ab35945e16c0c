"""All runs of a namespace followed at once, and where a stream ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from foldlog.eventlog import ConfigError, LogCorrupted
from foldlog.eventlog.events import Event
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import At, CommitWrite
from foldlog.runtime import Agent, Registry, Runtime, ToolContext, tool

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


async def read(runtime: Runtime, ends: int, after: str | None = None) -> list[Event]:
    """Followed events up to and including so many ends of root runs."""
    seen: list[Event] = []
    async with contextlib.aclosing(runtime.follow(after=after, detailed=True)) as events:
        async for event in events:
            seen.append(event)
            ends -= event.is_end and event.run_id == event.root_id
            if ends == 0:
                break
    return seen


def keys(events: list[Event]) -> set[tuple[str, int | None]]:
    return {(event.run_id, event.revision) for event in events}


async def test_a_follower_sees_every_run_and_continues_after_any_cursor_without_a_gap_or_a_repetition(
    place: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(says("done")))
    runtime = await place.open(agent)
    for number in range(6):
        await (await place.start(agent, f"question {number}")).result()
    everything = await read(runtime, 6)
    assert len(keys(everything)) == len(everything)
    assert len({event.run_id for event in everything}) == 6
    for cut in range(len(everything) - 1):
        rest = await read(runtime, 6 - sum(e.is_end for e in everything[: cut + 1]), everything[cut].cursor)
        assert keys(rest) == keys(everything[cut + 1 :])


async def test_a_follower_hears_of_runs_that_start_while_it_waits(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    runtime = await place.open(agent)
    reading = asyncio.create_task(read(runtime, 1))
    run = await place.start(agent, "question")
    seen = await asyncio.wait_for(reading, 120)
    assert {event.run_id for event in seen} == {run.run_id}
    assert [event.type for event in seen][-1] == "status"


@pytest.mark.parametrize("cursor", ["", "x", "1.2", "0.0_0.0_0.0_0.0_0.0", "-1.0_0.0_0.0_0.0"])
async def test_what_is_not_a_cursor_of_the_namespace_is_refused(cursor: str) -> None:
    async with Runtime.open(log=MemoryLog(shards=4)) as runtime:
        with pytest.raises(ConfigError, match="is not a cursor of this namespace's runs"):
            await read(runtime, 1, cursor)


async def test_a_follower_is_told_of_a_damaged_run_and_does_not_skip_it(script: Script) -> None:
    log = MemoryLog()
    agent = Agent("helper", model=script(says("done")))
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        handle = await runtime.start(agent, "question")
        await handle.result()
        subject = await runtime.locate(handle.run_id)
        last = await log.events.head(subject)
        assert last is not None
        damaged = last.data.replace(b"completed", b"cancelled")
        await log.events.append(CommitWrite(subject, At(last.position), damaged))
        with pytest.raises(LogCorrupted, match="checksum"):
            await read(runtime, 2)


async def test_one_event_of_a_stream_is_its_end_and_it_is_the_last(place: Place, script: Script) -> None:
    inner = Agent("inner", model=script(says("inside")))

    @tool(effect="pure")
    async def ask(context: ToolContext) -> str:
        """Ask the inner agent, and pass on what another run said, its end among it."""
        return (await context.run(inner, "what?")).output

    outer = Agent("outer", model=script(calls(call("ask")), says("done")), tools=[ask])
    runtime = await place.open(outer, inner)
    run = await place.start(outer, "question")
    seen = [event async for event in run.stream(detailed=True)]
    assert [event.is_end for event in seen] == [False] * (len(seen) - 1) + [True]
    assert seen[-1].run_id == run.run_id
    (child,) = {event.run_id for event in seen} - {run.run_id}
    below = [event async for event in runtime.get_run(child).stream()]
    assert [event.is_end for event in below] == [False] * (len(below) - 1) + [True]
    assert sum(event.is_end for event in await read(runtime, 1)) == 2


async def test_an_end_that_a_tool_forwards_is_not_the_end_of_the_run(place: Place, script: Script) -> None:
    inner = Agent("inner", model=script(says("inside")))
    other: list[Event] = []

    @tool(effect="pure")
    async def relay(context: ToolContext) -> str:
        """Pass on the events of a run of another runtime."""
        for event in other:
            context.emit(event)
        return "passed on"

    outer = Agent("outer", model=script(calls(call("relay")), says("done")), tools=[relay])
    runtime = await place.open(outer, inner)
    other += [event async for event in runtime.stream(inner, "what?")]
    assert other[-1].is_end
    run = await place.start(outer, "question")
    seen = [event async for event in run.stream()]
    assert [event.is_end for event in seen] == [False] * (len(seen) - 1) + [True]


async def test_the_approvals_of_all_runs_are_listed_pending_and_decided(place: Place, script: Script) -> None:
    @tool(effect="pure")
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        "payer", model=script(calls(call("pay", amount=1)), says("done")), tools=[pay], hitl_tools=["pay"]
    )
    runtime = await place.open(agent)
    runs = [await place.start(agent, f"question {number}") for number in range(2)]
    for run in runs:
        async for event in run.stream():
            if event.type == "status":
                break
    first, second = await runtime.approvals()
    assert {first.run_id, second.run_id} == {run.run_id for run in runs}
    await runtime.get_run(first.run_id).resolve(first.approval_id, "approved")
    assert [row.approval_id for row in await runtime.approvals()] == [second.approval_id]
    assert [row.approval_id for row in await runtime.approvals(pending=False)] == [first.approval_id]
    assert len(await runtime.approvals(pending=None)) == 2
    assert [row.run_id for row in await runtime.approvals(run_id=second.run_id)] == [second.run_id]
    await runtime.get_run(second.run_id).resolve(second.approval_id, "approved")
    for run in runs:
        await run.result()
