"""Workflows where other runnables stand: as tools, as nodes, behind schedules, in several versions, under policies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import (
    ApprovalRequested,
    ConfigError,
    LeftToOthers,
    MemoryLog,
    OperationFailed,
    RunCancelled,
    RunFailed,
)
from foldlog.eventlog.ports import Shard
from foldlog.runtime import (
    Agent,
    EventHook,
    RalphLoop,
    Registry,
    Runtime,
    Schedule,
    Swarm,
    ToolContext,
    WorkflowRun,
    WorkflowTable,
    tool,
    workflow,
)

from tests.runtime.conftest import Place, call, calls, says
from tests.runtime.test_deploys import Fleet, fleet  # noqa: F401 - a fixture
from tests.runtime.test_event_hooks import ended, inputs, working

Script = Callable[..., str]
PAID: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_is_paid() -> None:
    PAID.clear()


@tool(effect="unsafe", slot="till")
async def pay(amount: int, to: str, ctx: ToolContext) -> str:
    """Pay."""
    PAID.append(f"begun {to}")
    await asyncio.sleep(0.02)
    PAID.append(f"{to} gets {amount}")
    return f"paid {to} under {ctx.idempotency_key.partition(':')[2]}"


@workflow(tools=[pay])
async def pays(run: WorkflowRun, to: str) -> str:
    return str(await run.call("pay", amount=3, to=to))


def table(*, approval: bool = False) -> WorkflowTable:
    """A table that pays, and knows its tools."""
    step = {"id": "pay", "tool": "pay", "arguments": {"amount": 3, "to": "${input.to}"}}
    if approval:
        step["approval"] = "required"
    told = {"kind": "workflow", "name": "pays", "steps": [step], "output": "${pay.result}"}
    return WorkflowTable.from_config(told, Registry(tools=[pay]))


FORMS = {"function": (pays, "paid ann under pay#0"), "table": (table(), "paid ann under pay/pay#0")}
BOTH = pytest.mark.parametrize(("form", "output"), FORMS.values(), ids=FORMS)
"""A function, and the table that says the same."""


@workflow(name="waits")
async def waits(run: WorkflowRun) -> str:
    await run.wait_for("never")
    return "done"


async def parked(run: Any) -> None:
    journal = await run._journal()
    async with asyncio.timeout(120):
        await journal.follow_until(lambda state: state.parked is not None)


async def test_an_agent_calls_a_workflow_as_its_tool(place: Place, script: Script) -> None:
    asks = calls(call("pays", input="ann"))
    agent = Agent("clerk", model=script(asks, says("done")), tools=[pays.as_tool(description="Pay.")])
    await place.open(agent, pays)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    told = [(event.agent, event.result) for event in await place.events(run) if event.type == "tool_result"]
    assert told == [("pays", "paid ann under pay#0"), ("clerk", "paid ann under pay#0")]
    assert PAID == ["begun ann", "ann gets 3"]


@BOTH
async def test_a_workflow_is_a_node_of_a_swarm(cheap: Place, script: Script, form: Any, output: str) -> None:
    writer = Agent("writer", model=script(says("ann"), says("done")))
    swarm = Swarm([writer, form], "writer >> pays", name="office")
    await cheap.open(swarm)
    run = await cheap.start(swarm)
    assert (await run.result()).output == output
    assert PAID == ["begun ann", "ann gets 3"]


async def test_a_step_of_a_table_in_a_swarm_waits_for_its_approval_between_agents(
    place: Place, script: Script
) -> None:
    first, last = (
        Agent(name, model=script(says(text))) for name, text in (("first", "ann"), ("last", "done"))
    )
    swarm = Swarm([first, table(approval=True), last], "first >> pays >> last", name="office")
    await place.open(swarm)
    run = await place.start(swarm)
    async for event in run.stream():
        if isinstance(event, ApprovalRequested):
            assert (event.agent, PAID) == ("pays", [])
            await run.resolve(event.approval_id, "approved")
            break
    assert (await run.result()).output == "done"
    assert PAID == ["begun ann", "ann gets 3"]


async def test_a_loop_repeats_a_workflow(cheap: Place) -> None:
    loop = RalphLoop(pays, stop={"max_iterations": 2})
    await cheap.open(loop)
    output = (await (await cheap.start(loop, "ann")).result()).output
    assert (
        "Its answer was:\npaid ann under pay#0" in output
    )  # it is part of what the second iteration pays to
    assert len(PAID) == 4


async def test_a_workflow_runs_another_with_its_arguments(cheap: Place) -> None:
    @workflow(name="outer")
    async def outer(run: WorkflowRun) -> str:
        return "outer " + await run.agent(pays, {"to": "bob"})

    await cheap.open(outer, pays)
    assert (await (await cheap.start(outer, "")).result()).output == "outer paid bob under pay#0"


async def test_calls_that_need_the_same_slot_run_one_after_the_other(cheap: Place) -> None:
    @workflow(name="both")
    async def both(run: WorkflowRun) -> list[str]:
        return await run.gather(
            lambda r: r.call(pay, amount=1, to="ann"), lambda r: r.call(pay, amount=2, to="bob")
        )

    await cheap.open(both)
    await (await cheap.start(both, "")).result()
    assert sorted(PAID) == sorted(["begun ann", "ann gets 1", "begun bob", "bob gets 2"])
    assert PAID[0].split()[1] == PAID[1].split()[0]


async def test_a_call_is_approved_edited_rejected_and_denied_as_that_of_an_agent(cheap: Place) -> None:
    rules = [{"tool": "pay", "arguments": {"to": "mallory"}, "action": "deny", "reason": "never"}]

    @workflow(name="asking", tools=[pay], hitl_tools=["pay"], policy={"rules": rules})
    async def asking(run: WorkflowRun) -> list[str]:
        seen = []
        for to in ("ann", "bob", "mallory"):
            try:
                seen.append(await run.call("pay", amount=1, to=to))
            except OperationFailed as error:
                seen.append(f"{error.place} {error.status}")
        return seen

    await cheap.open(asking)
    run = await cheap.start(asking, "")
    for decision, options in (
        ("approved", {"arguments": {"amount": 2, "to": "ann"}}),
        ("rejected", {"note": "no"}),
    ):
        await parked(run)
        (approval,) = (await run.pending()).approvals
        await run.resolve(approval.approval_id, decision, **options)
    output = (await run.result()).output
    assert output == ["paid ann under pay#0", "pay#1 rejected", "pay#2 rejected"]
    assert PAID == ["begun ann", "ann gets 2"]


async def test_a_cancel_needs_no_code(cheap: Place) -> None:
    await cheap.open(waits)
    run = await cheap.start(waits, "")
    await parked(run)
    async with Runtime.open(log=cheap.log, registry=Registry()) as stranger:
        assert await stranger.get_run(run.run_id).cancel("enough") == "cancelled"
    with pytest.raises(RunCancelled):
        await run.result()


async def test_more_operations_than_permitted_end_the_run(cheap: Place) -> None:
    @workflow(name="endless", operations_max=5)
    async def endless(run: WorkflowRun) -> str:
        while True:
            await run.memo("value", lambda: 1)

    await cheap.open(endless)
    with pytest.raises(RunFailed, match="more than 5 operations") as failed:
        await (await cheap.start(endless, "")).result()
    assert failed.value.error_type == "operations_max"


def versions() -> tuple[Any, Any]:
    @workflow(name="greet", version="1")
    async def first(run: WorkflowRun) -> str:
        await run.wait_for("go")
        return "hello"

    @workflow(name="greet", version="2")
    async def second(run: WorkflowRun) -> str:
        await run.wait_for("go")
        await run.memo("warmer", lambda: 1)
        return "hello there"

    return first, second


async def test_a_run_keeps_its_version_and_new_ones_get_the_last(cheap: Place) -> None:
    first, second = versions()
    await cheap.open(first)
    old = await cheap.start(first, "")
    await parked(old)
    async with Runtime.open(log=cheap.log, registry=Registry(workflows=[first, second])) as newer:
        await newer.get_run(old.run_id).signal("go")
        await newer.drive(old.run_id)
        assert (await newer.get_run(old.run_id).result()).output == "hello"
        new = await newer.start(second, "")
        await new.signal("go")
        assert (await new.result()).output == "hello there"


async def test_a_worker_without_the_version_leaves_the_run_to_others(fleet: Fleet) -> None:  # noqa: F811
    first, second = versions()
    stop_old = await fleet.deploy("old", first)
    run = await fleet.runtime.start(first, "", executor="durable")
    await parked(run)
    await stop_old()
    await fleet.deploy("new", second)
    await run.signal("go")
    assert "this process has no version '1'; it has 2" in await fleet.left(run)
    await fleet.deploy("both", first, second)
    assert await fleet.completes(run) == "hello"
    assert [type(event) for event in await fleet.events(run)].count(LeftToOthers) == 1


def test_a_version_that_is_given_twice_is_refused() -> None:
    first, _ = versions()
    again, _ = versions()
    with pytest.raises(ConfigError, match=r"greet.*version"):
        Registry(workflows=[first, again])


async def test_changed_code_is_taken_by_runs_that_have_not_passed_it(cheap: Place) -> None:
    code = {"new": False}

    @workflow(name="evolving")
    async def evolving(run: WorkflowRun) -> list[Any]:
        seen: list[Any] = []
        if code["new"]:
            seen.append(await run.changed("early"))
            if seen[-1]:
                await run.memo("early", lambda: 1)
        await run.memo("value", lambda: 1)
        await run.wait_for("go")
        if code["new"]:
            seen.append(await run.changed("late"))
            if seen[-1]:
                await run.memo("late", lambda: 1)
        return seen

    await cheap.open(evolving)
    old = await cheap.start(evolving, "")
    await parked(old)
    code["new"] = True
    new = await cheap.start(evolving, "")
    for run, seen in ((old, [False, True]), (new, [True, True])):
        await run.signal("go")
        assert (await run.result()).output == seen


@BOTH
async def test_a_schedule_starts_a_workflow(form: Any, output: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(), "durable", stack)
        await place.open(form)
        daily = Schedule(name="daily", agent="pays", cron="0 7 * * *", tz="UTC", input="ann")
        await place.runtime.schedules.apply(daily)
        await place.runtime.schedules.trigger("daily")
        async with asyncio.timeout(120):
            first = await anext(aiter(place.log.events.follow(Shard(0), 0)))
            while first.subject.kind != "run":
                first = await anext(aiter(place.log.events.follow(Shard(0), first.position)))
        run = place.runtime.get_run(first.subject.id)
        assert (await run.result()).output == output


@BOTH
async def test_the_end_of_a_workflow_starts_another_and_that_of_an_agent_one(
    script: Script, form: Any, output: str
) -> None:
    writer = Agent("writer", model=script(says("ann")))
    hooks = [
        EventHook(name="pay", on="run.completed", of=("writer",), agent="pays", input="${run.output}"),
        EventHook(name="tell", on="run.completed", of=("pays",), agent="teller", input="${run.output}"),
    ]
    teller = Agent("teller", model=script(says("told")))
    registry = Registry(agents=[writer, teller], workflows=[form])
    async with Runtime.open(log=MemoryLog(), registry=registry) as runtime:
        async with working(runtime.log, registry, hooks, 1):
            await runtime.start(writer, "who?", executor="durable")
            await ended(runtime, 3)
        assert await inputs(runtime, "pays") == ["ann"]
        assert await inputs(runtime, "teller") == [output]
    assert PAID == ["begun ann", "ann gets 3"]


async def test_a_tool_that_nobody_knows_and_arguments_that_are_none_end_the_run_with_its_place(
    cheap: Place,
) -> None:
    @workflow(name="unknown")
    async def unknown(run: WorkflowRun) -> str:
        return str(await run.call("pai", amount=1))

    @workflow(name="unfit", tools=[pay])
    async def unfit(run: WorkflowRun) -> str:
        return str(await run.call("pay", amount="much", to="ann"))

    await cheap.open(unknown, unfit)
    with pytest.raises(RunFailed, match="'pai'"):
        await (await cheap.start(unknown, "")).result()
    with pytest.raises(RunFailed, match=r"pay#0 failed: .*amount"):
        await (await cheap.start(unfit, "")).result()
    assert PAID == []
