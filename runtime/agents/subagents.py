"""The tools by which an agent starts copies of itself: `spawn_self` and `parallel_subagents`.

A sub-agent is a child run of the call, so a repeated call finds the children it started. Overrides of a call apply only
to the child. Copies count down the depth to which they may be nested in their own `max_spawn_depth`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
import pydantic
from pydantic import Field

from ...eventlog.errors import AgentConfigError, PayloadTooLarge
from ...eventlog.events import ToolSpec
from ...projections.run_state import SPAWN_SELF, RunState
from ..ports.files import Content
from ..ports.runnable import Runnable
from ..ports.tools import ChildFailed, Tool, ToolContextPort, ToolFailed
from ..tools.context import ToolContext
from ..tools.decorator import tool
from .as_tool import FileNames, handed_on
from .config import AgentConfig, tools_by_setting

PARALLEL = "parallel_subagents"


class Spawning(Protocol):
    """An agent that starts copies of itself. `Agent` implements it."""

    @property
    def config(self) -> AgentConfig:
        """Its configuration."""
        ...

    def derived(self, config: AgentConfig, tools: Mapping[str, Tool]) -> Runnable[Any]:
        """Return an agent with another configuration and these tools. Raises `AgentConfigError`."""
        ...


class Job(pydantic.BaseModel):
    """One job of a `parallel_subagents` call."""

    model_config = pydantic.ConfigDict(extra="forbid", defer_build=True)

    task: Annotated[str, Field(description="what the sub-agent is to do")]
    additional_context: Annotated[str, Field(description="what it has to know besides the task")] = ""
    tool_names: Annotated[
        list[str] | None, Field(description="the tools it may use; null: all that a sub-agent may use")
    ] = None
    output_schema: Annotated[
        dict[str, Any] | None, Field(description="a JSON Schema that its answer must match; null: text")
    ] = None
    system_prompt: Annotated[str | None, Field(description="its instructions; null: your own")] = None
    files: FileNames = None


def subagent_tools(agent: Spawning, tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools for sub-agents that the agent's configuration allows; `tools` are its Python tools."""
    config, found = agent.config, dict[str, Tool]()
    if config.allow_self_spawn:
        found[SPAWN_SELF] = _Bound(_spawn_self(), _Parent(agent, tools))
    if config.allow_parallel_subagents:
        found[PARALLEL] = _Bound(_parallel_subagents(config.max_parallel_subagents), _Parent(agent, tools))
    return found


def subagent_specs(config: AgentConfig) -> list[ToolSpec]:
    """Return the specifications of these tools for an agent with this configuration."""
    return [
        *([_spawn_self().spec] if config.allow_self_spawn else []),
        *(
            [_parallel_subagents(config.max_parallel_subagents).spec]
            if config.allow_parallel_subagents
            else []
        ),
    ]


class _Parent(NamedTuple):
    """The agent that is copied, its Python tools, the MCP servers added to its run, and the tools removed from it."""

    agent: Spawning
    tools: Mapping[str, Tool]
    servers: Mapping[str, Any] = MappingProxyType({})
    removed: Sequence[str] = ()


class _Bound:
    """A tool for sub-agents, bound to the agent that calls it."""

    def __init__(self, inner: Tool, parent: _Parent, state: Callable[[], RunState] | None = None) -> None:
        self._inner, self._parent, self._state = inner, parent, state

    def of(self, state: Callable[[], RunState]) -> _Bound:
        """Return the tool for one run, whose copies also have the servers that were added to it."""
        return _Bound(self._inner, self._parent, state)

    @property
    def spec(self) -> ToolSpec:
        return self._inner.spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        parent = self._parent
        if self._state is not None:
            state = self._state()
            parent = parent._replace(servers=state.mcp_servers, removed=state.removed_tools)
        _PARENT.set(parent)
        return await self._inner.call(arguments, context)


_PARENT: ContextVar[_Parent] = ContextVar("_PARENT")
"""The agent that makes the current call."""


@functools.cache
def _spawn_self() -> Tool:
    @tool(name=SPAWN_SELF, effect="idempotent", timeout_s=None)
    async def spawn_self(
        context: ToolContext,
        task: str,
        additional_context: str = "",
        tool_names: list[str] | None = None,
        output_schema: dict[str, Any] | None = None,
        files: list[str] | None = None,
    ) -> Any:
        """Give a task to a copy of yourself, which sees nothing of this conversation; returns its answer.

        Args:
            context: the call
            task: what the copy is to do
            additional_context: what it has to know besides the task
            tool_names: the tools it may use; null for all of yours
            output_schema: a JSON Schema that its answer must match; null for text
            files: files of this conversation that it is to see, by name; ["*"] for all
        """
        job = Job(
            task=task,
            additional_context=additional_context,
            tool_names=tool_names,
            output_schema=output_schema,
            files=files,
        )
        parent = _PARENT.get()
        depth = parent.agent.config.max_spawn_depth
        changes: dict[str, Any] = {"allow_self_spawn": depth > 1, "max_spawn_depth": max(1, depth - 1)}
        child = _copy(parent, job, changes, lambda name: depth > 1 or name != SPAWN_SELF)
        return _read(await context.run(child, _content(context, job)), job)

    return spawn_self


