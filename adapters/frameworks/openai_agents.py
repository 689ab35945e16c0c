"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...eventlog.events import ToolEffect
from ...runtime.agents.agent import Agent
from ...runtime.agents.swarm import Swarm
from ...runtime.ports.runnable import DepsT
from .foreign_tool import ForeignTool, Reading, plain_name

if TYPE_CHECKING:
    import agents

_REFUSED = {
    "mcp_servers": "name them in mcp_servers of the agent here",
    "input_guardrails": "guardrails have no equivalent; a policy or a tool can refuse",
    "output_guardrails": "guardrails have no equivalent; validate in the output type",
    "hooks": "hooks have no equivalent; follow the run's events",
    "prompt": "prompts stored at the provider have no equivalent",
}
_REFUSED_OF_TOOL = {
    "tool_input_guardrails": "guardrails have no equivalent",
    "tool_output_guardrails": "guardrails have no equivalent",
    "defer_loading": "tools that are loaded later have no equivalent",
}
_SETTINGS = ("temperature", "top_p", "max_tokens", "parallel_tool_calls", "verbosity", "tool_choice")
_NOT_SENT = {"retry", "include_usage", "preserve_raw_usage", "store"}
"""Settings of their runner, not of the model; ours retries, counts and stores in its own way."""


def from_openai_agents(
    agent: agents.Agent[DepsT],
    *,
    model: str | None = None,
    effects: Mapping[str, ToolEffect] | None = None,
) -> Agent[Any, DepsT] | Swarm[DepsT]:
    """Return an agent of the OpenAI Agents SDK as ours; one with handoffs as a swarm of all that it leads to.

    `model` replaces that of every agent. `effects` says what a second run of a tool would do (`pure`, `idempotent`); a
    tool that is not named is `unsafe`. Tools get `Registry(deps=...)` as the context of their run. Raises `ConfigError`
    that names the first thing that has no equivalent.
    """
    team = list(_reachable(agent, {}))
    chosen, readings = effects or {}, []
    members = []
    for each in team:
        own = {name: effect for name, effect in chosen.items() if name in {tool.name for tool in each.tools}}
        readings.append(Reading(plain_name(each.name), own))
        members.append(_agent(readings[-1], each, model))
    first = Reading(plain_name(agent.name), chosen)
    for each in team:
        first._tools |= {tool.name for tool in each.tools}  # noqa: SLF001
    first.end()
    if len(members) == 1:
        return members[0]
    purposes = {plain_name(each.name): each.handoff_description for each in team if each.handoff_description}
    return Swarm(members, name=f"{members[0].name}-team"[:64], mode="handoff", descriptions=purposes)


def _reachable(agent: Any, seen: dict[str, Any]) -> Iterator[Any]:
    """Yield the agent and all that it, or one of those, hands over to."""
    if agent.name in seen:
        return
    seen[agent.name] = agent
    yield agent
    for handoff in agent.handoffs:
        yield from _reachable(_target(agent, handoff), seen)


def _target(agent: Any, handoff: Any) -> Any:
    if hasattr(handoff, "instructions"):
        return handoff
    reading = Reading(plain_name(agent.name), {})
    target = handoff._agent_ref() if getattr(handoff, "_agent_ref", None) is not None else None  # noqa: SLF001
    if target is None or handoff.input_filter is not None:
        reading.refuse(
            f"the handoff {handoff.tool_name!r}: one with a filter or without an agent has no equivalent"
        )
    return target


def _agent(reading: Reading, agent: Any, model: str | None) -> Agent[Any]:
    reading.refuse_set(agent, _REFUSED)
    if agent.tool_use_behavior != "run_llm_again":
        reading.refuse("tool_use_behavior: the model always sees the results of its calls")
    tools = [_tool(reading, each) for each in agent.tools]
    return Agent(
        reading.name,
        model=model or _model(reading, agent.model),
        instructions=_instructions(agent),
        tools=tools,
        output_type=_output_type(reading, agent.output_type),
        hitl_tools=list(_approved(reading, agent.tools)),
        **_settings(reading, agent.model_settings),
    )


def _instructions(agent: Any) -> Any:
    if not callable(agent.instructions):
        return agent.instructions or ""

    async def instructions(context: Any) -> str:
        from agents import RunContextWrapper

        made = agent.instructions(RunContextWrapper(context=context.deps), agent)
        return str(await made if inspect.isawaitable(made) else made)

    return instructions


def _tool(reading: Reading, tool: Any) -> ForeignTool:
    if not hasattr(tool, "on_invoke_tool"):
        reading.refuse(f"the tool {tool.name!r} is run by the provider")
    reading.refuse_set(tool, _REFUSED_OF_TOOL)
    if tool.is_enabled is not True:
        reading.refuse(f"the tool {tool.name!r}: is_enabled is a function, or false")
    return reading.tool(
        tool.name,
        tool.description,
        dict(tool.params_json_schema),
        _runner(tool),
        timeout_s=tool.timeout_seconds,
    )


def _approved(reading: Reading, tools: Iterable[Any]) -> Iterator[str]:
    for tool in tools:
        if callable(tool.needs_approval):
            reading.refuse(f"the tool {tool.name!r}: needs_approval is a function; use a policy")
        if tool.needs_approval:
            yield tool.name


def _runner(tool: Any) -> Any:
    async def run(arguments: Mapping[str, Any], context: Any) -> Any:
        from agents.tool_context import ToolContext

        text = json.dumps(dict(arguments), ensure_ascii=False)
        theirs = ToolContext(
            context=context.deps,
            tool_name=tool.name,
            tool_call_id=context.tool_call_id,
            tool_arguments=text,
        )
        return await tool.on_invoke_tool(theirs, text)

    return run


def _model(reading: Reading, model: Any) -> str:
    from agents.models.default_models import get_default_model

    if model is None:
        return f"openai-responses:{get_default_model()}"
    if not isinstance(model, str):
        kind = {"OpenAIResponsesModel": "openai-responses", "OpenAIChatCompletionsModel": "openai"}
        if type(model).__name__ not in kind:
            reading.refuse(f"the model {model!r} has no provider here; say from_openai_agents(model=...)")
        return f"{kind[type(model).__name__]}:{model.model}"
    if "/" in model and not model.startswith("openai/"):
        reading.refuse(f"the model {model!r} has no provider here; say from_openai_agents(model=...)")
    return f"openai-responses:{model.removeprefix('openai/')}"


def _output_type(reading: Reading, output_type: Any) -> Any:
    if output_type is not None and not isinstance(output_type, type) and hasattr(output_type, "json_schema"):
        reading.refuse("output_type is a schema of its own; name a type")
    return output_type


def _settings(reading: Reading, settings: Any) -> dict[str, Any]:
    found = {name: value for name in _SETTINGS if (value := getattr(settings, name)) is not None}
    effort = getattr(settings.reasoning, "effort", None)
    if effort is not None:
        found["reasoning"] = "off" if effort == "none" else effort
    for name, value in vars(settings).items():
        if value is not None and name not in {*_SETTINGS, "reasoning"} | _NOT_SENT:
            reading.refuse(f"the model setting {name!r} has no equivalent; extra_body may carry it")
    return {"settings": found} if found else {}
