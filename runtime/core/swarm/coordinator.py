"""Decisions for runs of kind swarm: what each mode does as its nodes end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ....projections.run_state import RunState
from ..effects import Evaluate, RunNode
from ..turn import Turn
from .flow import Flow, Node
from .flow_parser import parse_flow
from .handoff import handoff_progress
from .progress import FlowPlace, Progress, places, progress


class SwarmCoordinator:
    """The coordinator of swarms, for all modes (see `coordination.Coordinator`)."""

    def wanted(self, state: RunState) -> Sequence[RunNode | Evaluate]:
        """Return the nodes and predicates to go on with."""
        return _progress(state).wanted

    def advance(self, turn: Turn) -> None:
        """End the run when its flow has ended, or when one of its nodes has failed."""
        now = _progress(turn.state)
        if now.failure is not None:
            turn.fail(now.failure.error_type, now.failure.message, recoverable=False, step=None)
        elif now.output is not None:
            turn.complete(now.output)


def _progress(state: RunState) -> Progress:
    if state.submitted is None:
        return Progress()
    config, text = state.submitted.config, state.submitted.input
    if config["mode"] == "handoff":
        agents = frozenset(each["name"] for each in config["agents"] if each.get("kind", "agent") == "agent")
        return handoff_progress(_entry(config), text, state.nodes, agents, config["max_handoffs"])
    return progress(_flow_of(config), text, state.nodes, state.evaluations)


def node_places(state: RunState) -> dict[tuple[str, int], FlowPlace]:
    """Return each node's place in the flow, by name and ordinal; empty in modes that run one node after another."""
    submitted = state.submitted
    if submitted is None or submitted.config["mode"] != "workflow":
        return {}
    flow = _flow_of(submitted.config)
    return places(flow, submitted.input, state.nodes, state.evaluations)


def _entry(config: dict[str, Any]) -> str:
    """Return the name of the agent that starts, or leads."""
    return str(config.get("entry") or config["agents"][0]["name"])


def _flow_of(config: dict[str, Any]) -> Flow:
    """Return the flow. A team is a workflow of its lead alone: its other agents are tools of the lead."""
    if config["mode"] == "team":
        return Node(_entry(config))
    return _parsed(config["flow"], tuple(agent["name"] for agent in config["agents"]))


@functools.lru_cache(maxsize=64)
def _parsed(flow: str, names: tuple[str, ...]) -> Flow:
    return parse_flow(flow, names)
