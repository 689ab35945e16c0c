"""A cancel needs no worker and no signal: it is seen at once, and what was in flight is ended behind it."""

import asyncio
import contextlib
import os

import psutil
import pytest
from foldlog.eventlog import (
    ApprovalError,
    ApprovalRequested,
    ApprovalRevoked,
    ChildStarted,
    LateOutcome,
    McpProgress,
    RunCancelled,
    Status,
    Text,
    TextReset,
    ToolResult,
)
from foldlog.replay import is_prefix
from foldlog.runtime import Agent, RunHandle

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, is_alive, kinds, observed, stored, undisturbed, until

EXECUTORS = ["local", "durable"]


async def start(place: Place, agent: Agent[str], executor: str = "durable") -> RunHandle[str]:
    """A run that is about to be driven: by this process, or by a worker."""
    if executor == "durable":
        await place.worker()
    return await place.runtime.start(agent, "question", executor=executor)


async def assert_cancelled(run: RunHandle[str], reason: str = "") -> None:
    with pytest.raises(RunCancelled) as cancelled:
        await run.result(timeout_s=PATIENCE_S)
    assert cancelled.value.reason == reason


async def test_without_a_worker_a_cancel_leaves_exactly_two_events(place: Place):
    run = await place.runtime.start(workshop.quick, "question", executor="durable")
    assert await run.cancel("never mind") == "cancelled"
    await assert_cancelled(run, "never mind")
    assert kinds(await observed(run, detailed=True)) == ["status(starting)", "status(cancelled)"]
    before = await place.trace(run)
    await place.worker()
    later = await place.runtime.start(workshop.quick, "question", executor="durable")
    await later.result(timeout_s=PATIENCE_S)
    assert (await place.trace(run)).stored == before.stored


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_in_a_model_stream_the_reader_is_told_that_the_text_does_not_hold(place: Place, executor: str):
    run = await start(place, workshop.talker, executor)
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.stream():
            seen.append(event)
            if isinstance(event, Text):
                assert await run.cancel() == "cancelled"
    assert kinds(seen) == ["text", "text_reset", "status(cancelled)"]
    assert isinstance(seen[1], TextReset)
    assert (seen[1].cause, seen[1].offset, seen[1].channel) == ("discarded", 0, "text")
    await assert_cancelled(run)
    late = await stored(run, LateOutcome)
    assert (late.kind, late.outcome) == ("model", "cancelled")
    await place.form(run)


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_in_a_tool_call_the_result_is_known_while_the_tool_still_blocks(place: Place, executor: str):
    run = await start(place, workshop.holder, executor)
    await stored(run, McpProgress)
    assert await run.cancel("enough") == "cancelled"
    await assert_cancelled(run, "enough")
    await until(workshop.read_diary)
    assert workshop.read_diary() == ["told to let go"]  # the rest follows when the gate is open
    workshop.open_gate()
    late = await stored(run, LateOutcome)
    assert workshop.read_diary() == ["told to let go", "let go"]
    assert (late.kind, late.tool_call_id, late.outcome) == ("tool", "hold-1", "cancelled")
    assert kinds(await observed(run, detailed=True))[-1] == "status(cancelled)"
    await place.form(run)


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_family_is_cancelled_from_below_and_its_tools_are_ended(place: Place, executor: str):
    run = await start(place, workshop.sender, executor)
    child = place.runtime.get_run((await stored(run, ChildStarted)).child_run)
    await stored(child, McpProgress)
    assert await run.cancel("all of it") == "cancelled"
    await assert_cancelled(child, "all of it")
    await assert_cancelled(run, "all of it")
    await until(workshop.read_diary)
    workshop.open_gate()
    assert (await stored(child, LateOutcome)).tool_call_id == "hold-1"
    assert (await stored(run, LateOutcome)).tool_call_id == "send-1"
    ends = [event for event in await observed(run) if isinstance(event, Status)]
    assert [(event.agent_path, event.reason) for event in ends] == [
        ("sender/holder", "all of it"),
        ("sender", "all of it"),
    ]
    await place.form(run)


async def test_a_cancelled_trace_is_a_prefix_of_the_whole_one(place: Place):
    run = await start(place, workshop.waiter)
    await stored(run, McpProgress)
    await run.cancel()
    workshop.open_gate()
    await stored(run, LateOutcome)
    assert is_prefix(await place.form(run), await undisturbed(workshop.waiter)).equal


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_second_cancel_and_one_after_the_end_change_nothing(place: Place, executor: str):
    run = await start(place, workshop.waiter, executor)
    await stored(run, McpProgress)
    first = await asyncio.gather(run.cancel("a"), place.runtime.get_run(run.run_id).cancel("b"))
    assert sorted(first) == ["already_cancelled", "cancelled"]
    await stored(run, LateOutcome)
    before = await place.trace(run)
    assert await run.cancel("again") == "already_cancelled"
    assert (await place.trace(run)).stored == before.stored
    done = await place.runtime.start(workshop.quick, "question", executor=executor)
    await done.result(timeout_s=PATIENCE_S)
    before = await place.trace(done)
    assert await done.cancel() == "already_completed"
    assert (await place.trace(done)).stored == before.stored


async def test_while_an_approval_is_pending_it_becomes_void(place: Place):
    cautious = workshop.agent("clerk", "errand.json", *workshop.clerk.tools.values(), hitl_tools=["pay"])
    run = await start(place, cautious)
    request = await stored(run, ApprovalRequested)
    await stored(run, ToolResult, count=2)
    assert await run.cancel() == "cancelled"
    await assert_cancelled(run)
    revoked = await stored(run, ApprovalRevoked)
    assert revoked.approval_id == request.approval_id
    with pytest.raises(ApprovalError, match="void"):
        await run.resolve(request.approval_id, "approved")
    assert "pay" not in workshop.read_diary()
    await place.form(run)


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_the_children_of_a_tool_are_gone_with_the_late_outcome(place: Place, executor: str):
    run = await start(place, workshop.spawner, executor)
    leader = int((await stored(run, McpProgress)).message)
    await run.cancel()
    await assert_cancelled(run)
    await stored(run, LateOutcome)
    await until(lambda: members(leader) == [])  # killed; the system takes a moment to take them away


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_an_mcp_server_over_stdio_and_its_children_are_gone_with_the_late_outcome(
    place: Place, executor: str
):
    run = await start(place, workshop.caller, executor)
    leader = (await stored(run, ToolResult, lambda result: result.tool_call_id == "pid-1")).result["result"]
    await stored(run, McpProgress)
    assert len(members(leader)) == 2
    await run.cancel()
    await assert_cancelled(run)
    await stored(run, LateOutcome)
    await until(lambda: members(leader) == [])  # killed; the system takes a moment to take them away


def members(group: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == group and is_alive(pid):
                found.append(pid)
    return found
