"""Looking at a run that is under way, and changing what it works with: tools, and the turns before it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, Log, RunFinished, RunNotFound, ToolsRefreshFailed
from foldlog.replay import load_trace
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
    assert (await run.result(timeout_s=30)).output == "found"
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
    assert (await run.result(timeout_s=30)).output == "done"
    trace = await load_trace(place.log, run.run_id)
    (failed,) = [e for e in trace.events if isinstance(e, ToolsRefreshFailed)]
    assert failed.error_type == "tool_source_unavailable"
    assert "late" in failed.error
    assert list((await run.state()).tools) == ["wait"]


async def test_a_wrong_server_is_refused_at_once_and_a_finished_run_has_no_next_step(
    log: Log, script: Script
) -> None:
    agent = Agent("helper", model=script(says("done")))
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "go")
        await run.result(timeout_s=30)
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
    await run.result(timeout_s=30)
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
    await third.result(timeout_s=30)


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
    result = await run.result(timeout_s=30)
    used = await run.usage()
    assert (await run.status(), used.usage, used.cost_usd) == ("completed", result.usage, result.cost_usd)
    assert used.usage.total_tokens == 20
    with pytest.raises(RunNotFound):
        await place.runtime.get_run("nobody").usage()
