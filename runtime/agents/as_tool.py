"""Runnables as tools: each call is a child run."""

from __future__ import annotations

from typing import Any

from ..ports.runnable import Runnable
from ..tools.context import ToolContext
from ..tools.decorator import PythonTool, tool


def runnable_tool(
    runnable: Runnable[Any], name: str | None = None, description: str = ""
) -> PythonTool[Any, Any]:
    """Return a tool that runs `runnable` with the text it is given, and returns its output; by default with its name.

    A call that is repeated after a crash continues its child. It has no timeout: it takes as long as the child does.
    Raises `ConfigError` for an invalid name.
    """
    text = description or f"Ask {runnable.name}."

    @tool(name=name or runnable.name, description=text, effect="idempotent", timeout_s=None)
    async def ask(input: str, context: ToolContext) -> str:  # noqa: A002 - the word of the field
        return await context.run(runnable, input)

    ask.starts = runnable
    return ask
