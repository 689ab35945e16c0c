"""An agent: a configuration that can be stored, and the Python objects that it names.

`Agent.config` is all that the log, a worker or the console need; functions, an output type and computed instructions
exist only on the object.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, Protocol, TypedDict, Unpack, cast, overload

import msgspec
import pydantic
from typing_extensions import TypeVar

from ...eventlog.errors import AgentConfigError, ConfigError, ConfigProblem, NotRegistered
from ...eventlog.events import ToolSpec
from ...projections.messages import canonical_json
from ..ports.runnable import DepsT_contra, Runnable
from ..ports.settings import ModelSettings
from ..ports.tools import Tool, ToolFunction
from ..tools.decorator import PythonTool, check_injected, tool
from ..tools.run_context import RunContext
from .as_tool import runnable_tool
from .config import (
    MODEL,
    AgentConfig,
    BreakerConfig,
    BudgetsConfig,
    ConcurrencyConfig,
    ContextConfig,
    FilesConfig,
    MemoryConfig,
    PolicyConfig,
    RetryConfig,
    capabilities_needed,
    config_digest,
)
from .deps import is_checked
from .output_validators import OUTPUT_TYPE, OutputValidator, ValidatedT, checks_more_than_schema
from .subagents import subagent_specs
from .tables import (
    BreakerTable,
    BudgetsTable,
    ConcurrencyTable,
    ContextTable,
    FilesTable,
    MemoryTable,
    PolicyTable,
    RetryTable,
    SettingsTable,
)

OutputT = TypeVar("OutputT", default=Any)

InstructionsFunction = Callable[[RunContext[DepsT_contra]], str | Awaitable[str]]
Instructions = str | InstructionsFunction[DepsT_contra]
"""The system prompt, or a function of the run that makes it when the run is prepared."""

ToolLike = Tool[DepsT_contra] | ToolFunction | str
"""A tool, a function to make into one with the defaults of `tool`, or a name that the registry knows."""


NO_TOOLS: Final = tuple[str, ...]()
"""The default of `tools`. Its type is what tells type checkers nothing of dependencies."""


class KnownTools(Protocol):
    """The tools that a process knows. `Registry` implements it."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The registered tools by name."""
        ...

    def check(self, runnable: Runnable[Any]) -> None:
        """Raise `NotRegistered` if a tool of the agent, or of a runnable that its tools start, is unknown."""
        ...


class AgentFields(TypedDict, total=False):
    """The other arguments of `Agent`: every other field of `AgentConfig`; tables as dicts or as their own types."""

    max_steps: int
    settings: ModelSettings | SettingsTable | None
    on_length: Literal["error", "continue", "accept"]
    native_tools: Iterable[str | Mapping[str, Any]] | None
    mcp_servers: Mapping[str, Mapping[str, Any]]
    output_schema: Mapping[str, Any] | None
    output_retries: int | None
    planning_enabled: bool
    planning_model: str | None
    planning_instructions: str
    budget_awareness: str | None
    hitl_tools: Iterable[str]
    policy: PolicyTable | PolicyConfig | None
    emit_mcp_progress: bool
    injected_tool_args: Mapping[str, str]
    allow_parallel_subagents: bool
    max_parallel_subagents: int
    allow_self_spawn: bool
    max_spawn_depth: int
    max_spawn_children: int
    max_spawn_total: int
    context: ContextTable | ContextConfig | None
    memory: MemoryTable | MemoryConfig | None
    standing_plan: str | None
    knowledge: bool | None
    budgets: BudgetsTable | BudgetsConfig | None
    retry: RetryTable | RetryConfig
    fallback_models: Iterable[str]
    breaker: BreakerTable | BreakerConfig | None
    concurrency: ConcurrencyTable | ConcurrencyConfig | None
    files: FilesTable | FilesConfig | None
    loop_threshold: int
    model_idle_timeout_s: float
    model_first_token_timeout_s: float | None
    model_timeout_s: float
    step_timeout_s: float | None
    run_timeout_s: float | None
    approval_timeout_s: float | None


