"""Of the calls of tools that name one slot, one runs at a time, in whatever run and process (P11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.adapters.builtin import Workspace, builtin_tools
from foldlog.adapters.runners import DirectRunner
from foldlog.eventlog import ConfigError
from foldlog.eventlog.events import ChildStarted, ToolEffect, ToolResult
from foldlog.eventlog.names import slots_subject
from foldlog.replay import load_trace, replay
from foldlog.runtime import Agent, Runtime, ToolContext, tool
from foldlog.runtime.journal.journal import following
from foldlog.runtime.shared.deadlocks import call_slots_name

from .conftest import Place, call, calls, says, when

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


class Press:
    """A resource that exists once, and the highest number of concurrent uses."""

    def __init__(self) -> None:
        self.using = self.most = self.used = 0
        self.gate, self.begun = asyncio.Event(), asyncio.Event()

    def tool(self, name: str, effect: ToolEffect) -> Any:
        @tool(name=name, effect=effect, slot="press")
        async def use(what: str) -> str:
            """Use the press."""
            self.using += 1
            self.used += 1
            self.most = max(self.most, self.using)
            self.begun.set()
            await self.gate.wait()
            self.using -= 1
            return what

        return use


@pytest.mark.parametrize("effect", ["unsafe", "pure"])
async def test_one_call_at_a_time_has_the_slot_in_whatever_run(
    place: Place, script: Script, effect: ToolEffect
) -> None:
    press = Press()
    asked = calls(call("print", "c1", what="a"), call("emboss", "c2", what="b"))
    tools = [press.tool("print", effect), press.tool("emboss", "idempotent")]
    agent = Agent("printer", model=script(asked, says("done")), tools=tools)
    await place.open(agent, workers=2)
    runs = [await place.start(agent, f"job {n}") for n in range(2)]
    await asyncio.wait_for(press.begun.wait(), 120)
    slots = slots_subject(call_slots_name("press"), place.log.events.shards)
    async with asyncio.timeout(120), following(place.log, slots, 0) as commits:
        async for _ in commits:
            waiting = [each for run in runs for each in (await run.pending()).calls if each.slot]
            if len(waiting) == 3:
                break
    assert {each.slot for each in waiting} == {"press"}
    press.gate.set()
    assert [(await run.result()).output for run in runs] == ["done", "done"]
    assert (press.used, press.most) == (4, 1)


async def test_a_cancelled_call_gives_its_slot_back(place: Place, script: Script) -> None:
    press = Press()
    agent = Agent(
        "printer",
        model=script(calls(call("print", what="a")), says("done")),
        tools=[press.tool("print", "unsafe")],
    )
    await place.open(agent, workers=2)
    first = await place.start(agent)
    await asyncio.wait_for(press.begun.wait(), 120)
    second = await place.start(agent)
    await first.cancel()
    press.gate.set()
    assert (await second.result()).output == "done"


async def test_a_call_that_asks_people_gives_its_slot_back_meanwhile(place: Place, script: Script) -> None:
    @tool(effect="idempotent", slot="press")
    async def proof(context: ToolContext) -> str:
        """Ask whether the proof is good."""
        return (await context.ask("Is it good?")).action

    press = Press()
    press.gate.set()
    scenes = [
        when("ask", calls(call("proof")), says("asked")),
        when("job", calls(call("print", what="a")), says("done")),
    ]
    agent = Agent("printer", model=script(scenes=scenes), tools=[proof, press.tool("print", "unsafe")])
    await place.open(agent)
    asking = await place.start(agent, "ask")
    async for event in asking.stream():
        if event.type == "approval_requested":
            break
    assert (await (await place.start(agent, "job")).result()).output == "done"
    await asking.resolve(event.approval_id, "approved")  # type: ignore[union-attr]
    assert (await asking.result()).output == "asked"


async def test_a_call_below_the_one_that_holds_its_slot_is_not_made(cheap: Place, script: Script) -> None:
    """A workspace is such a slot: who has it and starts an agent that changes it waits for himself."""

    @tool(name="below", effect="idempotent", slot="press")
    async def below(context: ToolContext) -> str:
        """Have a helper use the press, who holds it."""
        return await context.run(helper, "help")

    press = Press()
    press.gate.set()
    asked = calls(call("print", "c1", what="a"), call("emboss", "c2", what="b"))
    model = script(asked, says("could not"))
    helper = Agent(
        "helper", model=model, tools=[press.tool("print", "unsafe"), press.tool("emboss", "idempotent")]
    )
    boss = Agent("boss", model=script(calls(call("below")), says("done")), tools=[below])
    await cheap.open(boss, helper, lease_s=1.0)
    run = await cheap.start(boss)
    assert (await run.result()).output == "done"
    assert press.used == 0
    (child,) = [each for each in await cheap.events(run) if isinstance(each, ChildStarted)]
    results = [
        e for e in await cheap.events(cheap.runtime.get_run(child.child_run)) if isinstance(e, ToolResult)
    ]
    assert [each.metadata["slot_cycle"] for each in results] == ["press", "press"]
    assert [each.metadata["attempt"] for each in results] == [1, 1]
    assert (
        "deadlock: the holders of slot 'press' and this wait for slots of each other (slot 'press')"
        in str(results[0].error)
    )


async def test_of_a_run_and_a_call_that_wait_for_each_other_one_gives_way(
    cheap: Place, script: Script
) -> None:
    """The run has the slot of its agent and needs the press; who has the press needs a run of that agent."""
    there = asyncio.Barrier(2)
    press = Press()
    press.gate.set()

    @tool(effect="pure")
    async def meet() -> str:
        """Wait until both have what they hold."""
        await there.wait()
        return "met"

    @tool(name="engrave", effect="idempotent", slot="press", timeout_s=60)
    async def engrave(context: ToolContext) -> str:
        """Have an artist draw it first."""
        await there.wait()
        return await context.run(artist, "draw")

    scenes = [
        when("begin", calls(call("meet")), calls(call("print", what="a")), says("printed")),
        when("draw", says("drawn")),
    ]
    limit = {"runs_max": 1}
    tools = [meet, press.tool("print", "unsafe")]
    artist = Agent("artist", model=script(scenes=scenes), tools=tools, concurrency=limit)
    engraver = Agent("engraver", model=script(calls(call("engrave")), says("engraved")), tools=[engrave])
    await cheap.open(artist, engraver, workers=2, lease_s=1.0)
    runs = [await cheap.start(artist, "begin"), await cheap.start(engraver, "begin")]
    outputs = [(await run.result()).output for run in runs]
    assert outputs == ["printed", "engraved"]
    failed = [
        e for run in runs for e in await cheap.events(run) if isinstance(e, ToolResult) and not e.success
    ]
    assert len(failed) == 1


def test_what_changes_a_workspace_needs_its_slot_and_what_reads_it_does_not(tmp_path: Any) -> None:
    workspace = Workspace(tmp_path)
    tools = builtin_tools(workspace, runner=DirectRunner(workspace), slot="project")
    assert {t.spec.name for t in tools if t.spec.slot == "project"} == {"write_file", "apply_patch", "shell"}
    assert {t.spec.slot for t in builtin_tools(workspace)} == {None}


def test_a_slot_has_a_name() -> None:
    with pytest.raises(ConfigError, match="slot"):
        tool(name="use", slot="")(lambda: None)


async def test_no_more_calls_of_a_tool_run_at_once_than_its_limit(place: Place, script: Script) -> None:
    press = Press()

    @tool(effect="unsafe")
    async def stamp(what: str) -> str:
        """Stamp."""
        press.using += 1
        press.used += 1
        press.most = max(press.most, press.using)
        if press.using == 2:
            press.begun.set()
        await press.gate.wait()
        press.using -= 1
        return what

    asked = calls(*[call("stamp", f"c{n}", what=str(n)) for n in range(3)])
    agent = Agent("printer", model=script(asked, says("done")), tools=[stamp])
    place.limits = {"tool:stamp": 2}
    await place.open(agent, workers=2)
    runs = [await place.start(agent, f"job {n}") for n in range(2)]
    await asyncio.wait_for(press.begun.wait(), 120)
    waiting: set[str] = set()
    async with asyncio.timeout(120):
        while len(waiting) < 4:
            found = [each for run in runs for each in (await run.pending()).calls]
            waiting = {
                f"{each.tool_call_id}-{n}" for n, each in enumerate(found) if each.slot == "tool:stamp"
            }
            await asyncio.sleep(0.01)
    assert press.most == 2
    press.gate.set()
    for run in runs:
        await run.result()
    assert (press.most, press.used) == (2, 6)
    for run in runs:
        assert replay(await load_trace(place.log, run.run_id)).agrees


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (
            {"model:openai": 2},
            (
                "'model:openai' is not a limit; "
                'write "tool:NAME", "mcp:SERVER", "provider:NAME", "lane:NAME" or namespace'
            ),
        ),
        ({"namespace:x": 2}, "'namespace:x' is not a limit"),
        ({"namespace": 1.5}, "the limit of 'namespace' must be 1 to 10,000, not 1.5"),
        ({"tool:": 2}, "'tool:' is not a limit"),
        ({"tool:x": 0}, "the limit of 'tool:x' must be 1 to 10,000, not 0"),
        ({"tool:x": True}, "the limit of 'tool:x' must be 1 to 10,000, not True"),
    ],
)
async def test_a_wrong_limit_is_refused_by_its_name(limits: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        async with Runtime.open("memory://", limits=limits):
            pass
    assert told in str(refused.value)
