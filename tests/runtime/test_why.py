"""Why a run waits: every situation is built for real, and the list says the same as the run itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from foldlog.eventlog import MemoryLog, Submitted, decode
from foldlog.projections.operating.why import Why
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, ToolContext, ToolFailed, tool

from tests.replay.scenarios import ShiftedClock
from tests.runtime.conftest import HeldTool, Place, call, calls, says, when
from tests.runtime.test_approvals import Deployer, parked
from tests.runtime.test_resilience import failing

Script = Callable[..., str]
CLOCK = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d"


async def told(runtime: Runtime, run: RunHandle[Any]) -> Why | None:
    """The reason that the run itself gives, after a look at whether the list says the same."""
    own = (await run.pending()).why
    row = await (await runtime.index()).run(run.run_id)
    listed = (await runtime.operations.why([row])).get(run.run_id)
    assert (listed and without_times(listed)) == (own and without_times(own))
    return own


def without_times(why: Why) -> tuple[str, str, Any]:
    return why.kind, re.sub(r"\d+ s\b|[\d:]{5,8}", "…", why.sentence), why.action


async def until(runtime: Runtime, run: RunHandle[Any], kind: str) -> Why:
    """Wait until the run waits for this."""
    async with asyncio.timeout(120):
        while True:
            found = (await run.pending()).why
            if found is not None and found.kind == kind:
                break
            await asyncio.sleep(0.02)
    again = await told(runtime, run)
    assert again is not None
    return again


def says_so(why: Why, pattern: str, deed: str | None) -> None:
    assert re.fullmatch(pattern, why.sentence), why.sentence
    assert (why.action and why.action.kind) == deed


def quick(name: str, script: Script, **fields: Any) -> Agent[Any]:
    return Agent(name, model=script(says("done")), **fields)


# --- what keeps a run from being driven -------------------------------------------------------------------------------


async def test_nobody_serves_the_agent_or_nobody_has_a_place_for_it(script: Script) -> None:
    agent = quick("refunds", script)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "pay", executor="durable")
        why = await until(runtime, run, "no_worker")
        says_so(why, "No worker serves agent `refunds`.", "start_worker")
        assert why.action is not None
        assert (why.action.command, why.action.names) == (("worker",), ("MODULE:REGISTRY",))
        async with runtime.log.leases.presence(presence("other", "refunds")):
            says_so(await until(runtime, run, "worker"), "Waits for a worker of `refunds`.", None)
        await run.cancel()
        assert await told(runtime, run) is None


def presence(worker: str, *serves: str) -> Any:
    from foldlog.eventlog.ports import Presence

    return Presence(worker=worker, serves=serves)


async def test_a_run_is_behind_others_of_its_session(cheap: Place, script: Script) -> None:
    held = HeldTool()
    scenes = [when("first", calls(call("wait")), says("done")), when("next", says("done"))]
    agent = Agent("refunds", model=script(scenes=scenes), tools=[held.wait])
    runtime = await cheap.open(agent)
    first = await cheap.start(agent, "first", session="ada")
    await held.entered.wait()
    others = [await cheap.start(agent, "next", session="ada") for _ in range(3)]
    why = await until(runtime, others[2], "lane")
    says_so(why, rf"Waits for run {first.run_id} \(running \d+ s\); 2 more are before it\.", "open")
    says_so(
        await until(runtime, others[0], "lane"), rf"Waits for run {first.run_id} \(running \d+ s\)\.", "open"
    )
    assert await told(runtime, first) is None
    held.let_go.set()
    for run in [first, *others]:
        await run.result()


async def test_a_run_is_in_line_for_a_slot_of_its_agent(cheap: Place, script: Script) -> None:
    held = HeldTool()
    model = script(scenes=[when("first", calls(call("wait")), says("done")), when("next", says("done"))])
    agent = Agent("refunds", model=model, tools=[held.wait], concurrency={"runs_max": 1})
    runtime = await cheap.open(agent)
    first = await cheap.start(agent, "first")
    await held.entered.wait()
    second = await cheap.start(agent, "next")
    why = await until(runtime, second, "slot")
    says_so(why, r"Waits for a slot of `refunds`: place 1, all 1 taken\.", "open")
    assert why.action is not None
    assert why.action.run_id == first.run_id
    held.let_go.set()
    for run in (first, second):
        await run.result()


async def test_a_call_waits_for_what_another_call_holds(cheap: Place, script: Script) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    @tool(name="print", effect="pure", slot="printer")
    async def print_it() -> str:
        """Print."""
        entered.set()
        await gate.wait()
        return "printed"

    agent = Agent("office", model=script(calls(call("print")), says("done")), tools=[print_it])
    runtime = await cheap.open(agent)
    first = await cheap.start(agent)
    await entered.wait()
    second = await cheap.start(agent)
    why = await until(runtime, second, "call_slot")
    says_so(why, rf"`print` waits for `printer`, held by run {first.run_id} since {CLOCK}\.", "open")
    gate.set()
    for run in (first, second):
        await run.result()


async def test_the_worker_of_a_run_is_silent(script: Script) -> None:
    clock, held = ShiftedClock(), HeldTool()
    agent = Agent("refunds", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    from tests.runtime.conftest import Host, Worker

    log, registry = MemoryLog(clock=clock), Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        worker = Worker(Host(log=log, registry=registry, worker="w-2", lease_s=60.0))
        serving = asyncio.create_task(worker.serve())
        run = await runtime.start(agent, "pay", executor="durable")
        await held.entered.wait()
        assert await told(runtime, run) is None
        clock.ahead_s = 40.0
        why = await until(runtime, run, "silent")
        says_so(why, r"Its worker w-2 has been silent for 4\d s; another takes it over after 1 min\.", None)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        why = await until(runtime, run, "no_worker")
        says_so(why, "No worker serves agent `refunds`.", "start_worker")
        async with runtime.log.leases.presence(presence("other", "refunds")):
            why = await until(runtime, run, "silent")
            says_so(why, r"Its worker w-2 is gone; another takes it over after 1 min\.", None)


async def test_the_process_that_drove_a_local_run_is_gone(script: Script) -> None:
    log, held = MemoryLog(clock=(clock := ShiftedClock())), HeldTool()
    agent = Agent("refunds", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as gone:
        run = await gone.start(agent, "pay")
        await held.entered.wait()
        assert await told(gone, run) is None
        held.let_go.set()
    async with Runtime.open(log=log) as elsewhere:
        orphan = await started(log, elsewhere, await first_event(log, run))
        assert await told(elsewhere, orphan) is None  # its process may be just about to claim it
        clock.ahead_s = 10.0
        why = await until(elsewhere, orphan, "process_gone")
        says_so(why, r"The process that drove it is gone\.", "drive")
        assert why.action is not None
        assert why.action.command == ("runs", "drive")


async def first_event(log: MemoryLog, run: RunHandle[Any]) -> Submitted:
    from foldlog.replay import find_run

    async for stored in log.events.read(await find_run(log, run.run_id)):
        (*_, event) = [e for e in decode(stored.data).events if isinstance(e, Submitted)]
        return event
    raise AssertionError("it is stored")


async def started(log: MemoryLog, runtime: Runtime, submitted: Submitted) -> RunHandle[Any]:
    """A run that its process stored, and did no more."""
    from foldlog.eventlog.names import new_run_id, run_subject
    from foldlog.runtime.core.submission import opening_events
    from foldlog.runtime.journal.journal import Journal

    run_id = new_run_id(0, log.clock)
    journal = Journal(log, run_subject(0, run_id, run_id))
    journal.state.path = "refunds"
    await journal.load()
    assert await journal.store(list(opening_events(submitted)), epoch=0)
    return runtime.get_run(run_id)


# --- people -----------------------------------------------------------------------------------------------------------


async def test_people_have_to_decide(cheap: Place, script: Script) -> None:
    deployer = Deployer(script, "web")
    runtime = await cheap.open(deployer.agent)
    run = await cheap.start(deployer.agent)
    why = await until(runtime, run, "approval")
    says_so(why, r'Waits for people: deploy \{"service": "web"\}; expires in 6 d\.', "decide")
    (pending,) = (await run.pending()).approvals
    assert why.action is not None
    assert (why.action.approval_id, why.action.names) == (pending.approval_id, (pending.approval_id,))
    await run.resolve(pending.approval_id, "rejected")
    await run.result()


async def test_people_are_asked_and_have_to_settle_what_nobody_knows(cheap: Place, script: Script) -> None:
    @tool(effect="unsafe")
    async def refund(context: ToolContext) -> str:
        """Refund."""
        await context.ask("Really?")
        raise ToolFailed("the line broke", in_doubt=True)

    agent = Agent("refunds", model=script(calls(call("refund")), says("done")), tools=[refund])
    runtime = await cheap.open(agent)
    run = await cheap.start(agent)
    says_so(await until(runtime, run, "question"), r"Waits for people: Really\?; expires in 6 d\.", "decide")
    await run.resolve((await run.pending()).approvals[0].approval_id, "approved")
    why = await until(runtime, run, "unverifiable")
    says_so(why, "Nobody knows what became of `refund`.", "decide")
    await run.cancel()


async def test_a_budget_is_used_up(cheap: Place, script: Script) -> None:
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    turn = {**calls(call("look")), "usage": {"input_tokens": 12_400, "output_tokens": 0}}
    budgets = {"max_tokens": 12_000}
    agent = Agent("refunds", model=script(turn, says("done")), tools=[look], budgets=budgets)
    runtime = await cheap.open(agent)
    run = await cheap.start(agent)
    why = await until(runtime, run, "budget")
    says_so(why, r"Budget of tokens is used up \(12,400 of 12,000\)\.", "raise")
    await run.cancel()


async def test_a_person_paused_a_run_or_all_models_have_failed(cheap: Place, script: Script) -> None:
    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        await runs[0].pause(by="ada")
        return "seen"

    runs: list[RunHandle[Any]] = []
    paused = Agent("refunds", model=script(calls(call("look")), says("done")), tools=[look])
    retry = {"attempts": 1, "base_s": 0.001, "exhausted": "pause"}
    failed = Agent("other", model=script(failing(says("never"))), retry=retry)
    runtime = await cheap.open(paused, failed)
    runs.append(await cheap.start(paused))
    says_so(await until(runtime, runs[0], "manual"), rf"Paused by ada at {CLOCK}\.", "resume")
    await runs[0].resume()
    await runs[0].result()
    run = await cheap.start(failed)
    says_so(await until(runtime, run, "policy"), r"All models have failed \(rate_limit\)\.", "resume")
    await run.cancel()


# --- what the run itself waits for ------------------------------------------------------------------------------------


async def test_a_model_is_asked_again_later_or_its_breaker_is_open(cheap: Place, script: Script) -> None:
    retry = {"attempts": 4, "base_s": 3600.0, "max_s": 7200.0}
    model = script(failing(says("never")))
    agent = Agent("refunds", model=model, retry=retry)
    runtime = await cheap.open(agent)
    run = await cheap.start(agent)
    why = await until(runtime, run, "retry")
    at = rf"{CLOCK}:\d\d"
    says_so(why, rf"`{re.escape(model)}` is asked again at {at} \(attempt 2, rate_limit\)\.", None)
    await run.cancel()
    broken = Agent("broken", model=model, retry=retry, breaker={"failures": 1, "open_s": 7200.0})
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[broken])) as fresh:
        for _ in range(2):
            run = await fresh.start(broken, "pay")
            await asyncio.sleep(0)
            await parked(run)
        why = await until(fresh, run, "breaker")
        says_so(why, rf"Breaker `scripted` is open until {CLOCK}\.", None)


async def test_a_parent_waits_for_its_child(cheap: Place, script: Script) -> None:
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    spawn = call("spawn_self", task="count", additional_context="", tool_names=["look"])
    model = script(calls(spawn), says("done"), scenes=[when("count", calls(call("look")), says("two"))])
    agent = Agent("researcher", model=model, tools=[look], hitl_tools=["look"], allow_self_spawn=True)
    runtime = await cheap.open(agent)
    run = await cheap.start(agent)
    why = await until(runtime, run, "child")
    says_so(why, r"Waits for child `researcher` \(paused: approval\)\.", "open")
    assert why.action is not None
    assert why.action.run_id == (await run.pending()).children[0]
    await run.cancel()


async def test_a_run_waits_for_a_time_a_signal_or_its_start(cheap: Place, script: Script) -> None:
    @tool(effect="pure")
    async def rest(context: ToolContext, hours: int) -> str:
        """Rest for hours, or until somebody calls."""
        if hours:
            await context.sleep(hours=hours)
        await context.wait_for("call")
        return "rested"

    scenes = [
        when("sleep", calls(call("rest", hours=9)), says("done")),
        when("signal", calls(call("rest", hours=0)), says("done")),
    ]
    agent = Agent("idle", model=script(scenes=scenes), tools=[rest])
    runtime = await cheap.open(agent)
    sleeping, waiting = await cheap.start(agent, "sleep"), await cheap.start(agent, "signal")
    later = await cheap.start(agent, "later", at=datetime.now(UTC) + timedelta(days=2))
    says_so(await until(runtime, sleeping, "time"), rf"Sleeps until {CLOCK}\.", None)
    says_so(await until(runtime, waiting, "signal"), "Waits for signal `call`.", "signal")
    says_so(await until(runtime, later, "time"), rf"Starts at {CLOCK}\.", None)
    for run in (sleeping, waiting, later):
        await run.cancel()


@pytest.mark.parametrize("name", ["", "a" * 400])
async def test_a_sentence_is_one_line_of_bounded_length(cheap: Place, script: Script, name: str) -> None:
    deployer = Deployer(script, f"{name}\x1b[2J\n\u202eweb")
    runtime = await cheap.open(deployer.agent)
    run = await cheap.start(deployer.agent)
    why = await until(runtime, run, "approval")
    assert len(why.sentence) < 220
    assert "\n" not in why.sentence
    await run.cancel()
