"""Effects that the core requests: values that an executor performs, each ending in a command."""

from __future__ import annotations

from typing import Literal

import msgspec


class Prepare(msgspec.Struct, frozen=True):
    """Resolve the tools and the model; ends in `ToolsResolved` or `PreparationFailed`.

    `refresh` is 0 before the run begins, then counts the refreshes.
    """

    refresh: int = 0


class LookUp(msgspec.Struct, frozen=True):
    """Search stored knowledge for what fits the input; ends in `KnowledgeRead` or `PreparationFailed`."""


class CallModel(msgspec.Struct, frozen=True, kw_only=True):
    """Call the model; ends in `ModelReplied` or `ModelCallFailed`. `phase` as in `ModelRequested`."""

    step: int
    attempt: int
    phase: str = ""


class CallTool(msgspec.Struct, frozen=True, kw_only=True):
    """Run one attempt at a tool call; ends in `ToolReturned`."""

    step: int
    call_id: str
    attempt: int


class VerifyCall(msgspec.Struct, frozen=True, kw_only=True):
    """Verify whether an attempt whose outcome is lost achieved its purpose; ends in `ToolReturned`."""

    step: int
    call_id: str
    attempt: int


class RunNode(msgspec.Struct, frozen=True, kw_only=True):
    """Run a member as a child: the `ordinal`-th (0, 1, ...) of its name. Ends in `ChildEnded`.

    One that exists is driven further, never started again. `first`: it gets the run's `messages`.
    `files`: it gets the files of the run's input.
    """

    name: str
    ordinal: int
    input: str
    first: bool = False
    files: bool = False


class RunPlace(msgspec.Struct, frozen=True):
    """Run the child that a workflow's code asks for at this place, from its start or from where it is."""

    place: str


class MakeMemo(msgspec.Struct, frozen=True):
    """Compute the value that a workflow's code asks for at this place, or tell its callback; ends in `MemoMade`."""

    place: str


class CancelChild(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel a child run, which then ends like any other: in `ChildEnded`."""

    child_run: str


class Evaluate(msgspec.Struct, frozen=True, kw_only=True):
    """Call a function that the configuration names; ends in `EvaluationReturned`."""

    name: str
    ordinal: int
    argument: str


class WaitUntil(msgspec.Struct, frozen=True):
    """Wait until `at` (Unix seconds); ends in `Tick`."""

    at: float


Scope = Literal["run", "step"]
"""The scope of a timeout."""


class Expire(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for the timeout of the run or of this step, at `at` (Unix seconds); ends in `Expired`."""

    at: float
    scope: Scope
    step: int


class AwaitTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for a timer that is due at `at` (Unix seconds), of an approval or a wait, while the run goes on.

    Ends in `TimerDue`.
    """

    timer_id: str
    at: float


Effect = (
    Prepare
    | LookUp
    | CallModel
    | CallTool
    | VerifyCall
    | RunNode
    | RunPlace
    | MakeMemo
    | CancelChild
    | Evaluate
    | WaitUntil
    | Expire
    | AwaitTimer
)
