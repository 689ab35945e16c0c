"""Agents that start copies of themselves: one at a time, several at once, and only as deep as they may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foldlog.eventlog import ChildStarted, ToolResult
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent, ToolContext, tool
from tests.runtime.conftest import Place, call, calls, says

Script = Callable[..., str]
PLACES = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@tool(effect="pure")
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


@tool
def deploy(version: str) -> str:
    """Deploy a version."""
    return f"deployed {version}"


def results(events: list[Any], run: str) -> list[ToolResult]:
    return [e for e in events if isinstance(e, ToolResult) and e.run_id == run]


async def test_a_copy_of_oneself_sees_its_task_and_nothing_of_the_conversation(
    place: Place, script: Script
) -> None:
    model = script(
        calls(call("spawn_self", task="count", additional_context="to two", tool_names=["look"])),
        calls(call("look", at="sky")),
        says("two"),
        says("the copy says two"),
    )
    agent = Agent("lead", model=model, tools=[look, deploy], allow_self_spawn=True, instructions="Be brief.")
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result(timeout_s=20)).output == "the copy says two"
    events = await place.events(run)
    (result,) = results(events, run.run_id)
    assert result.result == "two"
    (started,) = [e for e in events if isinstance(e, ChildStarted)]
    child = await place.runtime.get_run(started.child_run).state()
    assert child.path == "lead/lead"
    assert [m.content for m in child.messages][:2] == ["Be brief.", "count\n\nto two"]
    assert list(child.tools) == ["look"]
    assert child.submitted is not None
    assert child.submitted.config["allow_self_spawn"] is False


async def test_copies_go_only_as_deep_as_they_may(place: Place, script: Script) -> None:
    deeper = calls(call("spawn_self", task="deeper"))
    model = script(deeper, deeper, deeper, says("at the bottom"), says("2"), says("1"))
    agent = Agent("lead", model=model, allow_self_spawn=True, max_spawn_depth=2)
    await place.open(agent)
    run = await place.start(agent)
    await run.result(timeout_s=20)
    events = await place.events(run)
    assert [e.agent_path for e in events if isinstance(e, ChildStarted)] == ["lead", "lead/lead"]
    (refused,) = [e for e in events if isinstance(e, ToolResult) and not e.success]
    assert refused.agent_path == "lead/lead/lead"
    assert "unknown tool 'spawn_self'" in str(refused.error)


async def test_jobs_run_at_once_and_each_has_its_own_result(place: Place, script: Script) -> None:
    import asyncio

    meeting = asyncio.Barrier(2)

    @tool(effect="pure")
    async def meet(who: str) -> str:
        await meeting.wait()
        return f"{who} was there"

    inner = Agent("inner", model=script(calls(call("meet", who="one")), says("met")), tools=[meet])
    assert inner is not None
    model = script(
        calls(
            call(
                "parallel_subagents",
                jobs=[
                    {"task": "one", "tool_names": ["meet"], "system_prompt": "You are one."},
                    {"task": "two", "output_schema": PLACES},
                ],
            )
        ),
        says("done"),
    )
    agent = Agent(
        "lead",
        model=model,
        tools=[meet, deploy],
        hitl_tools=["deploy"],
        allow_parallel_subagents=True,
        allow_self_spawn=True,
    )
    await place.open(agent)
    run = await place.start(agent)
    await run.result(timeout_s=20)
