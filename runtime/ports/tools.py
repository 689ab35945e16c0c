"""The tool port: anything an agent can call: a Python function, a tool of an MCP server, a built-in.

A `Tool` is a specification and a coroutine. Tool sources (MCP servers) are plugins found by entry point group
`foldlog.toolsources`; they are opened when a run is prepared and provide tools for as long as they are open.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypeGuard

import msgspec

from ...eventlog.errors import FoldlogError
from ...eventlog.events import Event, ToolEffect, ToolSchema, ToolSpec
from ...projections.run_state import RunState
from .runnable import DepsT_co, DepsT_contra


def in_a_line(error: BaseException) -> str:
    """Return a foreign exception as text in one line."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - of an exception that cannot say what it is
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class ToolFailed(FoldlogError):
    """The call failed and nothing was done; the message goes to the model as the tool's result.

    `result` may hold content returned with the error (MCP). With `in_doubt` the effect is unknown, as with any other
    exception: an unsafe call is then settled by its postcondition or by a person.
    """

    def __init__(self, message: str, *, result: Any = None, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.result, self.in_doubt = result, in_doubt


def unencodable(why: Exception) -> ToolFailed:
    """Return the error for a tool that ran but returned a value that cannot be stored."""
    return ToolFailed(f"the tool returned a value that JSON cannot hold: {why}", in_doubt=True)


class InvalidArguments(ToolFailed):
    """The arguments do not match the tool's parameters: the model's fault, not the tool's."""


class Retryable(ToolFailed):
    """The call failed in a way that a retry may fix; honoured for pure and idempotent tools."""

    def __init__(self, message: str, *, after_s: float | None = None, in_doubt: bool = False) -> None:
        super().__init__(message, in_doubt=in_doubt)
        self.after_s = after_s


class ToolTimedOut(ToolFailed):
    """The call exceeded its timeout and was stopped; its effect is in doubt. Attribute: `timeout_s`."""

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
    """A person's answer to a tool's question: approved (`accept`), rejected (`decline`), or timed out (`cancel`).

    `content` is the filled-in form of an accepted answer, null without a form.
    """

    action: AnswerAction
    content: dict[str, Any] | None = None
    note: str = ""
    by: str = ""

    @property
    def accepted(self) -> bool:
        """Return whether the question was approved."""
        return self.action == "accept"


SIGNAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""The names that a signal may have."""
LONGEST_WAIT_S = 100 * 365.25 * 86_400
"""A century: timers of servers count nanoseconds in 64 bits, which reach twice as far."""


def check_signal_name(what: str, name: object) -> str:
    """Return the name of a signal or a callback. Raises `ValueError`."""
    if not isinstance(name, str) or not SIGNAL_NAME.fullmatch(name):
        raise ValueError(f"{what} is named by letters, digits, '.', '_' and '-', not {name!r:.60}")
    return name


def check_length(number: object, unit_s: float = 1.0) -> float:
    """Return the length of a wait in seconds, given in units of so many. Raises `ValueError`."""
    if (
        not isinstance(number, int | float)
        or isinstance(number, bool)
        or not 0 <= number <= LONGEST_WAIT_S / unit_s
    ):
        raise ValueError(
            f"a wait takes a number of seconds that is not negative and at most a century, not {number!r:.60}"
        )
    return float(number * unit_s)


def check_sleep(
    now: float, seconds: object, minutes: object, hours: object, days: object, until: object
) -> tuple[float, float | None]:
    """Return the length of a sleep in seconds, and the time at which it ends if that is given. Raises `ValueError`."""
    lengths = zip((seconds, minutes, hours, days), (1, 60, 3_600, 86_400), strict=True)
    length_s = check_length(sum(check_length(number, unit_s) for number, unit_s in lengths))
    if until is None:
        return length_s, None
    if not isinstance(until, datetime) or until.tzinfo is None:
        raise ValueError(f"a wait ends at a datetime with a time zone, not {until!r:.60}")
    if length_s:
        raise ValueError("a sleep has a length or an end (until), not both")
    try:
        at = until.timestamp()
    except OverflowError:
        at = math.inf
    if at > now + LONGEST_WAIT_S:
        raise ValueError(f"a wait takes at most a century, and does not end at {until!r:.60}")
    return 0.0, at


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent to the run; `at` is when it was stored, in Unix seconds. `data` is JSON as builtins."""

    data: Any
    key: str = ""
    by: str = ""
    at: float = 0.0


class Asked(BaseException):
    """Ends an attempt that asks a question or waits. Like a cancellation, it must not be caught."""


class ToolContextPort(Protocol[DepsT_co]):
    """The context of a running tool call (see `runtime.tools.context.ToolContext`)."""

    @property
    def deps(self) -> DepsT_co:
        """The dependencies that `Registry(deps=...)` opened; null without any."""
        ...

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
        """Report the progress of the call; never blocks."""
        ...

    async def memo(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the value of a named part of the call, computed once."""
        ...

    def answer(self, name: str) -> Answer | None:
        """Return the answer to the question of this name, if it was already given."""
        ...

    async def ask(self, message: str, schema: Mapping[str, Any] | None = None, *, name: str = "") -> Answer:
        """Return a person's answer; ends the attempt while there is none."""
        ...


class ToolOfRun(Protocol):
    """A tool of the runtime that reads the state of the run which calls it."""

    def of(self, state: Callable[[], RunState]) -> Tool:
        """Return the tool for one run."""
        ...


class Tool(Protocol[DepsT_contra]):
    """A tool that an agent can call, by the dependencies that its context must have."""

    @property
    def spec(self) -> ToolSpec:
        """Its specification."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort[DepsT_contra]) -> Any:
        """Run one attempt and return a JSON-able result, or content: a `File`, or a list of texts and files.

        Raises `ToolFailed` if nothing was done; any other error leaves the outcome of an unsafe tool in doubt.
        Cancelling the task stops the call and all it started. Progress reported before it returns is stored.
        """
        ...


def is_of_run(tool: Tool) -> TypeGuard[ToolOfRun]:
    """Return whether a tool reads its run; equivalent to `isinstance` with the protocol, in a tenth of the time."""
    return hasattr(tool, "of")


class ToolSource(Protocol):
    """A connected server that provides tools."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its tools by their full name, as listed when it was opened."""
        ...

    async def aclose(self) -> None:
        """Disconnect, and end the processes started for it. Safe to repeat."""
        ...


class ToolSourceFactory(Protocol):
    """Opens the sources of an agent's configuration (entry point `foldlog.toolsources`)."""

    def check(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise `ConfigError` for an invalid entry; does not connect."""
        ...

    async def open(self, servers: Mapping[str, Mapping[str, Any]]) -> ToolSource:
        """Connect to all servers and list their tools. Raises `ToolSourceUnavailable`, which names the server."""
        ...

    async def aclose(self) -> None:
        """Close everything kept for later sources of the running event loop. Safe to repeat."""
        ...


class ToolSourceUnavailable(FoldlogError):
    """A tool server cannot be reached or does not speak the protocol; the run's preparation fails."""


class ToolFunction(Protocol):
    """A function that can be made a tool: one with a name.

    The name is what type checkers tell it by from a `PythonTool`, which is callable, too, but has dependencies.
    """

    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result, or an awaitable of it."""
        ...


__all__ = [
    "Answer",
    "Asked",
    "ChildFailed",
    "Retryable",
    "Signal",
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
