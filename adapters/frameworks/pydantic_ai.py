"""Agents of pydantic-ai."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Union

import pydantic

from ...eventlog.events import ToolEffect
from ...runtime.agents.agent import Agent, OutputT
from ...runtime.ports.runnable import DepsT
from ...runtime.ports.tools import InvalidArguments, ToolFailed
from .foreign_tool import ForeignTool, Reading, plain_name

if TYPE_CHECKING:
    import pydantic_ai

_MODELS = {
    "anthropic": "anthropic",
    "azure": "azure",
    "bedrock": "bedrock",
    "cohere": "cohere",
    "google": "google",
    "groq": "groq",
    "huggingface": "huggingface",
    "mistral": "mistral",
    "ollama": "ollama",
    "openai": "openai-responses",
    "openai-chat": "openai",
    "openai-responses": "openai-responses",
    "openrouter": "openrouter",
    "xai": "xai",
}
"""Our providers by the names that pydantic-ai gives them."""
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "seed": "seed",
    "stop_sequences": "stop",
    "parallel_tool_calls": "parallel_tool_calls",
    "timeout": "timeout_s",
    "thinking": "reasoning",
    "service_tier": "service_tier",
    "extra_headers": "headers",
    "extra_body": "extra_body",
}
_VALUES: dict[str, Callable[[Any], Any]] = {
    "stop_sequences": list,
    "thinking": lambda level: "off" if level is False else level,
    "extra_headers": dict,
}
"""The values of settings that are written in another way here."""
_MARKED = {"ToolOutput", "NativeOutput", "PromptedOutput"}
"""Marks on output types: how the model is to give them, which is the provider's matter here."""
_OF_EVERY_AGENT = {"ToolSearch", "PendingMessageDrainCapability"}
"""The capabilities that each agent has; they do nothing without tools that are loaded later."""
_REFUSED_OF_TOOL = {
    "prepare": "tools that are prepared for each step have no equivalent",
    "args_validator": "validators of arguments have no equivalent; check them in the tool",
    "defer_loading": "tools that are loaded later have no equivalent",
}


def from_pydantic_ai(
    agent: pydantic_ai.Agent[DepsT, OutputT],
    *,
    name: str | None = None,
    model: str | None = None,
    effects: Mapping[str, ToolEffect] | None = None,
) -> Agent[OutputT, DepsT]:
    """Return an agent of pydantic-ai as ours: model, instructions, settings, tools, types of output and dependencies.

    `name` and `model` replace those of the agent. `effects` says what a second run of a tool would do (`pure`,
    `idempotent`); a tool that is not named is `unsafe`. Tools get `Registry(deps=...)` as `ctx.deps`. Raises
    `ConfigError` that names the first thing that has no equivalent.
    """
    reading = Reading(plain_name(name or agent.name or "agent"), effects or {})
    tools = list(_tools(reading, agent))
    reading.end()
    return Agent(
        reading.name,
        model=model or _model(reading, agent.model),
        instructions=_instructions(agent),
        tools=tools,
        output_type=_output_type(reading, agent.output_type),
        deps_type=_deps_type(agent),
        hitl_tools=[each.name for each in _functions(agent) if each.requires_approval],
        **_settings(reading, agent.model_settings),
    )


def _functions(agent: Any) -> list[Any]:
    return list(agent._function_toolset.tools.values())  # noqa: SLF001 - there is no public way to them


def _tools(reading: Reading, agent: Any) -> Iterator[ForeignTool]:
    others = [each for each in agent.toolsets if each is not agent._function_toolset]  # noqa: SLF001
    if any(not _is_empty(each) for each in others):
        reading.refuse("toolsets: give their tools to the agent, or name its MCP servers in mcp_servers")
    for capability in agent._root_capability.capabilities:  # noqa: SLF001
        if type(capability).__name__ not in _OF_EVERY_AGENT:
            reading.refuse(f"the capability {type(capability).__name__}")
    if agent._output_validators:  # noqa: SLF001
        reading.refuse("output validators: add them to the agent here, by its `output_validator`")
    for each in _functions(agent):
        reading.refuse_set(each, _REFUSED_OF_TOOL)
        schema = each.function_schema
        yield reading.tool(
            each.name,
            each.description or "",
            dict(schema.json_schema),
            _runner(each),
            timeout_s=each.timeout,
            wants_deps=each.takes_ctx and _deps_type(agent) is not None,
        )


