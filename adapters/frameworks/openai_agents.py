"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

from ...eventlog.events import ToolEffect
from ...runtime.agents.agent import Agent, AgentFields
from ...runtime.agents.swarm import Swarm
from ...runtime.ports.runnable import DepsT
from ...runtime.ports.tools import Tool
from .foreign_tool import Reading, known_version, merged, plain_name
from .openai_requests import model_of, native_tool, settings_of
from .openai_tools import approved, is_function, runner

if TYPE_CHECKING:
    import agents

_REFUSED = {
    "mcp_servers": "say from_openai_agents(mcp_servers=...) instead",
    "hooks": "hooks have no equivalent; follow the run's events",
    "prompt": "prompts stored at the provider have no equivalent",
}
_REFUSED_OF_TOOL = {
    "tool_input_guardrails": "guardrails have no equivalent",
    "tool_output_guardrails": "guardrails have no equivalent",
    "defer_loading": "tools that are loaded later have no equivalent",
}
_REFUSED_IN_TEAM = {
    "input_guardrails": "guardrails of agents with handoffs have no equivalent; a policy or a tool can refuse",
    "output_guardrails": "guardrails of agents with handoffs have no equivalent; a policy or a tool can refuse",
}


def from_openai_agents(
    agent: agents.Agent[DepsT],
    *,
    model: str | None = None,
    effects: Mapping[str, ToolEffect] | None = None,
    **fields: Unpack[AgentFields],
) -> Agent[Any, DepsT] | Swarm[DepsT]:
    """Convert an agent of the OpenAI Agents SDK; one with handoffs becomes a swarm of all agents that it can reach.

    `model` and the other `fields` of `Agent` replace those of every converted agent; settings are merged. `effects`
    declares the effect of tools by name (`pure`, `idempotent`); a tool that is not named is `unsafe`. Tools get
    `Registry(deps=...)` as the context of their run. Raises `ConfigError`, which names the first feature without an
    equivalent.
    """
    taking = _Taking(model, effects or {}, fields)
    with known_version("openai-agents", "0.24 and later"):
        taken = taking.taken(agent)
    taking.end(plain_name(agent.name))
    return taken


class _Taking:
    """Converts an agent, and all agents that it reaches by tools and handoffs."""

    def __init__(self, model: str | None, effects: Mapping[str, ToolEffect], fields: AgentFields) -> None:
        self._model, self._effects, self._fields = model, effects, fields
        self._tools, self._open = set[str](), list[Any]()

    def end(self, name: str) -> None:
        """Raise `ConfigError` if `effects` names a tool that no agent has."""
        unknown = {tool: effect for tool, effect in self._effects.items() if tool not in self._tools}
        Reading(name, unknown).end()

    def taken(self, agent: Any) -> Agent[Any, Any] | Swarm[Any]:
        team = list(_reachable(agent, {}))
        if len(team) == 1:
            return self._agent(agent)
        for each in team:
            Reading(plain_name(each.name), {}).refuse_set(each, _REFUSED_IN_TEAM)
        members = list(map(self._agent, team))
        purposes = {
            plain_name(each.name): each.handoff_description for each in team if each.handoff_description
        }
        return Swarm(members, name=f"{members[0].name}-team"[:64], mode="handoff", descriptions=purposes)

    def _agent(self, agent: Any) -> Agent[Any]:
        functions = [each for each in agent.tools if is_function(each) and each.is_enabled is not False]
        self._tools |= {tool.name for tool in functions}
        own = {
            tool: effect
            for tool, effect in self._effects.items()
            if tool in {each.name for each in functions}
        }
        reading = Reading(plain_name(agent.name), own)
        reading.refuse_set(agent, _REFUSED)
        if agent.tool_use_behavior != "run_llm_again":
            reading.refuse("tool_use_behavior: the model always sees the results of its calls")
        model = self._model or model_of(reading, agent.model)
        found: AgentFields = {"hitl_tools": list(approved(reading, functions))}
        if settings := settings_of(reading, agent, model):
            found["settings"] = cast("Any", settings)  # the agent checks it
        if native := [native_tool(reading, each) for each in agent.tools if not is_function(each)]:
            found["native_tools"] = native
        ours: Agent[Any] = Agent(
            reading.name,
            model=model,
            instructions=_instructions(agent),
            tools=[self._tool(reading, each, agent) for each in functions],
            output_type=_output_type(reading, agent.output_type),
            **merged(found, self._fields),
        )
        for guardrail in agent.output_guardrails:
            ours.output_validator(_validator(guardrail, agent))
        return ours

    def _tool(self, reading: Reading, tool: Any, agent: Any) -> Tool:
        reading.refuse_set(tool, _REFUSED_OF_TOOL)
        if tool.is_enabled is not True:
            reading.refuse(f"the tool {tool.name!r}: is_enabled is a function")
        if tool._is_agent_tool:  # noqa: SLF001 - it has no public name
            return self._agent_as_tool(reading, tool, agent)
        return reading.tool(
            tool.name,
            tool.description,
            dict(tool.params_json_schema),
            runner(tool),
            timeout_s=tool.timeout_seconds,
        )

    def _agent_as_tool(self, reading: Reading, tool: Any, agent: Any) -> Tool:
        """Convert an agent used as a tool: calling it starts a child run."""
        given = inspect.getclosurevars(tool.on_invoke_tool._invoke_tool_impl).nonlocals  # noqa: SLF001
        for name in _USUAL_OF_AGENT_TOOL:
            if given.get(name) is not None:
                reading.refuse(f"the tool {tool.name!r}: {name} of an agent as a tool has no equivalent")
        if tool.params_json_schema["properties"].keys() != {"input"}:
            reading.refuse(f"the tool {tool.name!r}: parameters of an agent as a tool have no equivalent")
        other = tool._agent_instance  # noqa: SLF001
        if other is agent or any(other is each for each in self._open):
            reading.refuse(f"the tool {tool.name!r} leads back to its own agent; say allow_self_spawn=True")
        self._open.append(agent)
        taken = self.taken(other)
        self._open.pop()
        return taken.as_tool(tool.name, tool.description)


