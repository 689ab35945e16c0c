"""Of an agent with `runs_max` no more runs are driven at once, on whatever log by whatever executor (P10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import Error, Event, RunCancelled
from foldlog.eventlog.names import slots_subject
from foldlog.projections.pending import PendingSlot
from foldlog.runtime import Agent, RunHandle, tool
from foldlog.runtime.driving.host import Host
from foldlog.runtime.journal.journal import Journal, following
from foldlog.runtime.shared.deadlocks import slots_name
from foldlog.runtime.shared.run_slots import slots_of

from .conftest import Place, call, calls, says, when

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


class Desk:
    """A gate where calls wait until it is opened, and the highest number of calls in it."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.there: list[str] = []
        self.most = 0
        self.came: list[str] = []
        self._is_open = is_open
        self._free: set[str] = set()
        self._moved = asyncio.Condition()

    @property
    def work(self) -> Any:
        @tool(effect="pure")
        async def work(what: str) -> str:
            """Work, until it is let go."""
            self.there.append(what)
            self.came.append(what)
            self.most = max(self.most, len(self.there))
            async with self._moved:
                self._moved.notify_all()
                await self._moved.wait_for(lambda: self._is_open or what in self._free)
            self.there.remove(what)
            return what

        return work

    async def let_go(self, *whats: str) -> None:
        async with self._moved:
            self._free.update(whats)
            self._moved.notify_all()

    async def until_came(self, count: int) -> None:
        async with asyncio.timeout(120), self._moved:
            await self._moved.wait_for(lambda: len(self.came) >= count)


def worker(script: Script, desk: Desk, runs_max: int, texts: str = "abcdef", **fields: Any) -> Agent[Any]:
    scenes = [when(f"do {each}", calls(call("work", what=each)), says(f"did {each}")) for each in texts]
    limit = {"runs_max": runs_max}
    return Agent("narrow", model=script(scenes=scenes), tools=[desk.work], concurrency=limit, **fields)


async def until_in_line(place: Place, run: RunHandle[Any]) -> PendingSlot:
    """Return the slot that the run waits for, once it is in the queue."""
    slots = slots_subject(slots_name("narrow"), place.log.events.shards)
    async with asyncio.timeout(120), following(place.log, slots, 0) as commits:
        async for _ in commits:
            if (slot := (await run.pending()).slot) is not None:
                return slot
    raise AssertionError("the log has ended")


async def test_no_more_runs_are_driven_at_once_and_those_in_line_go_by_their_submission(
    place: Place, script: Script
) -> None:
    desk = Desk()
    agent = worker(script, desk, runs_max=2)
    await place.open(agent, workers=2, lease_s=30.0)  # who does not come within it may be passed over
    runs = [await place.start(agent, f"do {each}") for each in "ab"]
    await desk.until_came(2)
    runs += [await place.start(agent, f"do {each}") for each in "cd"]
    slots = [await until_in_line(place, run) for run in runs[2:]]
    assert [(slot.agent, slot.runs_max) for slot in slots] == [("narrow", 2)] * 2
    assert set(slots[0].holders) == {run.run_id for run in runs[:2]}
    assert [(await until_in_line(place, run)).place for run in runs[2:]] == [1, 2]
    for number, (leaves, follows) in enumerate(
        [("a", "c"), ("b", "d")], 3
    ):  # one slot at a time becomes free
        await desk.let_go(leaves)
        await desk.until_came(number)
        assert desk.came[2:] == list("cd")[: number - 2]
        assert follows in desk.there
    await desk.let_go("c", "d")
    assert [(await run.result()).output for run in runs] == [f"did {each}" for each in "abcd"]
    assert desk.most == 2
    assert desk.came[2:] == ["c", "d"]
    assert (await runs[0].pending()).slot is None


async def test_a_run_that_waits_for_people_gives_its_slot_up(place: Place, script: Script) -> None:
    desk = Desk(is_open=True)

    @tool
    async def deploy() -> str:
        """Deploy."""
        return "deployed"

    scenes = [
        when("ask", calls(call("deploy")), says("asked")),
        when("do", calls(call("work", what="b")), says("did")),
    ]
    agent = Agent(
        "narrow",
        model=script(scenes=scenes),
        tools=[desk.work, deploy],
        hitl_tools=["deploy"],
        concurrency={"runs_max": 1},
    )
    await place.open(agent)
    asking = await place.start(agent, "ask")
    other = await place.start(agent, "do")
    assert (await other.result()).output == "did"
    (approval,) = [e for e in await _until(asking, "approval_requested") if e.type == "approval_requested"]
    await asking.resolve(approval.approval_id, "approved")
    assert (await asking.result()).output == "asked"


