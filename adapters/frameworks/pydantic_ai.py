"""Agents of pydantic-ai."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Union, Unpack, cast

from ...eventlog.events import ToolEffect
from ...runtime.agents.agent import Agent, AgentFields, OutputT
from ...runtime.ports.outputs import OutputRefused
from ...runtime.ports.runnable import DepsT
from .foreign_tool import ForeignTool, Reading, known_version, merged, plain_name
from .pydantic_ai_requests import bare, models_of, native_tool, settings_of
from .pydantic_ai_tools import context_of, runner

if TYPE_CHECKING:
    import pydantic_ai

_MARKED = {"ToolOutput", "NativeOutput", "PromptedOutput"}
"""Markers of output types that choose how the model returns them, which foldlog leaves to the provider."""
_OF_EVERY_AGENT = {"ToolSearch", "PendingMessageDrainCapability"}
"""The capabilities that every agent has; they do nothing unless tools are loaded later."""
_OWN_OUTPUTS = {"BinaryImage", "PendingModelResponse"}
"""Output types that only the runner of pydantic-ai understands."""
_DEFERRED = "DeferredToolRequests"
"""The output of an agent that waits for approvals, which are not outputs in foldlog."""
_REFUSED = {
    "_metadata": "give it to each run: rt.start(metadata=)",
    "_validation_context": "a context for pydantic's validators has no equivalent; the tools have their dependencies",
    "_concurrency_limiter": "instead of max_concurrency say concurrency={'runs_max': ...}, which holds for all workers",
}
_REFUSED_OF_TOOL = {
    "sequential": "a tool that runs alone has no equivalent; give it the parts that must not overlap in one tool",
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
    **fields: Unpack[AgentFields],
) -> Agent[OutputT, DepsT]:
    """Convert an agent of pydantic-ai: its model, instructions, settings, tools, output type and dependency type.

    `name`, `model` and the other `fields` of `Agent` replace those of the agent; settings are merged. `effects`
    declares the effect of tools by name (`pure`, `idempotent`); a tool that is not named is `unsafe`. Tools get
    `Registry(deps=...)` as `ctx.deps`. Raises `ConfigError`, which names the first feature without an equivalent.
    """
    with known_version("pydantic-ai-slim", "2.68 and later 2.x"):
        return _taken(agent, name, model, effects or {}, fields)


def _taken(
    agent: Any, name: str | None, model: str | None, effects: Mapping[str, ToolEffect], fields: AgentFields
) -> Agent[Any, Any]:
    reading = Reading(plain_name(name or agent.name or "agent"), effects)
    reading.refuse_set(agent, _REFUSED)
    models = [model] if model is not None else models_of(reading, agent.model)
    taken = _fields(reading, agent, models[1:], given_model=model is not None)
    tools = list(_tools(reading, agent))
    reading.end()
    output_type = _output_type(reading, agent.output_type)
    ours: Agent[Any, Any] = Agent(
        reading.name,
        model=models[0],
        instructions=_instructions(agent),
        tools=tools,
        output_type=output_type,
        deps_type=_deps_type(agent),
        **merged(taken, fields),
    )
    for number, validator in enumerate(agent._output_validators):  # noqa: SLF001 - there is no public way to them
        ours.output_validator(_validator(validator, number))
    return ours


def _fields(reading: Reading, agent: Any, fallbacks: Sequence[str], *, given_model: bool) -> AgentFields:
    of_model = None if given_model or isinstance(agent.model, str | None) else bare(agent.model).settings
    thinking, native = _capabilities(reading, agent)
    found: AgentFields = {"hitl_tools": [each.name for each in _functions(agent) if each.requires_approval]}
    if settings := settings_of(reading, of_model, thinking, agent.model_settings):
        found["settings"] = cast("Any", settings)  # the agent checks it
    if fallbacks:
        found["fallback_models"] = fallbacks
    if native:
        found["native_tools"] = native
    if agent._output_validators or _unmarked(agent.output_type)[0] is not str:  # noqa: SLF001
        found["output_retries"] = agent._max_output_retries  # noqa: SLF001
    return found


def _functions(agent: Any) -> list[Any]:
    return [tool for toolset in _toolsets(agent) for tool in toolset.tools.values()]


def _toolsets(agent: Any) -> list[Any]:
    """Return the toolsets that contain only functions, whose tools can be the agent's own."""
    own = agent._function_toolset  # noqa: SLF001 - it has no public name
    return [own, *(each for each in agent.toolsets if each is not own and _is_plain(each))]


def _is_plain(toolset: Any) -> bool:
    """Return whether a toolset is a plain set of functions, without instructions."""
    return type(toolset).__name__ == "FunctionToolset" and not toolset._instructions  # noqa: SLF001


