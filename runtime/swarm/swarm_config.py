"""The one configuration of a swarm: what TOML, JSON, the log and a worker hold of it, its agents' own included."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import ConfigDict, Field, PlainValidator, StrictStr

from ...eventlog.errors import AgentConfigError
from ..agent_config import AgentConfig, Name, NotNegative, Text, explain, nearest
from .flow import Flow, names_in
from .flow_parser import parse_flow

Mode = Literal["workflow", "handoff", "team"]


def _member(value: Any) -> Any:
    """The configuration of one agent of a swarm; a table whose `kind` is swarm is a swarm."""
    if isinstance(value, (AgentConfig, SwarmConfig)):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"{reprlib.repr(value)} must be a table, the configuration of an agent or a swarm")  # noqa: TRY004 - pydantic takes no other
    fields = dict(value)
    match kind := fields.pop("kind", "agent"):
        case "agent":
            return AgentConfig.from_config(fields)
        case "swarm":
            return SwarmConfig.from_config(fields)
        case _:
            raise ValueError(f"kind is {kind!r}; known are 'agent' and 'swarm'")


Member = Annotated[
    "AgentConfig | SwarmConfig", PlainValidator(_member, json_schema_input_type="AgentConfig | SwarmConfig")
]


class SwarmConfig(pydantic.BaseModel):
    """A swarm's configuration (agent.md section 9). Frozen; every wrong key or value is an `AgentConfigError`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["swarm"] = "swarm"
    name: Name = "swarm"
    mode: Mode = "workflow"
    agents: Annotated[tuple[Member, ...], Field(json_schema_extra={"minItems": 1})]
    flow: StrictStr = ""
    """Which agents run when; of mode workflow only."""
    entry: Name | None = None
    """Who begins (handoff) or leads (team); null is the first of the agents."""
    max_handoffs: NotNegative = 20
    """One more ends the run with an error."""
    descriptions: dict[Name, Text] = {}
    """What an agent is for, told to those that can hand over to it (handoff) or use it as a tool (team)."""

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _errors_are_ours(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        try:
            config = handler(data)
        except pydantic.ValidationError as error:
            raise AgentConfigError(explain(error, data, SwarmConfig, "swarm")) from None
        config.check()
        return config

    @classmethod
    def from_config(cls, data: Mapping[str, Any]) -> SwarmConfig:
        """The configuration in `data`. Raises `AgentConfigError` that names each wrong key by its path."""
        return cls.model_validate(dict(data))

    def to_config(self) -> dict[str, Any]:
        """The configuration as JSON builtins; `from_config` of it is equal. Every call gives a fresh copy."""
        config = self.model_dump(mode="json", exclude_none=True, exclude={"agents"})
        return {**config, "agents": [agent.to_config() for agent in self.agents]}

    @property
    def names(self) -> tuple[str, ...]:
        """The agents' names, in order."""
        return tuple(agent.name for agent in self.agents)

    @property
    def first(self) -> str:
        """Who begins or leads, where no flow says it."""
        return self.entry or self.names[0]

    def parsed(self) -> Flow | None:
        """The tree of the flow; None in the modes that have none. Raises `FlowError`."""
        return parse_flow(self.flow, self.names) if self.mode == "workflow" else None

    def check(self) -> None:
        """Raises `AgentConfigError` for agents, a flow and an entry that do not fit each other."""
        if not self.agents:
            self._fail("agents: there must be at least one")
        for index, name in enumerate(self.names):
            if name in self.names[:index]:
                self._fail(f"agents: two are named {name!r}; rename one")
        flow = self.parsed()
        if flow is None and self.flow:
            self._fail(f"flow: belongs to mode 'workflow', and this is mode {self.mode!r}")
        placed = self.names if flow is None else names_in(flow)
        for name in self.names:
            if name not in placed:
                self._fail(f"agents: {name!r} has no place in the flow; give it one or leave it out")
        self._check_names()
        if self.mode == "handoff":
            self._check_handoff()

    def _check_names(self) -> None:
        if self.entry is not None and self.mode == "workflow":
            self._fail(
                "entry: belongs to the modes 'handoff' and 'team'; a workflow begins where its flow does"
            )
        if self.entry is not None and self.entry not in self.names:
            self._fail(f"entry: {self.entry!r} is none of the agents{nearest(self.entry, self.names)}")
        for name in self.descriptions:
            if name not in self.names:
                self._fail(f"descriptions: {name!r} is none of the agents{nearest(name, self.names)}")
        lead = self.agents[self.names.index(self.first)]
        if self.mode == "team" and not isinstance(lead, AgentConfig):
            self._fail(f"entry: {lead.name!r} is a {lead.kind}; a team is led by an agent")

    def _check_handoff(self) -> None:
        for agent in self.agents:
            if isinstance(agent, AgentConfig) and agent.output_schema is not None:
                self._fail(
                    f"agents: {agent.name!r} has an output_schema; in mode 'handoff' the output says who goes on"
                )

    def _fail(self, problem: str) -> None:
        raise AgentConfigError(f"swarm {self.name!r}: {problem}")
