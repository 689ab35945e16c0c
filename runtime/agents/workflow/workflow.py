"""Workflows as users write them: an async function of a `WorkflowRun`, with a version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, cast, overload

import msgspec
import pydantic
from typing_extensions import TypeVar

from ....eventlog.errors import AgentConfigError, ConfigError, NotRegistered
from ....projections.run_state import RunState
from ...ports.json_values import NotJson, as_json
from ...ports.runnable import Runnable
from ...ports.suggestions import unknown
from ...ports.tools import Tool, ToolFunction
from ...tools.decorator import PythonTool
from ..as_tool import runnable_tool
from ..config import config_digest
from .arguments import Arguments
from .config import OPERATIONS_MAX, FunctionConfig, read_config
from .operations import Operation
from .program import Program, Progress
from .run import WorkflowRun

P = ParamSpec("P")
OutputT = TypeVar("OutputT", default=Any)


class Decider(Protocol):
    """Says what a workflow's run wants next, from its log."""

    @property
    def wanted(self) -> Mapping[str, Operation[Any]]:
        """The children, values and callbacks that it waits for, by place."""
        ...

    @property
    def unasked(self) -> list[str]:
        """The operations that the log has and the code did not ask for: none once it has seen all of the log."""
        ...

    def go_on(self, state: RunState) -> Progress:
        """Return what the code asks for after what the log has. Raises `Divergence`."""
        ...

    def close(self) -> None:
        """Drop the code where it stands."""
        ...


