"""Looking at a run that is under way, and changing what it works with: tools, and the turns before it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import (
    ConfigError,
    Log,
    MemoryLog,
    RunFinished,
    RunNotFound,
    Submitted,
    ToolsRefreshFailed,
    ToolsRemoved,
)
from foldlog.replay import check_trace, load_trace, replay
from foldlog.runtime import Agent, Registry, Runtime, Swarm, tool

from tests.runtime.conftest import Place, call, calls, says

Script = Callable[..., str]


class Gate:
    """A pure tool that waits until the test opens it."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

        @tool(effect="pure")
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.opened.wait()
            return "waited"

        self.tool = wait


async def test_a_server_added_to_a_live_run_gives_its_tools_to_the_next_step(
    place: Place, script: Script, mcp_server: dict[str, Any]
) -> None:
    gate = Gate()
    model = script(calls(call("wait")), calls(call("mcp__late__search", q="x")), says("found"))
    agent = Agent("helper", model=model, tools=[gate.tool])
    await place.open(agent)
    run = await place.start(agent)
    await gate.entered.wait()
    await run.refresh_tools({"late": mcp_server}, by="ada")
    assert (await run.pending()).refresh is not None
    gate.opened.set()
    assert (await run.result()).output == "found"
    state = await run.state()
    assert "mcp__late__search" in state.tools
    assert list(state.mcp_servers) == ["late"]


async def test_a_server_that_cannot_be_reached_leaves_the_run_its_tools(place: Place, script: Script) -> None:
    gate = Gate()
    agent = Agent("helper", model=script(calls(call("wait")), says("done")), tools=[gate.tool])
    await place.open(agent)
    run = await place.start(agent)
    await gate.entered.wait()
    await run.refresh_tools({"late": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}})
    gate.opened.set()
    assert (await run.result()).output == "done"
    trace = await load_trace(place.log, run.run_id)
    (failed,) = [e for e in trace.events if isinstance(e, ToolsRefreshFailed)]
    assert failed.error_type == "tool_source_unavailable"
    assert "late" in failed.error
    assert list((await run.state()).tools) == ["wait"]


@tool
async def pay(amount: int = 1) -> str:
    """Pay."""
    return "paid"


async def test_a_removed_tool_is_recorded_told_to_the_model_and_refused(place: Place, script: Script) -> None:
    gate = Gate()
    model = script(
        calls(call("wait", "c1"), call("pay", "c2")),
        calls(call("pay", "c3"), call("wait", "c4")),
        says("done"),
    )
    agent = Agent("helper", model=model, tools=[gate.tool, pay], hitl_tools=["pay"])
    await place.open(agent)
    run = await place.start(agent)
    await gate.entered.wait()
    await run.refresh_tools(remove=["pay"], by="ada")
    async for event in run.stream():
        if event.type == "approval_requested":
            gate.opened.set()
            await run.resolve(event.approval_id, "approved")
    results = {
        event.tool_call_id: (event.success, event.error)
        for event in await place.events(run)
        if event.type == "tool_result"
    }
    assert results["c2"] == (True, None)  # a call of the step before the refresh
    assert results["c3"] == (False, "the tool 'pay' was removed from this run; known tools: wait")
    assert results["c4"] == (True, None)
    trace = await load_trace(place.log, run.run_id)
    (removed,) = [e for e in trace.events if isinstance(e, ToolsRemoved)]
    assert removed.tools == ["pay"]
    told = [message.content for message in await run.history() if message.role == "user"]
    assert told == ["question", "[no longer available, do not call: pay]"]
    assert list((await run.state()).tools) == ["wait"]


async def test_a_refresh_does_not_bring_a_removed_tool_back_to_the_run_its_fork_or_its_copies(
    script: Script,
) -> None:
    gate, log = Gate(), MemoryLog()
    gate.opened.set()
    model = script(
        calls(call("wait", "c1")),
        calls(call("wait", "c2"), call("spawn_self", "c3", task="pay")),
        calls(call("wait", "c4")),
        says("done"),
        scenes=[{"input": "pay", "turns": [calls(call("pay")), says("I cannot.")]}],
    )
    agent = Agent("helper", model=model, tools=[gate.tool, pay], allow_self_spawn=True)
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.refresh_tools(remove=["pay"])
        await run.result()
        trace = await load_trace(log, run.run_id)
        at = next(event.revision or 0 for event in trace.events if isinstance(event, ToolsRemoved))
        fork = await runtime.fork(run.run_id, at=at, tools="run")
        await fork.refresh_tools()
        await fork.result()
        assert sorted((await fork.state()).tools) == ["spawn_self", "wait"]
    (spawned,) = [event for event in trace.events if event.type == "child_started"]
    child = next(e for e in trace.events if isinstance(e, Submitted) and e.run_id == spawned.child_run)
    assert child.config["tools"] == ["wait"]
    assert not check_trace(trace)
    assert replay(trace).divergence is None