async def _until(run: RunHandle[Any], kind: str) -> list[Event]:
    events: list[Event] = []
    async for event in run.stream():
        events.append(event)
        if event.type == kind:
            break
    return events


async def test_a_cancelled_run_leaves_its_place_to_the_next(place: Place, script: Script) -> None:
    desk = Desk()
    agent = worker(script, desk, runs_max=1)
    await place.open(agent)
    first = await place.start(agent, "do a")
    await desk.until_came(1)
    second, third = await place.start(agent, "do b"), await place.start(agent, "do c")
    for waiting in (second, third):
        await until_in_line(place, waiting)
    assert await second.cancel("not needed") == "cancelled"
    assert await first.cancel("neither") == "cancelled"
    await desk.let_go("a", "b", "c")
    assert (await third.result()).output == "did c"
    with pytest.raises(RunCancelled):
        await second.result()
    assert [e.type for e in await place.events(second)] == ["status", "status"]


async def test_runs_below_others_are_counted_and_a_copy_goes_with_its_original(
    place: Place, script: Script
) -> None:
    desk = Desk(is_open=True)
    scenes = [
        when("copy", calls(call("work", what="copy")), says("copied")),
        when("job", calls(call("work", what="x"), call("spawn_self", "c2", task="copy")), says("done")),
    ]
    narrow = Agent(
        "narrow",
        model=script(scenes=scenes),
        tools=[desk.work],
        allow_self_spawn=True,
        concurrency={"runs_max": 1},
    )
    asked = [call("narrow", f"c{n}", input=f"job {n}") for n in range(3)]
    lead = Agent("lead", model=script(calls(*asked), says("led")), tools=[narrow.as_tool()])
    await place.open(lead, narrow)
    alone, led = await place.start(narrow, "job"), await place.start(lead)
    assert [(await run.result()).output for run in (alone, led)] == ["done", "led"]
    assert len(desk.came) == 8
    assert desk.came.count("copy") == 4
    assert desk.most <= 2  # of one run and its copy


async def test_a_takeover_continues_with_the_slot_of_the_run(place: Place, script: Script) -> None:
    desk = Desk()
    agent = worker(script, desk, runs_max=1)
    await place.open(agent)
    first = await place.start(agent, "do a")
    await desk.until_came(1)
    second = await place.start(agent, "do b")
    await until_in_line(place, second)
    await place.hand_over(first)
    if place.executor == "local":
        await place.runtime.drive(second.run_id)
    await desk.let_go("a", "b")
    results = [await run.result() for run in (first, second)]
    assert [result.output for result in results] == ["did a", "did b"]


async def test_a_slot_whose_holder_is_gone_is_given_on(place: Place, script: Script) -> None:
    """Somebody took it and died before he claimed: nothing in the run's log says so."""
    desk = Desk(is_open=True)
    agent = worker(script, desk, runs_max=1)
    await place.open(agent, workers=0, lease_s=1.0)
    dead = await place.start(agent, "do a", executor="durable")
    journal = Journal(place.log, await place.runtime.locate(dead.run_id))
    await journal.load()
    slots = slots_of(Host(log=place.log, registry=place.registry, worker="dead"), journal)
    assert slots is not None
    assert await slots.take() == "taken"
    run = await place.start(agent, "do b", executor="local")
    assert (await run.result()).output == "did b"
    if place.executor == "durable":
        await place.add_worker("late", lease_s=1.0)
        assert (await dead.result()).output == "did a"


async def test_of_runs_that_wait_for_the_slots_of_each_other_one_gives_way(
    cheap: Place, script: Script
) -> None:
    limit = {"runs_max": 1}
    there = asyncio.Barrier(2)

    @tool(effect="pure")
    async def meet() -> str:
        """Wait until both have their slots."""
        await there.wait()
        return "met"

    def one(name: str, other: str) -> Agent[Any]:
        asks = calls(call(other, "c2", input="be asked"))
        scenes = [when("be asked", says("asked")), when("begin", calls(call("meet")), asks, says(name))]
        return Agent(name, model=script(scenes=scenes), tools=[meet.spec.name, other], concurrency=limit)

    first, second = one("first", "second"), one("second", "first")
    await cheap.open(first, second, workers=2, lease_s=1.0, tools=[meet, first.as_tool(), second.as_tool()])
    runs = [await cheap.start(each, "begin") for each in (first, second)]
    outputs = [(await run.result()).output for run in runs]
    assert outputs == ["first", "second"]
    errors = [
        event.error_type for run in runs for event in await cheap.events(run) if isinstance(event, Error)
    ]
    assert errors == ["slot_cycle"]
