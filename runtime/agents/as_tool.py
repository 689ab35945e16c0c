"""Runnables as tools: each call is a child run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from ...eventlog.parts import FilePart
from ..ports.files import Content
from ..ports.runnable import Runnable
from ..ports.tools import ToolFailed
from ..tools.context import ToolContext
from ..tools.decorator import PythonTool, tool


def runnable_tool(
    runnable: Runnable[Any], name: str | None = None, description: str = "", *, files: bool = False
) -> PythonTool[Any, Any]:
    """Return a tool that runs `runnable` with the text it is given, and returns its output; by default with its name.

    With `files` the model may hand on files of its conversation, by name. A call that is repeated after a crash
    continues its child. It has no timeout: it takes as long as the child does.
    Raises `ConfigError` for an invalid name.
    """
    text = description or f"Ask {runnable.name}."

    made = tool(name=name or runnable.name, description=text, effect="idempotent", timeout_s=None)

    async def ask(input: str, context: ToolContext) -> str:  # noqa: A002 - the word of the field
        return await context.run(runnable, input)

    async def ask_about(input: str, context: ToolContext, files: FileNames = None) -> str:  # noqa: A002
        return await context.run(runnable, handed_on(context, input, files))

    asking: PythonTool[Any, Any] = made(ask_about) if files else made(ask)
    asking.starts = runnable
    return asking


FileNames = Annotated[
    list[str] | None,
    Field(description='files of this conversation that it is to see, by name; ["*"] for all'),
]
"""The argument by which a model hands on files."""


def handed_on(context: ToolContext, text: str, names: Sequence[str] | None) -> Content:
    """Return a text with the named files of the conversation. Raises `ToolFailed` for an unknown name."""
    if not names:
        return text
    known = {_name(file): file for file in context.files}
    wanted = list(known) if ALL in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise ToolFailed(f"this conversation has no file {name!r}; it has: {', '.join(known) or 'none'}")
    return [text, *(known[name] for name in wanted)]


def _name(file: FilePart) -> str:
    return file.name or file.url or file.artifact or ""


ALL = "*"
