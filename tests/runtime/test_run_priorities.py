"""Of runs that wait for a slot or a worker each priority gets its turns; what is below a run inherits its own (W64)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, Log
from foldlog.eventlog.jetstream import puller
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Wakeup
from foldlog.runtime import Agent, tool

from .conftest import Place, call, calls, says
from .test_slots import Desk, until_in_line, worker

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


async def test_runs_that_wait_for_a_slot_go_by_their_priority(place: Place, script: Script) -> None:
    desk = Desk()
    agent = worker(script, desk, runs_max=1)
    await place.open(agent, workers=2, lease_s=30.0)  # who does not come within it may be passed over
    runs = [await place.start(agent, "do a")]
    await desk.until_came(1)
    for text, priority in (("b", "background"), ("c", "normal"), ("d", "urgent"), ("e", 9)):
        runs.append(await place.start(agent, f"do {text}", priority=priority))
        await until_in_line(place, runs[-1])
    assert [(await until_in_line(place, run)).place for run in runs[1:]] == [4, 2, 1, 3]
    for number, leaves in enumerate("adceb"):
        await desk.let_go(leaves)
        await desk.until_came(min(number + 2, 5))
    assert [(await run.result()).output for run in runs] == [f"did {each}" for each in "abcde"]
    assert desk.came == list("adceb")


async def test_a_worker_that_has_room_for_one_takes_what_is_urgent_first(
    log: Log, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puller, "SETTLE_S", 0.3)  # however slow this machine is
    desk = Desk()
    agent = worker(script, desk, runs_max=9)
    async with contextlib.AsyncExitStack() as stack:
        place = Place(log, "durable", stack)
        runtime = await place.open(agent, workers=0)
        runs = [
            await place.start(agent, f"do {text}", priority=priority)
            for text, priority in (("a", "background"), ("b", "normal"), ("c", "urgent"), ("d", "urgent"))
        ]
        await place.add_worker("one", concurrency=1)
        for number in range(4):
            await desk.until_came(number + 1)
            await desk.let_go(desk.came[number])
        for run in runs:
            await run.result()
        assert (desk.came[0] in "cd", desk.came[3]) == (True, "a")  # the urgent ones are in any two shards
        rows = {row.run_id: row.priority for row in await runtime.list_runs()}
        assert [rows[run.run_id] for run in runs] == ["background", "normal", "urgent", "urgent"]


async def test_what_comes_from_a_run_has_its_priority(cheap: Place, script: Script) -> None:
    inner = Agent("inner", model=script(says("inner answer")))
    outer = Agent(
        "outer", model=script(calls(call("inner", input="x")), says("done")), tools=[inner.as_tool()]
    )
    runtime = await cheap.open(outer, inner)
    run = await cheap.start(outer, "go", priority="urgent")
    await run.result()
    retry = await runtime.retry(run.run_id)
    await retry.result()
    fork = await cheap.fork(run, at=3, tools="replay")
    await fork.result()
    rows = {row.run_id: row for row in await runtime.list_runs()}
    assert [rows[each.run_id].priority for each in (run, retry, fork)] == ["urgent"] * 3
    (child,) = (event for event in await cheap.events(run) if event.type == "child_started")
    assert (await runtime.get_run(child.child_run).state()).priority == "urgent"


async def test_what_is_no_priority_starts_nothing(cheap: Place, script: Script) -> None:
    agent = Agent("reader", model=script(says("read")))
    runtime = await cheap.open(agent)
    wrongs: list[Any] = ["high", 10, -1, True, ""]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="a priority is urgent, normal, background, or a number"):
            await cheap.start(agent, "x", priority=wrong)
    assert await runtime.list_runs() == []


async def test_whatever_wakes_a_run_wakes_it_in_its_class(script: Script) -> None:
    log = MemoryLog()

    @tool
    async def deploy() -> str:
        """Deploy."""
        return "deployed"

    agent = Agent(
        "asking", model=script(calls(call("deploy")), says("done")), tools=[deploy], hitl_tools=["deploy"]
    )
    async with contextlib.AsyncExitStack() as stack:
        place = Place(log, "durable", stack)
        await place.open(agent, workers=0)
        run = await place.start(agent, "go", priority="background", session="ada")
        later = await place.start(agent, "go", priority="urgent", session="ada")
        sent: list[tuple[str, str]] = []
        monitored = log.wakeups.put

        def put(wakeup: Wakeup) -> int:
            sent.append((wakeup.run, wakeup.priority))
            return monitored(wakeup)

        log.wakeups.put = put  # type: ignore[method-assign]
        await place.add_worker("one", park_after_s=0.0)
        for each in (run, later):
            async for event in each.stream():
                if event.type == "approval_requested":
                    await each.resolve(event.approval_id, "approved")
            await each.result()
    assert set(sent) == {(run.run_id, "background"), (later.run_id, "urgent")}
