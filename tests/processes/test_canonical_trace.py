"""The canonical trace of contract.md, event for event: real SDK, real model server, real MCP server, both executors."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import McpProgress, ModelRequested, Text, ToolCall, ToolResult
from foldlog.replay import Trace, canonical, check_trace, compare
from foldlog.runtime import Agent, Registry, Worker
from foldlog.runtime.driving.host import Host

from tests.fakes.openai_server import Call, OpenAIServer, Reply, serve
from tests.processes.support import PATIENCE_S, Place, kinds, observed

SERVER = str(Path(__file__).parents[1] / "fakes" / "mcp_server.py")
CANONICAL = [
    "status(starting)",
    "step(started)",
    "usage",
    "tool_call",
    "mcp_progress",
    "mcp_progress",
    "tool_result",
    "step(completed)",
    "step(started)",
    "text",
    "usage",
    "step(completed)",
    "status(completed)",
]
SEARCH = "mcp__srv__search"
REPLIES = (
    Reply(calls=(Call(id="call_1", name=SEARCH, arguments=('{"query"', ': "x"}')),)),
    Reply(text=("Final ", "answer")),
)


@pytest.fixture(params=["stdio", "http"])
def entry(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A server's entry in an agent's configuration."""
    if request.param == "stdio":
        yield {"command": sys.executable, "args": [SERVER, "stdio"], "effects": {"search": "pure"}}
        return
    command = [sys.executable, SERVER, "http", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield {"url": f"http://127.0.0.1:{port}/mcp", "effects": {"search": "pure"}}
        finally:
            process.kill()


@pytest.fixture(params=["openai", "openai-responses"])
async def model(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, OpenAIServer]]:
    """The name of a model behind the official SDK, and the server that answers as it."""
    async with serve(*REPLIES, *REPLIES) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield f"{request.param}:gpt-4o", server


async def traced(place: Place, agent: Agent[str], executor: str) -> Trace:
    run = await place.runtime.start(agent, "question", executor=executor)
    assert (await run.result(timeout_s=PATIENCE_S)).output == "Final answer"
    assert kinds([e for e in await observed(run, detailed=True) if e.revision]) == CANONICAL
    return await place.trace(run)


async def test_both_executors_leave_the_canonical_trace(
    place: Place, entry: dict[str, Any], model: tuple[str, OpenAIServer]
):
    name, model_server = model
    agent = Agent("helper", model=name, instructions="Search, then answer.", mcp_servers={"srv": entry})
    registry = Registry(agents=[agent])
    worker = Worker(Host(log=place.log, registry=registry, worker="here"), grace_s=1.0)
    serving = asyncio.create_task(worker.serve())
    try:
        local, durable = [await traced(place, agent, executor) for executor in ("local", "durable")]
    finally:
        worker.stop()
        await asyncio.wait_for(serving, PATIENCE_S)
        await registry.aclose()
    for trace in (local, durable):
        assert check_trace(trace) == []
        assert kinds(list(trace.observable)) == CANONICAL
        assert_says_what_the_contract_says(trace)
    comparison = compare(local, durable)
    assert (comparison.equal, comparison.boundaries) == (True, (13, 13))
    assert canonical(local).size == len(CANONICAL)
    assert digests(local) == digests(durable)
    assert len(set(digests(local))) == 2
    assert len(model_server.requests) == 4
    bodies = [request.body for request in model_server.requests]
    assert bodies[:2] == bodies[2:]


def assert_says_what_the_contract_says(trace: Trace) -> None:
    call = next(event for event in trace.observable if isinstance(event, ToolCall))
    assert (call.tool_name, call.arguments, call.raw_arguments) == (SEARCH, {"query": "x"}, None)
    progress = [event for event in trace.observable if isinstance(event, McpProgress)]
    assert [(e.progress, e.total, e.message) for e in progress] == [(1, 2, "first"), (2, 2, "second")]
    result = next(event for event in trace.observable if isinstance(event, ToolResult))
    assert (result.success, result.result, result.error) == (True, "found x", None)
    assert [event.text for event in trace.observable if isinstance(event, Text)] == ["Final answer"]
    steps = {event.step for event in trace.observable if event.type != "status"}
    assert steps == {1, 2}


def digests(trace: Trace) -> list[str]:
    """The digests of the requests (R12)."""
    return [event.digest for event in trace.events if isinstance(event, ModelRequested)]
