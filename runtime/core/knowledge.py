"""The lookup of stored knowledge: once per run, after the history was cut to its bounds and before planning."""

from __future__ import annotations

from ...eventlog.events import KnowledgeFound, Submitted
from ...projections.run_state import RunState
from ..ports.memory import NO_SCOPE
from .commands import KnowledgeRead
from .turn import Turn


def is_enabled(submitted: Submitted | None) -> bool:
    """Return the agent's `knowledge` setting; unset, whether the agent or the run names a memory."""
    if submitted is None:
        return False
    setting: bool | None = submitted.config.get("knowledge")
    if setting is not None:
        return setting
    table = submitted.config.get("memory") or {}
    return table.get("scope", NO_SCOPE) != NO_SCOPE or submitted.metadata.get("memory") is not None


def is_due(state: RunState) -> bool:
    """Return whether the first step waits for the lookup."""
    return is_enabled(state.submitted) and state.prepared and not state.looked_up and state.step == 0


def read(turn: Turn, command: KnowledgeRead) -> None:
    """Store what was found, even nothing, so that the search is not repeated."""
    if is_due(turn.state):
        turn.add(KnowledgeFound(items=command.items))
