"""Standing plans: written by people, followed and updated by runs, on both executors and both logs (W63)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, MemoryLog, PlanChanged, PlanNotFound, PlanUpdated, decode
from foldlog.eventlog.events import Actor, PlanStep
from foldlog.eventlog.faults import Fault, FaultyLog, LostAck, SpuriousConflict, StaleRead
from foldlog.eventlog.names import plan_subject
from foldlog.eventlog.ports import Log
from foldlog.replay import canonical, load_trace, rerun
from foldlog.runtime import Agent, Registry, Runtime, Worker
from foldlog.runtime.driving.host import Host
from foldlog.runtime.shared.plans import StandingPlans

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
STEPS = ["Build it", {"id": "ship", "text": "Ship it", "note": "after noon"}]


def follower(model: str, **settings: Any) -> Agent[Any]:
    return Agent("worker", model=model, instructions="Be brief.", standing_plan="release", **settings)


async def written(log: Log) -> list[PlanUpdated]:
    """All versions of the plan, as they are stored."""
    subject = plan_subject("release", log.events.shards)
    stored = [each async for each in log.events.read(subject)]
    return [event for each in stored for event in decode(each.data).events if isinstance(event, PlanUpdated)]


async def test_a_run_is_shown_its_plan_and_updates_it(place: Place, script: Script) -> None:
    agent = follower(
        script(
            calls(call("update_plan_step", "a", step="1", status="completed", note="built")),
            calls(
                call("update_plan_step", "b", step="shp", status="completed"),
                call("update_plan_step", "c", step="ship", status="done"),
                call("read_plan", "d"),
            ),
            says("done"),
        )
    )
    await place.open(agent)
    await place.runtime.plans.save("release", STEPS, goal="Release 2.0", by="ada")
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    system = (await run.history())[0].content
    assert system == (
        "Be brief.\n\n<standing_plan>\nRelease 2.0\n\n1. [pending] Build it\n"
        "ship. [pending] Ship it (after noon)\n</standing_plan>"
    )
    results = {e.tool_call_id: e for e in await place.events(run) if e.type == "tool_result"}
    now = [
        {"id": "1", "text": "Build it", "status": "completed", "note": "built"},
        {"id": "ship", "text": "Ship it", "status": "pending", "note": "after noon"},
    ]
    assert results["a"].result == results["d"].result == {"status": "in_progress", "steps": now}
    assert results["b"].error == "plan 'release' has no step 'shp'; it has 1, ship"
    assert "pending, in_progress, completed" in (results["c"].error or "")
    first, second = await written(place.log)
    assert (first.by, first.run) == ("ada", "")
    assert (second.by, second.run, second.call) == ("worker", run.run_id, "a")
    trace = await load_trace(place.log, run.run_id)
    again = await rerun(trace)
    assert canonical(again).digest == canonical(trace).digest
    assert len(await written(place.log)) == 2


async def test_both_executors_follow_a_plan_in_the_same_way(script: Script) -> None:
    told: list[Any] = []
    agent = follower(script(calls(call("update_plan_step", "a", step="1", status="completed")), says("done")))
    for executor in ("local", "durable"):
        log, registry = MemoryLog(), Registry(agents=[agent])
        async with Runtime.open(log=log, registry=registry) as runtime:
            await runtime.plans.save("release", STEPS)
            run = await runtime.start(agent, "Go", executor=executor)
            if executor == "durable":
                worker = Worker(Host(log=log, registry=registry, worker="w1"))
                serving = asyncio.create_task(worker.serve())
            await run.result()
            if executor == "durable":
                worker.stop()
                await serving
            (plan,) = await runtime.plans.list()
            trace = canonical(await load_trace(runtime.log, run.run_id))
            told.append((trace.digest, plan.version, plan.steps))
    assert told[0] == told[1]


async def test_a_call_that_is_repeated_after_a_crash_changes_the_plan_once(
    place: Place, script: Script
) -> None:
    entered, let_go = asyncio.Event(), asyncio.Event()

    class Held(StandingPlans):
        """Plans whose first change is stored, but not answered before the process is cut off."""

        async def set_step(self, *args: Any, **options: Any) -> Any:
            found = await super().set_step(*args, **options)
            if not entered.is_set():
                entered.set()
                await let_go.wait()
            return found

    agent = follower(script(calls(call("update_plan_step", "a", step="1", status="completed")), says("done")))
    await place.open(agent, lease_s=1.0)
    await place.runtime.plans.save("release", STEPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foldlog.runtime.shared.plans.StandingPlans", Held)
        run = await place.start(agent)
        await asyncio.wait_for(entered.wait(), 120)
        await place.runtime.plans.set_step("release", "1", "in_progress", by="ada")
        await place.cut_off(run)
        assert (await run.result()).output == "done"
    let_go.set()
    assert [(each.by, each.steps[0].status) for each in await written(place.log)] == [
        ("", "pending"),
        ("worker", "completed"),
        ("ada", "in_progress"),
    ]


async def test_a_run_without_its_plan_says_so(place: Place, script: Script) -> None:
    agent = follower(script(says("done")))
    await place.open(agent)
    run = await place.start(agent)
    events = await place.events(run)
    assert events[-1].type == "status"
    state = await run.state()
    assert state.error is not None
    assert (state.error.error_type, "there is no standing plan 'release'" in state.error.error) == (
        "config_error",
        True,
    )


async def test_versions_of_a_plan_are_kept_with_who_changed_them() -> None:
    async with Runtime.open(log=MemoryLog()) as runtime:
        plans = runtime.plans
        first = await plans.save("release", STEPS, by=Actor(by="ada", via="console"))
        assert (first.version, first.status, [each.id for each in first.steps]) == (
            1,
            "pending",
            ["1", "ship"],
        )
        assert await plans.save("release", STEPS, by="bo") == first  # already so
        begun = await plans.set_step("release", "1", "completed", note="built", by="bo")
        assert (begun.version, begun.status, begun.steps[0].note) == (2, "in_progress", "built")
        assert await plans.set_step("release", "1", "completed") == begun
        longer = await plans.save(
            "release", ["Build it", "Test it", *begun.steps[1:]], version=2, note="a test"
        )
        assert [(each.id, each.status) for each in longer.steps] == [
            ("1", "completed"),
            ("2", "pending"),
            ("ship", "pending"),
        ]
        with pytest.raises(PlanChanged, match="is not at version 2: it was changed to version 3") as refused:
            await plans.save("release", STEPS, version=2)
        assert refused.value.version == 3
        await plans.remove("release", by="cy")
        await plans.remove("release", by="cy")
        assert await plans.list() == []
        with pytest.raises(PlanNotFound):
            await plans.get("release")
        assert (await plans.get("release", 1)) == first
        told = [(each.version, each.by, each.removed, each.note) for each in await plans.versions("release")]
        assert told == [
            (1, "ada", False, ""),
            (2, "bo", False, ""),
            (3, "", False, "a test"),
            (4, "cy", True, ""),
        ]
        assert (await plans.save("release", STEPS, version=0)).version == 5


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([], "a plan has 1 to 200 steps, not 0"),
        ("Build it", "the steps of a plan must be a list"),
        ([" "], "step 1 has no text"),
        ([{"text": "x", "id": "a b"}], "the id of step 1 'a b' must be"),
        ([{"text": "x", "id": "a"}, PlanStep(id="a", text="y")], "two steps have the id 'a'"),
        ([{"text": "x", "state": "completed"}], "step 1: Object contains unknown field `state`"),
        ([{"text": "x", "status": "done"}], "step 1: Invalid enum value 'done'"),
        (["x" * 4_001], "the text of step 1 has 4,001 characters, more than 4,000"),
        (["\ud800"], "the text of step 1 is not valid Unicode"),
    ],
)
async def test_a_plan_that_is_wrong_is_refused(steps: Any, told: str) -> None:
    async with Runtime.open(log=MemoryLog()) as runtime:
        with pytest.raises(ConfigError, match=re.escape(told)):
            await runtime.plans.save("release", steps)
        assert await runtime.plans.list() == []


@pytest.mark.parametrize(
    "fault",
    [LostAck(1), SpuriousConflict(1), StaleRead(1, "events.read", 0)],
    ids=lambda each: type(each).__name__,
)
async def test_a_change_of_a_call_is_stored_once_whatever_becomes_of_its_append(fault: Fault) -> None:
    log = MemoryLog()
    await StandingPlans(log).save("release", STEPS)
    faulty = FaultyLog(log, [fault])
    plans = StandingPlans(faulty)
    changing = asyncio.create_task(plans.set_step("release", "1", "completed", call=("r", "c")))
    for _ in range(20):
        await asyncio.sleep(0)
    await faulty.release()
    await changing
    assert faulty.fired == [fault]
    await StandingPlans(log).set_step("release", "1", "pending")
    assert (await StandingPlans(log).set_step("release", "1", "completed", call=("r", "c"))).version == 3
    assert [each.version for each in await StandingPlans(log).versions("release")] == [1, 2, 3]
