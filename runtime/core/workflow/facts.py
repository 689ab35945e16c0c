"""The facts that the code or the table of a workflow leads to: operations to ask for, choices, values, and the end."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ....eventlog.events import CallRules, ToolSpec, WaitKind


class AskTool(msgspec.Struct, frozen=True, kw_only=True):
    """Call a tool. `spec` is that of the process; that of the run wins. `rules` are those of this call alone."""

    place: str
    name: str
    arguments: dict[str, Any]
    spec: ToolSpec | None = None
    rules: CallRules | None = None


class AskWait(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for a time, a signal or a callback, at most `until` (Unix seconds), or `after_s` seconds from now on.

    `asked` digests what the code asked for.
    """

    place: str
    kind: WaitKind
    name: str = ""
    until: float | None = None
    after_s: float | None = None
    form: dict[str, Any] | None = None
    asked: str = ""


class AskPerson(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a person. `form` is the JSON Schema of the answer; null for a yes or a no."""

    place: str
    name: str
    message: str
    form: dict[str, Any] | None = None


class Choose(msgspec.Struct, frozen=True, kw_only=True):
    """The race at this place was won by the branch `index`; `lost` as in `Chosen`."""

    place: str
    index: int
    lost: tuple[str, ...] = ()


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The code got this value."""

    place: str
    name: str
    value: Any


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a table is not run, and why. `failed`: it cannot be, which is a failure of the step."""

    place: str
    why: str
    failed: bool = False


Fact = AskTool | AskWait | AskPerson | Choose | Mark | Skip


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the code: its output, or the error that it ended with (`error_type` is not empty)."""

    output: str = ""
    error_type: Literal["", "workflow_failed", "operations_max"] = ""
    message: str = ""
