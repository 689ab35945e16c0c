"""What a submission changes of its agent for one run, and what it may not."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, RunConflict
from foldlog.runtime import Agent, ModelSettings, Registry, Runtime, Swarm, tool
from foldlog.runtime.agents.overrides import overridden
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

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
        assert (await run.result(timeout_s=30)).output == "seen"
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
        await rt.run(agent, "What is it?", instructions_suffix="In French.", timeout_s=30)
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
        ({"settings": {"temprature": 1}}, "unknown key 'settings.temprature'; did you mean 'temperature'?"),
        ({"settings": 1}, "settings: must be ModelSettings or a table"),
        ({"model": "large"}, "must be written provider:model"),
        ({"instructions_suffix": 1}, "instructions_suffix must be text"),
    ],
)
def test_what_an_agent_does_not_allow_is_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        overridden(KEEN, options)


def test_only_a_run_of_an_agent_has_overrides() -> None:
    swarm = Swarm([KEEN], "keen", name="around")
    assert overridden(swarm, {"model": None}) == (swarm, {})
    with pytest.raises(ConfigError, match="only a run of an agent"):
        overridden(swarm, {"model": "sim:large"})


def test_tools_of_servers_are_named_as_the_model_sees_them() -> None:
    servers = {"shop": {"command": "true", "tools": ["buy", "sell"]}, "bank": {"command": "true"}}
    agent = Agent("buyer", model="sim:small", mcp_servers=servers, tools=[look])
    made, _ = overridden(agent, {"tools": ["mcp__shop__buy"]})
    config = made.to_config()
    assert (config["tools"], list(config["mcp_servers"])) == ([], ["shop"])
    assert config["mcp_servers"]["shop"]["tools"] == ["mcp__shop__buy"]
    with pytest.raises(ConfigError, match="does not offer 'mcp__shop__lend'"):
        overridden(agent, {"tools": ["mcp__shop__lend"]})