class Agent(Generic[OutputT, DepsT_contra]):
    """A named agent; frozen, equal only to itself.

    `name`, `config` (the stored form), `tools` (by name, those given as objects), `output_type`, `deps_type`: the type
    of the dependencies that its tools and functions take, for type checkers, and checked when a run starts. Raises
    `AgentConfigError`, which names the wrong key.
    """

    __slots__ = (
        "__weakref__",
        "_instructions",
        "_output",
        "_validators",
        "config",
        "deps_type",
        "output_type",
        "tools",
    )

    config: AgentConfig
    tools: Mapping[str, Tool]
    output_type: type[OutputT] | None
    deps_type: type[DepsT_contra] | None
    _instructions: InstructionsFunction[DepsT_contra] | None
    _output: pydantic.TypeAdapter[Any] | None
    _validators: Mapping[str, OutputValidator[Any]]

    def __init__(
        self,
        name: str,
        *,
        model: str = MODEL,
        instructions: Instructions[DepsT_contra] = "",
        tools: Iterable[ToolLike[DepsT_contra]] = NO_TOOLS,
        output_type: type[OutputT] | None = None,
        deps_type: type[DepsT_contra] | None = None,
        **fields: Unpack[AgentFields],
    ) -> None:
        names, objects = _read_tools(name, tools)
        data: dict[str, Any] = {"name": name, "model": model, "tools": names, **_as_builtins(fields)}
        if callable(instructions):
            data["instructions_function"] = _described(instructions)
        else:
            data["instructions"] = instructions
        if output_type is str:
            output_type = None  # without an output type, the output is text
        output = None if output_type is None else _adapter(name, output_type)
        if output is not None:
            data["output_schema"] = _output_schema(name, output_type, output, fields.get("output_schema"))
            if checks_more_than_schema(output.core_schema):
                data["output_validators"] = [OUTPUT_TYPE]
        self._assign(AgentConfig.from_config(data), objects, instructions, output, output_type, deps_type)

    def _assign(
        self,
        config: AgentConfig,
        tools: Mapping[str, Tool],
        instructions: Instructions[DepsT_contra] = "",
        output: pydantic.TypeAdapter[Any] | None = None,
        output_type: type[OutputT] | None = None,
        deps_type: type[DepsT_contra] | None = None,
        validators: Mapping[str, OutputValidator[Any]] = MappingProxyType({}),
    ) -> None:
        for each in tools.values():
            check_clashes(config, each)
            _check_deps_type(config.name, each, deps_type)
        self._check_subagent_tools(config)
        parts = {
            "config": config,
            "tools": MappingProxyType(dict(tools)),
            "output_type": output_type,
            "deps_type": deps_type,
            "_instructions": instructions if callable(instructions) else None,
            "_output": output,
            "_validators": MappingProxyType(dict(validators)),
        }
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def _check_subagent_tools(config: AgentConfig) -> None:
        for spec in subagent_specs(config) if config.injected_tool_args else ():
            check_clashes(config, spec)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise `AttributeError`: an agent is immutable."""
        raise AttributeError(f"an agent is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """Raise `AttributeError`: an agent is immutable."""
        raise AttributeError(f"an agent is frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        return f"<Agent {self.name} {self.config.model}>"

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.config.name

    @property
    def kind(self) -> str:
        """The kind of its runs."""
        return "agent"

    @property
    def members(self) -> Mapping[str, Runnable]:
        """None: an agent starts its sub-agents by tool calls."""
        return {}

    @property
    def functions(self) -> frozenset[str]:
        """None: an agent's configuration does not name functions."""
        return frozenset()

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that an executor needs for it."""
        return capabilities_needed(self.config)

    async def evaluate(self, name: str, argument: str) -> Any:
        """Raise `ConfigError`: an agent's configuration does not name functions."""
        raise ConfigError(f"agent {self.name!r} has no function {name!r} to call with {argument!r}")

    def as_tool(
        self, name: str | None = None, description: str = "", *, files: bool = False
    ) -> PythonTool[Any, Any]:
        """Return a tool that runs this agent as a child run, and returns its output. Raises `ConfigError`."""
        return runnable_tool(self, name, description, files=files)

    def extended(
        self,
        *,
        tools: Iterable[Tool] = (),
        instructions: str = "",
        output_schema: Mapping[str, Any] | None = None,
    ) -> Agent[Any]:
        """Return a copy with more tools, more instructions, an output schema. Raises `AgentConfigError` on a clash."""
        more = {tool.spec.name: tool for tool in tools}
        data = self.config.to_config()
        data["tools"] = [*data["tools"], *more]
        data["instructions"] = _paragraphs(data["instructions"], instructions)
        if output_schema is not None:
            data["output_schema"] = dict(output_schema)
        agent: Agent[Any] = object.__new__(Agent)
        agent._assign(
            AgentConfig.from_config(data),
            {**self.tools, **more},
            self._instructions or "",
            self._output,
            self.output_type,
            self.deps_type,
            self._validators,
        )
        return agent

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of `to_config()`."""
        return config_digest(self.to_config())

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON builtins; functions are names in it."""
        return self.config.to_config()

    @property
    def has_instructions_function(self) -> bool:
        """Return whether the instructions come from a function that this object has."""
        return self._instructions is not None

    def check_functions(self) -> None:
        """Raise `NotRegistered` if the configuration names a function that this object does not have."""
        name = self.config.instructions_function
        if name is not None and self._instructions is None:
            raise NotRegistered(
                f"agent {self.name!r}: its instructions come from {name}, which is not in this process"
            )

        known = {*self._validators, *([OUTPUT_TYPE] if self._output is not None else ())}
        for name in self.config.output_validators or ():
            if name not in known:
                raise NotRegistered(
                    f"agent {self.name!r}: its outputs are validated by {name!r}, which is not in this process"
                )

    @overload
    def output_validator(
        self, function: Callable[[OutputT], ValidatedT]
    ) -> Callable[[OutputT], ValidatedT]: ...

    @overload
    def output_validator(
        self, function: Callable[[RunContext[DepsT_contra], OutputT], ValidatedT]
    ) -> Callable[[RunContext[DepsT_contra], OutputT], ValidatedT]: ...

    def output_validator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add a function that checks each output before the run ends with it; use it as a decorator.

        It gets the output as the agent's type, or the `RunContext` of the run and the output; it may be async. To
        refuse an output it raises `OutputRefused` with what the model has to know. Validators are called in the order
        in which they were added, after the check of the type. Add them where the agent is made, before it runs.

        Raises `AgentConfigError` for a function without a name of its own.
        """
        name = getattr(function, "__name__", "")
        data = self.config.to_config()
        data["output_validators"] = [*data.get("output_validators", ()), name]
        object.__setattr__(self, "config", AgentConfig.from_config(data))
        validators = {**self._validators, name: OutputValidator(function)}
        object.__setattr__(self, "_validators", MappingProxyType(validators))
        return function

    async def refusal_of(self, name: str, output: str, run: RunContext[Any]) -> str | None:
        """Return the validator's reason to refuse an output; null if it accepts it. Raises the validator's errors."""
        try:
            value = (
                self.parse_output(msgspec.json.decode(output))
                if self.config.output_schema is not None
                else output
            )
        except ValueError as error:
            return str(error)
        return await self._validators[name].refusal_of(value, run) if name in self._validators else None

    async def instructions_for(self, run: RunContext[Any]) -> str:
        """Return the instructions of a run from the agent's function; empty for an agent without one.

        Raises `AgentConfigError` if the function fails or returns anything but text.
        """
        if self._instructions is None:
            return ""
        where = f"agent {self.name!r}: instructions: {_described(self._instructions)}"
        try:
            made: object = self._instructions(run)
            text = await made if inspect.isawaitable(made) else made
        except Exception as error:
            raise AgentConfigError(f"{where} failed: {type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise AgentConfigError(f"{where} returned {type(text).__name__}, not text")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise AgentConfigError(f"{where} returned text that is not valid Unicode") from None
        return text

    def as_stored(self, config: Mapping[str, Any]) -> Agent[Any]:
        """Return this agent with the configuration that one of its runs stored, and its own objects and functions.

        Raises `AgentConfigError`.
        """
        stored = AgentConfig.from_config(config)
        return self if stored == self.config else self.derived(stored, self.tools)

    def derived(self, config: AgentConfig, tools: Mapping[str, Tool]) -> Agent[Any]:
        """Return an agent with another configuration, these tools, and this one's functions as far as it names them.

        Raises `AgentConfigError`.
        """
        agent: Agent[Any] = object.__new__(type(self))
        kept = self._instructions if config.instructions_function is not None else None
        same = config.output_schema == self.config.output_schema
        output, output_type = (self._output, self.output_type) if same else (None, None)
        agent._assign(config, tools, kept or "", output, output_type, self.deps_type, self._validators)
        return agent

    def check_deps(self, deps: DepsT_contra) -> None:
        """Raise `ConfigError` if the opened dependencies are not of `deps_type`. A protocol is not checked."""
        wanted: object = self.deps_type
        if is_checked(wanted) and not isinstance(deps, wanted):
            raise ConfigError(
                f"agent {self.name!r} takes dependencies of type {wanted.__name__}, but Registry(deps=...) opened "
                f"{type(deps).__name__}"
            )

    def parse_output(self, value: Any) -> OutputT:
        """Return the output (JSON builtins) as `output_type`; unchanged without one. Raises `ValueError`."""
        if self._output is None:
            return cast("OutputT", value)
        return cast("OutputT", self._output.validate_json(canonical_json(value)))

    @classmethod
    def from_config(cls, data: Mapping[str, Any], registry: KnownTools | None = None) -> Agent[Any]:
        """Return the agent of a stored configuration; its tools are names, looked up when a run needs them.

        A `kind` of `agent`, as in a file, is not part of it. With a registry, a configuration without `tools` gets the
        registered ones among its `hitl_tools`. Raises `AgentConfigError` for a wrong key and, if a registry is given,
        `NotRegistered` for an unknown tool.
        """
        agent: Agent[Any] = object.__new__(cls)
        table = data if registry is None else with_approved_tools(data, registry.tools)
        agent._assign(AgentConfig.from_config(table), {})
        if registry is not None:
            registry.check(agent)
        return agent


def with_approved_tools(data: Mapping[str, Any], registered: Container[str]) -> Mapping[str, Any]:
    """Return the configuration; without a `tools` key, the registered tools among its `hitl_tools` are added.

    Tools listed in `hitl_tools` are added implicitly.
    """
    given: object = data  # of any type
    approved = given.get("hitl_tools") if isinstance(given, Mapping) and "tools" not in given else None
    if not isinstance(approved, list | tuple):
        return data
    tools = [name for name in approved if isinstance(name, str) and name in registered]
    return {**data, "tools": tools} if tools else data


def check_clashes(config: AgentConfig, agent_tool: Tool | ToolSpec) -> None:
    """Raise `AgentConfigError` if the tool has a parameter with the name of an injected one."""
    spec = agent_tool if isinstance(agent_tool, ToolSpec) else agent_tool.spec
    try:
        check_injected(spec, config.injected_tool_args)
    except ConfigError as error:
        problem = ConfigProblem("injected_tool_args", str(error))
        raise AgentConfigError(f"agent {config.name!r}: {error}", [problem]) from None


def _check_deps_type(agent: str, agent_tool: Tool, given: object) -> None:
    wanted = getattr(agent_tool, "deps_type", None)
    if is_checked(wanted) and is_checked(given) and not issubclass(given, wanted):
        raise AgentConfigError(
            f"agent {agent!r}: deps_type is {given.__name__}, but the tool {agent_tool.spec.name!r} takes a "
            f"ToolContext[{wanted.__name__}]"
        )


def as_tool(given: Tool | ToolFunction) -> Tool:
    """Return the tool, or the function made into one. Raises `ConfigError` if it is neither."""
    if hasattr(given, "spec") and hasattr(given, "call"):
        return cast("Tool", given)
    if not callable(given):
        raise ConfigError(f"{given!r} is not a tool: give a function or a tool")
    return tool(given)


def _read_tools(agent: str, given: Iterable[ToolLike]) -> tuple[list[str], dict[str, Tool]]:
    """Return all names in order (those of a set sorted, so that the digest is stable), and the objects by name."""
    if isinstance(given, (str, Mapping)):
        raise AgentConfigError(f"agent {agent!r}: tools: must be a list, not {given!r}")
    names: list[str] = []
    objects: dict[str, Tool] = {}
    for each in given:
        name = each
        if not isinstance(each, str):
            made = as_tool(each)
            name = made.spec.name
            objects[name] = made
        if name in names:
            raise AgentConfigError(f"agent {agent!r}: tools: two tools are named {name!r}")
        names.append(cast("str", name))
    return sorted(names) if isinstance(given, AbstractSet) else names, objects


def _as_builtins(fields: AgentFields) -> dict[str, Any]:
    """Return tuples, mapping proxies and the like as the lists and dicts of a configuration."""
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in fields.items()}


def _adapter(agent: str, output_type: Any) -> pydantic.TypeAdapter[Any]:
    try:
        return pydantic.TypeAdapter(output_type)
    except (pydantic.PydanticUserError, NameError) as error:
        raise _no_schema(agent, output_type, error) from None


def _output_schema(
    agent: str, output_type: Any, output: pydantic.TypeAdapter[Any], given: Any
) -> dict[str, Any]:
    if given is not None:
        raise AgentConfigError(f"agent {agent!r}: output_schema and output_type cannot both be given")
    try:
        return output.json_schema()
    except (pydantic.PydanticUserError, NameError) as error:
        raise _no_schema(agent, output_type, error) from None


def _no_schema(agent: str, output_type: Any, error: Exception) -> AgentConfigError:
    return AgentConfigError(f"agent {agent!r}: output_type {output_type!r} has no JSON Schema: {error}")


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _described(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
