"""Old and new workers side by side: a run goes on where it finds what it was prepared for, and else waits (P13)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from foldlog.eventlog import Claimed, LeftToOthers, NotRegistered, RunCancelled, Unknown, decode
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import check_trace, load_trace, replay
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, Worker, tool
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.agents.swarm import Swarm
from foldlog.runtime.driving.host import Host
from foldlog.runtime.executors import worker as worker_module
from foldlog.runtime.executors.preflight import Preflight
from foldlog.runtime.ports.runnable import Runnable

from tests.runtime.conftest import HeldTool, call, calls, says
from tests.runtime.test_approvals import parked

Script = Callable[..., str]


@pytest.fixture(autouse=True)
def _told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker says what it lacks at its second look, and looks often."""
    monkeypatch.setattr(worker_module, "LEFT_LOOKS", 2)
    monkeypatch.setattr(worker_module, "LEFT_DELAY_MAX_S", 0.05)


class Fleet:
    """Workers of several versions over one log."""

    def __init__(self, log: MemoryLog, runtime: Runtime, stack: contextlib.AsyncExitStack) -> None:
        self.log, self.runtime, self._stack = log, runtime, stack

    async def deploy(self, name: str, *agents: Runnable[Any], tools: Sequence[Any] = ()) -> Callable[[], Any]:
        """Start a worker; what stops it."""
        registry = Registry(agents=agents, tools=tools)
        worker = Worker(Host(log=self.log, registry=registry, worker=name), grace_s=5.0, park_after_s=0.0)
        task = asyncio.create_task(worker.serve())

        async def stop() -> None:
            worker.stop()
            for driver in worker._keeper.drivers:
                driver.release_soon("its worker is shutting down")
            await asyncio.wait_for(task, 120)

        self._stack.push_async_callback(stop)
        return stop

    async def left(self, run: RunHandle[Any]) -> str:
        """Wait until the run's log says why it is left; the reason that everybody is shown."""
        journal = await run._journal()
        async with asyncio.timeout(120):
            await journal.follow_until(lambda state: bool(state.left))
        (reason,) = (await run.pending()).left
        (row,) = [row for row in await self.runtime.list_runs() if row.run_id == run.run_id]
        assert (row.waiting_for, row.reason) == ("worker", reason)
        return reason

    async def events(self, run: RunHandle[Any]) -> list[Any]:
        subject = await self.runtime.locate(run.run_id)
        return [
            event async for stored in self.log.events.read(subject) for event in decode(stored.data).events
        ]

    async def completes(self, run: RunHandle[Any]) -> str:
        """Its output; its trace keeps all rules, and nothing of it speaks of what some worker lacked."""
        output = (await run.result()).output
        trace = await load_trace(self.log, run.run_id)
        assert check_trace(trace) == []
        assert replay(trace).divergence is None
        failed = [e.error for e in trace.events if e.type == "tool_result" and not e.success]
        assert failed == []
        row = next(row for row in await self.runtime.list_runs() if row.run_id == run.run_id)
        assert (row.waiting_for, row.reason) == (None, "")
        return str(output)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    log = MemoryLog()
    async with contextlib.AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(Runtime.open(log=log))
        yield Fleet(log, runtime, stack)


class Versions:
    """An agent `ops` that pays with an approval, as it was and as it may become; `paid` is what was paid."""

    def __init__(self, script: Script) -> None:
        self.paid: list[str] = []
        paid = self.paid

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            paid.append(f"{amount}")
            return "paid"

        self.pay = pay
        self.model = script(calls(call("pay", amount=5)), says("done"))
        self.old = Agent("ops", model=self.model, tools=[pay], hitl_tools=["pay"])

    def changed(self, how: str) -> list[Agent[Any]]:
        """The agents of the new version."""

        @tool(name="pay")
        async def with_currency(amount: int, currency: str) -> str:
            """Pay in a currency."""
            return "paid by the new one"

        @tool(name="pay", effect="pure")
        async def pure(amount: int) -> str:
            """Pay."""
            return "paid by the new one"

        @tool(name="pay")
        async def to_payee(amount: str) -> str:
            """Pay."""
            return "paid by the new one"

        @tool(name="pay")
        async def without_amount() -> str:
            """Pay."""
            return "paid by the new one"

        @tool(name="wire")
        async def wire(amount: int) -> str:
            """Pay."""
            return "paid by the new one"

        tools: dict[str, list[Any]] = {
            "removed": [],
            "renamed": [wire],
            "requires more": [with_currency],
            "another type": [to_payee],
            "takes less": [without_amount],
            "another effect": [pure],
        }
        return [
            Agent("ops", model=self.model, tools=tools[how], hitl_tools=[t.spec.name for t in tools[how]])
        ]