async def test_a_tool_to_remove_is_one_that_the_run_has(log: Log, script: Script) -> None:
    gate = Gate()
    agent = Agent("helper", model=script(calls(call("wait")), says("done")), tools=[gate.tool])
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "go")
        await gate.entered.wait()
        for wrong, told in (
            (["wiat"], "did you mean 'wait'"),
            ("wait", "must be a list"),
            ([3], "must be text"),
        ):
            with pytest.raises(ConfigError, match=told):
                await run.refresh_tools(remove=wrong)  # type: ignore[arg-type]
        gate.opened.set()
        await run.result()
        with pytest.raises(RunFinished):
            await run.refresh_tools(remove=["wait"])


async def test_a_wrong_server_is_refused_at_once_and_a_finished_run_has_no_next_step(
    log: Log, script: Script
) -> None:
    agent = Agent("helper", model=script(says("done")))
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "go")
        await run.result()
        with pytest.raises(ConfigError, match="late"):
            await run.refresh_tools({"late": {"comand": "x"}})
        with pytest.raises(RunFinished):
            await run.refresh_tools()


async def test_a_reader_of_a_live_run_sees_what_it_waits_for(place: Place, script: Script) -> None:
    gate = Gate()

    @tool
    def deploy(version: str) -> str:
        """Deploy."""
        return version

    requests = calls(call("wait", "c1"), call("deploy", "c2", version="2"))
    agent = Agent(
        "helper", model=script(requests, says("done")), tools=[gate.tool, deploy], hitl_tools=["deploy"]
    )
    await place.open(agent)
    run = await place.start(agent)
    await gate.entered.wait()
    await run.inject("hurry")
    await run.pause()
    found = await run.pending()
    assert (found.status, found.step, found.paused, found.pause_requested) == ("paused", 1, "approval", True)
    assert [(c.tool_name, c.attempt) for c in found.calls] == [("wait", 1), ("deploy", 1)]
    (approval,) = found.approvals
    assert (approval.tool_name, found.messages) == ("deploy", ("hurry",))
    await run.resume()
    gate.opened.set()
    await run.resolve(approval.approval_id, "approved")
    await run.result()
    ended = await run.pending()
    assert (ended.status, ended.calls, ended.approvals, ended.messages) == ("completed", (), (), ())


async def test_a_run_without_a_driver_says_what_it_waits_for(cheap: Place, script: Script) -> None:
    gate = Gate()
    agent = Agent("helper", model=script(calls(call("wait")), says("done")), tools=[gate.tool])
    other = Agent("other", model=script(says("done")))
    await cheap.open(agent)
    first, second, third = [await cheap.start(agent, session="s") for _ in range(3)]
    await gate.entered.wait()
    found = await third.pending()
    assert (found.status, found.behind, found.unclaimed) == ("queued", (first.run_id, second.run_id), False)
    assert ((await first.pending()).behind, (await first.pending()).unclaimed) == ((), False)
    alone = await cheap.runtime.start(other, "x", executor="durable")
    assert ((await alone.pending()).behind, (await alone.pending()).unclaimed) == ((), True)
    await alone.cancel()
    assert not (await alone.pending()).unclaimed
    gate.opened.set()
    await third.result()


async def test_usage_of_a_live_run_is_that_of_all_below_it_and_in_the_end_that_of_its_result(
    place: Place, script: Script
) -> None:
    gate = Gate()
    worker = Agent("worker", model=script(calls(call("wait", "w1")), says("worked")), tools=[gate.tool])
    line = Swarm([worker], "worker", name="line")
    lead = Agent(
        "lead", model=script(calls(call("line", "l1", input="go")), says("done")), tools=[line.as_tool()]
    )
    await place.open(lead, worker, line)
    run = await place.start(lead)
    await gate.entered.wait()
    assert (await run.status(), (await run.usage()).usage.total_tokens) == ("running", 10)
    gate.opened.set()
    result = await run.result()
    used = await run.usage()
    assert (await run.status(), used.usage, used.cost_usd) == ("completed", result.usage, result.cost_usd)
    assert used.usage.total_tokens == 20
    with pytest.raises(RunNotFound):
        await place.runtime.get_run("nobody").usage()
