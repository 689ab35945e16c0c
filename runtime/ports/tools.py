"""The tool port: what an agent can call: a Python function, a tool of an MCP server, a built-in.

A `Tool` is a specification and a coroutine. Tool sources (MCP servers) are plugins found by entry point group
`foldlog.toolsources`; they are opened when a run is prepared and give tools for as long as they are open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeGuard

import msgspec

from ...eventlog.errors import FoldlogError
from ...eventlog.events import Event, ToolEffect, ToolSchema, ToolSpec
from ...projections.run_state import RunState


def in_a_line(error: BaseException) -> str:
    """An exception that is not ours, as it is told."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class ToolFailed(FoldlogError):
    """The call failed and nothing was done; the message goes to the model as the tool's result.

    `result` may hold what the tool returned besides (MCP error content). With `in_doubt` it is not known whether
    anything was done, as with any other exception: an unsafe call is then settled by its postcondition or by people.
    """

    def __init__(self, message: str, *, result: Any = None, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.result, self.in_doubt = result, in_doubt


def unencodable(why: Exception) -> ToolFailed:
    """The tool ran, and what it returned cannot be stored."""
    return ToolFailed(f"the tool returned a value that JSON cannot hold: {why}", in_doubt=True)


class InvalidArguments(ToolFailed):
    """The arguments are not what the tool takes: the model's fault, and not the tool's."""


class Retryable(ToolFailed):
    """The call failed in a way that a further attempt may mend; honoured for pure and idempotent tools."""

    def __init__(self, message: str, *, after_s: float | None = None, in_doubt: bool = False) -> None:
        super().__init__(message, in_doubt=in_doubt)
        self.after_s = after_s


class ToolTimedOut(ToolFailed):
    """The call took longer than its time and was stopped; what it did is in doubt. Attribute: `timeout_s`."""

    def __init__(self, timeout_s: float, *, result: Any = None, in_doubt: bool = True) -> None:
        super().__init__(f"timed out after {timeout_s:g} s", result=result, in_doubt=in_doubt)
        self.timeout_s = timeout_s


class ChildFailed(ToolFailed):
    """A child run that a tool started did not complete. `status`: error or cancelled; `run_id`: the child."""

    def __init__(self, message: str, *, status: str, run_id: str) -> None:
        super().__init__(message)
        self.status, self.run_id = status, run_id


AnswerAction = Literal["accept", "decline", "cancel"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What people say to a question of a tool: approved (`accept`), rejected (`decline`), or nobody did (`cancel`).

    `content` is what an accepted form holds, null without one.
    """

    action: AnswerAction
    content: dict[str, Any] | None = None
    note: str = ""
    by: str = ""

    @property
    def accepted(self) -> bool:
        """Return whether somebody said yes."""
        return self.action == "accept"


class Asked(BaseException):
    """Ends an attempt whose question waits for an answer. Not to be caught, like a cancellation."""


class ToolContextPort(Protocol):
    """What a running tool call may do besides returning (see `runtime.context.ToolContext`)."""

    @property
    def tool_call_id(self) -> str:
        """The call's id within its run."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call, and for no other call."""
        ...

    def emit(self, event: Event) -> None:
        """Add an event to the run's stream; never blocks."""
        ...

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the call is; never blocks."""
        ...

    async def memo(self, name: str, make: Callable[[], Any]) -> Any:
        """The value of a named part of the call, made once."""
        ...

    def answer(self, name: str) -> Answer | None:
        """The answer to the question of this name, if there is one already."""
        ...

    async def ask(self, message: str, schema: Mapping[str, Any] | None = None, *, name: str = "") -> Answer:
        """The answer of people; ends the attempt while there is none."""
        ...


class ToolOfRun(Protocol):
    """A tool that looks at the state of the run which calls it. For tools of the runtime."""

    def of(self, state: Callable[[], RunState]) -> Tool:
        """The tool of a run."""
        ...


class Tool(Protocol):
    """Something an agent can call."""

    @property
    def spec(self) -> ToolSpec:
        """Its specification."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        """Run one attempt and return a JSON-able result.

        Raises `ToolFailed` where nothing was done; anything else leaves the outcome of an unsafe tool in doubt.
        Cancelling the task stops the call and all it started. Progress reported before it returns is settled.
        """
        ...


def is_of_run(tool: Tool) -> TypeGuard[ToolOfRun]:
    """Return whether a tool looks at its run: what `isinstance` finds out of a protocol, at a tenth of its time."""
    return hasattr(tool, "of")


class ToolSource(Protocol):
    """A server that provides tools, connected to."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its tools by their full name, as found when it was opened."""
        ...

    async def aclose(self) -> None:
        """Disconnect, and end what was started for it. Safe to repeat."""
        ...


class ToolSourceFactory(Protocol):
    """Opens the sources of an agent's configuration (entry point `foldlog.toolsources`)."""

    def check(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise `ConfigError` for a wrong entry; does not connect."""
        ...

    async def open(self, servers: Mapping[str, Mapping[str, Any]]) -> ToolSource:
        """Connect to all servers and list their tools. Raises `ToolSourceUnavailable` that names the server."""
        ...

    async def aclose(self) -> None:
        """End what the factory keeps for later sources of the running event loop. Safe to repeat."""
        ...


class ToolSourceUnavailable(FoldlogError):
    """A tool server cannot be reached or does not speak the protocol; the run's preparation fails."""


ToolFunction = Callable[..., Any | Awaitable[Any]]

__all__ = [
    "Answer",
    "Asked",
    "ChildFailed",
    "Retryable",
    "Tool",
    "ToolContextPort",
    "ToolEffect",
    "ToolFailed",
    "ToolFunction",
    "ToolSchema",
    "ToolSource",
    "ToolSourceFactory",
    "ToolSourceUnavailable",
    "ToolSpec",
    "ToolTimedOut",
]
