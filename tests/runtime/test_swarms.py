"""Swarms: who runs when, on what, and what comes of it; over both logs and both executors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ChildStarted, ConfigError, NotRegistered, RunFailed
from foldlog.eventlog.ports import COMMIT_BYTES_MAX
from foldlog.runtime import Agent, Registry, Runtime, Swarm, tool
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.loop_config import Stop

from tests.runtime.conftest import HeldTool, Place, call, calls, says

Script = Callable[..., str]


async def inputs_of(place: Place, run: Any) -> list[tuple[str, str]]:
    """The name of each node, in the order of their start, and what its model was given."""
    found = []
    for node in (await run.state()).nodes:
        state = await place.runtime.get_run(node.child_run).state()
        found.append((node.name, " / ".join(m.content for m in state.messages[:-1])))
    return found


async def test_stages_run_in_order_and_a_group_is_joined_by_name(place: Place, script: Script) -> None:
    a, b, c, d = (Agent(name, model=script(says(name.upper()))) for name in "abcd")
    swarm = Swarm([a, b, c, d], flow="a >> (b | c) >> d")
    await place.open(swarm)
    run = await place.start(swarm)
    result = await run.result()
    assert (result.output, result.usage.input_tokens, result.steps) == ("D", 12, 0)
    assert [m.content for m in await run.history()] == ["question", "D"]
    assert await inputs_of(place, run) == [
        ("a", "question"),
        ("b", "A"),
        ("c", "A"),
        ("d", "[b]\nB\n\n[c]\nC"),
    ]
    own = [e.type for e in await place.events(run) if e.agent_path == "swarm"]
    assert sorted(own) == sorted(["status", *["child_started", "child_finished"] * 4, "status"])
    assert {e.agent_path for e in await place.events(run)} == {"swarm", *(f"swarm/{n}" for n in "abcd")}


async def test_the_members_of_a_group_run_at_the_same_time(place: Place, script: Script) -> None:
    inside, both = set[str](), asyncio.Event()

    @tool(effect="pure")
    async def meet(name: str) -> str:
        inside.add(name)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return "met"

    b, c = (
        Agent(name, model=script(calls(call("meet", name=name)), says(name)), tools=[meet]) for name in "bc"
    )
    swarm = Swarm([b, c], flow="(b | c)")
    await place.open(swarm)
    run = await place.start(swarm)
    assert (await run.result()).output == "[b]\nb\n\n[c]\nc"


async def test_a_branch_runs_the_arm_that_the_output_asks_for(place: Place, script: Script) -> None:
    triage = Agent("triage", model=script(says('{"kind": "bug"}')))
    fixer, human = (Agent(name, model=script(says(name))) for name in ("fixer", "human"))
    swarm = Swarm([triage, fixer, human], 'triage >> {.kind == "bug": fixer, else: human}', name="support")
    await place.open(swarm)
    run = await place.start(swarm)
    assert (await run.result()).output == "fixer"
    assert [node.name for node in (await run.state()).nodes] == ["triage", "fixer"]


async def test_a_loop_runs_until_a_function_says_so_which_is_asked_once_a_time(
    place: Place, script: Script
) -> None:
    asked: list[str] = []

    async def enough(text: str) -> bool:
        asked.append(text)
        return len(asked) == 2

    writer, critic = (Agent(name, model=script(says(name))) for name in ("writer", "critic"))
    swarm = Swarm([writer, critic], "(writer >> critic)*5 until enough", predicates={"enough": enough})
    await place.open(swarm)
    run = await place.start(swarm)
    assert (await run.result()).output == "critic"
    assert asked == ["critic", "critic"]
    assert await inputs_of(place, run) == [
        ("writer", "question"),
        ("critic", "writer"),
        ("writer", "critic"),
        ("critic", "writer"),
    ]


async def test_a_function_that_fails_ends_the_run_with_an_error_that_names_it(
    place: Place, script: Script
) -> None:
    def broken(text: str) -> bool:
        raise ValueError(text)

    a = Agent("a", model=script(says("A")))
    swarm = Swarm([a], "a*until broken", predicates={"broken": broken})
    await place.open(swarm)
    run = await place.start(swarm)
    with pytest.raises(RunFailed, match="predicate 'broken' failed: ValueError: A") as failed:
        await run.result()
    assert failed.value.error_type == "predicate_failed"


async def test_messages_reach_only_the_nodes_that_get_the_swarms_input(place: Place, script: Script) -> None:
    a, b, c = (Agent(name, model=script(says(name.upper()))) for name in "abc")
    swarm = Swarm([a, b, c], "(a | b) >> c")
    await place.open(swarm)
    run = await place.start(swarm, messages=[{"role": "user", "content": "earlier"}])
    await run.result()
    assert await inputs_of(place, run) == [
        ("a", "earlier / question"),
        ("b", "earlier / question"),
        ("c", "[a]\nA\n\n[b]\nB"),
    ]


async def test_a_swarm_in_a_swarm_shows_all_levels_and_the_next_node(place: Place, script: Script) -> None:
    a, b, c = (Agent(name, model=script(says(name.upper()))) for name in "abc")
    inner = Swarm([a, b], "a >> b", name="inner")
    outer = Swarm([inner, c], "inner*2 >> c", name="outer")
    await place.open(outer)
    run = await place.start(outer)
    assert (await run.result()).output == "C"
    events = await place.events(run)
    announced = [(e.agent_path, e.name, e.kind) for e in events if isinstance(e, ChildStarted)]
    inside = [("outer/inner", "a", "agent"), ("outer/inner", "b", "agent")]
    assert announced == [
        ("outer", "inner", "swarm"),
        *inside,
        ("outer", "inner", "swarm"),
        *inside,
        ("outer", "c", "agent"),
    ]
    assert {e.agent_path for e in events} == {
        *("outer", "outer/inner", "outer/c"),
        *("outer/inner/a", "outer/inner/b"),
    }
    assert [e.type for e in await place.events(run, detailed=False) if e.agent_path == "outer/c"] == [
        "text",
        "status",
    ]


@pytest.mark.parametrize("paused", ["inner", "a"])
async def test_a_pause_of_a_run_below_stops_that_run_at_its_own_boundary_and_none_above_it(
    cheap: Place, script: Script, paused: str
) -> None:
    held = HeldTool()
    a = Agent("a", model=script(calls(call("wait")), says("A")), tools=[held.wait])
    b, c = (Agent(name, model=script(says(name.upper()))) for name in "bc")
    outer = Swarm([Swarm([a, b], "a >> b", name="inner"), c], "inner >> c", name="outer")
    await cheap.open(outer)
    run = await cheap.start(outer)
    await asyncio.wait_for(held.entered.wait(), 120)
    (inner,) = (await run.state()).nodes
    (first,) = (await cheap.runtime.get_run(inner.child_run).state()).nodes
    below = cheap.runtime.get_run({"inner": inner, "a": first}[paused].child_run)
    await below.pause()
    held.let_go.set()
    async for event in below.stream(family=False):
        if event.type == "status" and event.status == "paused":
            break
    assert [(await each.state()).paused for each in (run, below)] == [None, "manual"]
    assert len((await cheap.runtime.get_run(inner.child_run).state()).nodes) == 1
    await below.resume()
    assert (await run.result()).output == "C"


async def test_a_node_that_fails_ends_the_swarm_and_its_siblings(place: Place, script: Script) -> None:
    entered = asyncio.Event()

    @tool(effect="pure")
    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    @tool(effect="pure")
    async def until_the_other_waits() -> str:
        await entered.wait()
        return "go"

    fails = {"text": ["x"], "error": {"type": "auth", "times": 1}}
    a = Agent("a", model=script(calls(call("until_the_other_waits")), fails), tools=[until_the_other_waits])
    b = Agent("b", model=script(calls(call("wait"))), tools=[wait])
    c = Agent("c", model=script(says("C")))
    swarm = Swarm([a, b, c], "(a | b) >> c")
    await place.open(swarm)
    run = await place.start(swarm)
    with pytest.raises(RunFailed, match="node 'a' failed") as failed:
        await run.result()
    assert failed.value.error_type == "node_failed"
    ends = {
        n.name: (await place.runtime.get_run(n.child_run).state()).status for n in (await run.state()).nodes
    }
    assert ends == {"a": "error", "b": "cancelled"}


async def test_agents_hand_over_to_each_other_by_their_answers(place: Place, script: Script) -> None:
    def to(name: str | None, message: str) -> dict[str, Any]:
        return says(json.dumps({"handoff_to": name, "message": message}))

    desk = Agent("desk", model=script(to("billing", "refund order 7")), instructions="You are the desk.")
    billing = Agent("billing", model=script(to(None, "refunded")))
    swarm = Swarm([desk, billing], mode="handoff", descriptions={"billing": "invoices and refunds"})
    await place.open(swarm)
    run = await place.start(swarm)
    assert (await run.result()).output == "refunded"
    (first, given), (second, handed) = await inputs_of(place, run)
    assert (first, second) == ("desk", "billing")
    assert given.startswith("You are the desk.\n\nYou work with other agents")
    assert "- billing: invoices and refunds" in given
    assert handed.endswith(" / refund order 7")
    assert "question" not in handed


async def test_agents_that_hand_over_in_a_circle_come_to_an_end(place: Place, script: Script) -> None:
    a, b = (
        Agent(name, model=script(says(json.dumps({"handoff_to": other, "message": "you"}))))
        for name, other in ("ab", "ba")
    )
    swarm = Swarm([a, b], mode="handoff", max_handoffs=3)
    await place.open(swarm)
    run = await place.start(swarm)
    with pytest.raises(RunFailed, match="handed over more than 3 times, the last time to 'a'") as failed:
        await run.result()
    assert failed.value.error_type == "max_handoffs"
    assert [node.name for node in (await run.state()).nodes] == ["a", "b", "a", "b"]


async def test_a_team_is_led_by_an_agent_that_has_the_others_as_tools(place: Place, script: Script) -> None:
    asks = calls(call("poet", "c1", input="a poem"), call("critics", "c2", input="a review"))
    lead = Agent("lead", model=script(asks, says("all done")))
    poet, b = Agent("poet", model=script(says("roses"))), Agent("b", model=script(says("good")))
    critics = Swarm([b], "b", name="critics")
    swarm = Swarm([poet, lead, critics], mode="team", entry="lead", descriptions={"poet": "Writes poems."})
    await place.open(swarm)
    run = await place.start(swarm)
    assert (await run.result()).output == "all done"
    (node,) = (await run.state()).nodes
    state = await place.runtime.get_run(node.child_run).state()
    assert {name: spec.description for name, spec in state.tools.items()} == {
        "poet": "Writes poems.",
        "critics": "Ask critics.",
    }
    assert sorted(m.content for m in state.messages if m.role == "tool") == ["good", "roses"]
    assert {e.agent_path for e in await place.events(run)} == {
        *("swarm", "swarm/lead", "swarm/lead/poet", "swarm/lead/critics", "swarm/lead/critics/b"),
    }


async def test_a_swarm_is_a_tool_of_an_agent(place: Place, script: Script) -> None:
    a, b = (Agent(name, model=script(says(name.upper()))) for name in "ab")
    research = Swarm([a, b], "(a | b)", name="research").as_tool("look_up", "Looks things up.")
    boss = Agent("boss", model=script(calls(call("look_up", input="it")), says("done")), tools=[research])
    await place.open(boss)
    run = await place.start(boss)
    assert (await run.result()).output == "done"
    state = await run.state()
    assert state.tools["look_up"].description == "Looks things up."
    assert [m.content for m in state.messages if m.role == "tool"] == ["[a]\nA\n\n[b]\nB"]


async def test_another_process_goes_on_with_the_open_nodes_and_repeats_no_finished_one(
    place: Place, script: Script
) -> None:
    ran, stuck = list[str](), asyncio.Event()

    @tool(effect="pure")
    async def work(node: str) -> str:
        ran.append(node)
        if node == "c" and ran.count("c") == 1:
            stuck.set()
            await asyncio.Event().wait()
        return "worked"

    a, b, c, d = (
        Agent(name, model=script(calls(call("work", node=name)), says(name.upper())), tools=[work])
        for name in "abcd"
    )
    swarm = Swarm([a, b, c, d], "a >> (b | c) >> d")
    await place.open(swarm)
    run = await place.start(swarm)
    await stuck.wait()
    await place.hand_over(run)
    assert (await run.result()).output == "D"
    assert (ran.count("a"), ran.count("c"), ran.count("d")) == (1, 2, 1)


async def test_a_node_that_cannot_be_started_ends_the_swarm_with_an_error_that_names_it(
    place: Place, script: Script
) -> None:
    def told(run: Any) -> str:
        if run.input == "A":
            raise ValueError("no instructions for A")
        return "fine"

    a = Agent("a", model=script(says("A")))
    b = Agent("b", model=script(says("B")), instructions=told)
    swarm = Swarm([a, b], "a >> b")
    await place.open(swarm)
    run = await place.start(swarm)
    with pytest.raises(RunFailed, match=r"node 'b' failed: agent 'b'.*no instructions for A") as failed:
        await run.result()
    assert failed.value.error_type == "node_failed"


async def test_outputs_that_are_too_large_together_end_the_swarm(place: Place, script: Script) -> None:
    half = "x" * (COMMIT_BYTES_MAX // 2)
    a, b = (Agent(name, model=script(says(half))) for name in "ab")
    c = Agent("c", model=script(says("C")))
    swarm = Swarm([a, b, c], "(a | b) >> c")
    await place.open(swarm)
    run = await place.start(swarm)
    with pytest.raises(RunFailed, match="node 'c' cannot be started") as failed:
        await run.result()
    assert failed.value.error_type == "payload_too_large"
    assert [node.status for node in (await run.state()).nodes] == ["completed", "completed"]


async def test_large_outputs_that_come_at_once_are_stored_in_commits_of_their_own(
    place: Place, script: Script
) -> None:
    """Both nodes end at one moment; and the output of the last is that of the swarm, in the same turn."""
    large = COMMIT_BYTES_MAX * 2 // 3
    inside, both = list[str](), asyncio.Event()

    @tool(effect="pure")
    async def meet(name: str) -> str:
        inside.append(name)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return "met"

    a, b = (
        Agent(name, model=script(calls(call("meet", name=name)), says(name * large)), tools=[meet])
        for name in "ab"
    )
    c = Agent("c", model=script(says("c" * large)))
    swarm = Swarm([a, b, c], "(a | b) >> c")
    await place.open(swarm)
    run = await place.start(swarm)
    with pytest.raises(RunFailed, match="node 'c' cannot be started"):
        await run.result()
    assert sorted(node.output for node in (await run.state()).nodes) == ["a" * large, "b" * large]


async def test_a_large_output_of_the_last_node_is_the_swarms(place: Place, script: Script) -> None:
    large = COMMIT_BYTES_MAX * 2 // 3
    swarm = Swarm([Agent("a", model=script(says("a" * large)))], "a")
    outer = Swarm([RalphLoop(swarm, name="loop", stop=Stop(max_iterations=1))], "loop", name="outer")
    await place.open(outer)
    run = await place.start(outer)
    assert (await run.result()).output == "a" * large


async def test_a_process_whose_swarm_is_another_one_says_so(place: Place, script: Script) -> None:
    entered = asyncio.Event()

    @tool(effect="pure")
    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    a = Agent("a", model=script(calls(call("wait"))), tools=[wait])
    swarm = Swarm([a], "a")
    await place.open(swarm)
    run = await place.start(swarm, executor="local")
    await entered.wait()
    await place.runtime.aclose()
    changed = Registry(agents=[Swarm([Agent("other", model=script(says("x")))], "other")])
    async with Runtime.open(log=place.log, registry=changed) as later:
        await later.drive(run.run_id)
        with pytest.raises(NotRegistered, match="swarm 'swarm': there is no member 'a'; known: other"):
            await later.get_run(run.run_id).result()
        assert await later.get_run(run.run_id).status() == "running"


async def test_what_a_member_lacks_is_refused_before_the_first_event(place: Place, script: Script) -> None:
    fine = Agent("fine", model=script(says("x")))
    await place.open(fine)
    no_tool = Swarm([fine, Agent("a", model=script(says("x")), tools=["nowhere"])], "fine >> a")
    with pytest.raises(NotRegistered, match=r"agent .a..*.nowhere."):
        await place.runtime.start(no_tool, "question", executor="local")
    no_model = Swarm([fine, Swarm([Agent("b", model="nobody:x")], "b")], "fine >> swarm")
    with pytest.raises(ConfigError, match="nobody"):
        await place.runtime.start(no_model, "question", executor=place.executor)
    assert await place.runtime.list_runs() == []
