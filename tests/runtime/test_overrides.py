"""Changes of an agent for one run: those that a submission may make, and those that it may not."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, RunConflict, Submitted
from foldlog.replay import load_trace
from foldlog.runtime import Agent, ModelSettings, RalphLoop, Registry, Runtime, Swarm, tool
from foldlog.runtime.agents.overrides import overridden
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

from .conftest import Place

pytestmark = pytest.mark.anyio


@tool(effect="pure")
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


@tool(effect="pure")
def listen(to: str) -> str:
    """Listen to something."""
    return f"heard {to}"


class Keen:
    """Looks once, then says so, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def check(self, model: str) -> None:
        """Every model can be called."""

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        return {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if request.round == 1:
            yield CallDelta(index=0, id="c1", name="look", arguments='{"at": "it"}')
        else:
            yield TextDelta("seen")
        yield Finished(reason="stop")

    async def aclose(self) -> None:
        """Nothing to close."""


KEEN = Agent(
    "keen",
    model="sim:small",
    instructions="Be brief.",
    tools=[look, listen],
    hitl_tools=["listen"],
    max_steps=5,
    settings={"temperature": 0.5, "seed": 1},
    budgets={"max_tokens": 1000, "step": {"max_tokens": 100}},
)
OPTIONS: dict[str, Any] = {
    "model": "sim:large",
    "settings": {"temperature": None, "reasoning": "high", "tool_choice": "look"},
    "max_steps": 4,
    "instructions_suffix": "In French.",
    "tools": ["look"],
    "budgets": {"max_tokens": 900},
}


async def test_a_run_is_driven_by_what_its_submission_changes_of_its_agent() -> None:
    sim = Keen()
    async with Runtime.open("memory://", registry=Registry(agents=[KEEN], providers={"sim": sim})) as rt:
        run = await rt.start(KEEN, "What is it?", run_id="one", **OPTIONS)
        assert (await run.result()).output == "seen"
        first, second = sim.requests
        assert (first.model, first.messages[0].content) == ("large", "Be brief.\n\nIn French.")
        assert [spec.name for spec in first.tools] == ["look"]
        assert first.settings == ModelSettings(seed=1, reasoning="high", tool_choice="look")
        assert second.settings == ModelSettings(seed=1, reasoning="high")
        submitted = (await run.state()).submitted
        assert submitted is not None
        assert (submitted.overrides, submitted.config["max_steps"]) == (OPTIONS, 4)
        assert submitted.config["budgets"] == {"max_tokens": 900, "step": {"max_tokens": 100}}
        assert (await rt.start(KEEN, "What is it?", run_id="one", **OPTIONS)).run_id == "one"
        with pytest.raises(RunConflict):
            await rt.start(KEEN, "What is it?", run_id="one", **{**OPTIONS, "max_steps": 3})


async def test_the_suffix_follows_the_instructions_that_a_function_gives() -> None:
    sim = Keen()
    agent = Agent("made", model="sim:small", instructions=lambda _: "From a function.", tools=[look])
    async with Runtime.open("memory://", registry=Registry(agents=[agent], providers={"sim": sim})) as rt:
        await rt.run(agent, "What is it?", instructions_suffix="In French.")
    assert sim.requests[0].messages[0].content == "From a function.\n\nIn French."


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_steps": 6}, "max_steps: the agent allows 5, not 6"),
        ({"max_steps": 0}, "max_steps"),
        ({"tools": ["looks"]}, "the agent has no tool 'looks'; did you mean 'look'?"),
        ({"tools": "look"}, "tools: must be a list of names"),
        ({"tools": ["mcp__shop__buy"]}, "the agent has no tool 'mcp__shop__buy'"),
        ({"budgets": {"max_tokens": 1001}}, "budgets.max_tokens: the agent allows 1000, not 1001"),
        ({"budgets": {"step": {"max_tokens": 101}}}, "budgets.step.max_tokens: the agent allows 100"),
        ({"budgets": {"max_tokens": -1}}, "budgets.max_tokens: Input should be greater than or equal to 0"),
        ({"budgets": {"max_token": 1}}, "unknown key 'budgets.max_token'; did you mean 'max_tokens'?"),
        ({"budgets": 1}, "budgets: "),
        ({"settings": {"temprature": 1}}, "unknown key 'settings.temprature'; did you mean 'temperature'?"),
        ({"settings": 1}, "settings: must be ModelSettings or a table"),
        (
            {"tools": ["listen"], "settings": {"tool_choice": "look"}},
            "settings.tool_choice: 'look' is not a tool of the agent",
        ),
        ({"model": "large"}, "must be written provider:model"),
        ({"instructions_suffix": 1}, "instructions_suffix must be text"),
    ],
)
def test_what_an_agent_does_not_allow_is_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        overridden(KEEN, options)


