"""Workflows as tables of steps: data that people review, programs write, and a console draws before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from ....eventlog.errors import AgentConfigError, ConfigError, ConfigProblem, NotRegistered
from ....eventlog.events import ToolSpec
from ....projections.run_state import RunState
from ...core.workflow.table import Step, in_order
from ...ports.runnable import Runnable
from ...ports.suggestions import near, unknown
from ...ports.tools import Tool
from .table_config import StepConfig, TableConfig, input_names, read_table, table_error
from .table_decider import TableDecider
from .workflow import Workflow


class Known(Protocol):
    """The tools and runnables of a process by name: a registry."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        ...

    @property
    def agents(self) -> Mapping[str, Runnable[Any]]:
        """The agents, swarms, loops and workflows by name."""
        ...


class Registered(NamedTuple):
    """The tools and runnables that a table may use, by name."""

    tools: Mapping[str, Tool]
    agents: Mapping[str, Runnable[Any]]


class WorkflowTable(Workflow[Any]):
    """A workflow whose steps are a table, as a file has them. Frozen, equal only to itself."""

    __slots__ = ("_inputs", "known_agents", "plan")

    config: TableConfig  # type: ignore[assignment] # a workflow has one of two configurations
    known_agents: dict[str, Runnable[Any]]
    plan: list[Step]
    """The steps with all that they need."""
    _inputs: list[str]

    def __init__(
        self,
        config: TableConfig,
        tools: Iterable[Tool] = (),
        agents: Iterable[Runnable[Any]] = (),
    ) -> None:
        super().__init__(config, None, tools)  # type: ignore[arg-type] # see `config`
        object.__setattr__(self, "known_agents", {agent.name: agent for agent in agents})
        object.__setattr__(self, "plan", config.plan())
        object.__setattr__(self, "_inputs", input_names(config))

    @classmethod
    def from_config(cls, data: Mapping[str, Any], registry: Known | None = None) -> WorkflowTable:
        """Return the workflow in a table, as read from TOML or JSON.

        With a registry its tools and agents are looked up there, else when a run needs them. Raises `AgentConfigError`
        with all that is wrong, each with its place in the table.
        """
        known, given = registry, cast("object", data)
        if not isinstance(given, Mapping):
            raise AgentConfigError(f"a workflow's configuration must be a table, not {data!r:.60}")
        if known is None:
            return cls(read_table(data))
        try:
            config = read_table(data)
        except AgentConfigError as error:
            raise table_error(data, [*error.problems, *missing(data, known)]) from None
        if lacking := [*missing(data, known), *misused(config, known)]:
            raise table_error(data, lacking)
        table = cls(config)
        table.bind(known)
        return table

    def bind(self, known: Known) -> None:
        """Look up the tools and agents that it does not have yet. Raises `NotRegistered`."""
        for name in self.config.tools:
            if name not in self.known_tools:
                if name not in known.tools:
                    raise NotRegistered(f"workflow {self.name!r}: {unknown('tool', name, known.tools)}")
                self.known_tools[name] = known.tools[name]
        for name in self.config.agents:
            if name not in self.known_agents:
                if name not in known.agents:
                    raise NotRegistered(f"workflow {self.name!r}: {unknown('agent', name, known.agents)}")
                self.known_agents[name] = known.agents[name]

    @property
    def members(self) -> Mapping[str, Runnable[Any]]:
        """The runnables that its steps start, as far as they are known here."""
        return MappingProxyType(self.known_agents)

    def check_input(self, text: str) -> None:
        """Raise `ConfigError` if its references need a JSON object, and the input is none."""
        self.read_input(text)

    def read_input(self, text: str) -> Any:
        """Return the input as references see it. Raises `ConfigError`.

        A JSON object is itself. Another text is the value of the only name below `input` that references use, or, if
        they use none, the input as it is.
        """
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = text
        if isinstance(value, dict):
            return value
        if not self._inputs:
            return text
        if len(self._inputs) == 1:
            return {self._inputs[0]: text}
        names = ", ".join(self._inputs)
        raise ConfigError(
            f"workflow {self.name!r} takes its input as a JSON object with {names}, not {text!r:.60}"
        )

    def ordered(self) -> list[StepConfig]:
        """Return the steps so that each comes after all that it needs."""
        steps = {step.id: step for step in self.config.steps}
        return [steps[step.id] for step in in_order(self.plan)]

    def decider(self, state: RunState) -> TableDecider:
        """Return the decider of a run, at the beginning of its log."""
        return TableDecider(self, state)


def workflow_of(data: Mapping[str, Any]) -> Workflow[Any]:
    """Return the workflow of a configuration: a table, or a function without its code. Raises `AgentConfigError`."""
    given: object = data  # of any type
    is_table = isinstance(given, Mapping) and "steps" in given
    return WorkflowTable.from_config(data) if is_table else Workflow.from_config(data)


def missing(data: Mapping[str, Any], known: Known) -> list[ConfigProblem]:
    """Return the tools and agents of a table that a registry lacks."""
    found: list[ConfigProblem] = []
    steps = data.get("steps")
    for index, step in enumerate(steps if isinstance(steps, (list, tuple)) else ()):
        for kind, names in (("tool", known.tools), ("agent", known.agents)):
            name = step.get(kind) if isinstance(step, Mapping) else None
            if isinstance(name, str) and name not in names:
                where = f"steps.{index}.{kind}"
                problem = f"{where}: {unknown(kind, name, names)}"
                found.append(ConfigProblem(where, problem, near(name, names)))
    return found


def misused(config: TableConfig, known: Known) -> list[ConfigProblem]:
    """Return the arguments and retries that the tools of a registry do not take."""
    found: list[ConfigProblem] = []
    for index, step in enumerate(config.steps):
        if step.tool is not None and step.tool in known.tools:
            spec = known.tools[step.tool].spec
            found += [
                ConfigProblem(f"steps.{index}.{key}", f"steps.{index}.{key}: {problem}")
                for key, problem in _misuse(step, spec)
            ]
    return found


def _misuse(step: StepConfig, spec: ToolSpec) -> Iterable[tuple[str, str]]:
    if step.attempts > 1 and spec.effect == "unsafe":
        yield (
            "retry",
            f"the tool {spec.name!r} is unsafe, and such a call is never repeated; declare it idempotent",
        )
    properties = spec.parameters.get("properties", {})
    for name in step.arguments:
        if name not in properties and spec.parameters.get("additionalProperties", True) is False:
            yield f"arguments.{name}", f"the tool {spec.name!r}: {unknown('parameter', name, properties)}"
    for name in spec.parameters.get("required", ()):
        if name not in step.arguments:
            yield "arguments", f"the tool {spec.name!r} requires {name!r}"
