"""A runnable as a tool: each call of it is a child run."""

from __future__ import annotations

from typing import Any

from ..ports.runnable import Runnable
from ..tools.context import ToolContext
from ..tools.decorator import PythonTool, tool


def runnable_tool(
    runnable: Runnable[Any], name: str | None = None, description: str = ""
) -> PythonTool[Any, Any]:
    """A tool that runs `runnable` with the text it is given, and returns its output; named as it is by default.

    A call that is run again after a crash goes on with the child that it had. It takes as long as the child does.
    Raises `ConfigError` for a name that is none.
    """
    told = description or f"Ask {runnable.name}."

    @tool(name=name or runnable.name, description=told, effect="idempotent", timeout_s=None)
    async def ask(input: str, context: ToolContext) -> str:  # noqa: A002 - the word of the field
        return await context.run(runnable, input)

    ask.starts = runnable
    return ask