CHANGES = {
    "removed": "there is no tool 'pay'",
    "renamed": "there is no tool 'pay'",
    "requires more": "the tool 'pay' has changed: it now requires 'currency'",
    "another type": "the tool 'pay' has changed: the arguments of the call c1 no longer match it: 5 is not of type",
    "takes less": "the tool 'pay' has changed: it no longer has a parameter 'amount'",
    "another effect": "the tool 'pay' has changed: its effect was unsafe and is now pure",
}


@pytest.mark.parametrize("how", CHANGES)
async def test_an_approved_call_waits_for_a_worker_that_has_the_tool_it_was_approved_for(
    fleet: Fleet, script: Script, how: str
) -> None:
    versions = Versions(script)
    stop_old = await fleet.deploy("old", versions.old)
    run = await fleet.runtime.start(versions.old, "question", executor="durable")
    await parked(run)
    await stop_old()
    await fleet.deploy("new", *versions.changed(how))
    await run.resolve(next(iter((await run.state()).approvals)), "approved")
    assert CHANGES[how] in await fleet.left(run)
    await run.refresh_tools()  # which is for the next step, and the call is one of this step
    stored = await fleet.events(run)
    assert [e.worker for e in stored if isinstance(e, Claimed)] == ["old"]
    assert [e for e in stored if e.type in {"tool_started", "tool_result", "error"}] == []
    await fleet.deploy("old again", versions.old)
    assert await fleet.completes(run) == "done"
    assert versions.paid == ["5"]
    assert (await run.pending()).left == ()


async def test_a_new_worker_goes_on_with_a_tool_whose_changes_do_not_matter(
    fleet: Fleet, script: Script
) -> None:
    paid: list[tuple[int, str]] = []

    @tool(timeout_s=5.0)
    async def pay(amount: int, currency: str = "EUR") -> str:
        """Pay, in any currency."""
        paid.append((amount, currency))
        return "paid"

    versions = Versions(script)
    stop_old = await fleet.deploy("old", versions.old)
    run = await fleet.runtime.start(versions.old, "question", executor="durable")
    await parked(run)
    await stop_old()
    # The new agent does not list the tool, does not ask for approvals and has another one; its registry has both.
    newer = Agent("ops", model=versions.model, tools=[HeldTool().wait])
    await fleet.deploy("new", newer, tools=[pay])
    await run.resolve(next(iter((await run.state()).approvals)), "approved")
    assert await fleet.completes(run) == "done"
    assert paid == [(5, "EUR")]
    assert not any(isinstance(e, LeftToOthers) for e in await fleet.events(run))


async def test_a_run_is_prepared_with_the_tools_that_it_was_submitted_with(
    fleet: Fleet, script: Script
) -> None:
    versions = Versions(script)
    stop_new = await fleet.deploy("new", *versions.changed("renamed"))
    run = await fleet.runtime.start(versions.old, "question", executor="durable")
    assert "there is no tool 'pay'; known: " in await fleet.left(run)
    await stop_new()
    newer = Agent("ops", model=versions.model, tools=[HeldTool().wait])
    await fleet.deploy("newest", newer, tools=[versions.pay])
    await parked(run)
    assert list((await run.state()).tools) == ["pay"]
    await run.resolve(next(iter((await run.state()).approvals)), "approved")
    assert await fleet.completes(run) == "done"


async def test_each_worker_says_once_what_it_lacks(fleet: Fleet, script: Script) -> None:
    versions = Versions(script)
    stop_old = await fleet.deploy("old", versions.old)
    run = await fleet.runtime.start(versions.old, "question", executor="durable")
    await parked(run)
    await stop_old()
    for how in ("removed", "requires more"):
        await fleet.deploy(f"{how} 1", *versions.changed(how))
        await fleet.deploy(f"{how} 2", *versions.changed(how))
    await run.resolve(next(iter((await run.state()).approvals)), "approved")
    journal = await run._journal()
    async with asyncio.timeout(120):
        await journal.follow_until(lambda state: len(state.left) == 2)
    await asyncio.sleep(0.5)  # ten more looks
    reasons = [e.reason for e in await fleet.events(run) if isinstance(e, LeftToOthers)]
    assert len(reasons) == len(set(reasons)) == 2
    assert (await run.pending()).left == tuple(reversed(reasons))
    await fleet.deploy("old again", versions.old)
    assert await fleet.completes(run) == "done"