_USUAL_OF_AGENT_TOOL = (
    "custom_output_extractor",
    "conversation_id",
    "hooks",
    "input_builder",
    "max_turns",
    "on_stream",
    "previous_response_id",
    "run_config",
    "session",
)
"""Arguments of an agent used as a tool that have no equivalent here."""


def _reachable(agent: Any, seen: dict[str, Any]) -> Iterator[Any]:
    """Yield the agent and all agents that it reaches by handoffs, each once."""
    name = plain_name(agent.name)
    if name in seen:
        if seen[name] is not agent:
            Reading(name, {}).refuse(f"two agents are called {name!r}")
        return
    seen[name] = agent
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
    if handoff.is_enabled is not True:
        reading.refuse(f"the handoff {handoff.tool_name!r}: is_enabled is a function, or false")
    invoke = getattr(handoff.on_invoke_handoff, "args", (handoff.on_invoke_handoff,))[0]
    if inspect.getclosurevars(invoke).nonlocals.get("on_handoff") is not None:
        reading.refuse(
            f"the handoff {handoff.tool_name!r}: on_handoff has no equivalent; follow the run's events"
        )
    return target


def _instructions(agent: Any) -> Any:
    """Return the instructions: a text, or a function if they are one or the agent has input guardrails."""
    if not callable(agent.instructions) and not agent.input_guardrails:
        return agent.instructions or ""

    async def instructions(context: Any) -> str:
        from agents import InputGuardrailTripwireTriggered, RunContextWrapper

        theirs = RunContextWrapper(context=context.deps)
        for guardrail in agent.input_guardrails:
            result = await guardrail.run(agent, context.input, theirs)
            if result.output.tripwire_triggered:
                raise InputGuardrailTripwireTriggered(result)
        if not callable(agent.instructions):
            return agent.instructions or ""
        made = agent.instructions(theirs, agent)
        return str(await made if inspect.isawaitable(made) else made)

    return instructions


def _validator(guardrail: Any, agent: Any) -> Callable[..., Any]:
    """Convert an output guardrail into a validator, which ends the run where the guardrail would."""

    async def validate(run: Any, output: Any) -> None:
        from agents import OutputGuardrailTripwireTriggered, RunContextWrapper

        result = await guardrail.run(RunContextWrapper(context=run.deps), agent, output)
        if result.output.tripwire_triggered:
            raise OutputGuardrailTripwireTriggered(result)

    validate.__name__ = plain_name(guardrail.get_name())
    return validate


def _output_type(reading: Reading, output_type: Any) -> Any:
    if type(output_type).__name__ == "AgentOutputSchema":
        return output_type.output_type
    if output_type is not None and not isinstance(output_type, type) and hasattr(output_type, "json_schema"):
        reading.refuse("output_type is a schema of its own; name a type")
    return output_type
