"""Runs that coordinate others: nodes are started once, driven on after a crash, paused and cancelled as a family."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from foldlog.adapters.models import ScriptedProvider
from foldlog.eventlog import ConfigError, RunFailed
from foldlog.projections.run_state import RunState
from foldlog.runtime import Agent, tool
from foldlog.runtime.agents.kinds import KINDS
from foldlog.runtime.core.coordination import COORDINATORS
from foldlog.runtime.core.effects import Evaluate, RunNode
from foldlog.runtime.core.turn import Turn
from foldlog.runtime.ports.runnable import Runnable

from tests.runtime.conftest import HeldClock, HeldTool, Place, call, calls, says


class Relay:
    """Runs its members one after the other, each on the output of the one before, and shouts at the end."""

    def __init__(self, *members: Agent[Any]) -> None:
        self.name, self.kind, self.output_type = "relay", "relay", None
        self.functions = frozenset({"shout"})
        self.members: Mapping[str, Runnable[Any]] = {member.name: member for member in members}

    def parse_output(self, value: Any) -> Any:
        return value

    def check_deps(self, deps: Any) -> None:
        """The members are checked in their own runs."""

    def to_config(self) -> dict[str, Any]:
        return {"name": self.name, "members": [member.to_config() for member in self.members.values()]}

    def capabilities(self) -> frozenset[str]:
        return frozenset({"children"})

    async def evaluate(self, name: str, argument: str) -> Any:
        assert name == "shout"
        return argument.upper()


class RelayCoordinator:
    def wanted(self, state: RunState) -> Sequence[RunNode | Evaluate]:
        assert state.submitted is not None
        text = state.submitted.input
        for index, config in enumerate(state.submitted.config["members"]):
            node = state.nodes[index] if index < len(state.nodes) else None
            if node is None or node.status is None:
                return [RunNode(name=config["name"], ordinal=0, input=text, first=index == 0)]
            text = node.output
        return [] if state.evaluations else [Evaluate(name="shout", ordinal=0, argument=text)]

    def advance(self, turn: Turn) -> None:
        failed = next((n for n in turn.state.nodes if n.status in {"error", "cancelled"}), None)
        if failed is not None:
            turn.fail("node_failed", f"node {failed.name} {failed.status}", recoverable=False, step=None)
        elif shout := turn.state.evaluations.get("shout"):
            turn.complete(str(shout[0].value))


@pytest.fixture(autouse=True)
def relays_are_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def relay(config: Mapping[str, Any]) -> Runnable[Any]:
        return Relay(*(Agent.from_config(member) for member in config["members"]))

    monkeypatch.setitem(COORDINATORS, "relay", RelayCoordinator())
    monkeypatch.setitem(KINDS, "relay", relay)


Script = Callable[..., str]


async def test_each_node_gets_the_output_of_the_one_before_and_nothing_else(
    place: Place, script: Script
) -> None:
    relay = Relay(
        Agent("first", model=script(says("one"))),
        Agent("second", model=script(says("two"))),
    )
    await place.open(relay)
    history = [{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "said"}]
    run = await place.start(relay, messages=history)
    result = await run.result()
    assert result.output == "TWO"
    assert (result.usage.input_tokens, result.steps) == (6, 0)
    state = await run.state()
    assert [(node.name, node.ordinal, node.status) for node in state.nodes] == [
        ("first", 0, "completed"),
        ("second", 0, "completed"),
    ]
    first, second = [await place.runtime.get_run(node.child_run).state() for node in state.nodes]
    assert [m.content for m in first.messages] == ["earlier", "said", "question", "one"]
    assert [m.content for m in second.messages] == ["one", "two"]
    own = [e.type for e in await place.events(run) if e.agent_path == "relay"]
    assert own == ["status", *["child_started", "child_finished"] * 2, "status"]


async def test_a_failing_node_ends_the_run_with_an_error_that_names_it(place: Place, script: Script) -> None:
    relay = Relay(Agent("first", model=script({"text": ["x"], "error": {"type": "auth", "times": 1}})))
    await place.open(relay)
    run = await place.start(relay)
    with pytest.raises(RunFailed, match="node first error") as failed:
        await run.result()
    assert failed.value.error_type == "node_failed"
    (node,) = (await run.state()).nodes
    assert node.returned is not None
    assert node.returned.error_type == "auth"


async def test_a_pause_waits_for_the_node_boundary_and_a_resume_goes_on(place: Place, script: Script) -> None:
    held = HeldTool()
    relay = Relay(
        Agent("first", model=script(calls(call("wait")), says("one")), tools=[held.wait]),
        Agent("second", model=script(says("two"))),
    )
    await place.open(relay)
    run = await place.start(relay)
    await held.entered.wait()
    await run.pause()
    held.let_go.set()
    async for event in run.stream(detailed=True):
        if (
            event.agent_path == "relay"
            and event.type == "status"
            and getattr(event, "status", "") == "paused"
        ):
            break
    assert [node.status for node in (await run.state()).nodes] == ["completed"]
    await run.resume()
    assert (await run.result()).output == "TWO"


async def test_another_process_drives_the_open_node_on_and_repeats_no_finished_one(
    place: Place, script: Script
) -> None:
    entered, ran = asyncio.Event(), list[str]()

    @tool(effect="pure")
    async def wait(stage: str) -> str:
        ran.append(stage)
        entered.set()
        if ran.count("second") == 1 and stage == "second":
            await asyncio.Event().wait()
        return "waited"

    relay = Relay(
        Agent("first", model=script(calls(call("wait", stage="first")), says("one")), tools=[wait]),
        Agent("second", model=script(calls(call("wait", stage="second")), says("two")), tools=[wait]),
    )
    await place.open(relay)
    run = await place.start(relay)
    while "second" not in ran:
        entered.clear()
        await entered.wait()
    await place.hand_over(run)
    assert (await run.result()).output == "TWO"
    assert ran == ["first", "second", "second"]


async def test_cancelling_it_cancels_its_open_node(place: Place, script: Script) -> None:
    entered = asyncio.Event()

    @tool(effect="pure")
    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    relay = Relay(Agent("first", model=script(calls(call("wait"))), tools=[wait]))
    await place.open(relay)
    run = await place.start(relay)
    await entered.wait()
    assert await run.cancel() == "cancelled"
    (node,) = (await run.state()).nodes
    assert (await place.runtime.get_run(node.child_run).state()).status == "cancelled"


async def test_nothing_is_injected_into_a_run_without_steps(place: Place, script: Script) -> None:
    held = HeldClock()
    relay = Relay(Agent("first", model=script({**says("one"), "delay_ms": 1})))
    await place.open(relay, providers={"scripted": ScriptedProvider(held)})
    run = await place.start(relay)
    with pytest.raises(ConfigError, match="it has no steps"):
        await run.inject("hello")
    held.let_go.set()
    await run.result()