class Workflow(Generic[OutputT]):
    """A named function whose steps are in the log, made by `workflow`; frozen, equal only to itself."""

    __slots__ = ("__weakref__", "_arguments", "_by_function", "_function", "_output", "config", "known_tools")

    config: FunctionConfig
    known_tools: dict[str, Tool]
    _function: Callable[..., Awaitable[Any]] | None
    _arguments: Arguments | None
    _by_function: dict[Any, Tool]
    _output: tuple[Any, pydantic.TypeAdapter[Any]] | None

    def __init__(
        self,
        config: FunctionConfig,
        function: Callable[..., Awaitable[Any]] | None,
        tools: Iterable[Tool] = (),
    ) -> None:
        arguments = Arguments(config.name, function) if function is not None else None
        output = arguments.output_type if arguments is not None else None
        parts = {
            "config": config,
            "known_tools": {tool.spec.name: tool for tool in tools},
            "_function": function,
            "_arguments": arguments,
            "_by_function": {},
            "_output": None if output in {None, str, Any, type(None)} else _adapter(config.name, output),
        }
        for key, value in parts.items():
            object.__setattr__(self, key, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise `AttributeError`: a workflow is immutable."""
        raise AttributeError(f"a workflow is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """Raise `AttributeError`: a workflow is immutable."""
        raise AttributeError(f"a workflow is frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        return f"<Workflow {self.name} version {self.version}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call the plain function, as another workflow does within its own run."""
        if self._function is None:
            raise NotRegistered(self._gone())
        return self._function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self.config.name

    @property
    def version(self) -> str:
        """The version of its code."""
        return self.config.version

    @property
    def kind(self) -> str:
        """The kind of its runs."""
        return "workflow"

    @property
    def members(self) -> Mapping[str, Runnable[Any]]:
        """None that is known in advance: its code says which runnables it runs."""
        return MappingProxyType({})

    @property
    def functions(self) -> frozenset[str]:
        """The names of functions that are evaluated: none."""
        return frozenset()

    @property
    def output_type(self) -> Any:
        """The type that its function is annotated to return; null for text."""
        return None if self._output is None else self._output[0]

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of `to_config()`."""
        return config_digest(self.to_config())

    def parse_output(self, value: Any) -> OutputT:
        """Return the output as `output_type`. Raises `ValueError`."""
        return cast("OutputT", value if self._output is None else self._output[1].validate_python(value))

    def check_deps(self, deps: Any) -> None:
        """Accept them: a workflow's code gets none, and what its tools take is checked when it is started."""

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that an executor needs for it."""
        return frozenset({"children"})

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON builtins."""
        return self.config.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_config(cls, data: Mapping[str, Any]) -> Workflow[Any]:
        """Return the workflow of a stored configuration, without its code. Raises `AgentConfigError`."""
        return cls(read_config(data), None)

    def as_tool(self, name: str | None = None, description: str = "") -> PythonTool[Any, Any]:
        """Return a tool that runs this workflow as a child run, and returns its output. Raises `ConfigError`."""
        return runnable_tool(self, name, description or self.config.description)

    def check_input(self, text: str) -> None:
        """Raise `ConfigError` if the function does not take this input."""
        if self._arguments is not None:
            self._arguments.read(text)

    def tool_for(self, given: Tool | ToolFunction | str) -> Tool:
        """Return the tool that the code calls, and keep it for the calls of its runs. Raises `ConfigError`."""
        from ..agent import as_tool

        if isinstance(given, str):
            if given not in self.known_tools:
                raise NotRegistered(f"workflow {self.name!r}: {unknown('tool', given, self.known_tools)}")
            return self.known_tools[given]
        if not hasattr(given, "spec"):
            found = self._by_function.get(given)
            if found is None:
                found = self._by_function[given] = as_tool(given)
        else:
            found = as_tool(given)
        known = self.known_tools.setdefault(found.spec.name, found)
        if known is not found and not (known.spec == found.spec):
            raise ConfigError(
                f"workflow {self.name!r}: two tools are named {found.spec.name!r}; give one another name"
            )
        return found

    def decider(self, state: RunState) -> Decider:
        """Return the code of a run, at its beginning. Raises `NotRegistered`."""
        if self._function is None or self._arguments is None:
            raise NotRegistered(self._gone())
        return Program(state, self._main, operations_max=self.config.operations_max)

    async def _main(self, program: Program) -> str:
        assert self._function is not None  # noqa: S101 - `decider` has checked it
        assert self._arguments is not None  # noqa: S101
        submitted = program.state.submitted
        arguments = self._arguments.read(submitted.input if submitted is not None else "")
        value = await self._function(WorkflowRun(program, self), **arguments)
        if value is None:
            return "" if self._output is None else "null"
        try:
            output = as_json(value)
            if self._output is None and isinstance(output, str):
                return output
            return msgspec.json.encode(output).decode()
        except NotJson as error:
            raise ConfigError(f"the output cannot be stored as JSON: {error}") from None

    def _gone(self) -> str:
        return (
            f"the code of workflow {self.name!r} version {self.version!r} is not in this process: register it"
        )

    async def evaluate(self, name: str, argument: str) -> Any:
        """Raise `ConfigError`: a workflow has no functions that are called by name."""
        raise ConfigError(f"workflow {self.name!r} has no function {name!r}")


def _adapter(name: str, output: Any) -> tuple[Any, pydantic.TypeAdapter[Any]]:
    try:
        return output, pydantic.TypeAdapter(output)
    except (pydantic.PydanticUserError, TypeError) as error:
        raise AgentConfigError(f"workflow {name!r}: its output type cannot be read: {error}") from None


@overload
def workflow(function: Callable[Concatenate[WorkflowRun, P], Awaitable[OutputT]], /) -> Workflow[OutputT]: ...


@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "1",
    description: str = "",
    tools: Iterable[Tool | ToolFunction] = (),
    hitl_tools: Iterable[str] = (),
    policy: Mapping[str, Any] | None = None,
    operations_max: int = OPERATIONS_MAX,
    run_timeout_s: float | None = None,
    approval_timeout_s: float | None = None,
    concurrency: Mapping[str, Any] | None = None,
) -> Callable[[Callable[Concatenate[WorkflowRun, P], Awaitable[OutputT]]], Workflow[OutputT]]: ...


def workflow(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
) -> Any:
    """Make a workflow of an async function, whose first parameter is its `WorkflowRun`.

    `@workflow(version="2")`: the version is kept by runs that began with it; a registry may hold several of one name,
    the last one is for new runs. `name` is by default that of the function. `tools` are those that the code calls by
    name, or that are to be known before the first call; `hitl_tools`, `policy`, `run_timeout_s`, `approval_timeout_s`
    and `concurrency` as for an agent. `operations_max`: the most operations of a run. Raises `AgentConfigError`.
    """
    from ..agent import as_tool

    def make(function: Callable[..., Any]) -> Workflow[Any]:
        given = dict(options)
        tools = [as_tool(each) for each in given.pop("tools", ())]
        hitl = given.pop("hitl_tools", ())
        data = {
            "name": name or getattr(function, "__name__", ""),
            "description": given.pop("description", "") or _summary(function),
            "tools": tuple(tool.spec.name for tool in tools),
            "hitl_tools": (hitl,) if isinstance(hitl, str) else tuple(hitl),
            **{key: value for key, value in given.items() if value is not None},
        }
        return Workflow(read_config(data), function, tools)

    return make if function is None else make(function)


def _summary(function: Any) -> str:
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]
