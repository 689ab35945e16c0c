"""The to-do list that an agent keeps: `add_todo`, `complete_todo`, `get_todo`, named among its `tools`.

The list is a fold of the calls' results, so it is the same on every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...eventlog.events import ToolEffect, ToolSpec
from ...projections.run_state import TODO_SOURCE, RunState
from ..ports.tools import Tool, ToolContextPort, ToolFailed, is_of_run

_TEXT = {"type": "string", "description": "what is to be done"}
_ID = {"type": "string", "description": "the id that add_todo gave"}


class TodoTool:
    """One of the three tools; `state` returns the run that calls it."""

    def __init__(self, spec: ToolSpec, state: Callable[[], RunState] | None = None) -> None:
        self.spec, self._state = spec, state

    def of(self, state: Callable[[], RunState]) -> TodoTool:
        """Return the tool for one run."""
        return TodoTool(self.spec, state)

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        """Add, complete or list items. Raises `ToolFailed`."""
        if self._state is None:
            raise ToolFailed("a to-do list belongs to a run")
        if self.spec.name == "get_todo":
            return [{"id": each.id, "text": each.text, "done": each.done} for each in self._state().todos]
        if self.spec.name == "add_todo":
            if not isinstance(arguments.get("text"), str) or not arguments["text"]:
                raise ToolFailed("give the text of what is to be done")
            _, step, index = context.idempotency_key.rsplit(":", 2)
            return f"{step}.{index}"
        known = [each.id for each in self._state().todos]
        if arguments.get("id") not in known:
            raise ToolFailed(
                f"there is no {arguments.get('id')!r} to do; known: {', '.join(known) or 'none'}"
            )
        return "done"


def _tool(name: str, description: str, effect: ToolEffect, **properties: Any) -> TodoTool:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return TodoTool(
        ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            effect=effect,
            lock=TODO_SOURCE,  # a call sees what earlier calls of its step have written
            exclusive=effect != "pure",
            source=TODO_SOURCE,
        )
    )


TODO_TOOLS: dict[str, Tool] = {
    tool.spec.name: tool
    for tool in (
        _tool("add_todo", "Note something that is to be done; returns its id.", "idempotent", text=_TEXT),
        _tool("complete_todo", "Mark something as done.", "idempotent", id=_ID),
        _tool("get_todo", "List what is to be done, and what is done.", "pure"),
    )
}


def of_run(tools: Mapping[str, Tool], state: Callable[[], RunState]) -> dict[str, Tool]:
    """Return the tools of a run, with those bound to it that read the run which calls them."""
    return {name: tool.of(state) if is_of_run(tool) else tool for name, tool in tools.items()}