PLAIN = Agent("plain", model="sim:small", max_steps=2, settings={"seed": 2})


@pytest.mark.parametrize(
    "whole",
    [
        Swarm([KEEN, PLAIN], "keen >> plain", name="around"),
        Swarm(
            [RalphLoop(KEEN, stop={"max_iterations": 1}, name="one"), PLAIN], "one >> plain", name="nested"
        ),
    ],
    ids=["swarm", "nested"],
)
async def test_a_swarm_hands_the_options_of_a_run_down_to_its_agents(cheap: Place, whole: Swarm) -> None:
    sim = Keen()
    options: dict[str, Any] = {name: value for name, value in OPTIONS.items() if name != "budgets"}
    options["settings"] = {"reasoning": "high", "tool_choice": "look"}
    await cheap.open(whole, providers={"sim": sim})
    run = await cheap.runtime.start(whole, "What is it?", executor=cheap.executor, **options)
    await run.result()
    trace = await load_trace(cheap.log, run.run_id)
    asked = [(request.model, request.messages[0].content) for request in sim.requests]
    assert asked[0] == ("large", "Be brief.\n\nIn French.")
    assert asked[-1] == ("large", "In French.")
    assert [spec.name for spec in sim.requests[0].tools] == ["look"]
    assert sim.requests[0].settings.tool_choice == "look"
    assert sim.requests[-1].tools == ()
    assert sim.requests[-1].settings == ModelSettings(seed=2, reasoning="high")
    configs = {
        str(event.config["name"]): event.config for event in trace.events if isinstance(event, Submitted)
    }
    assert (configs["keen"]["max_steps"], configs["plain"]["max_steps"]) == (4, 2)


@pytest.mark.parametrize(
    ("whole", "options", "told"),
    [
        (Swarm([KEEN], "keen"), {"budgets": {"max_tokens": 1}}, "budgets: a swarm has none of its own"),
        (RalphLoop(KEEN), {"budgets": {"max_tokens": 1}}, "or the `stop` of the loop"),
        (Swarm([KEEN, PLAIN], "keen >> plain"), {"max_steps": 6}, "allow at most 5, not 6"),
        (Swarm([KEEN], "keen"), {"tools": ["looks"]}, "has a tool 'looks'; did you mean 'look'?"),
        (
            Swarm([KEEN, PLAIN], mode="team"),
            {"model": "sim:large"},
            "is a team, which hands no such options on",
        ),
        (
            Swarm([KEEN], "keen"),
            {"settings": {"tool_choice": "looks"}},
            "settings.tool_choice: no agent of",
        ),
        (Swarm([KEEN], "keen"), {"model": "large"}, "must be written provider:model"),
        (RalphLoop(KEEN), {"settings": {"temprature": 1}}, "did you mean 'temperature'?"),
    ],
)
def test_what_a_swarm_or_a_loop_cannot_hand_down_is_refused_by_name(
    whole: Any, options: dict[str, Any], told: str
) -> None:
    assert overridden(whole, {"model": None}) == (whole, {})
    with pytest.raises(ConfigError, match=re.escape(told)):
        overridden(whole, options)


def test_tools_of_servers_are_named_as_the_model_sees_them() -> None:
    servers = {"shop": {"command": "true", "tools": ["buy", "sell"]}, "bank": {"command": "true"}}
    agent = Agent("buyer", model="sim:small", mcp_servers=servers, tools=[look])
    made, _ = overridden(agent, {"tools": ["mcp__shop__buy"]})
    config = made.to_config()
    assert (config["tools"], list(config["mcp_servers"])) == ([], ["shop"])
    assert config["mcp_servers"]["shop"]["tools"] == ["mcp__shop__buy"]
    with pytest.raises(ConfigError, match="does not offer 'mcp__shop__lend'"):
        overridden(agent, {"tools": ["mcp__shop__lend"]})
