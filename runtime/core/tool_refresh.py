"""Refreshes of a run's tools: the tool set changes only on request, and only between two steps."""

from __future__ import annotations

from collections.abc import Sequence

from ...eventlog.errors import ConfigError
from ...eventlog.events import Prepared, ToolsRefreshFailed, ToolsRefreshRequested, ToolsRemoved
from ...projections.run_state import RunState
from ..ports.suggestions import nearest
from .commands import PreparationFailed, RefreshTools, ToolsResolved
from .effects import Prepare
from .submission import check_text
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
    servers, remove = dict(command.mcp_servers), list(command.remove)
    before = turn.state.refresh
    if before is not None:
        servers, remove = before.mcp_servers | servers, list(dict.fromkeys([*before.remove, *remove]))
    turn.add(ToolsRefreshRequested(mcp_servers=servers, remove=remove, by=command.by))


def resolved(turn: Turn, command: ToolsResolved) -> None:
    """Store the listed tools, which apply from the next step on, and tell the model which ones are gone."""
    state = turn.state
    if is_due(state) and command.refresh == state.refreshes:
        listed = {tool.name for tool in command.tools}
        gone = [name for name in state.tools if name not in listed]
        turn.add(
            Prepared(tools=list(command.tools), model=command.model, window_tokens=command.window_tokens)
        )
        if gone:
            turn.add(ToolsRemoved(tools=gone))


def removed(state: RunState) -> frozenset[str]:
    """Return the tools that were removed by their names, also by a refresh that is still to be done."""
    return frozenset([*state.removed_tools, *(state.refresh.remove if state.refresh is not None else ())])


def failed(turn: Turn, command: PreparationFailed) -> None:
    """Store the failed listing; the run goes on with the tools it has."""
    if is_due(turn.state) and command.refresh == turn.state.refreshes:
        turn.add(ToolsRefreshFailed(error_type=command.error_type, error=command.message))


def check_removal(state: RunState, names: object) -> None:
    """Raise `ConfigError` unless these are names of tools that the run has, as far as it is prepared."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ConfigError(f"remove must be a list of the names of tools, not {names!r:.60}")
    for name in names:
        check_text("the name of a tool", name)
        if state.prepared and not state.closed and name not in state.tools:
            raise ConfigError(f"the run has no tool {name!r}{nearest(name, state.tools)}")
