"""A process that leaves waits for the claims it releases, and for nothing else."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ApprovalRequested, MemoryLog, ToolResult, decode
from foldlog.replay import load_trace
from foldlog.runtime import Agent, Registry, Runtime, Worker, tool
from foldlog.runtime.driving import driver
from foldlog.runtime.driving.host import Host
from foldlog.runtime.executors import local
from foldlog.runtime.executors import worker as worker_module

from tests.runtime.conftest import HeldTool, call, calls, says


async def test_a_process_that_leaves_as_its_run_comes_to_rest_does_not_wait_for_the_answer(
    script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    async def deploy() -> str:
        """Deploy."""
        return "deployed"

    monkeypatch.setattr(local, "RELEASE_GRACE_S", 3600.0)  # a wait of this length outlasts the test
    agent = Agent("ops", model=script(calls(call("deploy"))), tools=[deploy], hitl_tools=["deploy"])
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        async for stored in log.events.follow(await runtime.locate(run.run_id)):
            if any(event.type == "parked" for event in decode(stored.data).events):
                break


async def test_a_worker_that_has_no_time_to_release_a_run_leaves_it_to_others_at_once(
    script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "RELEASE_S_MIN", 0.0)
    held = HeldTool()
    agent = Agent("ops", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    log, registry = MemoryLog(ack_wait_s=3600.0), Registry(agents=[agent])  # silence alone tells nobody
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
        leaving = Worker(Host(log=log, registry=registry, worker="leaving"), grace_s=0.0)
        left = asyncio.create_task(leaving.serve())
        await held.entered.wait()
        leaving.stop()
        await left
        held.let_go.set()
        coming = Worker(Host(log=log, registry=registry, worker="coming"))
        serving = asyncio.create_task(coming.serve())
        assert (await run.result()).output == "done"
        coming.stop()
        await serving


async def test_a_worker_that_drains_says_so_and_counts_no_more_as_one_that_serves(
    script: Callable[..., str],
) -> None:
    held = HeldTool()
    agent = Agent("ops", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    log, registry = MemoryLog(), Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
        leaving = Worker(Host(log=log, registry=registry, worker="leaving"), grace_s=3600.0)
        left = asyncio.create_task(leaving.serve())
        await held.entered.wait()
        operations = runtime.operations
        assert [row.draining for row in await operations.workers() if row.worker == "leaving"] == [False]
        leaving.stop()
        found = await operations.workers()
        while not any(row.draining for row in found):
            found = await operations.workers()  # each look lets the worker go on
        (row,) = (row for row in found if row.draining)
        assert ([drive.run_id for drive in row.drives], row.serves) == ([run.run_id], ("ops",))
        later = await runtime.start(agent, "another", executor="durable")
        waits = await operations.why(await (await runtime.index()).runs(status="queued"))
        assert waits[later.run_id].sentence == "No worker serves agent `ops`."
        assert [queue.workers for queue in await operations.agents()] == [()]
        held.let_go.set()
        assert (await run.result()).output == "done"
        await left
        assert "leaving" not in {row.worker for row in await operations.workers()}


class Deploy:
    """An unsafe tool that is at work until it is let go, and a tool beside it that waits for people."""

    def __init__(self) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()
        self.cut = False

    @property
    def tools(self) -> list[Any]:
        @tool(effect="unsafe")
        async def deploy() -> str:
            """Deploy."""
            self.entered.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cut = True
                raise
            return "deployed"

        @tool(effect="unsafe")
        async def pay() -> str:
            """Pay."""
            return "paid"

        return [deploy, pay]

    def agent(self, script: Callable[..., str], name: str = "ops") -> Agent[str]:
        both = calls(call("deploy", "c1"), call("pay", "c2"))
        return Agent(name, model=script(both, says("done")), tools=self.tools, hitl_tools=["pay"])


async def kinds_asked(log: MemoryLog, run_id: str) -> list[str]:
    trace = await load_trace(log, run_id)
    return [event.kind for event in trace.events if isinstance(event, ApprovalRequested)]


@pytest.mark.parametrize("below", [False, True], ids=["a run", "a child"])
async def test_a_process_that_leaves_cuts_off_no_unsafe_call(script: Callable[..., str], below: bool) -> None:
    work, log = Deploy(), MemoryLog()
    agent = work.agent(script)
    boss = Agent("boss", model=script(calls(call("ops", input="go")), says("all")), tools=[agent.as_tool()])
    outer = boss if below else agent
    async with contextlib.AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(
            Runtime.open(log=log, registry=Registry(agents=[agent, boss]))
        )
        run = await runtime.start(outer, "question")
        await work.entered.wait()
        leaving = asyncio.create_task(stack.aclose())
        for _ in range(20):  # it comes to where it waits
            await asyncio.sleep(0)
        assert not leaving.done()
        work.let_go.set()
        await leaving
    assert not work.cut
    trace = await load_trace(log, run.run_id)
    assert [e.result for e in trace.events if isinstance(e, ToolResult)] == ["deployed"]
    assert await kinds_asked(log, run.run_id) == ["tool"]
    assert [e.type for e in trace.events if e.run_id == run.run_id][-1] == ("released" if below else "parked")


async def test_a_worker_that_leaves_stores_the_result_of_an_unsafe_call_before_it_releases_the_run(
    script: Callable[..., str],
) -> None:
    work, log = Deploy(), MemoryLog()
    agent = work.agent(script)
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
        worker = Worker(Host(log=log, registry=registry, worker="leaving"), grace_s=10.0)
        serving = asyncio.create_task(worker.serve())
        await work.entered.wait()
        for driver in worker._keeper.drivers:  # the end of its grace time, without waiting for it
            driver.release_soon("its worker is shutting down")
        for _ in range(20):  # it comes to where it waits
            await asyncio.sleep(0)
        assert not work.cut
        work.let_go.set()
        worker.stop()
        await serving
    trace = await load_trace(log, run.run_id)
    assert [e.result for e in trace.events if isinstance(e, ToolResult)] == ["deployed"]
    assert await kinds_asked(log, run.run_id) == ["tool"]


async def test_a_process_that_leaves_waits_for_a_tool_without_a_timeout_only_so_long(
    script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "UNBOUNDED_CALL_S", 0.01)
    monkeypatch.setattr(local, "RELEASE_GRACE_S", 0.01)
    entered = asyncio.Event()

    @tool(effect="unsafe", timeout_s=None)
    async def hang() -> str:
        """Hang."""
        entered.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent("ops", model=script(calls(call("hang")), says("done")), tools=[hang])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        await runtime.start(agent, "question")
        await entered.wait()


async def test_a_worker_says_that_it_has_begun_once_others_see_it_and_what_it_has() -> None:
    log, registry = MemoryLog(), Registry(agents=[Agent("ops", model="scripted:none.json")])
    worker = Worker(Host(log=log, registry=registry, worker="coming"), stored=True)
    begun = asyncio.Event()
    serving = asyncio.create_task(worker.serve(begun.set))
    await begun.wait()
    (seen,) = await log.leases.present()
    assert (worker.is_serving, seen.worker, seen.serves, seen.offer is not None) == (
        True,
        "coming",
        ("ops",),
        True,
    )
    worker.stop()
    await serving