def _deps_type(agent: Any) -> Any:
    """Return the type of its dependencies; null if it takes none, which it says by `object` or `NoneType`."""
    return None if agent.deps_type in {object, NoneType} else agent.deps_type


def _is_empty(toolset: Any) -> bool:
    """Return whether a toolset, or all that it puts together, has no tools."""
    inner = getattr(toolset, "toolsets", None)
    if inner is not None:
        return all(map(_is_empty, inner))
    return getattr(toolset, "tools", None) == {}


def _runner(tool: Any) -> Any:
    async def run(arguments: Mapping[str, Any], context: Any) -> Any:
        from pydantic_ai import ModelRetry

        try:
            given = tool.function_schema.validator.validate_python(dict(arguments))
        except pydantic.ValidationError as error:
            raise InvalidArguments(str(error)) from None
        called = {"tool_call_id": context.tool_call_id, "tool_name": tool.name}
        try:
            return await tool.function_schema.call(given, _context(context, **called))
        except ModelRetry as error:
            raise ToolFailed(error.message) from None

    return run


def _context(ours: Any, **called: Any) -> Any:
    """Return their context of a run, or of a call; the model in it can be asked nothing."""
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    return RunContext(
        deps=ours.deps,
        model=TestModel(),
        usage=RunUsage(),
        prompt=ours.input,
        run_id=ours.run_id,
        metadata=ours.metadata,
        **called,
    )


def _model(reading: Reading, model: Any) -> str:
    if model is None:
        reading.refuse("it has no model; say from_pydantic_ai(model=...)")
    if isinstance(model, str):
        prefix, colon, name = model.partition(":")
    else:
        prefix, colon, name = model.system, ":", model.model_name
        if "Responses" not in type(model).__name__ and prefix == "openai":
            prefix = "openai-chat"
    if not colon or prefix not in _MODELS:
        reading.refuse(f"the model {prefix}:{name} has no provider here; say from_pydantic_ai(model=...)")
    return f"{_MODELS[prefix]}:{name}"


def _instructions(agent: Any) -> Any:
    """The texts in their order; a function that makes them where one of them is made."""
    runners = agent._system_prompt_functions  # noqa: SLF001 - there is no public way to them
    parts = [
        *agent._system_prompts,  # noqa: SLF001
        *(runner.function for runner in runners),
        *(part.instruction for part in agent._instructions),  # noqa: SLF001
    ]
    if not any(map(callable, parts)):
        return "\n\n".join(parts)

    async def instructions(context: Any) -> str:
        made = [await _made(part, _context(context)) if callable(part) else part for part in parts]
        return "\n\n".join(filter(None, made))

    return instructions


async def _made(part: Any, context: Any) -> Any:
    made = part(context) if inspect.signature(part).parameters else part()
    return await made if inspect.isawaitable(made) else made


def _output_type(reading: Reading, output_type: Any) -> Any:
    kind = type(output_type).__name__
    if kind in _MARKED:
        output_type = getattr(output_type, "output", None) or getattr(output_type, "outputs", None)
    several = output_type if isinstance(output_type, list | tuple) else [output_type]
    if any(inspect.isroutine(each) or type(each).__name__ in {*_MARKED, "TextOutput"} for each in several):
        reading.refuse("output_type: functions, and marks on one of several types, have no equivalent")
    return Union[tuple(several)]  # noqa: UP007 - of one type it is that type


def _settings(reading: Reading, settings: Any) -> dict[str, Any]:
    if callable(settings):
        reading.refuse("model_settings are a function")
    found = {}
    for name, value in (settings or {}).items():
        if name not in _SETTINGS:
            reading.refuse(f"the model setting {name!r} has no equivalent; extra_body may carry it")
        if name == "thinking" and value is True:
            reading.refuse("the model setting 'thinking' is True; say how much: minimal, low, medium or high")
        found[_SETTINGS[name]] = _VALUES[name](value) if name in _VALUES else value
    return {"settings": found} if found else {}
