"""A swarm: agents that work on one input together, by a flow, by handoffs, or as tools of one of them.

Its configuration is all that the log or a worker need; functions of its agents and predicates exist only on the object.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic

from ...eventlog.errors import AgentConfigError, ConfigError, FlowError
from ..core.swarm.flow import Flow, format_flow, heads_of
from ..core.swarm.flow_parser import parse_flow
from ..core.swarm.handoff import handoff_instructions, handoff_schema
from ..core.swarm.predicates import Test
from ..ports.runnable import DepsT_contra, Runnable, is_runnable
from ..tools.decorator import PythonTool
from ..tools.functions import call_function
from .agent import Agent
from .as_tool import runnable_tool
from .config import config_digest, within
from .swarm_config import Mode, SwarmConfig

Members = Mapping[str, Runnable[Any]]


class Swarm(Generic[DepsT_contra]):
    """A named swarm; frozen, equal only to itself.

    `Swarm([a, b, c], flow="a >> (b | c)")`. `agents` are agents, swarms or loops, with distinct names within this
    swarm. `flow` is text or a tree; `predicates` are the functions that it calls on outputs, by name. `members` is what
    runs: the agents, extended by their mode. Raises `AgentConfigError`, which names the wrong key, and `FlowError`.
    """

    __slots__ = ("__weakref__", "agents", "config", "flow", "members", "predicates")

    agents: Members
    members: Members
    config: SwarmConfig
    flow: Flow | None
    predicates: Mapping[str, Test]

    def __init__(
        self,
        agents: Iterable[Runnable[Any, DepsT_contra]],
        flow: str | Flow = "",
        *,
        name: str = "swarm",
        mode: Mode = "workflow",
        entry: str | None = None,
        max_handoffs: int = 20,
        descriptions: Mapping[str, str] = MappingProxyType({}),
        predicates: Mapping[str, Test] = MappingProxyType({}),
    ) -> None:
        _check_functions(name, predicates)
        data = {
            "name": name,
            "mode": mode,
            "flow": format_flow(flow) if isinstance(flow, Flow) else flow,
            "entry": entry,
            "max_handoffs": max_handoffs,
            "descriptions": dict(descriptions),
        }
        config = SwarmConfig.model_validate(data)
        members = _by_name(config, agents)
        if mode == "workflow":
            parse_flow(config.flow, tuple(members), predicates)
        self._assign(config, members, predicates)

    def _assign(self, config: SwarmConfig, agents: Members, predicates: Mapping[str, Test]) -> None:
        config.check(agents)
        parts = {
            "config": config,
            "agents": MappingProxyType(agents),
            "members": MappingProxyType(_playing(config, agents)),
            "flow": config.parsed(agents),
            "predicates": MappingProxyType(dict(predicates)),
        }
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise `AttributeError`: a swarm is immutable."""
        raise AttributeError(f"a swarm is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """Raise `AttributeError`: a swarm is immutable."""
        raise AttributeError(f"a swarm is frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        what = self.config.mode if self.flow is None else format_flow(self.flow)
        return f"<Swarm {self.name} {what}>"

    @property
    def name(self) -> str:
        """The swarm's name."""
        return self.config.name

    @property
    def kind(self) -> str:
        """The kind of its runs."""
        return "swarm"

    @property
    def output_type(self) -> None:
        """None: the output is text."""
        return

    @property
    def heads(self) -> tuple[str, ...]:
        """The members that get the files of the swarm's input: the first of a flow, the lead, or all that hand over."""
        if self.flow is not None:
            return heads_of(self.flow)
        return (self.config.first(self.agents),) if self.config.mode == "team" else tuple(self.members)

    @property
    def functions(self) -> frozenset[str]:
        """The names of the predicates that are functions of this process."""
        return frozenset(self.predicates)

    def parse_output(self, value: Any) -> Any:
        """Return the output unchanged."""
        return value

    def check_deps(self, deps: DepsT_contra) -> None:
        """Accept them: a swarm hands nothing to its functions, and its members are checked in their own runs."""

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that an executor needs for it, without those for its members."""
        return frozenset({"children"})

    async def evaluate(self, name: str, argument: str) -> bool:
        """Return whether a predicate holds: `name` is that of its function, `@`, and its place in the flow.

        Raises `ConfigError` if this process does not have the function, and the errors of the function.
        """
        known = name.partition("@")[0]
        if known not in self.predicates:
            raise ConfigError(
                f"swarm {self.name!r} has no function for the predicate {known!r} in this process"
            )
        return bool(await call_function(self.predicates[known], argument))

    def as_tool(
        self, name: str | None = None, description: str = "", *, files: bool = False
    ) -> PythonTool[Any, Any]:
        """Return a tool that runs this swarm as a child run, and returns its output. Raises `ConfigError`."""
        return runnable_tool(self, name, description, files=files)

    def with_agents(self, change: Callable[[Runnable[Any]], Runnable[Any]]) -> Swarm:
        """Return a copy with other agents of the same names. Raises `AgentConfigError`."""
        swarm: Swarm = object.__new__(type(self))
        agents = {name: change(agent) for name, agent in self.agents.items()}
        swarm._assign(self.config, agents, self.predicates)
        return swarm

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of `to_config()`. Raises what that raises."""
        return config_digest(self.to_config())

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON builtins, including the agents'; predicates are names in the flow."""
        agents = [agent.to_config() for agent in self.agents.values()]
        return {**self.config.to_config(), "agents": agents}

    @classmethod
    def from_config(cls, data: Mapping[str, Any]) -> Swarm:
        """Return the swarm of a stored configuration; tools and predicates are names, looked up when a run needs them.

        Raises `AgentConfigError` for a wrong key, and `FlowError`.
        """
        if not isinstance(data, Mapping):
            raise AgentConfigError(f"a swarm's configuration must be a table, not {data!r:.60}")
        own = dict(data)
        tables = own.pop("agents", None)
        config = SwarmConfig.model_validate(own)
        if not isinstance(tables, (list, tuple)):
            config.fail(f"agents: must be a list of tables, not {reprlib.repr(tables)}")
        swarm: Swarm = object.__new__(cls)
        swarm._assign(config, _by_name(config, _read_all(config, tables)), {})
        return swarm


def _read_all(config: SwarmConfig, tables: Sequence[Any]) -> list[Runnable[Any]]:
    """Return the members. Raises the problems of all tables."""
    read: list[Runnable[Any]] = []
    wrong: list[AgentConfigError] = []
    for index, table in enumerate(tables):
        try:
            read.append(_read(config, f"agents.{index}", table))
        except AgentConfigError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        problems = [problem for error in wrong for problem in error.problems]
        message = "; ".join(problem.message for problem in problems)
        raise AgentConfigError(f"swarm {config.name!r}: {message}", problems)
    return read


def _read(config: SwarmConfig, key: str, table: Any) -> Runnable[Any]:
    """Return the member of a table, by its `kind`; an agent without one."""
    from .kinds import KINDS, checked_kind

    if not isinstance(table, Mapping):
        config.fail(f"{key}: {reprlib.repr(table)} must be a table")
    try:
        return KINDS[checked_kind(table.get("kind", "agent"))](table)
    except FlowError as error:
        raise error.within(key) from None
    except AgentConfigError as error:
        inner = within(key, error)
        raise AgentConfigError(f"swarm {config.name!r}: {inner}", inner.problems) from None


def _check_functions(name: object, predicates: object) -> None:
    if not isinstance(predicates, Mapping):
        raise AgentConfigError(
            f"swarm {name!r}: predicates: must be functions by name, not {predicates!r:.60}"
        )
    for key, test in predicates.items():
        if not callable(test):
            raise AgentConfigError(f"swarm {name!r}: predicates.{key}: {test!r:.60} is not a function")


def _by_name(config: SwarmConfig, given: Iterable[Runnable[Any]]) -> dict[str, Runnable[Any]]:
    if isinstance(given, (str, Mapping)) or is_runnable(given) or not isinstance(given, Iterable):
        raise AgentConfigError(f"swarm {config.name!r}: agents: must be a list, not {given!r}")
    members: dict[str, Runnable[Any]] = {}
    for member in given:
        if not is_runnable(member):
            config.fail(f"agents: {member!r} is not an agent, swarm, loop or workflow")
        if member.name in members:
            config.fail(f"agents: two are named {member.name!r}; rename one")
        members[member.name] = member
    return members


def _playing(config: SwarmConfig, agents: Members) -> dict[str, Runnable[Any]]:
    """Return the agents as extended by the mode: for handoffs, or with the others as tools of the lead."""
    purposes = {name: config.descriptions.get(name, "") for name in agents}
    if config.mode == "handoff":
        return {name: _handing(agent, purposes) for name, agent in agents.items()}
    lead = agents[config.first(agents)] if config.mode == "team" else None
    if isinstance(lead, Agent):
        others = [(name, agent) for name, agent in agents.items() if agent is not lead]
        tools = [runnable_tool(agent, description=purposes[name]) for name, agent in others]
        return {**agents, lead.name: lead.extended(tools=tools)}
    return dict(agents)


def _handing(agent: Runnable[Any], purposes: Mapping[str, str]) -> Runnable[Any]:
    """Return the agent, able to hand over. A swarm or a loop never does: its output is the output of the whole."""
    if not isinstance(agent, Agent):
        return agent
    others = {name: purpose for name, purpose in purposes.items() if name != agent.name}
    return agent.extended(
        instructions=handoff_instructions(others), output_schema=handoff_schema(list(others))
    )
