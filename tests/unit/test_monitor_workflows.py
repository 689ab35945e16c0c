"""The monitor is silent on the traces of workflows, and names the rule that a changed one breaks (R28 to R31)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from foldlog.eventlog import Event
from foldlog.eventlog.events import (
    Chosen,
    OperationSkipped,
    Status,
    ToolCall,
    ToolResult,
    ToolStarted,
    WaitStarted,
)
from foldlog.replay import Monitor, load_trace
from foldlog.runtime import Registry, Runtime, WorkflowRun, WorkflowTable, tool, workflow

from .traces import find, renumbered

Events = list[Event]


@tool(effect="unsafe")
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@workflow(name="both")
async def both(run: WorkflowRun) -> str:
    async def twice(r: WorkflowRun) -> None:
        await r.call(pay, to="eve")
        await r.call(pay, to="fay")

    await run.gather(lambda r: r.call(pay, to="ann"), twice)
    await run.first(lambda r: r.sleep(), lambda r: r.wait_for("never"))
    return str(await run.call(pay, to="bob"))


STEPS: list[dict[str, Any]] = [
    {"id": "never", "tool": "pay", "arguments": {"to": "eve"}, "when": "false"},
    {"id": "asked", "tool": "pay", "arguments": {"to": "ann"}, "approval": "required"},
]
TABLE = WorkflowTable.from_config(
    {"kind": "workflow", "name": "table", "steps": STEPS}, Registry(tools=[pay])
)


async def trace_of(runnable: Any) -> Events:
    """The events of a run of this workflow, all of whose approvals are given."""
    async with Runtime.open("memory://", registry=Registry(workflows=[runnable])) as rt:
        run = await rt.start(runnable, "{}" if runnable is TABLE else "")
        async for event in run.stream():
            if event.type == "status" and getattr(event, "status", "") == "paused":
                for approval in (await run.state()).pending_approvals:
                    await run.resolve(approval.request.approval_id, "approved")
        await run.result()
        return list((await load_trace(rt.log, run.run_id)).events)


def rules(events: Events) -> set[str]:
    monitor = Monitor()
    found = [violation for event in renumbered(events) for violation in monitor.feed(event)]
    return {violation.rule for violation in [*found, *monitor.finish()]}


def call(events: Events, place: str, kind: type[Event] = ToolCall) -> int:
    return find(events, kind, tool_call_id=place)


def moved(events: Events, index: int, before: int) -> Events:
    """The events with the one at `index` before the one that is at `before`."""
    event, rest = events[index], [*events[:index], *events[index + 1 :]]
    at = before if before < index else before - 1
    return [*rest[:at], event, *rest[at:]]


@pytest.mark.parametrize("runnable", [both, TABLE], ids=["function", "table"])
async def test_the_trace_of_a_workflow_breaks_no_rule(runnable: Any) -> None:
    assert rules(await trace_of(runnable)) == set()


async def test_what_follows_a_race_that_is_not_decided_breaks_the_order_of_branches() -> None:
    events = await trace_of(both)
    chosen = find(events, Chosen)
    assert "R28" in rules([*events[:chosen], *events[chosen + 1 :]])
    assert "R28" in rules(moved(events, chosen, call(events, "pay#0") + 1))


async def test_a_branch_that_lost_asks_for_nothing_more() -> None:
    events = await trace_of(both)
    wait = find(events, WaitStarted, place="first#0.1/never#0")
    late = msgspec.structs.replace(events[wait], place="first#0.1/never#1", wait_id="first#0.1/never#1")
    at = find(events, Chosen) + 1
    assert "R28" in rules([*events[:at], late, *events[at:]])


async def test_an_operation_that_is_asked_for_twice_breaks_the_order_of_branches() -> None:
    events = await trace_of(both)
    at = call(events, "gather#0.0/pay#0")
    assert "R28" in rules([*events[: at + 1], events[at], *events[at + 1 :]])


async def test_a_workflow_that_goes_on_or_ends_while_a_branch_is_open_breaks_the_wait_for_branches() -> None:
    events = await trace_of(both)
    result = call(events, "gather#0.1/pay#1", ToolResult)
    assert "R29" in rules(moved(events, result, call(events, "pay#0") + 1))
    assert "R29" in rules([*events[:result], *events[result + 1 :]])
    last = call(events, "pay#0", ToolResult)
    assert "R29" in rules([*events[:last], *events[last + 1 :]])


async def test_a_step_that_is_skipped_and_asked_for_or_skipped_twice_breaks_the_rule_of_skips() -> None:
    events = await trace_of(TABLE)
    skip = find(events, OperationSkipped)
    assert "R30" in rules([*events[: skip + 1], events[skip], *events[skip + 1 :]])
    asks = msgspec.structs.replace(
        events[call(events, "asked/pay#0")], tool_call_id="never/pay#0", rules=None
    )
    assert "R30" in rules([*events[: skip + 1], asks, *events[skip + 1 :]])
    assert "R30" in rules([*events[:skip], asks, *events[skip:]])


async def test_a_step_that_starts_before_its_approval_breaks_the_rule_of_approvals() -> None:
    events = await trace_of(TABLE)
    start = call(events, "asked/pay#0", ToolStarted)
    paused = find(events, Status, status="paused")
    assert "R31" in rules(moved(events, start, paused + 1))
