"""Refreshes of a run's tools: the tool set changes only on request, and only between two steps."""

from __future__ import annotations

from ...eventlog.events import Prepared, ToolsRefreshFailed, ToolsRefreshRequested
from ...projections.run_state import RunState
from .commands import PreparationFailed, RefreshTools, ToolsResolved
from .effects import Prepare
from .turn import Turn


def is_due(state: RunState) -> bool:
    """Return whether the tools have to be listed again before the next step begins."""
    between_steps = state.prepared and not state.step_open and not state.model.phase
    return state.refresh is not None and between_steps and not state.pause_requested


def pending(state: RunState) -> Prepare:
    """Return the effect that lists the tools."""
    return Prepare(refresh=state.refreshes)


def requested(turn: Turn, command: RefreshTools) -> None:
    """Record a requested refresh; a second request before the first is done is merged into it."""
    servers = dict(command.mcp_servers)
    if turn.state.refresh is not None:
        servers = turn.state.refresh.mcp_servers | servers
    turn.add(ToolsRefreshRequested(mcp_servers=servers, by=command.by))


def resolved(turn: Turn, command: ToolsResolved) -> None:
    """Store the listed tools, which apply from the next step on."""
    if is_due(turn.state) and command.refresh == turn.state.refreshes:
        turn.add(
            Prepared(tools=list(command.tools), model=command.model, window_tokens=command.window_tokens)
        )


def failed(turn: Turn, command: PreparationFailed) -> None:
    """Store the failed listing; the run goes on with the tools it has."""
    if is_due(turn.state) and command.refresh == turn.state.refreshes:
        turn.add(ToolsRefreshFailed(error_type=command.error_type, error=command.message))
