"""The check of code against logs: the first difference of each run, without an effect."""

from __future__ import annotations

from typing import Any

from foldlog.replay import Trace, load_trace
from foldlog.replay.replaying.code_check import check_code
from foldlog.runtime import Registry, Runtime, WorkflowRun, WorkflowTable, tool, workflow

DONE: list[str] = []


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    DONE.append(f"pay {amount}")
    return "paid"


@workflow(name="settle")
async def settle(run: WorkflowRun, order: str) -> str:
    await run.call(pay, amount=1)
    await run.memo("noted", lambda: DONE.append("memo"))
    await run.wait_for("go")
    return order


async def trace_of(runnable: Any, *, ends: bool = False) -> Trace:
    """The log of a run of this workflow, at its wait or at its end."""
    async with Runtime.open("memory://", registry=Registry(workflows=[runnable])) as rt:
        run = await rt.start(runnable, "17")
        async for event in run.stream():
            if event.type == "wait_started":
                break
        if ends:
            await run.signal("go")
            await run.result()
        return await load_trace(rt.log, run.run_id)


async def test_code_that_fits_an_open_run_and_one_that_is_over_has_no_difference_and_no_effect() -> None:
    for ends in (False, True):
        trace = await trace_of(settle, ends=ends)
        DONE.clear()
        found = check_code(trace, Registry(workflows=[settle]))
        assert (found.runs, found.misfits) == ((trace.root,), ())
        assert DONE == []
    assert check_code(trace, Registry(workflows=[settle]), ended=False).runs == ()


async def test_the_first_difference_is_told_with_its_place_and_revision_and_both_sides() -> None:
    @workflow(name="settle")
    async def changed(run: WorkflowRun, order: str) -> str:
        await run.call(pay, amount=2)
        return order

    trace = await trace_of(settle)
    (misfit,) = check_code(trace, Registry(workflows=[changed])).misfits
    assert (misfit.place, misfit.recorded, misfit.asked) == (
        "pay#0",
        'tool pay {"amount":1}',
        'tool pay {"amount":2}',
    )
    called = next(event for event in trace.events if event.type == "tool_call")
    assert misfit.revision == called.revision


async def test_a_removed_operation_another_output_and_code_that_is_missing_are_told() -> None:
    @workflow(name="settle")
    async def removed(run: WorkflowRun, order: str) -> str:
        await run.wait_for("go")
        return order

    @workflow(name="settle")
    async def answers(run: WorkflowRun, order: str) -> str:
        await run.call(pay, amount=1)
        await run.memo("noted", lambda: None)
        await run.wait_for("go")
        return f"order {order}"

    @workflow(name="settle", version="2")
    async def later(run: WorkflowRun, order: str) -> str:
        return order

    opened, over = await trace_of(settle), await trace_of(settle, ends=True)
    assert [each.why for each in check_code(over, Registry(workflows=[answers])).misfits] == [
        "the code ends with another output"
    ]
    assert check_code(opened, Registry(workflows=[answers])).misfits == ()
    (misfit,) = check_code(opened, Registry(workflows=[removed])).misfits
    assert (misfit.place, misfit.recorded, misfit.asked) == ("pay#0", 'tool pay {"amount":1}', "")
    (misfit,) = check_code(opened, Registry(workflows=[later])).misfits
    assert "has no version '1'; it has 2" in misfit.why
    (misfit,) = check_code(opened, Registry()).misfits
    assert "there is no agent 'settle'" in misfit.why


async def test_a_table_is_checked_as_its_run_has_stored_it_with_the_tools_of_the_registry() -> None:
    steps = [
        {"id": "pay", "tool": "pay", "arguments": {"amount": 1}},
        {"id": "go", "wait": "go", "needs": ["pay"]},
    ]
    table = WorkflowTable.from_config(
        {"kind": "workflow", "name": "settle", "steps": steps}, Registry(tools=[pay])
    )
    trace = await trace_of(table)
    assert check_code(trace, Registry(tools=[pay])).misfits == ()
    (misfit,) = check_code(trace, Registry()).misfits
    assert "there is no tool 'pay'" in misfit.why
