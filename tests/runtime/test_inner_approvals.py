"""Approvals of runs below a run: found and answered by their id from anywhere, while the run above goes on waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ApprovalRequested, Log, ToolResult
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.memory import MemoryLog
from foldlog.projections.approvals import ApprovalRow
from foldlog.projections.run_state import RunState
from foldlog.replay import check_trace, load_trace, replay
from foldlog.replay.simulation.loop import SimulatedClock, run_simulated
from foldlog.runtime import Agent, Registry, Runtime, Swarm, ToolContext, Worker, tool
from foldlog.runtime.driving.host import Host
from foldlog.runtime.journal.journal import Journal

from tests.replay.scenarios import ShiftedClock
from tests.runtime.conftest import Place, call, calls, says, when

Script = Callable[..., str]


class Family:
    """An agent that delegates to one whose tool needs an approval, and then asks something; `ran` is what was done."""

    def __init__(self, script: Script) -> None:
        self.ran: list[str] = []
        ran = self.ran

        @tool
        async def deploy(service: str, ctx: ToolContext) -> str:
            """Deploy."""
            sure = await ctx.ask("Sure?")
            ran.append(f"{service} {sure.action}")
            return f"deployed {service}"

        inner_model = script(calls(call("deploy", "d", service="web")), says("inner answer"))
        self.inner = Agent("inner", model=inner_model, tools=[deploy], hitl_tools=["deploy"])
        inner = self.inner

        @tool(effect="pure", timeout_s=None)
        async def delegate(ctx: ToolContext) -> str:
            """Ask another agent."""
            return await ctx.run(inner, "sub question")

        self.outer = Agent("outer", model=script(calls(call("delegate")), says("done")), tools=[delegate])


async def one(runtime: Runtime, kind: str) -> ApprovalRow:
    """The one approval of the namespace that is pending, once it is there and of this kind."""
    index = await runtime.index()
    async with asyncio.timeout(120):
        while True:
            rows = await index.approvals()
            if [row.kind for row in rows] == [kind]:
                return rows[0]
            await asyncio.sleep(0.01)


async def test_an_approval_of_a_child_is_answered_by_its_id_and_the_parent_is_not_paused(
    place: Place, script: Script
) -> None:
    family = Family(script)
    await place.open(family.outer)
    run = await place.start(family.outer)
    row = await one(place.runtime, "tool")
    assert (row.root_id, row.agent_path, row.run_id != run.run_id) == (run.run_id, "outer/inner", True)
    assert ((await run.state()).status, (await run.state()).paused) == ("running", None)
    token = await run.issue_token(row.approval_id)
    async with Runtime.open(log=place.log) as elsewhere:
        await elsewhere.resolve_with_token(token, "approved", arguments={"service": "db"})
        question = await one(elsewhere, "elicitation")
        assert question.run_id == row.run_id
        await elsewhere.get_run(run.run_id).resolve(question.approval_id, "approved")
    assert (await run.result()).output == "done"
    assert family.ran == ["db accept"]


@pytest.mark.parametrize("executor", ["local", "durable"])
async def test_a_child_is_answered_though_everything_was_restarted_in_between(
    script: Script, executor: str
) -> None:
    family = Family(script)
    async with EphemeralServer() as server:
        async with Runtime.open(server.url, registry=Registry(agents=[family.outer])) as runtime:
            # A durable run is driven by this process too, so that one server is all there is.
            run = await runtime.start(family.outer, "question", executor=executor)
            if executor == "durable":
                await runtime.drive(run.run_id)
            row = await one(runtime, "tool")
        server.kill()
        await server.restart()
        async with Runtime.open(server.url) as passing:
            await passing.get_run(row.run_id).resolve(row.approval_id, "approved")
        server.kill()
        await server.restart()
        async with Runtime.open(server.url, registry=Registry(agents=[family.outer])) as later:
            await later.drive(run.run_id)
            question = await one(later, "elicitation")
            await later.get_run(question.run_id).resolve(question.approval_id, "rejected")
            assert (await later.get_run(run.run_id).result()).output == "done"
    assert family.ran == ["web decline"]


async def test_the_approval_of_a_child_expires_although_it_has_no_driver_meanwhile(script: Script) -> None:
    family, clock = Family(script), ShiftedClock()
    log, registry = MemoryLog(clock=clock), Registry(agents=[family.outer])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(family.outer, "question")
        row = await one(runtime, "tool")
    clock.ahead_s = 8 * 24 * 3600.0
    async with Runtime.open(log=log, registry=registry) as later:
        await later.drive(run.run_id)
        assert (await later.get_run(run.run_id).result()).output == "done"
        approval = (await later.get_run(row.run_id).state()).approvals[row.approval_id]
    assert approval.resolution is not None
    assert approval.resolution.decision == "timed_out"
    assert family.ran == []


async def test_nodes_of_a_swarm_and_copies_of_an_agent_ask_as_agents_do(script: Script) -> None:
    ran: list[str] = []

    @tool
    async def deploy(service: str) -> str:
        """Deploy."""
        ran.append(service)
        return f"deployed {service}"

    def agent(name: str, *turns: Any, **fields: Any) -> Agent[Any]:
        return Agent(name, model=script(*turns), tools=[deploy], hitl_tools=["deploy"], **fields)

    node = agent("node", calls(call("deploy", service="node")), says("done"))
    swarm = Swarm([node], "node", name="team")
    spawn = call("spawn_self", task="sub task")
    copy = when("sub task", calls(call("deploy", service="copy")), says("copied"))
    spawner = Agent(
        "spawner",
        model=script(calls(spawn), says("done"), scenes=[copy]),
        tools=[deploy],
        hitl_tools=["deploy"],
        allow_self_spawn=True,
    )
    registry = Registry(agents=[swarm, spawner])
    async with Runtime.open(log=MemoryLog(), registry=registry) as runtime:
        for each, path in ((swarm, "team/node"), (spawner, "spawner/spawner")):
            run = await runtime.start(each, "question")
            row = await one(runtime, "tool")
            assert (row.agent_path, row.root_id) == (path, run.run_id)
            await runtime.get_run(row.run_id).resolve(row.approval_id, "approved")
            assert (await run.result()).output == "done"
    assert ran == ["node", "copy"]


async def test_a_family_that_waits_for_a_person_holds_no_worker(log: Log, script: Script) -> None:
    family = Family(script)
    registry = Registry(agents=[family.outer])
    waiting = Worker(Host(log=log, registry=registry, worker="waiting"), concurrency=1, park_after_s=0.0)
    serving = asyncio.create_task(waiting.serve())
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(family.outer, "question", executor="durable")
        await runtime.watch(run.run_id, _until(runtime, run.run_id, lambda state: state.parked is not None))
        state = await run.state()
        assert (state.parked and state.parked.reason, state.owner, state.paused) == ("child", None, None)
        row = await one(runtime, "tool")
        await runtime.get_run(row.run_id).resolve(row.approval_id, "approved")
        question = await one(runtime, "elicitation")
        await runtime.get_run(question.run_id).resolve(question.approval_id, "approved")
        assert (await run.result()).output == "done"
        trace = await load_trace(log, run.run_id)
    waiting.stop()
    await asyncio.wait_for(serving, 120)
    assert family.ran == ["web accept"]
    assert (check_trace(trace), replay(trace).divergence) == ([], None)


async def test_a_run_that_waits_for_a_child_hears_its_own_timer_in_a_local_process(script: Script) -> None:
    """No worker is left that its timer could wake, so the process that drives the run waits for it."""

    @tool(effect="pure")
    async def deploy() -> str:
        return "deployed"

    @tool(effect="pure", timeout_s=None)
    async def pay(context: ToolContext) -> str:
        return "nobody paid" if await context.wait_for("paid", timeout_s=2.0) is None else "paid"

    @tool(effect="pure", timeout_s=None)
    async def ask_below(context: ToolContext) -> str:
        return await context.run(below, "go")

    model = script(calls(call("deploy")), says("deployed"))
    below = Agent("below", model=model, tools=[deploy], hitl_tools=["deploy"])
    turn = calls(call("pay", "p"), call("ask_below", "b"))
    above = Agent("above", model=script(turn, says("done")), tools=[pay, ask_below])
    log, registry = MemoryLog(), Registry(agents=[above])
    waiting = Worker(Host(log=log, registry=registry, worker="waiting"), park_after_s=0.2)
    serving = asyncio.create_task(waiting.serve())
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(above, "question", executor="durable")
        await runtime.watch(run.run_id, _until(runtime, run.run_id, lambda state: state.parked is not None))
        waiting.stop()
        await asyncio.wait_for(serving, 120)
        await runtime.drive(run.run_id)
        await runtime.watch(
            run.run_id, _until(runtime, run.run_id, lambda state: state.calls["p"].result is not None)
        )
        row = await one(runtime, "tool")
        await runtime.get_run(row.run_id).resolve(row.approval_id, "approved")
        result = await run.result()
    assert result.output == "done"


async def _until(runtime: Runtime, run_id: str, done: Callable[[RunState], bool]) -> None:
    journal = Journal(runtime.log, await runtime.locate(run_id), wait_for_log=True)
    await journal.load()
    await journal.follow_until(done)


def test_the_time_of_a_call_stands_still_while_a_run_below_it_waits_for_people(script: Script) -> None:
    """Two levels of calls with a minute each; a day is not too long to answer, but two minutes are to work."""
    model = script(calls(call("deploy", "d")), calls(call("idle")), says("deployed"))

    @tool(effect="pure", timeout_s=600)
    async def idle() -> str:
        await asyncio.sleep(120)
        return "idle"

    @tool(effect="pure")
    async def deploy() -> str:
        return "deployed"

    below = Agent("below", model=model, tools=[deploy, idle], hitl_tools=["deploy"])

    @tool(effect="pure")
    async def inner(context: ToolContext) -> str:
        return await context.run(below, "go")

    between = Agent("between", model=script(calls(call("inner")), says("said")), tools=[inner])

    @tool(effect="pure", timeout_s=300)
    async def outer(context: ToolContext) -> str:
        return await context.run(between, "go")

    agent = Agent("above", model=script(calls(call("outer")), says("done")), tools=[outer])

    async def play() -> list[ToolResult]:
        log = MemoryLog(clock=SimulatedClock())
        async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
            run = await runtime.start(agent, "question")
            results: list[ToolResult] = []
            async for event in run.stream(detailed=True):
                if isinstance(event, ApprovalRequested):
                    await asyncio.sleep(24 * 3600)
                    await runtime.get_run(event.run_id).resolve(event.approval_id, "approved")
                if isinstance(event, ToolResult):
                    results.append(event)
            return results

    found = {result.tool_name: result for result in run_simulated(play)}
    assert found["deploy"].success
    assert found["inner"].error == "timed out after 60 s"
    assert (found["outer"].success, found["outer"].result) == (True, "said")
    assert "idle" not in found
