"""A swarm: agents that work one input together, by a flow, by handing over, or as the tools of one of them.

`Swarm.config` is all that the log or a worker need; the agents' functions and the predicates live on the object only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ...eventlog.errors import AgentConfigError
from ..agent import Agent
from ..agent_config import config_digest
from .flow import Flow, format_flow
from .flow_parser import parse_flow
from .predicates import Test
from .swarm_config import Mode, SwarmConfig


class Swarm:
    """A named swarm; frozen, equal only to itself.

    `Swarm([a, b, c], flow="a >> (b | c)")`. `agents` are agents or swarms, each with a name of its own within this one.
    `flow` is text or a tree; `predicates` are the functions, by name, that it asks: pure functions of an output's text,
    for whoever takes the run over asks them again. Raises `AgentConfigError` that names the wrong key, and `FlowError`.
    """

    __slots__ = ("__weakref__", "agents", "config", "flow", "predicates")

    agents: Mapping[str, Agent[Any] | Swarm]
    config: SwarmConfig
    flow: Flow | None
    predicates: Mapping[str, Test]

    def __init__(
        self,
        agents: Iterable[Agent[Any] | Swarm],
        flow: str | Flow = "",
        *,
        name: str = "swarm",
        mode: Mode = "workflow",
        entry: str | None = None,
        max_handoffs: int = 20,
        predicates: Mapping[str, Test] = MappingProxyType({}),
    ) -> None:
        members = _members(name, agents)
        data = {
            "name": name,
            "mode": mode,
            "agents": [member.config for member in members],
            "flow": flow if isinstance(flow, str) else format_flow(flow),
            "entry": entry,
            "max_handoffs": max_handoffs,
        }
        config = SwarmConfig.from_config(data)
        if config.mode == "workflow":
            parse_flow(config.flow, config.names, predicates)
        self._assign(config, members, predicates)

    def _assign(
        self, config: SwarmConfig, members: Iterable[Agent[Any] | Swarm], predicates: Mapping[str, Test]
    ) -> None:
        parts = {
            "config": config,
            "agents": MappingProxyType({member.name: member for member in members}),
            "flow": config.parsed(),
            "predicates": MappingProxyType(dict(predicates)),
        }
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """A swarm never changes."""
        raise AttributeError(f"a swarm is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        """A swarm never changes."""
        raise AttributeError(f"a swarm is frozen: {name} cannot be deleted")

    def __repr__(self) -> str:
        what = self.config.mode if self.flow is None else format_flow(self.flow)
        return f"<Swarm {self.name} {what}>"

    @property
    def name(self) -> str:
        """The swarm's name."""
        return self.config.name

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `to_config()`, and raises what that raises."""
        return config_digest(self.to_config())

    def to_config(self) -> dict[str, Any]:
        """The configuration as JSON builtins, the agents' included; predicates are names in the flow.

        Raises `AgentConfigError` if the instructions of an agent are a function.
        """
        agents = [agent.to_config() for agent in self.agents.values()]
        return {**self.config.to_config(), "agents": agents}

    @classmethod
    def from_config(cls, data: Mapping[str, Any]) -> Swarm:
        """The swarm of a stored configuration; tools and predicates are names, looked up when a run needs them.

        Raises `AgentConfigError` for a wrong key, and `FlowError`.
        """
        return cls._of(SwarmConfig.from_config(data))

    @classmethod
    def _of(cls, config: SwarmConfig) -> Swarm:
        swarm: Swarm = object.__new__(cls)
        members = [
            cls._of(member) if isinstance(member, SwarmConfig) else Agent.from_config(member.to_config())
            for member in config.agents
        ]
        swarm._assign(config, members, {})
        return swarm


def _members(swarm: str, given: Iterable[Agent[Any] | Swarm]) -> list[Agent[Any] | Swarm]:
    if isinstance(given, (str, Mapping, Agent, Swarm)):
        raise AgentConfigError(f"swarm {swarm!r}: agents: must be a list, not {given!r}")
    members = list(given)
    for member in members:
        if not isinstance(member, (Agent, Swarm)):
            raise AgentConfigError(f"swarm {swarm!r}: agents: {member!r} is neither an Agent nor a Swarm")
    return members