async def test_an_open_child_keeps_its_family_from_a_worker_that_lacks_what_the_child_needs(
    fleet: Fleet, script: Script
) -> None:
    versions = Versions(script)
    model = script(calls(call("ops", input="x")), says("all done"))
    old = Agent("boss", model=model, tools=[versions.old.as_tool()])
    (newer,) = versions.changed("requires more")
    stop_old = await fleet.deploy("old", old)
    run = await fleet.runtime.start(old, "question", executor="durable")
    child = await _parked_child(fleet, run)
    await stop_old()
    await fleet.deploy("new", Agent("boss", model=model, tools=[newer.as_tool()]))
    await run.resolve(next(iter((await child.state()).approvals)), "approved")
    assert "agent 'boss/ops': the tool 'pay' has changed" in await fleet.left(run)
    assert not any(isinstance(e, Claimed) and e.worker == "new" for e in await fleet.events(child))
    await fleet.deploy("old again", old)
    assert await fleet.completes(run) == "all done"
    assert versions.paid == ["5"]


async def test_a_renamed_subagent_is_missing_to_the_run_that_has_started_it(
    fleet: Fleet, script: Script
) -> None:
    versions = Versions(script)
    model = script(calls(call("ask", input="x")), says("all done"))
    old = Agent("boss", model=model, tools=[versions.old.as_tool("ask")])
    renamed = Agent("payments", model=versions.model, tools=[versions.pay])
    stop_old = await fleet.deploy("old", old)
    run = await fleet.runtime.start(old, "question", executor="durable")
    child = await _parked_child(fleet, run)
    await stop_old()
    await fleet.deploy("new", Agent("boss", model=model, tools=[renamed.as_tool("ask")]))
    await run.resolve(next(iter((await child.state()).approvals)), "approved")
    assert "has started 'ops', but starts 'payments' in this process" in await fleet.left(run)
    await fleet.deploy("old again", old)
    assert await fleet.completes(run) == "all done"


async def test_a_swarm_waits_for_a_worker_that_has_its_members(fleet: Fleet, script: Script) -> None:
    versions = Versions(script)
    last = Agent("last", model=script(says("told")))
    old = Swarm([versions.old, last], "ops >> last", name="team")
    stop_old = await fleet.deploy("old", old)
    run = await fleet.runtime.start(old, "question", executor="durable")
    child = await _parked_child(fleet, run)
    await stop_old()
    other = Agent("finally", model=script(says("told")))
    await fleet.deploy("new", Swarm([versions.old, other], "ops >> finally", name="team"))
    await run.resolve(next(iter((await child.state()).approvals)), "approved")
    assert "swarm 'team': there is no member 'last'; known: finally, ops" in await fleet.left(run)
    await fleet.deploy("old again", old)
    assert await fleet.completes(run) == "told"


async def test_a_loop_waits_for_a_worker_that_can_score_it(fleet: Fleet, script: Script) -> None:
    versions = Versions(script)

    def quality(scored: Any) -> float:
        return 1.0

    old = RalphLoop(versions.old, scorers=[quality], stop=Stop(score_threshold=0.9), name="again")
    stop_old = await fleet.deploy("old", old)
    run = await fleet.runtime.start(old, "question", executor="durable")
    child = await _parked_child(fleet, run)
    await stop_old()
    await fleet.deploy("new", RalphLoop(versions.old, stop=Stop(max_iterations=2), name="again"))
    await run.resolve(next(iter((await child.state()).approvals)), "approved")
    assert "ralph 'again': there is no function 'quality' in this process" in await fleet.left(run)
    await fleet.deploy("old again", old)
    assert await fleet.completes(run) == "done"


async def test_a_worker_whose_agent_has_become_a_swarm_leaves_its_runs(fleet: Fleet, script: Script) -> None:
    versions = Versions(script)
    stop_old = await fleet.deploy("old", versions.old)
    run = await fleet.runtime.start(versions.old, "question", executor="durable")
    await parked(run)
    await stop_old()
    await fleet.deploy("new", Swarm([Agent("one", model=versions.model)], "one", name="ops"))
    await run.resolve(next(iter((await run.state()).approvals)), "approved")
    assert "'ops' is a swarm in this process" in await fleet.left(run)
    await fleet.deploy("old again", versions.old)
    assert await fleet.completes(run) == "done"


async def test_a_refresh_lets_a_run_go_on_with_the_tools_as_they_are_now(
    fleet: Fleet, script: Script
) -> None:
    held = HeldTool()
    model = script(calls(call("wait")), calls(call("pay", "c2", amount=5)), says("done"))

    @tool
    async def pay(amount: int, payee: str) -> str:
        """Pay somebody."""
        return "paid"

    versions = Versions(script)
    old = Agent("ops", model=model, tools=[held.wait, versions.pay])
    newer = Agent("ops", model=model, tools=[held.wait, pay])
    stop_old = await fleet.deploy("old", old)
    run = await fleet.runtime.start(old, "question", executor="durable")
    await held.entered.wait()
    await run.pause()
    held.let_go.set()
    await parked(run)
    await stop_old()
    await fleet.deploy("new", newer)
    await run.resume()
    assert "it now requires 'payee'" in await fleet.left(run)
    await run.refresh_tools()
    assert (await run.result()).output == "done"
    results = [e.error for e in await fleet.events(run) if e.type == "tool_result"]
    assert results[0] is None  # the model, a script, does not know of the payee
    assert "payee" in results[1]


