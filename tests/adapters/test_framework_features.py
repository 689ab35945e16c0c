"""Features of agents of other frameworks besides instructions and tools: carried over, or refused by name."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pydantic
import pytest
from foldlog import Agent, Registry, Runtime
from foldlog.adapters.frameworks import from_openai_agents, from_pydantic_ai
from foldlog.eventlog import RunFailed, ToolResult
from foldlog.eventlog.errors import ConfigError
from foldlog.runtime import Swarm

from tests.later import Later

agents = Later("agents")
capabilities = Later("pydantic_ai.capabilities")
fallback = Later("pydantic_ai.models.fallback")
instrumented = Later("pydantic_ai.models.instrumented")
models = Later("pydantic_ai.models.openai")
native_tools = Later("pydantic_ai.native_tools")
openai = Later("openai")
providers = Later("pydantic_ai.providers.openai")
pydantic_ai = Later("pydantic_ai")
shared = Later("openai.types.shared")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))
    for vendor in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "made-up")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


class Fruit(pydantic.BaseModel):
    name: str


def theirs(**given: Any) -> pydantic_ai.Agent[Any, Any]:
    return pydantic_ai.Agent(**{"model": "openai:gpt-5.2", "name": "theirs", **given})


def sdk(**given: Any) -> agents.Agent[Any]:
    return agents.Agent(
        **{"name": "theirs", "model": "gpt-5.2", "model_settings": agents.ModelSettings(), **given}
    )


def config(agent: object) -> dict[str, Any]:
    return cast("Agent", agent).to_config()


def refusal(take: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        take()
    return str(caught.value)


@asynccontextmanager
async def name() -> AsyncIterator[str]:
    yield "Anne"


def script_at(path: Path, script: dict[str, Any]) -> None:
    path.write_text(json.dumps(script))


async def ran(
    agent: Any, *turns: dict[str, Any], text: str = "Hi", scenes: Sequence[dict[str, Any]] = ()
) -> tuple[Any, list[Any]]:
    """Run an agent on the script x; return its output and its events. Raises `RunFailed`."""
    script = {"turns": list(turns), "scenes": list(scenes)}
    script_at(Path(os.environ["FOLDLOG_SCRIPT_DIR"], "x"), script)
    registry = Registry(deps=name)
    async with Runtime.open("memory://", registry=registry) as runtime:
        run = await runtime.start(agent, text)
        output = (await run.result()).output
        return output, [event async for event in run.stream(detailed=True)]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": "1", "name": tool, "arguments": arguments}]}


# --- pydantic-ai ------------------------------------------------------------------------------------------------------


def test_native_tools_and_thinking_of_pydantic_ai_are_carried_over():
    search = native_tools.WebSearchTool(allowed_domains=["example.com"], search_context_size="high")
    stores = native_tools.FileSearchTool(file_store_ids=["s1"], max_num_results=3)
    agent = theirs(
        capabilities=[
            capabilities.NativeTool(search),
            capabilities.NativeTool(native_tools.CodeExecutionTool()),
            capabilities.NativeTool(stores),
            capabilities.Thinking("low"),
        ]
    )
    ours = config(from_pydantic_ai(agent))
    assert ours["native_tools"] == [
        {"type": "web_search", "allowed_domains": ["example.com"], "search_context_size": "high"},
        {"type": "code_execution"},
        {"type": "file_search", "store_ids": ["s1"], "max_results": 3},
    ]
    assert ours["settings"] == {"reasoning": "low"}
    plain = theirs(capabilities=[capabilities.WebSearch()])
    assert config(from_pydantic_ai(plain))["native_tools"] == [{"type": "web_search"}]


async def test_an_output_validator_of_pydantic_ai_sends_the_model_back():
    agent = theirs(deps_type=str, retries={"output": 3})

    @agent.output_validator
    def names_the_user(ctx: pydantic_ai.RunContext[str], output: str) -> str:
        if ctx.deps not in output:
            raise pydantic_ai.ModelRetry(f"Name {ctx.deps}.")
        return output

    ours = from_pydantic_ai(agent, model="scripted:x")
    assert (ours.config.output_validators, ours.config.output_retries) == (("names_the_user",), 3)
    output, events = await ran(ours, {"text": "Hello"}, {"text": "Hello Anne"})
    assert output == "Hello Anne"
    assert len([event for event in events if event.type == "usage"]) == 2


async def test_a_validator_of_pydantic_ai_that_changes_the_output_ends_the_run_by_name():
    agent = theirs(output_type=list[int])

    @agent.output_validator
    def in_order(output: list[int]) -> list[int]:
        output.sort()
        return output

    with pytest.raises(RunFailed, match="a validator changes no output here") as caught:
        await ran(from_pydantic_ai(agent, model="scripted:x"), {"text": "[2, 1]"})
    assert caught.value.error_type == "output_validator_failed"


async def test_files_that_tools_of_pydantic_ai_return_reach_the_model_as_files():
    agent = theirs()

    @agent.tool_plain
    def picture() -> Any:
        """Draw."""
        return pydantic_ai.ToolReturn(
            return_value={"size": 1},
            content=["Look:", pydantic_ai.BinaryContent(PNG, media_type="image/png")],
        )

    @agent.tool_plain
    def pictures() -> Any:
        """Draw more."""
        return [
            pydantic_ai.BinaryContent(PNG, media_type="image/png"),
            pydantic_ai.ImageUrl("https://example.com/a.png"),
        ]

    _, events = await ran(
        from_pydantic_ai(agent, model="scripted:x"), call("picture"), call("pictures"), {"text": "Seen"}
    )
    first, second = [event.result for event in events if isinstance(event, ToolResult)]
    assert [part.get("text") or part["bytes"] for part in first] == ['{"size": 1}', "Look:", len(PNG)]
    assert [part.get("bytes") or part["url"] for part in second] == [len(PNG), "https://example.com/a.png"]


async def test_what_a_tool_of_pydantic_ai_tells_beside_its_result_is_told():
    agent = theirs()
    agent.tool_plain(name="look")(
        lambda: pydantic_ai.ToolReturn(return_value=[1, 2], content="There are two.")
    )
    _, events = await ran(from_pydantic_ai(agent, model="scripted:x"), call("look"), {"text": "Two"})
    assert [event.result for event in events if isinstance(event, ToolResult)] == ["1\n2\nThere are two."]


def test_timeouts_of_tools_are_those_of_the_framework():
    agent = theirs(tool_timeout=7)
    agent.tool_plain(name="usual")(lambda: 1)
    agent.tool_plain(name="own", timeout=3)(lambda: 1)
    tools = from_pydantic_ai(agent).tools
    assert {name: tool.spec.timeout_s for name, tool in tools.items()} == {"usual": 7, "own": 3}
    without = theirs(
        toolsets=[pydantic_ai.FunctionToolset([test_timeouts_of_tools_are_those_of_the_framework])]
    )
    (tool,) = from_pydantic_ai(without).tools.values()
    assert tool.spec.timeout_s is None
    (tool,) = cast("Agent", from_openai_agents(sdk(tools=[sdk_tool(weather)]))).tools.values()
    assert tool.spec.timeout_s is None


def test_outputs_of_pydantic_ai_keep_their_types_without_marks_and_without_deferred_calls():
    marked = theirs(output_type=[pydantic_ai.ToolOutput(Fruit, name="fruit"), pydantic_ai.ToolOutput(int)])
    assert from_pydantic_ai(marked).output_type == Fruit | int
    waiting = theirs(output_type=[str, pydantic_ai.DeferredToolRequests])
    assert from_pydantic_ai(waiting).output_type is None


def test_several_models_and_their_settings_are_carried_over():
    first = models.OpenAIResponsesModel("gpt-5.2", settings={"max_tokens": 5, "temperature": 1})
    agent = theirs(model=instrumented.InstrumentedModel(first), model_settings={"max_tokens": 7})
    ours = config(from_pydantic_ai(agent))
    assert (ours["model"], ours["settings"]) == (
        "openai-responses:gpt-5.2",
        {"max_tokens": 7, "temperature": 1.0},
    )
    both = config(
        from_pydantic_ai(theirs(model=fallback.FallbackModel("openai:gpt-5.2", "openai-chat:gpt-4o")))
    )
    assert both["model"] == "openai-responses:gpt-5.2"
    assert both["fallback_models"] == ["openai:gpt-4o"]
    assert config(from_pydantic_ai(agent, model="scripted:x"))["settings"] == {"max_tokens": 7}


def test_more_settings_of_pydantic_ai_keep_their_meaning():
    given: dict[str, Any] = {"tool_choice": ["roll"], "cache": True, "openai_reasoning_effort": "none"}
    agent = theirs(model_settings=cast("Any", given), tools=[pydantic_ai.Tool(lambda: 1, name="roll")])
    assert config(from_pydantic_ai(agent))["settings"] == {
        "tool_choice": "roll",
        "cache": "auto",
        "reasoning": "off",
    }


def test_fields_of_an_agent_here_replace_those_that_were_taken_over():
    agent = theirs(model_settings={"max_tokens": 5, "seed": 1})
    servers = {"files": {"command": "mcp-files"}}
    ours = from_pydantic_ai(agent, max_steps=3, mcp_servers=servers, settings={"seed": 2})
    assert (ours.config.max_steps, list(ours.config.mcp_servers)) == (3, ["files"])
    assert config(ours)["settings"] == {"max_tokens": 5, "seed": 2}
    again = cast("Agent", from_openai_agents(sdk(), max_steps=4))
    assert again.config.max_steps == 4


def elsewhere() -> providers.OpenAIProvider:
    return providers.OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="made-up")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            lambda: {"model": models.OpenAIChatModel("m", provider=elsewhere())},
            "is called at http://127.0.0.1:9/v1/",
        ),
        (
            lambda: {
                "model": fallback.FallbackModel(models.OpenAIResponsesModel("gpt-5", provider=elsewhere()))
            },
            "is called at",
        ),
        (lambda: {"metadata": {"team": "a"}}, "metadata: give it to each run: rt.start(metadata=)"),
        (lambda: {"validation_context": 1}, "validation_context: "),
        (lambda: {"max_concurrency": 2}, "concurrency={'runs_max': ...}"),
        (lambda: {"output_type": pydantic_ai.BinaryImage}, "BinaryImage is not an output type"),
        (lambda: {"model_settings": {"thinking": "xhigh"}}, "reasoning 'xhigh' is not a level here"),
        (lambda: {"model_settings": {"cache": "12h"}}, "'cache' is '12h'"),
        (lambda: {"model_settings": {"tool_choice": ["a", "b"]}}, "does not name one tool"),
        (
            lambda: {"capabilities": [capabilities.NativeTool(native_tools.ImageGenerationTool())]},
            "'image_generation'",
        ),
        (
            lambda: {
                "capabilities": [
                    capabilities.NativeTool(native_tools.WebSearchTool(external_web_access=False))
                ]
            },
            "external_web_access of the native tool 'web_search'",
        ),
        (
            lambda: {"capabilities": [capabilities.NativeTool(lambda _: None)]},
            "a native tool that is a function",
        ),
        (
            lambda: {"capabilities": [capabilities.WebSearch(local=lambda query: query)]},
            "WebSearch with a tool of its own",
        ),
        (lambda: {"capabilities": [capabilities.Hooks()]}, "the capability Hooks"),
        (lambda: {"tools": [pydantic_ai.Tool(lambda: 1, name="roll", sequential=True)]}, "sequential: "),
        (lambda: {"toolsets": [pydantic_ai.FunctionToolset([len], instructions="Count.")]}, "toolsets: "),
    ],
)
def test_what_pydantic_ai_has_alone_is_refused_by_name(given: Callable[[], dict[str, Any]], told: str):
    message = refusal(lambda: from_pydantic_ai(theirs(**given())))
    assert message.startswith("agent 'theirs' cannot be taken over: ")
    assert told in message


def test_an_agent_of_an_unknown_version_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch):
    agent, other = theirs(), sdk(tools=[sdk_tool(weather)])
    del agent._function_toolset
    assert "known versions are 2.68 and later 2.x" in refusal(lambda: from_pydantic_ai(agent))
    monkeypatch.delattr("agents.models.default_models.get_default_model")
    assert "known versions are 0.24 and later" in refusal(lambda: from_openai_agents(other))


# --- OpenAI Agents SDK ------------------------------------------------------------------------------------------------


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Sunny in {city}."


def hidden() -> str:
    """Do nothing."""
    return ""


def sdk_tool(function: Callable[..., Any], **given: Any) -> agents.FunctionTool:
    return agents.function_tool(function, **given)


def test_tools_that_openai_runs_are_carried_over_as_native_tools():
    agent = sdk(
        tools=[
            agents.WebSearchTool(user_location={"type": "approximate", "city": "Oslo"}),
            agents.FileSearchTool(vector_store_ids=["s1"], max_num_results=3, include_search_results=True),
            agents.CodeInterpreterTool(
                tool_config={"type": "code_interpreter", "container": {"type": "auto"}}
            ),
            sdk_tool(hidden, is_enabled=False),
        ]
    )
    ours = config(from_openai_agents(agent))
    assert ours["native_tools"] == [
        {"type": "web_search", "user_location": {"city": "Oslo"}},
        {"type": "file_search", "store_ids": ["s1"], "max_results": 3},
        {"type": "code_execution"},
    ]
    assert ours["tools"] == []


def test_settings_of_the_sdk_keep_their_meaning():
    given = agents.ModelSettings(
        max_tokens=5,
        reasoning=shared.Reasoning(effort="low", summary="auto"),
        truncation="auto",
        metadata={"team": "a"},
        extra_headers={"X-Team": "a"},
        extra_body={"safety_identifier": "u1"},
        timeout=3,
    )
    assert config(from_openai_agents(sdk(model_settings=given)))["settings"] == {
        "max_tokens": 5,
        "reasoning": "low",
        "headers": {"X-Team": "a"},
        "timeout_s": 3.0,
        "extra_body": {
            "safety_identifier": "u1",
            "truncation": "auto",
            "metadata": {"team": "a"},
            "reasoning": {"summary": "auto"},
        },
    }


async def no_homework(run: Any, agent: Any, text: Any) -> agents.GuardrailFunctionOutput:
    """Refuse homework."""
    return agents.GuardrailFunctionOutput(output_info=run.context, tripwire_triggered="homework" in text)


async def no_numbers(run: Any, agent: Any, output: Any) -> agents.GuardrailFunctionOutput:
    """Refuse numbers."""
    return agents.GuardrailFunctionOutput(output_info=None, tripwire_triggered=output.isdigit())


async def test_guardrails_of_the_sdk_end_the_run():
    agent = sdk(
        instructions="Be kind.",
        input_guardrails=[agents.input_guardrail(no_homework)],
        output_guardrails=[agents.output_guardrail(no_numbers)],
    )
    ours = from_openai_agents(agent, model="scripted:x")
    assert (await ran(ours, {"text": "Hello"}))[0] == "Hello"
    with pytest.raises(RunFailed, match="InputGuardrailTripwireTriggered") as caught:
        await ran(ours, text="Do my homework")
    assert caught.value.error_type == "config_error"
    with pytest.raises(RunFailed, match="OutputGuardrailTripwireTriggered") as ended:
        await ran(ours, {"text": "42"})
    assert ended.value.error_type == "output_validator_failed"


async def test_an_agent_as_a_tool_of_the_sdk_is_a_child_run():
    spanish = sdk(name="Spanish", instructions="Translate.", tools=[sdk_tool(weather)])
    first = sdk(tools=[spanish.as_tool("to_spanish", "Translate to Spanish")])
    ours = from_openai_agents(first, model="scripted:x", effects={"weather": "pure"})
    output, events = await ran(
        ours,
        call("to_spanish", input="Good day"),
        {"text": "It is Buenos días"},
        scenes=[{"system": "Translate.", "turns": [{"text": "Buenos días"}]}],
    )
    assert output == "It is Buenos días"
    assert [event.result for event in events if isinstance(event, ToolResult)] == ["Buenos días"]
    assert any(event.type == "child_started" for event in events)


async def test_pictures_that_tools_of_the_sdk_return_reach_the_model_as_pictures():
    encoded = base64.b64encode(PNG).decode()

    @agents.function_tool
    def draw() -> Any:
        """Draw."""
        return [
            agents.ToolOutputText(text="Look:"),
            agents.ToolOutputImage(image_url=f"data:image/png;base64,{encoded}", detail="low"),
            agents.ToolOutputFileContent(file_data=encoded, filename="a.png"),
        ]

    ours = from_openai_agents(sdk(tools=[draw]), model="scripted:x")
    _, events = await ran(ours, call("draw"), {"text": "Seen"})
    (parts,) = [event.result for event in events if isinstance(event, ToolResult)]
    assert parts[0]["text"] == "Look:"
    assert [(part["media_type"], part.get("name"), part.get("detail")) for part in parts[1:]] == [
        ("image/png", None, "low"),
        ("image/png", "a.png", None),
    ]


def test_the_type_within_an_output_schema_of_the_sdk_is_the_output_type():
    agent = sdk(output_type=agents.AgentOutputSchema(Fruit, strict_json_schema=False))
    assert cast("Agent", from_openai_agents(agent)).output_type is Fruit


def test_agents_of_the_sdk_that_hand_over_keep_what_they_are():
    second = sdk(name="second", tools=[sdk_tool(weather)])
    team = from_openai_agents(sdk(handoffs=[agents.handoff(second)]), effects={"weather": "pure"})
    assert isinstance(team, Swarm)
    assert list(team.members) == ["theirs", "second"]


def here() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="made-up", base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            lambda: {"model": agents.OpenAIChatCompletionsModel(model="m", openai_client=here())},
            "is called at http://127.0.0.1:9/v1/",
        ),
        (
            lambda: {"tools": [agents.ComputerTool(computer=cast("Any", object()))]},
            "is not a native tool here",
        ),
        (
            lambda: {"tools": [agents.WebSearchTool(external_web_access=False)]},
            "external_web_access of the tool 'web_search'",
        ),
        (
            lambda: {"model_settings": agents.ModelSettings(reasoning=shared.Reasoning(effort="xhigh"))},
            "'xhigh' is not a level",
        ),
        (lambda: {"model_settings": agents.ModelSettings(frequency_penalty=1)}, "'frequency_penalty'"),
        (
            lambda: {
                "model_settings": agents.ModelSettings(tool_choice="required"),
                "tools": [sdk_tool(weather)],
                "reset_tool_choice": False,
            },
            "reset_tool_choice",
        ),
        (
            lambda: {"handoffs": [agents.handoff(sdk(name="b"), on_handoff=lambda _: None)]},
            "'transfer_to_b': on_handoff has no equivalent",
        ),
        (lambda: {"handoffs": [agents.handoff(sdk(name="b"), is_enabled=False)]}, "is_enabled"),
        (lambda: {"handoffs": [sdk(name="b c"), sdk(name="b-c")]}, "two agents are called 'b-c'"),
        (
            lambda: {"handoffs": [sdk(name="b", output_guardrails=[agents.output_guardrail(no_numbers)])]},
            "output_guardrails",
        ),
        (
            lambda: {"tools": [sdk(name="b").as_tool("ask", "Ask", max_turns=3)]},
            "'ask': max_turns of an agent as a tool",
        ),
    ],
)
def test_what_the_sdk_has_alone_is_refused_by_name(given: Callable[[], dict[str, Any]], told: str):
    message = refusal(lambda: from_openai_agents(sdk(**given())))
    assert "cannot be taken over: " in message
    assert told in message