@functools.cache
def _parallel_subagents(limit: int) -> Tool:
    @tool(
        name=PARALLEL,
        effect="idempotent",
        timeout_s=None,
        description=(
            f"Give tasks to sub-agents that work at the same time, at most {limit} in one call. They see nothing of "
            "this conversation. Returns a list with one entry a job: {job, status, output} or {job, status, error}; "
            "job counts from 0."
        ),
    )
    async def parallel_subagents(context: ToolContext, jobs: list[Job]) -> list[dict[str, Any]]:
        if len(jobs) > limit:
            raise ToolFailed(f"{len(jobs)} jobs are too many: at most {limit} in one call; none was started")
        parent = _PARENT.get()
        not_safe = {SPAWN_SELF, PARALLEL, *parent.agent.config.hitl_tools}
        changes: dict[str, Any] = {"allow_self_spawn": False, "allow_parallel_subagents": False}
        children: list[tuple[Runnable[Any], Content]] = []
        for number, job in enumerate(jobs):
            try:
                child = _copy(parent, job, changes, lambda name: name not in not_safe)
                children.append((child, _content(context, job)))
            except ToolFailed as failure:
                raise ToolFailed(f"job {number}: {failure}; none was started") from None
        runs = [context.run(child, content) for child, content in children]
        return await asyncio.gather(
            *(_report(number, run, job) for number, (run, job) in enumerate(zip(runs, jobs, strict=True)))
        )

    return parallel_subagents


async def _report(number: int, run: Awaitable[str], job: Job) -> dict[str, Any]:
    """Return the result of one child; its failure does not affect its siblings."""
    try:
        output = _read(await run, job)
    except (ToolFailed, PayloadTooLarge) as failure:
        status = failure.status if isinstance(failure, ChildFailed) else "error"
        return {"job": number, "status": status, "error": str(failure)}
    return {"job": number, "status": "completed", "output": output}


def _content(context: ToolContext, job: Job) -> Content:
    text = f"{job.task}\n\n{job.additional_context}" if job.additional_context else job.task
    return handed_on(context, text, job.files)


def _read(output: str, job: Job) -> Any:
    """Return the child's answer. Raises `ToolFailed` if the completed run has none."""
    if job.output_schema is None:
        return output
    try:
        return msgspec.json.decode(output)
    except msgspec.DecodeError:  # a budget ended the run
        raise ToolFailed(f"the sub-agent has not answered: {output}") from None


def _copy(parent: _Parent, job: Job, changes: Mapping[str, Any], may: Callable[[str], bool]) -> Runnable[Any]:
    """Return the child for a job. Raises `ToolFailed` for a tool it may not have or an invalid schema."""
    agent, tools, config = parent.agent, parent.tools, parent.agent.config

    def allowed(name: str) -> bool:
        return may(name) and name not in parent.removed

    names = [name for name in tools if allowed(name)]
    servers = _allowed_servers(parent, allowed)
    stored = config.to_config()
    stay = tools_by_setting(stored)
    hitl = [name for name in config.hitl_tools if name in stay or allowed(name)]
    if job.tool_names is not None:
        names, servers = _chosen(job.tool_names, names, servers, allowed)
        spawns = {SPAWN_SELF: "allow_self_spawn", PARALLEL: "allow_parallel_subagents"}
        changes = dict(changes) | {key: False for name, key in spawns.items() if name not in job.tool_names}
        hitl = [name for name in hitl if name in stay or name in job.tool_names]
    own = [name for name in names if name not in {SPAWN_SELF, PARALLEL}]
    data = stored | {"tools": own, "mcp_servers": servers, "hitl_tools": hitl} | dict(changes)
    data.pop("output_schema", None)
    data.pop("output_validators", None)
    if job.output_schema is not None:
        data["output_schema"] = job.output_schema
    if job.system_prompt is not None:
        data["instructions"] = job.system_prompt
        data.pop("instructions_function", None)
    try:
        return agent.derived(AgentConfig.from_config(data), {name: tools[name] for name in own})
    except AgentConfigError as error:
        raise ToolFailed(f"this sub-agent cannot be made: {error}") from None


def _allowed_servers(parent: _Parent, allowed: Callable[[str], bool]) -> dict[str, Any]:
    """Return the MCP servers, without the tools that a child may not have."""
    servers = {**parent.agent.config.to_config()["mcp_servers"], **parent.servers}
    for name in dict.fromkeys([*parent.agent.config.hitl_tools, *parent.removed]):
        server, tool_name = _mcp_place(name, servers)
        if server is not None and not allowed(name):
            entry = servers[server]
            servers[server] = {**entry, "exclude": [*entry.get("exclude", ()), tool_name]}
    return servers


def _chosen(
    chosen: Sequence[str],
    names: Sequence[str],
    servers: Mapping[str, Any],
    allowed: Callable[[str], bool],
) -> tuple[list[str], dict[str, Any]]:
    """Return the Python tools and the MCP servers with the chosen tools."""
    kept: dict[str, Any] = {}
    python: list[str] = []
    for name in dict.fromkeys(chosen):
        server, tool_name = _mcp_place(name, servers)
        if name in names:
            python.append(name)
        elif server is not None and allowed(name):
            entry = kept.setdefault(server, {**servers[server], "tools": []})
            entry["tools"].append(tool_name)
        elif not (allowed(name) and name in {SPAWN_SELF, PARALLEL}):
            known = ", ".join([*names, *(f"mcp__{server}__*" for server in servers)]) or "none"
            raise ToolFailed(f"a sub-agent cannot have the tool {name!r}; it can have: {known}")
    return python, kept


def _mcp_place(name: str, servers: Mapping[str, Any]) -> tuple[str | None, str]:
    for server in servers:
        prefix = f"mcp__{server}__"
        if name.startswith(prefix):
            return server, name.removeprefix(prefix)
    return None, name
