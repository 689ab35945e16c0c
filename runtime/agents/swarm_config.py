"""The part of a swarm's configuration that is its own, and the checks that its agents match it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn, Self

import pydantic
from pydantic import ConfigDict, StrictStr

from ...eventlog.errors import AgentConfigError, ConfigProblem
from ..core.swarm.flow import Flow, names_in
from ..core.swarm.flow_parser import parse_flow
from ..ports.runnable import Runnable
from ..ports.suggestions import nearest
from .agent import Agent
from .config import Name, NotNegative, Text, explain, problems_of

Mode = Literal["workflow", "handoff", "team"]


class SwarmConfig(pydantic.BaseModel):
    """A swarm's configuration without its agents. Frozen; errors are `AgentConfigError`."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    kind: Literal["swarm"] = "swarm"
    name: Name = "swarm"
    mode: Mode = "workflow"
    flow: StrictStr = ""
    """The flow of the agents; only in mode workflow."""
    entry: Name | None = None
    """The agent that starts (handoff) or leads (team); null is the first of the agents."""
    max_handoffs: NotNegative = 20
    """One more handoff ends the run with an error."""
    descriptions: dict[Name, Text] = {}
    """The purpose of an agent, shown to those that can hand over to it (handoff) or use it as a tool (team)."""

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _errors_are_ours(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except pydantic.ValidationError as error:
            raise AgentConfigError(
                explain(error, data, SwarmConfig, "swarm"), problems_of(error, SwarmConfig)
            ) from None

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON builtins. Each call returns a new copy."""
        return self.model_dump(mode="json", exclude_none=True)

    def parsed(self, members: Mapping[str, Runnable[Any]]) -> Flow | None:
        """Return the tree of the flow; None in modes without one. Raises `FlowError`."""
        return parse_flow(self.flow, tuple(members)) if self.mode == "workflow" else None

    def first(self, members: Mapping[str, Runnable[Any]]) -> str:
        """Return the agent that starts or leads, in modes without a flow."""
        return self.entry or next(iter(members))

    def check(self, members: Mapping[str, Runnable[Any]]) -> None:
        """Raise `AgentConfigError` for agents, flow and mode that do not match."""
        if not members:
            self.fail("agents: at least one is required")
        flow = self.parsed(members)
        if flow is None and self.flow:
            self.fail(f"flow: belongs to mode 'workflow', and this is mode {self.mode!r}")
        placed = members if flow is None else names_in(flow)
        for name in members:
            if name not in placed:
                self.fail(f"agents: {name!r} does not occur in the flow; add it there or remove it")
        if self.entry is not None and self.mode == "workflow":
            self.fail(
                "entry: belongs to the modes 'handoff' and 'team'; a workflow begins where its flow does"
            )
        for key, names in (("entry", filter(None, [self.entry])), ("descriptions", iter(self.descriptions))):
            for name in names:
                if name not in members:
                    self.fail(f"{key}: {name!r} is not one of the agents{nearest(name, members)}")
        self._check_mode(members)

    def _check_mode(self, members: Mapping[str, Runnable[Any]]) -> None:
        lead = members[self.first(members)]
        if self.mode == "team" and not isinstance(lead, Agent):
            self.fail(f"entry: {lead.name!r} is a {lead.kind}; a team is led by an agent")
        for name, member in members.items() if self.mode == "handoff" else ():
            if isinstance(member, Agent) and member.config.output_schema is not None:
                self.fail(
                    f"agents: {name!r} has an output_schema; in mode 'handoff' the output names the next agent"
                )

    def fail(self, problem: str) -> NoReturn:
        """Raise the error for a problem in the form `key: what is wrong`."""
        key = problem.partition(": ")[0]
        raise AgentConfigError(f"swarm {self.name!r}: {problem}", [ConfigProblem(key, problem)])
