"""Inheritance from the runs above: the policy and the model of a fork, and recorded results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...eventlog.events import ForkTools, ParentLink, ResultRecorded, Submitted


def fork_policy(submitted: Submitted) -> ForkTools | None:
    """Return the tool policy of a fork, which holds for every run below it too; null for other runs."""
    if submitted.fork is not None:
        return submitted.fork.tools
    return submitted.parent.fork_tools if submitted.parent is not None else None


def given_model(submitted: Submitted) -> str | None:
    """Return the model given to a fork, for it and the nodes below it; null if it keeps its own."""
    if submitted.fork is not None:
        return submitted.fork.model
    return submitted.parent.fork_model if submitted.parent is not None else None


def fork_model(submitted: Submitted) -> str | None:
    """Return the model that replaces those of the run's nodes, if the run is in the fork of a swarm or loop.

    Runs that an agent starts through its tools keep their model.
    """
    return given_model(submitted) if submitted.kind != "agent" else None


def link_to(parent: Submitted, run: str, tool_call_id: str | None, ordinal: int) -> ParentLink:
    """Return the link of a child to the run `run`, which `parent` opened, with what the child inherits."""
    return ParentLink(
        run=run,
        tool_call_id=tool_call_id,
        ordinal=ordinal,
        fork_tools=fork_policy(parent),
        fork_model=fork_model(parent),
    )


def node_place(name: str, ordinal: int, place: str = "") -> str:
    """Return the place of a node within its run; a child of a workflow has its `place` there."""
    return f"at {place}" if place else f"{name}#{ordinal}"


def recorded_for(place: str, results: Iterable[ResultRecorded]) -> Iterator[ResultRecorded]:
    """Yield the recorded results for the node at `place` and the nodes below it, with places relative to the node."""
    for result in results:
        if result.below == place or result.below.startswith(f"{place}/"):
            yield msgspec.structs.replace(result, below=result.below[len(place) + 1 :])


def with_model(kind: str, config: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return the stored configuration with another model, for all agents of a swarm or loop."""
    match kind:
        case "swarm":
            agents = [with_model(each.get("kind", "agent"), each, model) for each in config["agents"]]
            return {**config, "agents": agents}
        case "workflow":
            return dict(config)
        case "ralph":
            member = config["runnable"]
            inner = with_model(member["kind"], member["config"], model)
            return {**config, "runnable": {**member, "config": inner}}
        case _:
            return {**config, "model": model}
