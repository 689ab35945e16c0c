"""Agents that start copies of themselves: one at a time, several at once, and only as deep as they may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ChildFinished, ChildStarted, Log, ToolResult
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import compare, load_trace, rerun
from foldlog.runtime import Agent, Registry, Runtime, ToolContext, tool

from tests.runtime.conftest import HeldTool, Place, call, calls, says, when

Script = Callable[..., str]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


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
    spawn = call("spawn_self", task="count", additional_context="to two", tool_names=["look"])
    model = script(
        calls(spawn),
        says("the copy says two"),
        scenes=[when("count", calls(call("look", at="sky")), says("two"))],
    )
    agent = Agent("lead", model=model, tools=[look, deploy], allow_self_spawn=True, instructions="Be brief.")
    await place.open(agent)
    run = await place.start(agent)
    result = await run.result()
    assert (result.output, result.usage.input_tokens) == ("the copy says two", 12)
    events = await place.events(run)
    assert [r.result for r in results(events, run.run_id)] == ["two"]
    (started,) = [e for e in events if isinstance(e, ChildStarted)]
    child = await place.runtime.get_run(started.child_run).state()
    assert child.path == "lead/lead"
    assert [m.content for m in child.messages][:2] == ["Be brief.", "count\n\nto two"]
    assert list(child.tools) == ["look"]


async def test_copies_go_only_as_deep_as_they_may(place: Place, script: Script) -> None:
    model = script(calls(call("spawn_self", task="deeper")), says("up again"))
    agent = Agent("lead", model=model, allow_self_spawn=True, max_spawn_depth=2)
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    events = await place.events(run)
    assert [e.agent_path for e in events if isinstance(e, ChildStarted)] == ["lead", "lead/lead"]
    (refused,) = [e for e in events if isinstance(e, ToolResult) and not e.success]
    assert refused.agent_path == "lead/lead/lead"
    assert "unknown tool 'spawn_self'" in str(refused.error)


async def test_a_run_starts_only_so_many_copies_however_often_its_model_asks(
    place: Place, script: Script
) -> None:
    asked = [
        calls(*(call("spawn_self", f"{step}-{n}", task=f"leaf {step}") for n in range(2)))
        for step in range(3)
    ]
    model = script(*asked, says("done"), scenes=[when("leaf", says("a leaf"))])
    agent = Agent("lead", model=model, allow_self_spawn=True)
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    events = await place.events(run)
    assert sum(isinstance(e, ChildStarted) for e in events) == 4
    refused = [str(e.error) for e in events if isinstance(e, ToolResult) and not e.success]
    assert len(refused) == 2
    assert all("you have started 4 copies of yourself (max_spawn_children)" in each for each in refused)


async def test_a_run_and_its_copies_start_only_so_many_in_all_also_after_a_change_of_hands(
    place: Place, script: Script
) -> None:
    """Each copy starts two, down to the third level: fourteen, if nothing bounded them."""
    held = HeldTool()
    two = calls(call("spawn_self", "a", task="again"), call("spawn_self", "b", task="again"))
    model = script(
        two,
        calls(call("wait")),
        two,
        says("done"),
        scenes=[when("again", two, says("up")), when("x", says("x"))],
    )
    agent = Agent(
        "lead", model=model, tools=[held.wait], allow_self_spawn=True, max_spawn_children=9, max_spawn_total=7
    )
    await place.open(agent)
    run = await place.start(agent)
    await asyncio.wait_for(held.entered.wait(), 120)
    await place.hand_over(run)
    held.let_go.set()
    assert (await run.result()).output == "done"
    events = await place.events(run)
    assert sum(isinstance(e, ChildStarted) for e in events) == 7
    refused = [
        str(e.error) for e in events if isinstance(e, ToolResult) and "max_spawn_total" in str(e.error)
    ]
    assert refused
    assert {"you and your copies have started 7 copies in all" in each for each in refused} == {True}


async def test_jobs_run_at_once_and_each_has_its_own_result(place: Place, script: Script) -> None:
    meeting = asyncio.Barrier(2)

    @tool(effect="pure")
    async def meet() -> str:
        await meeting.wait()
        return "met"

    jobs = [
        {"task": "one", "tool_names": ["meet", "meet"], "system_prompt": "You are one."},
        {"task": "two", "output_schema": SCHEMA},
        {"task": "three"},
    ]
    both = calls(call("meet"))
    model = script(
        calls(call("parallel_subagents", jobs=jobs)),
        says("done"),
        scenes=[
            when("one", both, says("first")),
            when("two", both, says('{"n": 2}')),
            when("three", {"text": ["x"], "error": {"type": "auth"}}),
        ],
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
    assert (await run.result()).output == "done"
    events = await place.events(run)
    (result,) = results(events, run.run_id)
    first, second, third = result.result
    assert first == {"job": 0, "status": "completed", "output": "first"}
    assert second == {"job": 1, "status": "completed", "output": {"n": 2}}
    assert (third["job"], third["status"]) == (2, "error")
    assert "auth error" in third["error"]
    children = [e.child_run for e in events if isinstance(e, ChildStarted)]
    states = [await place.runtime.get_run(child).state() for child in children]
    assert [list(state.tools) for state in states] == [["meet"], ["meet"], ["meet"]]
    assert states[0].messages[0].content == "You are one."
    again = await rerun(await load_trace(place.log, run.run_id))
    assert compare(await load_trace(place.log, run.run_id), again).equal


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"jobs": [{"task": "x"}] * 3}, "3 jobs are too many: at most 2"),
        (
            {"jobs": [{"task": "x", "tool_names": ["deploy"]}]},
            "job 0: a sub-agent cannot have the tool 'deploy'",
        ),
        ({"jobs": [{"task": "x"}, {"task": "x", "tool_names": ["gone"]}]}, "job 1: a sub-agent cannot"),
        ({"jobs": [{"task": "x", "tool_names": ["parallel_subagents"]}]}, "cannot have the tool"),
        ({"jobs": [{"task": "x", "output_schema": {"type": "nonsense"}}]}, "not a valid JSON Schema"),
        ({"jobs": [{"task": "x", "tool": "y"}]}, "jobs.0.tool: there is no such parameter"),
    ],
)
async def test_a_wrong_call_is_a_tool_error_before_any_child_starts(
    log: Log, script: Script, arguments: dict[str, Any], why: str
) -> None:
    model = script(calls(call("parallel_subagents", **arguments)), says("sorry"))
    agent = Agent(
        "lead",
        model=model,
        tools=[deploy],
        hitl_tools=["deploy"],
        allow_parallel_subagents=True,
        max_parallel_subagents=2,
    )
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        events = [event async for event in run.stream(detailed=True)]
    (result,) = results(events, run.run_id)
    assert why in str(result.error)
    assert not [e for e in events if isinstance(e, ChildStarted)]


async def test_who_takes_the_call_over_finds_the_children_it_started(place: Place, script: Script) -> None:
    entered, ran = asyncio.Event(), list[str]()

    @tool(effect="pure")
    async def wait(who: str) -> str:
        ran.append(who)
        entered.set()
        if ran.count("slow") == 1 and who == "slow":
            await asyncio.Event().wait()
        return who

    model = script(
        calls(call("parallel_subagents", jobs=[{"task": "quick"}, {"task": "slow"}])),
        says("done"),
        scenes=[
            when("quick", calls(call("wait", who="quick")), says("quick")),
            when("slow", calls(call("wait", who="slow")), says("slow")),
        ],
    )
    agent = Agent("lead", model=model, tools=[wait], allow_parallel_subagents=True)
    await place.open(agent)
    run = await place.start(agent)
    async for event in run.stream(detailed=True):
        if isinstance(event, ChildFinished):
            break
    while "slow" not in ran:
        entered.clear()
        await entered.wait()
    await place.hand_over(run)
    assert (await run.result()).output == "done"
    assert sorted(ran) == ["quick", "slow", "slow"]  # the two begin side by side
    events = await place.events(run)
    assert len([e for e in events if isinstance(e, ChildStarted)]) == 2


async def test_a_sub_agent_has_no_mcp_tool_that_its_parent_must_ask_for(
    script: Script, mcp_server: dict[str, Any]
) -> None:
    """It would run there unasked. Servers are shared, whichever of their tools each of the agents has."""
    entry = {**mcp_server, "tools": ["pid", "boom", "lines"]}
    jobs = [{"task": "all"}, {"task": "some", "tool_names": ["mcp__srv__pid"]}]
    ask = calls(call("mcp__srv__pid"), call("mcp__srv__boom", "c2"))
    model = script(
        calls(call("parallel_subagents", jobs=jobs)),
        calls(call("mcp__srv__pid", "c3")),
        says("done"),
        scenes=[when("all", ask, says("tried")), when("some", ask, says("tried"))],
    )
    agent = Agent(
        "lead",
        model=model,
        mcp_servers={"srv": entry},
        hitl_tools=["mcp__srv__boom"],
        allow_parallel_subagents=True,
    )
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        events = [event async for event in run.stream(detailed=True)]
        children = [e.child_run for e in events if isinstance(e, ChildStarted)]
        tools = [list((await runtime.get_run(child).state()).tools) for child in children]
    assert [sorted(names) for names in tools] == [["mcp__srv__lines", "mcp__srv__pid"], ["mcp__srv__pid"]]
    ended = [e for e in events if isinstance(e, ToolResult) and e.tool_name.startswith("mcp")]
    assert [str(e.error)[:30] for e in ended if not e.success] == ["unknown tool 'mcp__srv__boom';"] * 2
    assert len({str(e.result) for e in ended if e.success}) == 1


async def test_a_child_that_cannot_begin_is_an_error_of_its_tool_and_later_ones_do_not_wait_for_it(
    place: Place, script: Script
) -> None:
    def told(run: Any) -> str:
        raise ValueError("nobody knows")

    inner = Agent("inner", model=script(says("ready")))
    lost = Agent("lost", model=script(says("never")), instructions=told)

    @tool(effect="pure")
    async def ask(context: ToolContext) -> list[str]:
        """Run some agents."""
        problems: list[str] = []
        for agent, text in ((lost, "x"), (inner, "q" * 1_000_000)):
            try:
                await context.run(agent, text)
            except Exception as problem:  # noqa: BLE001 - of any kind
                problems.append(type(problem).__name__)
        return [*problems, await context.run(inner, "go"), await context.run(inner, "again")]

    lead = Agent("lead", model=script(calls(call("ask")), says("done")), tools=[ask])
    await place.open(lead, inner)
    run = await place.start(lead)
    assert (await run.result()).output == "done"
    (result,) = results(await place.events(run), run.run_id)
    assert result.result == ["ChildFailed", "PayloadTooLarge", "ready", "ready"]


async def test_a_job_that_is_too_large_fails_no_sibling(place: Place, script: Script) -> None:
    jobs = [{"task": "x" * 1_000_000}, {"task": "small"}]
    model = script(
        calls(call("parallel_subagents", jobs=jobs)), says("done"), scenes=[when("small", says("ok"))]
    )
    agent = Agent("lead", model=model, allow_parallel_subagents=True)
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    (result,) = results(await place.events(run), run.run_id)
    first, second = result.result
    assert (first["job"], first["status"]) == (0, "error")
    assert "more than the 905,216" in first["error"]
    assert second == {"job": 1, "status": "completed", "output": "ok"}


async def test_a_sub_agent_that_its_budget_stopped_has_no_answer_and_fails_no_sibling(
    log: Log, script: Script
) -> None:
    jobs = [
        {"task": "long", "additional_context": "word " * 800, "output_schema": SCHEMA},
        {"task": "short", "output_schema": SCHEMA},
    ]
    short = when("short", says('{"n": 1}'))
    model = script(calls(call("parallel_subagents", jobs=jobs)), says("done"), scenes=[short])
    agent = Agent(
        "lead",
        model=model,
        allow_parallel_subagents=True,
        budget_awareness="limit:50",
        context={"window_tokens": 2000},
    )
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        events = [event async for event in run.stream(detailed=True)]
    ((stopped, answered),) = [result.result for result in results(events, run.run_id)]
    assert (stopped["job"], stopped["status"]) == (0, "error")
    assert "has not answered: Stopped: the context budget of 50% is used up" in stopped["error"]
    assert answered == {"job": 1, "status": "completed", "output": {"n": 1}}


async def test_sub_agents_have_the_servers_that_were_added_to_the_run(
    script: Script, mcp_server: dict[str, Any]
) -> None:
    late = {"late": {**mcp_server, "tools": ["pid"]}}
    began, proceed = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def wait() -> str:
        began.set()
        await proceed.wait()
        return "waited"

    spawn = call("spawn_self", "s", task="use it", tool_names=["mcp__late__pid"])
    model = script(
        calls(call("wait", "w")),
        calls(spawn, call("spawn_self", "t", task="use it")),
        says("done"),
        scenes=[when("use it", calls(call("mcp__late__pid")), says("used"))],
    )
    agent = Agent("lead", model=model, tools=[wait], allow_self_spawn=True)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await began.wait()
        await run.refresh_tools(late)
        proceed.set()
        await run.result()
        events = [event async for event in run.stream(detailed=True)]
    used = [e for e in events if isinstance(e, ToolResult) and e.tool_name == "mcp__late__pid"]
    assert [result.success for result in used] == [True, True]
