"""Limits of a namespace hold for driven runs, lanes and model calls, over all processes and agents (P10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from foldlog.eventlog.events import SlotHolder, SlotsUpdated
from foldlog.eventlog.names import slots_subject
from foldlog.replay import load_trace, replay
from foldlog.runtime import Agent, RunHandle, Runtime, tool
from foldlog.runtime.journal.journal import following
from foldlog.runtime.journal.register import register_write
from foldlog.runtime.ports.models import Delta, Finished, ModelRequest, TextDelta
from foldlog.runtime.shared.deadlocks import limit_name, slots_name
from foldlog.runtime.shared.slots import read_slots

from .conftest import Place, call, calls, says, when

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


class Hall:
    """A place that calls enter and leave, and the most that were in it at once, of each kind."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.most: dict[str, int] = {}
        self.came = 0
        self.open = asyncio.Event()
        self._moved = asyncio.Condition()

    async def until_came(self, count: int) -> None:
        """Wait until so many have come in all."""
        async with asyncio.timeout(120), self._moved:
            await self._moved.wait_for(lambda: self.came >= count)

    async def visit(self, kind: str) -> None:
        self.inside.append(kind)
        self.came += 1
        for each in {kind, "all"}:
            there = len(self.inside) if each == "all" else self.inside.count(each)
            self.most[each] = max(self.most.get(each, 0), there)
        async with self._moved:
            self._moved.notify_all()
        await self.open.wait()
        self.inside.remove(kind)

    @property
    def tool(self) -> Any:
        @tool(effect="pure")
        async def visit(kind: str) -> str:
            """Visit the hall."""
            await self.visit(kind)
            return kind

        return visit


def guest(script: Script, hall: Hall, name: str = "guest", **fields: Any) -> Agent[Any]:
    """An agent that visits the hall as its input says."""
    scenes = [when(kind, calls(call("visit", kind=kind)), says("went")) for kind in ("red", "blue")]
    return Agent(name, model=script(scenes=scenes), tools=[hall.tool], **fields)


async def waits_for(limit: str, *runs: RunHandle[Any]) -> Any:
    """Return what one of the runs waits for, once that is a slot of this limit."""
    async with asyncio.timeout(120):
        while True:
            for run in runs:
                pending = await run.pending()
                if pending.slot is not None and pending.slot.limit == limit:
                    return pending
            await asyncio.sleep(0.01)


async def until_free(place: Place, name: str) -> None:
    """Wait until a slot has no holder and nobody waits for it."""
    async with (
        asyncio.timeout(120),
        following(place.log, slots_subject(name, place.log.events.shards), 0) as commits,
    ):
        async for _ in commits:
            _, slots = await read_slots(place.log, name)
            if not slots.holders and not slots.waiting:
                return


async def test_no_more_runs_of_a_namespace_are_driven_at_once_than_it_allows(
    place: Place, script: Script
) -> None:
    hall = Hall()
    one, two = guest(script, hall), guest(script, hall, "other", concurrency={"runs_max": 1})
    place.limits = {"namespace": 2}
    await place.open(one, two, workers=2)
    runs = [await place.start(agent, kind) for kind in ("red", "blue") for agent in (one, two)]
    await hall.until_came(2)
    pending = await waits_for("namespace", *runs)
    assert pending.slot.runs_max == 2
    assert len(pending.slot.holders) == 2
    assert pending.why is not None
    assert pending.why.sentence.startswith("Waits for the limit `namespace`: place ")
    hall.open.set()
    for run in runs:
        await run.result()
    assert hall.most["all"] <= 2
    await until_free(place, limit_name("namespace"))  # the last release follows the end
    await until_free(place, slots_name("other"))
    for run in runs:
        assert replay(await load_trace(place.log, run.run_id)).agrees


async def test_lanes_of_a_name_share_a_limit_over_all_sessions_and_others_go_on(
    place: Place, script: Script
) -> None:
    hall = Hall()
    agent = guest(script, hall)
    place.limits = {"lane:mail": 1, "lane:session": 1}
    await place.open(agent, workers=2)
    mail = [await place.start(agent, "red", session=f"s{n}", lane="mail") for n in range(2)]
    pending = await waits_for("lane:mail", mail[1])
    assert pending.slot.holders == (mail[0].run_id,)
    others = [await place.start(agent, "blue"), await place.start(agent, "blue", session="s0")]
    await hall.until_came(3)
    hall.open.set()
    for run in (*mail, *others):
        await run.result()
    assert hall.most["red"] == 1


