"""Instructions that a function gives: called once, when the run is prepared, and stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from foldlog.eventlog import Prepared, RunFailed
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent, RunContext, Swarm, ToolContext, tool

from tests.runtime.conftest import Place, call, calls, says

Script = Callable[..., str]


class Manners:
    """The way in which a user is addressed."""

    async def of(self, user: str | None) -> str:
        return f"Call the user {user}."


@contextlib.asynccontextmanager
async def manners() -> AsyncIterator[Manners]:
    yield Manners()


async def system_of(run: Any) -> str:
    (message, *_) = await run.history()
    assert message.role == "system"
    return str(message.content)


async def test_a_function_of_the_run_gives_its_instructions_once(place: Place, script: Script) -> None:
    asked, entered = list[str](), asyncio.Event()

    async def greet(run: RunContext[Manners]) -> str:
        asked.append(run.run_id)
        return (
            f"{await run.deps.of(run.user)} You are {run.agent}, about {run.metadata['topic']}: {run.input}"
        )

    @tool(effect="pure")
    async def think(context: ToolContext) -> str:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return "thought"

    agent = Agent(
        "butler", model=script(calls(call("think")), says("done")), tools=[think], instructions=greet
    )
    await place.open(agent, deps=manners)
    run = await place.start(agent, "Tea?", user="Ada", metadata={"topic": "tea"})
    await entered.wait()
    await place.hand_over(run)
    assert (await run.result()).output == "done"
    told = "Call the user Ada. You are butler, about tea: Tea?"
    assert await system_of(run) == told
    assert asked == [run.run_id]
    trace = await load_trace(place.log, run.run_id)
    assert [event.instructions for event in trace.events if isinstance(event, Prepared)] == [told]
    again = await rerun(trace)
    assert [event.instructions for event in again.events if isinstance(event, Prepared)] == [told]
    assert asked == [run.run_id]


async def test_each_member_is_instructed_for_its_own_run(place: Place, script: Script) -> None:
    def told(run: RunContext) -> str:
        return f"{run.agent} for {run.user}: {run.input}"

    first = Agent("first", model=script(says("one")), instructions=told)
    second = Agent("second", model=script(says("two")), instructions=told)
    swarm = Swarm([first, second], "first >> second", name="team")
    await place.open(swarm)
    run = await place.start(swarm, "go", user="Ada")
    assert (await run.result()).output == "two"
    trace = await load_trace(place.log, run.run_id)
    texts = [
        event.instructions for event in trace.events if isinstance(event, Prepared) and event.instructions
    ]
    assert texts == ["first for Ada: go", "second for Ada: one"]


async def test_a_function_that_fails_ends_the_run_and_is_named(place: Place, script: Script) -> None:
    def told(run: RunContext) -> str:
        return str(run.metadata["nothing"])

    agent = Agent("butler", model=script(says("done")), instructions=told)
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(
        RunFailed, match=r"'butler': instructions: .*told failed: KeyError: 'nothing'"
    ) as failed:
        await run.result()
    assert failed.value.error_type == "config_error"