async def test_reasons_of_other_workers_are_shown_until_a_claim(fleet: Fleet, script: Script) -> None:
    versions = Versions(script)
    await fleet.deploy("new", *versions.changed("removed"))
    run = await fleet.runtime.start(versions.old, "question", executor="durable")
    await fleet.left(run)
    assert (await run.pending()).unclaimed
    assert await run.cancel() == "cancelled"
    (row,) = await fleet.runtime.list_runs()
    assert (row.status, row.waiting_for, row.reason, (await run.pending()).left) == (
        "cancelled",
        None,
        "",
        (),
    )


async def test_a_local_run_whose_tool_is_gone_is_not_driven_on_and_its_approval_stands(
    script: Script,
) -> None:
    log, versions = MemoryLog(), Versions(script)
    async with Runtime.open(log=log, registry=Registry(agents=[versions.old])) as old:
        started = await old.start(versions.old, "question")
        await parked(started)
        run_id = started.run_id
        approval = next(iter((await started.state()).approvals))
    async with Runtime.open(log=log, registry=Registry(agents=versions.changed("requires more"))) as newer:
        run = newer.get_run(run_id)
        await run.resolve(approval, "approved")
        await newer.drive(run_id)
        with pytest.raises(
            NotRegistered, match=r"cannot be driven in this process: .*it now requires 'currency'"
        ):
            await run.result()
        assert (await run.state()).epoch == 1
    async with Runtime.open(log=log, registry=Registry(agents=[versions.old])) as again:
        await again.drive(run_id)
        assert (await again.get_run(run_id).result()).output == "done"
    assert versions.paid == ["5"]


async def test_a_run_that_is_cancelled_after_its_process_stopped_driving_it_ends_as_cancelled(
    script: Script,
) -> None:
    log, versions = MemoryLog(), Versions(script)
    async with Runtime.open(log=log, registry=Registry(agents=[versions.old])) as old:
        await parked(started := await old.start(versions.old, "question"))
        approval = next(iter((await started.state()).approvals))
    async with Runtime.open(log=log, registry=Registry(agents=versions.changed("requires more"))) as newer:
        run = newer.get_run(started.run_id)
        await run.resolve(approval, "approved")
        await newer.drive(run.run_id)
        with pytest.raises(NotRegistered):
            await run.result()
        assert await run.cancel("nobody has it") == "cancelled"
        with pytest.raises(RunCancelled, match="nobody has it"):
            await run.result()


async def _parked_child(fleet: Fleet, run: RunHandle[Any]) -> RunHandle[Any]:
    """The run's first child, once it waits for an approval."""
    journal = await run._journal()
    async with asyncio.timeout(120):
        await journal.follow_until(lambda state: bool(state.open_children))
    child = fleet.runtime.get_run(next(iter(journal.state.open_children)))
    await parked(child)
    return child


async def test_a_preflight_refuses_an_event_of_a_later_release_also_in_a_run_below(
    fleet: Fleet, script: Script
) -> None:
    versions = Versions(script)
    model = script(calls(call("ops", input="x")), says("all done"))
    boss = Agent("boss", model=model, tools=[versions.old.as_tool()])
    stop = await fleet.deploy("old", boss, versions.old)
    run = await fleet.runtime.start(boss, "question", executor="durable")
    alone = await fleet.runtime.start(versions.old, "question", executor="durable")
    child = await _parked_child(fleet, run)
    await parked(alone)
    await stop()

    async def misfits() -> dict[str, str]:
        check = Preflight(fleet.log, Registry(agents=[boss, versions.old]))
        rows = [row for row in await fleet.runtime.list_runs() if row.parent is None]
        return {found.name: found.reason async for found in check.runs(rows)}

    assert await misfits() == {}
    for each in (child, alone):
        journal = await each._journal()
        assert await journal.store(
            (Unknown(original_type="teleported", data={"type": "teleported"}),), epoch=0
        )
    told = "has an event 'teleported', which this release does not know"
    found = await misfits()
    assert set(found) == {run.run_id, alone.run_id}
    assert f"agent 'boss/ops' {told}" in found[run.run_id]
    assert f"agent 'ops' {told}" in found[alone.run_id]
