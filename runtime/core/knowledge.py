"""Stored knowledge is looked up once: the history is within its bounds by then, and there is no plan yet."""

from __future__ import annotations

from ...eventlog.events import KnowledgeFound, Submitted
from ...projections.run_state import RunState
from ..ports.memory import NO_SCOPE
from .commands import KnowledgeRead
from .turn import Turn


def is_asked_for(submitted: Submitted | None) -> bool:
    """Return whether the agent's `knowledge` says so, or says nothing and the agent or the run names a memory."""
    if submitted is None:
        return False
    asked: bool | None = submitted.config.get("knowledge")
    if asked is not None:
        return asked
    table = submitted.config.get("memory") or {}
    return table.get("scope", NO_SCOPE) != NO_SCOPE or submitted.metadata.get("memory") is not None


def is_due(state: RunState) -> bool:
    """Return whether the first step waits for it."""
    return is_asked_for(state.submitted) and state.prepared and not state.looked_up and state.step == 0


def read(turn: Turn, command: KnowledgeRead) -> None:
    """What was found, be it nothing: nobody searches again."""
    if is_due(turn.state):
        turn.add(KnowledgeFound(items=command.items))
