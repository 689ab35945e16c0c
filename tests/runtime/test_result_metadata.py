"""The record of a tool call after each way to end; the event mirrors it, and the model reads it as text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog.events import ApprovalRequested, ToolResult
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import compare, load_trace, rerun
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, ToolContext, ToolFailed, tool

from tests.replay.scenarios import ShiftedClock

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
ALWAYS = {
    "status",
    "started_at",
    "completed_at",
    "execution_time_ms",
    "approval_status",
    "attempt",
    "idempotency_key",
}


@tool(effect="pure")
async def right(n: int = 0) -> dict[str, int]:
    """Be right."""
    return {"n": n}


@tool(effect="pure")
async def wrong() -> str:
    """Be wrong."""
    raise ValueError("nö 🐟")


@tool(effect="pure")
async def refuses() -> str:
    """Refuse."""
    raise ToolFailed("not today")


@tool(effect="pure", timeout_s=0.05)
async def slow() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


@tool(effect="pure", max_attempts=3)
async def gives_up() -> str:
    """Cancel what it does itself."""
    raise asyncio.CancelledError


@tool(effect="idempotent")
async def files(context: ToolContext) -> str:
    """Store something."""
    await context.artifact(b"abc", "text/plain")
    return ""


@tool
async def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


TOOLS = [right, wrong, refuses, slow, gives_up, files, send]
ROUND = calls(
    call("right", "ok", n=7),
    call("wrong", "raises"),
    call("refuses", "fails"),
    call("slow", "slow"),
    call("gives_up", "aborted"),
    call("files", "files"),
    call("nothing", "unknown"),
    {"id": "malformed", "name": "right", "arguments": "[1]"},
    call("right", "misfit", n="x", m=1),
    call("send", "yes", to="a"),
    call("send", "no", to="b"),
    call("send", "edited", to="c"),
)
TOLD = {
    "ok": '{"n":7}',
    "raises": "error: ValueError: nö 🐟",
    "fails": "error: not today",
    "slow": "error: timed out after 0.05 s",
    "aborted": "error: the call was cancelled from within the tool",
    "files": "",
    "unknown": "error: unknown tool 'nothing'; known tools: files, gives_up, refuses, right, send, slow, wrong",
    "malformed": "error: the arguments are not a JSON object",
    "misfit": "error: invalid arguments: n: Input should be a valid integer, unable to parse string as an integer, not "
    "'x'; m: there is no such parameter (parameters: n)",
    "yes": "sent to a",
    "no": "error: an operator rejected the call: too loud",
    "edited": "sent to d",
}


async def answer(run: RunHandle[Any]) -> None:
    """Decide about each call that waits, as its id says."""
    async for event in run.stream():
        if isinstance(event, ApprovalRequested) and event.tool_call_id == "no":
            await run.resolve(event.approval_id, "rejected", note="too loud")
        elif isinstance(event, ApprovalRequested):
            arguments = {"to": "d"} if event.tool_call_id == "edited" else None
            await run.resolve(event.approval_id, "approved", arguments=arguments)


async def test_the_record_says_how_each_call_ended_and_the_event_and_the_model_are_told_the_same(
    place: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(ROUND, says("done")), tools=TOOLS, hitl_tools=["send"])
    await place.open(agent)
    run = await place.start(agent)
    await answer(run)
    results = {e.tool_call_id or "": e for e in await place.events(run) if isinstance(e, ToolResult)}
    assert set(results) == set(TOLD)
    order = list(TOLD)
    for name, event in results.items():
        told = event.metadata
        assert set(told) >= ALWAYS
        assert event.success == (told["status"] == "success")
        assert event.duration_ms == told["execution_time_ms"] >= 0
        assert isinstance(told["started_at"], float)
        assert told["started_at"] <= told["completed_at"]
        assert (event.error is None) == event.success
        assert told["idempotency_key"] == f"{run.run_id}:1:{order.index(name)}"
        assert told["attempt"] == 1
    statuses = {name: event.metadata["status"] for name, event in results.items()}
    successes = {name for name, status in statuses.items() if status == "success"}
    assert successes == {"ok", "files", "yes", "edited"}
    assert {statuses[name] for name in ("raises", "fails", "unknown", "malformed", "misfit")} == {"error"}
    assert [statuses[name] for name in ("slow", "no", "aborted")] == ["timed_out", "rejected", "aborted"]
    approvals = {name: event.metadata["approval_status"] for name, event in results.items()}
    assert approvals == dict.fromkeys(TOLD, "not_required") | {
        "yes": "approved",
        "no": "rejected",
        "edited": "approved",
    }
    assert {name for name, e in results.items() if "approval_id" in e.metadata} == {"yes", "no", "edited"}
    assert results["edited"].metadata["edited_arguments"] == {"to": "d"}
    assert [each["size_bytes"] for each in results["files"].metadata["evidence"]] == [3]
    said = {m.tool_call_id: m.content for m in await run.history() if m.role == "tool"}
    assert said == TOLD
    assert list(said) == order
    trace = await load_trace(place.log, run.run_id)
    assert compare(trace, await rerun(trace)).equal


async def test_a_call_that_nobody_approves_in_time_says_so_and_that_it_was_never_run(script: Script) -> None:
    clock = ShiftedClock()
    log = MemoryLog(clock=clock)
    turns = (calls(call("send", "a", to="x"), call("right", "b")), says("done"))
    agent = Agent("helper", model=script(*turns), tools=TOOLS, hitl_tools=["send"])
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "question")
        journal = await run._journal()
        await journal.follow_until(lambda state: state.parked is not None)
        (approval,) = (await run.state()).pending_approvals
        expires_s = (approval.request.expires_at or 0.0) - clock.now()
        assert 6.99 * 24 * 3600 < expires_s <= 7 * 24 * 3600
    clock.ahead_s = 7 * 24 * 3600 + 1.0
    async with Runtime.open(log=log, registry=registry) as later:
        await later.drive(run.run_id)
        again = later.get_run(run.run_id)
        assert (await again.result()).output == "done"
        events = [event async for event in again.stream(detailed=True)]
        history = await again.history()
    results = {event.tool_call_id: event for event in events if isinstance(event, ToolResult)}
    told = results["a"].metadata
    assert (told["status"], told["approval_status"]) == ("timed_out", "timed_out")
    assert told["approval_id"] == approval.request.approval_id
    assert results["b"].metadata["status"] == "success"
    assert [m.content for m in history if m.tool_call_id == "a"] == [
        "error: nobody approved the call in time"
    ]
