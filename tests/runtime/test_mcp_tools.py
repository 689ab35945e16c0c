"""Tools of MCP servers in a run: injected arguments, approvals, progress, on both executors, against a real server."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import RunFailed
from foldlog.eventlog.events import ApprovalRequested, McpProgress, Prepared, ToolCall, ToolResult
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import load_trace
from foldlog.runtime import Agent

from .conftest import Place, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
SERVER = str(Path(__file__).parents[1] / "fakes" / "mcp_server.py")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Any]]:
    """One server for all tests, as an agent's configuration names it."""
    command = [sys.executable, SERVER, "http", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
            yield {"srv": {"url": url, "tools": ["search", "burst"]}}
        finally:
            process.kill()


@pytest.fixture(params=["local", "durable"])
async def cheap(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place in memory."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(), request.param, stack)
        yield place
        await place.check_rules()


async def test_a_call_of_a_servers_tool_is_split_approved_and_recorded_as_a_local_one(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    asks = calls(call("mcp__srv__search", "a", query="tides", why="to know"))
    agent = Agent(
        "finder",
        model=script(asks, says("done")),
        mcp_servers=servers,
        injected_tool_args={"why": "Why"},
        hitl_tools=["mcp__srv__search"],
    )
    await cheap.open(agent)
    run = await cheap.start(agent)
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            assert (event.arguments, event.injected_args) == ({"query": "tides"}, {"why": "to know"})
            await run.resolve(event.approval_id, "approved", arguments={"query": "ebb"}, note="shorter")
    events = await cheap.events(run)
    (asked,) = [event for event in events if isinstance(event, ToolCall)]
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert (asked.arguments, asked.injected_args) == ({"query": "tides"}, {"why": "to know"})
    assert result.result == "found ebb"
    assert result.metadata["injected_args"] == {"why": "to know"}
    assert result.metadata["edited_arguments"] == {"query": "ebb"}
    assert result.metadata["approval_status"] == "approved"
    properties = (await run.state()).tools["mcp__srv__search"].parameters["properties"]
    assert list(properties) == ["query", "why"]


async def test_a_clash_that_is_found_when_connecting_fails_the_preparation_and_names_both(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    agent = Agent(
        "finder", model=script(says("done")), mcp_servers=servers, injected_tool_args={"query": "x"}
    )
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(RunFailed) as failed:
        await run.result(timeout_s=30)
    assert failed.value.error_type == "config_error"
    assert "injected_tool_args.query: the tool 'mcp__srv__search' has a parameter 'query'" in str(
        failed.value
    )
    assert names(await cheap.events(run)) == ["status(starting)", "error", "status(error)"]


async def test_a_tool_that_needs_an_approval_and_is_not_offered_fails_the_preparation_by_its_name(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    agent = Agent("finder", model=script(says("done")), mcp_servers=servers, hitl_tools=["mcp__srv__serch"])
    await cheap.open(agent)
    run = await cheap.start(agent)
    with pytest.raises(
        RunFailed, match="hitl_tools names 'mcp__srv__serch', which agent 'finder' does not have"
    ):
        await run.result(timeout_s=30)


@pytest.mark.parametrize("told", [True, False])
async def test_without_emit_mcp_progress_only_the_event_is_missing(
    cheap: Place, script: Script, servers: dict[str, Any], told: bool
) -> None:
    turns = (calls(call("mcp__srv__burst", "a", count=3)), says("done"))
    agent = Agent("finder", model=script(*turns), mcp_servers=servers, emit_mcp_progress=told)
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result(timeout_s=30)).output == "done"
    events = await cheap.events(run)
    found = [(e.tool_name, e.progress, e.total) for e in events if isinstance(e, McpProgress)]
    assert found == ([("mcp__srv__burst", n, 3) for n in (1, 2, 3)] if told else [])
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert result.success
    others = [name for name in names(events) if name != "mcp_progress"]
    assert others[1:5] == ["step(started)", "usage", "tool_call", "tool_result"]


async def test_the_lock_of_a_server_is_shared_by_pure_tools_and_unsafe_is_what_nothing_is_said_of(
    cheap: Place, script: Script, servers: dict[str, Any]
) -> None:
    pure = {"srv": {**servers["srv"], "effects": {"search": "pure"}}}
    agent = Agent("finder", model=script(says("done")), mcp_servers=pure)
    await cheap.open(agent)
    run = await cheap.start(agent)
    await run.result(timeout_s=30)
    (prepared,) = [e for e in (await load_trace(cheap.log, run.run_id)).events if isinstance(e, Prepared)]
    facts = {spec.name: (spec.effect, spec.lock, spec.exclusive) for spec in prepared.tools}
    assert facts == {
        "mcp__srv__search": ("pure", "server:srv", False),
        "mcp__srv__burst": ("unsafe", "server:srv", True),
    }
