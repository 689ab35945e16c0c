"""Child runs: those of tool calls, and the nodes of a swarm or a loop."""

from __future__ import annotations

from ...eventlog.events import (
    ChildFinished,
    ChildReady,
    ChildReturned,
    ChildStarted,
    Evaluated,
    OutputMade,
    RalphIteration,
)
from ..money import plus_cost
from ..run_state import SPAWN_SELF, NodeState, RunState
from . import operations


def start_child(state: RunState, event: ChildStarted) -> None:
    """Add an open child: one of a call, or a node."""
    state.open_children[event.child_run] = event.tool_call_id
    state.child_count += 1
    if event.place:
        operations.start_child(state, event)
    elif event.tool_call_id is None:
        ordinal = len(state.nodes_of(event.name))
        state.nodes.append(
            NodeState(
                child_run=event.child_run, name=event.name, ordinal=ordinal, started_at=state.updated_at
            )
        )
    call = state.calls.get(event.tool_call_id or "")
    if call is not None:
        call.children.append(event.child_run)
        state.spawned += call.name == SPAWN_SELF


def finish_child(state: RunState, event: ChildFinished) -> None:
    """Close a child."""
    state.open_children.pop(event.child_run, None)
    operations.finish_child(state, event)
    for node in state.nodes:
        if node.child_run == event.child_run:
            node.status, node.ended_at = event.status, state.updated_at


def return_child(state: RunState, event: ChildReturned) -> None:
    """Add the usage of a child, and store the output of a node."""
    state.inner_usage = state.inner_usage + event.usage
    state.inner_cost_usd = plus_cost(state.inner_cost_usd, event.cost_usd)
    operations.return_child(state, event)
    for node in state.nodes:
        if node.child_run == event.child_run:
            node.returned = event


def wake_for_child(state: RunState, _event: ChildReady) -> None:
    """Wake the run, because a descendant needs its driver."""
    state.parked = None
    state.child_wakes += 1


def evaluate(state: RunState, event: Evaluated) -> None:
    """Store the value of a predicate, scorer or reflection."""
    state.evaluations.setdefault(event.name, []).append(event)


def iterate(state: RunState, event: RalphIteration) -> None:
    """Store the latest event of an iteration of a loop."""
    state.iterations[event.iteration - 1 :] = [event]


def make_output(state: RunState, event: OutputMade) -> None:
    """Store the output of a coordinator, or of an answer in several parts."""
    state.output = event.output
