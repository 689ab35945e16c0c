"""Runs that coordinate others: they have no step, text or usage of their own, only child runs and decisions about them.

A coordinator is pure: from the folded state it says which nodes should be running and which functions should be called,
and decides what follows. All else (starting children once, driving them on after a crash, pausing, cancelling, storing
outcomes) is the same for every kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...eventlog.events import ChildStarted, Evaluated, Parked, Status
from ...projections.run_state import RunState
from .commands import ChildSpawned, EvaluationReturned
from .effects import Effect, Evaluate, RunNode
from .loop.coordinator import RalphCoordinator
from .swarm.coordinator import SwarmCoordinator
from .turn import Turn


class Coordinator(Protocol):
    """Decides for the runs of one kind, from their stored configuration and state alone."""

    def wanted(self, state: RunState) -> Sequence[RunNode | Evaluate]:
        """Return all nodes and evaluations that the state calls for and that are not over, in the order to start."""
        ...

    def advance(self, turn: Turn) -> None:
        """Add the events that follow from the state, including the end (`Turn.complete`, `Turn.fail`). May add none."""
        ...


COORDINATORS: dict[str, Coordinator] = {"ralph": RalphCoordinator(), "swarm": SwarmCoordinator()}
"""The coordinator of each kind of run except `agent`."""


def pending(state: RunState) -> tuple[Effect, ...]:
    """Return the nodes and evaluations to perform; when the run is to pause, only the nodes already open."""
    wanted = COORDINATORS[state.kind].wanted(state)
    if not state.pause_requested:
        return tuple(wanted)
    return tuple(effect for effect in wanted if isinstance(effect, RunNode) and is_open(state, effect))


def is_open(state: RunState, effect: RunNode) -> bool:
    """Return whether the node was started and is not over."""
    node = state.node(effect.name, effect.ordinal)
    return node is not None and node.status is None


def advance(turn: Turn) -> None:
    """Pause at a node boundary if requested, else add what the coordinator decides."""
    state = turn.state
    if state.pause_requested and not state.open_children:
        turn.add(Status(status="paused", reason="manual"), Parked(reason="manual"))
    else:
        COORDINATORS[state.kind].advance(turn)


def node_started(turn: Turn, spawned: ChildSpawned) -> None:
    """Record a started node. Idempotent: each ordinal of a name, or each place of a workflow, starts once."""
    flow = turn.state.flow
    is_next = spawned.ordinal == len(turn.state.nodes_of(spawned.name))
    if spawned.place not in flow.asked if flow is not None else is_next:
        turn.add(
            ChildStarted(
                child_run=spawned.child_run,
                name=spawned.name,
                kind=spawned.kind,
                place=spawned.place,
                asked=spawned.asked,
            )
        )


def evaluated(turn: Turn, outcome: EvaluationReturned) -> None:
    """Record the result of an evaluation. Idempotent: a stored result is never replaced."""
    if outcome.ordinal == len(turn.state.evaluations.get(outcome.name, ())):
        turn.add(
            Evaluated(
                step=turn.state.step if turn.state.step_open else None,
                name=outcome.name,
                ordinal=outcome.ordinal,
                value=outcome.value,
                error=outcome.error,
            )
        )