def _tools(reading: Reading, agent: Any) -> Iterator[ForeignTool]:
    plain = _toolsets(agent)
    if any(not _is_empty(each) for each in agent.toolsets if each not in plain):
        reading.refuse("toolsets: give their tools to the agent, or say from_pydantic_ai(mcp_servers=...)")
    for toolset in plain:
        for each in toolset.tools.values():
            reading.refuse_set(each, _REFUSED_OF_TOOL)
            schema = each.function_schema
            yield reading.tool(
                each.name,
                each.description or "",
                dict(schema.json_schema),
                runner(each),
                timeout_s=each.timeout if each.timeout is not None else toolset.timeout,
                wants_deps=each.takes_ctx and _deps_type(agent) is not None,
            )


def _capabilities(reading: Reading, agent: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the settings and native tools that the agent's capabilities add; refuse all other capabilities."""
    settings: dict[str, Any] = {}
    native: list[dict[str, Any]] = []
    for each in agent._root_capability.capabilities:  # noqa: SLF001
        kind = type(each).__name__
        local = getattr(each, "local", None)
        if kind == "Thinking":
            settings["thinking"] = each.effort
        elif kind == "NativeTool":
            native.append(native_tool(reading, each.tool))
        elif hasattr(each, "native") and not local:
            native.append(native_tool(reading, each.native))
        elif kind not in _OF_EVERY_AGENT:
            reading.refuse(f"the capability {kind}" + (" with a tool of its own" if local else ""))
    return settings, native


def _deps_type(agent: Any) -> Any:
    """Return the agent's dependency type; None if it takes none (`object` or `NoneType`)."""
    return None if agent.deps_type in {object, NoneType} else agent.deps_type


def _is_empty(toolset: Any) -> bool:
    """Return whether a toolset has no tools, including those of the toolsets that it combines."""
    inner = getattr(toolset, "toolsets", None)
    if inner is not None:
        return all(map(_is_empty, inner))
    return getattr(toolset, "tools", None) == {}


def _validator(theirs: Any, number: int) -> Callable[..., Awaitable[None]]:
    """Convert an output validator. Ours cannot change the output: one that does raises `TypeError`."""

    async def validate(run: Any, output: Any) -> None:
        from pydantic_ai import ModelRetry

        before = copy.deepcopy(output)
        try:
            made = await theirs.validate(output, context_of(run))
        except ModelRetry as error:
            raise OutputRefused(error.message) from None
        if type(made) is not type(before) or made != before:
            raise TypeError(f"it returns {made!r:.60} for {before!r:.60}: a validator changes no output here")

    name = plain_name(getattr(theirs.function, "__name__", ""))
    validate.__name__ = name if number == 0 else f"{name}-{number + 1}"[:64]
    return validate


def _instructions(agent: Any) -> Any:
    """Return the instructions, joined: a text, or a function if any part is a function."""
    runners = agent._system_prompt_functions  # noqa: SLF001 - there is no public way to them
    parts = [
        *agent._system_prompts,  # noqa: SLF001
        *(runner.function for runner in runners),
        *(part.instruction for part in agent._instructions),  # noqa: SLF001
    ]
    if not any(map(callable, parts)):
        return "\n\n".join(parts)

    async def instructions(context: Any) -> str:
        made = [await _made(part, context_of(context)) if callable(part) else part for part in parts]
        return "\n\n".join(filter(None, made))

    return instructions


async def _made(part: Any, context: Any) -> Any:
    made = part(context) if inspect.signature(part).parameters else part()
    return await made if inspect.isawaitable(made) else made


def _output_type(reading: Reading, output_type: Any) -> Any:
    several = [each for each in _unmarked(output_type) if _of_theirs(each) != _DEFERRED]
    for each in several:
        if _of_theirs(each) in _OWN_OUTPUTS:
            reading.refuse(f"output_type: {each.__name__} is not an output type here")
        if inspect.isroutine(each) or type(each).__name__ == "TextOutput":
            reading.refuse("output_type: functions of the output have no equivalent")
    return Union[tuple(several)]  # noqa: UP007 - of one type it is that type


def _of_theirs(kind: Any) -> str:
    """Return the name of a type that pydantic-ai defines; empty for any other type."""
    return kind.__name__ if isinstance(kind, type) and kind.__module__.startswith("pydantic_ai.") else ""


def _unmarked(output_type: Any) -> list[Any]:
    """Return the output types without the markers that choose how the model returns them."""
    if type(output_type).__name__ in _MARKED:
        output_type = getattr(output_type, "output", None) or getattr(output_type, "outputs", None)
    if not isinstance(output_type, list | tuple):
        return [output_type]
    return [each for one in output_type for each in _unmarked(one)]
