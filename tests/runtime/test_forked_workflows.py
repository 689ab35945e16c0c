"""Forks of workflows: what was over is kept, the code runs again over it, and the rest is done again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, RunFailed
from foldlog.replay import canonical, compare, load_trace
from foldlog.runtime import (
    Agent,
    Registry,
    RunHandle,
    Swarm,
    ToolFailed,
    WorkflowRun,
    WorkflowTable,
    tool,
    workflow,
)

from tests.runtime.conftest import Place, says

DONE: list[str] = []
BROKEN: set[str] = set()


@pytest.fixture(autouse=True)
def _nothing_is_done() -> None:
    DONE.clear()
    BROKEN.clear()


@tool(effect="pure")
def find(order: str) -> dict[str, Any]:
    """Find an order."""
    DONE.append(f"find {order}")
    return {"id": order}


@tool(effect="unsafe")
def pay(to: str) -> str:
    """Pay."""
    DONE.append(f"pay {to}")
    if to in BROKEN:
        raise ToolFailed(f"no account of {to}")
    return f"paid {to}"


def errand(writer: Agent[Any]) -> Any:
    @workflow(name="errand", tools=[pay])
    async def errand(run: WorkflowRun, order: str) -> list[Any]:
        began = run.now()
        found = await run.call(find, order=order)
        paid = await run.gather(
            lambda r: r.call(pay, to="ann"), run.call(pay, to="bob"), run.call(find, order="2")
        )
        text = await run.agent(writer, f"write about {found['id']}")
        yes = await run.ask("Send it?")
        which, data = await run.first(
            lambda r: r.wait_for("go"), lambda r: r.sleep(until=began + timedelta(days=9))
        )
        value = await run.memo("value", lambda: DONE.append("memo") or 7)
        return [found["id"], paid[:2], text, yes.accepted, which, data.data, value]

    return errand


async def to_its_end(run: RunHandle[Any]) -> Any:
    """Approve all that is asked, send the signal, and return the output."""
    await run.signal("go", 1, key="once")
    async for event in run.stream():
        if event.type == "status" and getattr(event, "status", "") == "paused":
            for approval in (await run.state()).pending_approvals:
                await run.resolve(approval.request.approval_id, "approved")
    return (await run.result()).output


OUTPUT = ["17", ["paid ann", "paid bob"], "a text", True, 0, 1, 7]


async def test_a_fork_that_replays_equals_its_original_from_every_revision_on_and_pays_nobody_again(
    cheap: Place, script: Any
) -> None:
    flow = errand(Agent("writer", model=script(says("a text"))))
    await cheap.open(flow)
    origin = await cheap.start(flow, "17", session="s")
    assert await to_its_end(origin) == OUTPUT
    whole = canonical(await load_trace(cheap.log, origin.run_id))
    DONE.clear()
    for at in range(1, (await origin.state()).head.rev + 1):
        fork = await cheap.fork(origin, at=at, tools="replay")
        assert await to_its_end(fork) == OUTPUT, at
        if at % 8 == 0:
            again = await cheap.fork(fork, at=(await fork.state()).head.rev, tools="replay")
            assert await to_its_end(again) == OUTPUT, at
    assert not [done for done in DONE if done.startswith("pay")]
    found = compare(whole, canonical(await load_trace(cheap.log, again.run_id)))
    assert found.equal, found.render()


async def test_a_fork_does_again_what_was_open_and_goes_on_from_there(place: Place, script: Any) -> None:
    flow = errand(Agent("writer", model=script(says("a text"))))
    await place.open(flow)
    origin = await place.start(flow, "17", session="s")
    assert await to_its_end(origin) == OUTPUT
    events = await place.events(origin)
    asked = next(event.revision for event in events if event.type == "approval_requested")
    DONE.clear()
    plan = await place.runtime.plan_fork(origin.run_id, at=asked or 0)
    assert (plan.first, plan.operations, plan.open, plan.behind) == ("code", 5, (), ())
    assert [each.place for each in plan.again] == ["ask#0", "first#0.0/go#0", "value#0"]
    fork = await place.fork(origin, at=asked, tools="ask")
    assert (await fork.state()).calls.keys() <= {"ask#0"}
    assert await to_its_end(fork) == OUTPUT
    assert DONE == ["memo"]


async def test_the_code_is_told_what_it_was_told_before_as_long_as_it_runs_over_what_is_shared(
    cheap: Place,
) -> None:
    told: list[tuple[str, str | None]] = []

    @workflow(name="curious")
    async def curious(run: WorkflowRun) -> str:
        began = run.now()
        await run.call(find, order=f"{run.run_id} {run.session} {began}")
        await run.call(find, order=f"{run.now()} {run.random.random()}")
        told.append((run.run_id, run.session))
        await run.memo("last", lambda: 1)
        return run.run_id

    await cheap.open(curious)
    origin = await cheap.start(curious, "", session="s")
    assert (await origin.result()).output == origin.run_id
    places = [e.revision or 0 for e in await cheap.events(origin) if e.type == "tool_result"]
    first = await cheap.fork(origin, at=places[0])
    await first.result()
    second = await cheap.fork(first, at=(await first.state()).head.rev)
    told.clear()
    third = await cheap.fork(second, at=(await second.state()).head.rev)
    assert (await third.result()).output == third.run_id
    assert told[-1] == (first.run_id, None)


async def test_what_failed_last_is_done_again_and_what_the_code_went_on_after_is_kept(cheap: Place) -> None:
    @workflow(name="twice")
    async def twice(run: WorkflowRun) -> list[str]:
        BROKEN.add("eve")
        with_eve = "paid eve"
        try:
            await run.call(pay, to="eve")
        except Exception:  # noqa: BLE001 - any failure
            with_eve = "not eve"
        return [with_eve, await run.call(pay, to="ann")]

    await cheap.open(twice)
    BROKEN.add("ann")
    origin = await cheap.start(twice, "")
    with pytest.raises(RunFailed, match="no account of ann"):
        await origin.result()
    BROKEN.discard("ann")
    DONE.clear()
    retried = await cheap.runtime.retry(origin.run_id, from_failure=True)
    assert await to_its_end(retried) == ["not eve", "paid ann"]
    assert DONE == ["pay ann"]


async def test_a_table_goes_on_from_the_step_that_failed(cheap: Place) -> None:
    pays = {"tool": "pay", "arguments": {"to": "ann"}, "needs": ["find"]}
    steps = [{"id": "find", "tool": "find", "arguments": {"order": "${input.order}"}}, {"id": "pay", **pays}]
    table = WorkflowTable.from_config(
        {"kind": "workflow", "name": "table", "steps": steps, "output": "${pay.result}"},
        Registry(tools=[find, pay]),
    )
    await cheap.open(table)
    BROKEN.add("ann")
    origin = await cheap.start(table, "17")
    with pytest.raises(RunFailed, match="no account of ann"):
        await origin.result()
    BROKEN.clear()
    DONE.clear()
    fork = await cheap.fork(origin, at=(await origin.state()).head.rev, tools="run")
    assert (await fork.result()).output == "paid ann"
    assert DONE == ["pay ann"]


async def test_a_child_that_is_open_goes_on_in_the_fork(cheap: Place) -> None:
    @workflow(name="inner")
    async def inner(run: WorkflowRun) -> Any:
        await run.call(pay, to="ann")
        return (await run.wait_for("go")).data  # type: ignore[union-attr]

    @workflow(name="outer")
    async def outer(run: WorkflowRun) -> Any:
        return await run.agent(inner, "")

    await cheap.open(outer, inner)
    origin = await cheap.start(outer, "")
    child = await waiting_child(cheap, origin)
    fork = await cheap.fork(origin, at=(await origin.state()).head.rev)
    own = await waiting_child(cheap, fork)
    assert own != child
    await cheap.runtime.get_run(own).signal("go", 3)
    assert (await fork.result()).output == "3"
    await cheap.runtime.get_run(child).signal("go", 4)
    assert (await origin.result()).output == "4"
    assert DONE == ["pay ann"]


async def waiting_child(place: Place, run: RunHandle[Any]) -> str:
    """The child of a run, once it waits."""
    async with asyncio.timeout(120):
        state = await (await run._journal()).follow_until(lambda state: bool(state.open_children))
        (child,) = state.open_children
        below = await place.runtime.get_run(child)._journal()
        await below.follow_until(lambda state: state.parked is not None)
    return child


async def test_a_workflow_in_a_swarm_is_forked_with_it(cheap: Place, script: Any) -> None:
    @workflow(name="pays")
    async def pays(run: WorkflowRun, to: str) -> str:
        await run.call(find, order=to)
        return str(await run.call(pay, to=to))

    swarm = Swarm([Agent("writer", model=script(says("ann"))), pays], "writer >> pays", name="office")
    await cheap.open(swarm)
    BROKEN.add("ann")
    origin = await cheap.start(swarm, "")
    with pytest.raises(RunFailed):
        await origin.result()
    BROKEN.clear()
    DONE.clear()
    fork = await cheap.fork(origin, at=(await origin.state()).head.rev, tools="run")
    assert (await fork.result()).output == "paid ann"
    assert DONE == ["pay ann"]


async def test_code_that_does_not_fit_what_it_would_share_is_refused_and_an_earlier_revision_takes_it(
    cheap: Place,
) -> None:
    order = ["1"]

    @workflow(name="changing")
    async def changing(run: WorkflowRun) -> str:
        await run.call(find, order=order[0])
        return str(await run.call(pay, to="ann"))

    await cheap.open(changing)
    origin = await cheap.start(changing, "")
    await origin.result()
    order[0] = "2"
    if cheap.executor == "durable":
        return  # the worker has the code
    last = (await origin.state()).head.rev
    with pytest.raises(
        ConfigError, match=r"'changing' does not fit what it shares: find#0: the log has tool find"
    ):
        await cheap.fork(origin, at=last)
    fork = await cheap.fork(origin, at=2, tools="run")
    assert (await fork.result()).output == "paid ann"
    with pytest.raises(
        ConfigError, match=r"only before its first operation: fork it at revision \d+ or before"
    ):
        await cheap.fork(origin, at=last, input="other")
