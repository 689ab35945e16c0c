"""What a run has from the runs above it: the policy and the model of a fork, and recorded results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...eventlog.events import ForkTools, ParentLink, ResultRecorded, Submitted


def fork_policy(submitted: Submitted) -> ForkTools | None:
    """The policy for tools of a fork, and of every run below it; null for other runs."""
    if submitted.fork is not None:
        return submitted.fork.tools
    return submitted.parent.fork_tools if submitted.parent is not None else None


def given_model(submitted: Submitted) -> str | None:
    """The model that a fork was given, for it and the nodes below it; null if it keeps its own."""
    if submitted.fork is not None:
        return submitted.fork.model
    return submitted.parent.fork_model if submitted.parent is not None else None


def fork_model(submitted: Submitted) -> str | None:
    """The model that the nodes of a run are asked with instead of their own: that of the fork of a swarm or loop.

    What an agent runs by its tools keeps its model.
    """
    return given_model(submitted) if submitted.kind != "agent" else None


def link_to(parent: Submitted, run: str, tool_call_id: str | None, ordinal: int) -> ParentLink:
    """Where a child of the run `run`, which `parent` began, hangs, and what it has from there."""
    return ParentLink(
        run=run,
        tool_call_id=tool_call_id,
        ordinal=ordinal,
        fork_tools=fork_policy(parent),
        fork_model=fork_model(parent),
    )


def node_place(name: str, ordinal: int) -> str:
    """A node within the run that it is of."""
    return f"{name}#{ordinal}"


def recorded_for(place: str, results: Iterable[ResultRecorded]) -> Iterator[ResultRecorded]:
    """Of the recorded results that a run keeps for the nodes below it those of the node at `place`, and below that."""
    for result in results:
        if result.below == place or result.below.startswith(f"{place}/"):
            yield msgspec.structs.replace(result, below=result.below[len(place) + 1 :])


def with_model(kind: str, config: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The stored configuration of a run with another model, for all agents of a swarm or loop."""
    match kind:
        case "swarm":
            agents = [with_model(each.get("kind", "agent"), each, model) for each in config["agents"]]
            return {**config, "agents": agents}
        case "ralph":
            member = config["runnable"]
            inner = with_model(member["kind"], member["config"], model)
            return {**config, "runnable": {**member, "config": inner}}
        case _:
            return {**config, "model": model}