async def test_a_run_that_waits_for_the_namespace_keeps_no_slot_of_its_agent(
    cheap: Place, script: Script
) -> None:
    hall = Hall()
    free, narrow = guest(script, hall), guest(script, hall, "narrow", concurrency={"runs_max": 1})
    cheap.limits = {"namespace": 1}
    await cheap.open(free, narrow)
    first = await cheap.start(free, "red")
    await hall.until_came(1)
    second = await cheap.start(narrow, "blue")
    await waits_for("namespace", second)
    await until_free(cheap, slots_name("narrow"))
    hall.open.set()
    assert (await first.result()).output == (await second.result()).output == "went"


async def test_runs_below_need_no_place_of_their_own(cheap: Place, script: Script) -> None:
    hall = Hall()
    hall.open.set()
    inner = guest(script, hall, "inner")
    outer = Agent(
        "outer", model=script(calls(call("inner", input="red")), says("done")), tools=[inner.as_tool()]
    )
    cheap.limits = {"namespace": 1}
    await cheap.open(outer, inner)
    run = await cheap.start(outer)
    assert (await run.result()).output == "done"


class Counted:
    """A model provider that answers when the hall is open."""

    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def check(self, model: str) -> None:
        """Every model is known."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer, after a visit to the hall."""
        return self._answer(request)

    async def _answer(self, request: ModelRequest) -> AsyncIterator[Delta]:
        await self._hall.visit(request.model)
        yield TextDelta(text="answered")
        yield Finished(reason="stop")


async def test_no_more_calls_of_a_provider_are_under_way_at_once_than_it_allows(place: Place) -> None:
    hall = Hall()
    agents = [Agent(name, model=f"counted:{name}") for name in ("one", "two")]
    place.limits = {"provider:counted": 2}
    await place.open(*agents, workers=2, providers={"counted": Counted(hall)})
    runs = [await place.start(agents[n % 2], f"question {n}") for n in range(4)]
    await hall.until_came(2)
    pending = await waits_for("provider:counted", *runs)
    assert pending.model is not None
    assert pending.why is not None
    assert pending.why.sentence.startswith("Its model call waits for `provider:counted`, held by run ")
    hall.open.set()
    for run in runs:
        assert (await run.result()).output == "answered"
    assert hall.most["all"] == 2
    for run in runs:
        assert replay(await load_trace(place.log, run.run_id)).agrees


async def test_a_model_call_whose_process_is_gone_does_not_keep_its_place(place: Place) -> None:
    hall = Hall()
    agent = Agent("one", model="counted:one")
    place.limits = {"provider:counted": 1}
    await place.open(agent, lease_s=1.0, providers={"counted": Counted(hall)})
    first = await place.start(agent)
    await hall.until_came(1)
    await place.cut_off(first)
    hall.open.set()
    second = await place.start(agent, "another")
    assert (await first.result()).output == "answered"
    assert (await second.result()).output == "answered"


async def test_entries_of_runs_that_are_over_are_cleared_and_those_of_others_stay(
    place: Place, script: Script
) -> None:
    hall = Hall()
    place.limits = {"namespace": 1}
    agent = guest(script, hall)
    await place.open(agent)
    hall.open.set()
    over = await place.start(agent, "red")
    await over.result(timeout_s=60)
    hall.open.clear()
    inside = await place.start(agent, "red")
    await hall.until_came(2)
    behind = await place.start(agent, "blue")
    await waits_for("namespace", behind)
    operations = place.runtime.operations
    assert await operations.clear_slots() == {}
    head, now = await read_slots(place.log, limit_name("tool:gone"))
    left = SlotHolder(run=over.run_id, shard=(await place.runtime.locate(over.run_id)).shard, revision=2)
    write = register_write(
        place.log,
        slots_subject(now.name, place.log.events.shards),
        head,
        SlotsUpdated(name=now.name, holders=[left]),
    )
    await place.log.events.append(write)
    rows = {row.name: row.configured for row in await operations.slots(place.limits)}
    assert rows == {"limit:namespace": True, "limit:tool:gone": False}
    assert await operations.clear_slots() == {"limit:tool:gone": (over.run_id,)}
    (row,) = await operations.slots()
    assert [each.run_id for each in row.holders + row.waiting] == [inside.run_id, behind.run_id]
    for limits, configured in (({"namespace": 5}, True), ({"tool:print": 1}, False), ({}, None)):
        async with Runtime.open(log=place.log, limits=limits) as other:
            assert [each.configured for each in await other.operations.slots()] == [configured]
    hall.open.set()
    for each in (inside, behind):
        assert (await each.result(timeout_s=60)).output == "went"
