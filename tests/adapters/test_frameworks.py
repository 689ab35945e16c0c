"""Agents of pydantic-ai and of the OpenAI Agents SDK, taken over as they are written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pydantic
import pytest
from foldlog import Agent, Registry, Runtime
from foldlog.adapters.frameworks import from_openai_agents, from_pydantic_ai
from foldlog.eventlog.errors import ConfigError
from foldlog.runtime import Swarm

from tests.later import Later

from ..fakes.openai_server import Call, OpenAIServer, Reply, serve

agents, pydantic_ai, test_models = Later("agents"), Later("pydantic_ai"), Later("pydantic_ai.models.test")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor in ("OPENAI", "ANTHROPIC", "CEREBRAS"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "made-up")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


class Weather(pydantic.BaseModel):
    city: str
    degrees: int


def dice_game() -> pydantic_ai.Agent[str, str]:
    agent = pydantic_ai.Agent(
        "openai:gpt-5.2",
        name="dice",
        deps_type=str,
        instructions="You're a dice game.",
        system_prompt="Be kind.",
    )

    @agent.tool_plain
    def roll_dice() -> str:
        """Roll a six-sided die and return the result."""
        return "4"

    @agent.tool
    def get_player_name(ctx: pydantic_ai.RunContext[str], greeting: str = "Hi") -> str:
        """Get the player's name.

        Args:
            ctx: The run.
            greeting: What to say before it.
        """
        if greeting == "again":
            raise pydantic_ai.ModelRetry("Say Hi.")
        return f"{greeting} {ctx.deps}"

    return agent


@asynccontextmanager
async def name() -> AsyncIterator[str]:
    yield "Anne"


@asynccontextmanager
async def served(
    monkeypatch: pytest.MonkeyPatch, *replies: Reply
) -> AsyncIterator[tuple[OpenAIServer, Runtime]]:
    async with serve(*replies) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        registry = Registry(deps=name)
        async with Runtime.open("memory://", registry=registry) as runtime:
            yield server, runtime
        await registry.aclose()


def call(tool: str, arguments: str = "{}") -> Reply:
    return Reply(calls=(Call(id=f"call_{tool}", name=tool, arguments=(arguments,)),))


def refusal(take: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        take()
    return str(caught.value)


# --- pydantic-ai ------------------------------------------------------------------------------------------------------


def test_an_agent_of_pydantic_ai_keeps_its_name_model_instructions_and_tools():
    agent = from_pydantic_ai(dice_game(), effects={"get_player_name": "pure"})
    assert (agent.name, agent.config.model) == ("dice", "openai-responses:gpt-5.2")
    assert agent.config.instructions == "Be kind.\n\nYou're a dice game."
    specs = {tool.spec.name: tool.spec for tool in agent.tools.values()}
    assert {name: spec.effect for name, spec in specs.items()} == {
        "roll_dice": "unsafe",
        "get_player_name": "pure",
    }
    assert specs["get_player_name"].description.startswith("Get the player's name.")
    assert (
        specs["get_player_name"].parameters["properties"]["greeting"]["description"]
        == "What to say before it."
    )


async def test_its_tools_get_their_dependencies_and_a_retry_goes_to_the_model(
    monkeypatch: pytest.MonkeyPatch,
):
    replies = (
        call("get_player_name", '{"greeting": "again"}'),
        call("get_player_name", '{"greeting": "Hello"}'),
        call("get_player_name", '{"greeting": 5}'),
        Reply(text=("Anne wins",)),
    )
    async with served(monkeypatch, *replies) as (server, runtime):
        result = await runtime.run(from_pydantic_ai(dice_game()), "My guess is 4")
    assert result.output == "Anne wins"
    results = [item["output"] for item in server.requests[-1].body["input"] if item.get("output")]
    assert "Say Hi." in results[0]
    assert results[1] == "Hello Anne"
    assert "greeting" in results[2]


async def test_its_output_type_stays_its_output_type(monkeypatch: pytest.MonkeyPatch):
    agent = from_pydantic_ai(pydantic_ai.Agent("openai:gpt-5.2", output_type=Weather), name="weather")
    async with served(monkeypatch, Reply(text=('{"city": "Oslo", "degrees": -3}',))) as (_, runtime):
        result = await runtime.run(agent, "Oslo?")
    assert result.output == Weather(city="Oslo", degrees=-3)


def as_words(text: str) -> list[str]:
    """A function of the output."""
    return text.split()


@pytest.mark.parametrize("output_type", [[int, Weather], pydantic_ai.NativeOutput([int, Weather])])
async def test_a_list_of_output_types_is_their_union(monkeypatch: pytest.MonkeyPatch, output_type: Any):
    agent = from_pydantic_ai(pydantic_ai.Agent("openai:gpt-5.2", output_type=output_type), name="weather")
    weather = '{"response": {"city": "Oslo", "degrees": -3}}'
    async with served(monkeypatch, Reply(text=(weather,))) as (_, runtime):
        assert (await runtime.run(agent, "Oslo?")).output == Weather(city="Oslo", degrees=-3)


async def test_a_tool_with_a_context_needs_no_dependencies_if_its_agent_takes_none(
    monkeypatch: pytest.MonkeyPatch,
):
    theirs = pydantic_ai.Agent("openai:gpt-5.2")

    @theirs.tool
    def whose(ctx: pydantic_ai.RunContext) -> str:
        """Say for whom this is."""
        return f"{ctx.prompt}: {ctx.deps}"

    assert from_pydantic_ai(dice_game()).deps_type is str
    async with serve(call("whose"), Reply(text=("done",))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with Runtime.open("memory://") as runtime:
            assert (await runtime.run(from_pydantic_ai(theirs), "Hi")).output == "done"
    assert [item["output"] for item in server.requests[-1].body["input"] if item.get("output")] == [
        "Hi: None"
    ]


async def test_instructions_that_are_made_are_made_for_each_run(monkeypatch: pytest.MonkeyPatch):
    agent = pydantic_ai.Agent(
        "openai:gpt-5.2", deps_type=str, instructions=["Be kind.", lambda: "It is Monday.", needs_context]
    )
    theirs = agents.Agent[Any](
        name="theirs", model="gpt-5.2", instructions=lambda run, own: f"{own.name} {run.context}"
    )
    async with served(monkeypatch, Reply(text=("Hi",))) as (server, runtime):
        await runtime.run(from_pydantic_ai(agent, name="ours"), "Hello")
        await runtime.run(from_openai_agents(theirs), "Hello")
    first, second = (request.body["input"][0]["content"] for request in server.requests)
    assert first == "Be kind.\n\nIt is Monday.\n\nAnne asks: Hello"
    assert second == "theirs Anne"


def test_a_tool_that_needs_an_approval_needs_one_here():
    agent = pydantic_ai.Agent("anthropic:claude-sonnet-5")
    agent.tool_plain(requires_approval=True)(dice)
    ours = from_pydantic_ai(agent)
    assert ours.config.model == "anthropic:claude-sonnet-5"
    assert list(ours.config.hitl_tools) == ["dice"]


def dice() -> int:
    """Roll."""
    return 4


async def needs_context(ctx: pydantic_ai.RunContext[str]) -> str:
    return f"{ctx.deps} asks: {ctx.prompt}"


def test_settings_of_pydantic_ai_keep_their_meaning_under_the_names_here():
    theirs: dict[str, Any] = {
        "max_tokens": 5,
        "timeout": 3,
        "stop_sequences": ["x"],
        "thinking": "low",
        "service_tier": "flex",
        "extra_headers": {"X-Team": "blue"},
        "extra_body": {"a": None},
    }
    agent = pydantic_ai.Agent("openai:x", name="set", model_settings=cast("Any", theirs))
    assert from_pydantic_ai(agent).to_config()["settings"] == {
        "max_tokens": 5,
        "timeout_s": 3.0,
        "stop": ["x"],
        "reasoning": "low",
        "service_tier": "flex",
        "headers": {"X-Team": "blue"},
        "extra_body": {"a": None},
    }
    silent = pydantic_ai.Agent("openai:x", name="set", model_settings={"thinking": False})
    assert from_pydantic_ai(silent).to_config()["settings"] == {"reasoning": "off"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (dict, "it has no model"),
        (lambda: {"model": "cerebras:x"}, "model cerebras:x has no provider here"),
        (lambda: {"model": test_models.TestModel()}, "has no provider here"),
        (
            lambda: {"model": "openai:x", "output_type": pydantic_ai.TextOutput(as_words)},
            "output_type: functions",
        ),
        (
            lambda: {"model": "openai:x", "output_type": [as_words, int]},
            "output_type: functions of the output have no equivalent",
        ),
        (lambda: {"model": "openai:x", "model_settings": {"logit_bias": {"1": 2}}}, "'logit_bias'"),
        (lambda: {"model": "openai:x", "model_settings": {"thinking": True}}, "say how much: minimal, low,"),
    ],
)
def test_what_has_no_equivalent_of_pydantic_ai_is_refused_by_name(
    given: Callable[[], dict[str, Any]], told: str
):
    message = refusal(lambda: from_pydantic_ai(pydantic_ai.Agent(**given()), name="theirs"))
    assert message.startswith("agent 'theirs' cannot be taken over: ")
    assert told in message


def test_an_effect_of_no_tool_is_refused():
    assert "no tool 'rol_dice'" in refusal(
        lambda: from_pydantic_ai(dice_game(), effects={"rol_dice": "pure"})
    )


# --- OpenAI Agents SDK ------------------------------------------------------------------------------------------------


def get_weather(context: agents.RunContextWrapper[str], city: str) -> str:
    """Tell the weather of a city."""
    return f"The weather in {city} is sunny, {context.context}."


def triage() -> agents.Agent[Any]:
    spanish = agents.Agent(name="Spanish agent", instructions="You only speak Spanish.")
    english = agents.Agent(
        name="English agent", instructions="You only speak English", handoff_description="Speaks English."
    )
    return agents.Agent(
        name="Triage agent", instructions="Handoff to the appropriate agent.", handoffs=[spanish, english]
    )


async def test_an_agent_of_the_sdk_runs_with_its_tools(monkeypatch: pytest.MonkeyPatch):
    theirs = agents.Agent(
        name="Hello world",
        instructions="Be helpful.",
        model="gpt-5.2",
        tools=[agents.function_tool(get_weather)],
    )
    agent = from_openai_agents(theirs, effects={"get_weather": "pure"})
    assert isinstance(agent, Agent)
    assert (agent.name, agent.config.model) == ("Hello-world", "openai-responses:gpt-5.2")
    replies = (call("get_weather", '{"city": "Tokyo"}'), Reply(text=("Sunny",)))
    async with served(monkeypatch, *replies) as (server, runtime):
        assert (await runtime.run(agent, "Tokyo?")).output == "Sunny"
    results = [item["output"] for item in server.requests[-1].body["input"] if item.get("output")]
    assert results == ["The weather in Tokyo is sunny, Anne."]


async def test_handoffs_become_a_swarm(monkeypatch: pytest.MonkeyPatch):
    swarm = from_openai_agents(triage())
    assert isinstance(swarm, Swarm)
    handed = Reply(text=('{"handoff_to": "Spanish-agent", "message": "Hola"}',))
    done = Reply(text=('{"handoff_to": null, "message": "Estoy bien"}',))
    async with served(monkeypatch, handed, done) as (server, runtime):
        assert (await runtime.run(swarm, "Hola, ¿cómo estás?")).output == "Estoy bien"
    assert "You only speak Spanish." in str(server.requests[1].body)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: {"model": "litellm/anthropic/claude"}, "'litellm/anthropic/claude' has no provider here"),
        (lambda: {"tool_use_behavior": "stop_on_first_tool"}, "tool_use_behavior"),
        (lambda: {"hooks": agents.AgentHooks()}, "hooks"),
        (lambda: {"model_settings": agents.ModelSettings(top_logprobs=3)}, "'top_logprobs'"),
    ],
)
def test_what_has_no_equivalent_of_the_sdk_is_refused_by_name(given: Callable[[], dict[str, Any]], told: str):
    message = refusal(lambda: from_openai_agents(agents.Agent(name="theirs", **given())))
    assert message.startswith("agent 'theirs' cannot be taken over: ")
    assert told in message
