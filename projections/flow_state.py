"""The state of a workflow: which operations its log has, in order, and what came of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..eventlog.events import ChildReturned, Diverged

OperationKind = Literal["tool", "agent", "ask", "sleep", "signal", "callback", "memo"]
"""The kinds of operations: a tool call, a child run, a question, a wait for a time, a signal or a token, a value."""


class Asked(msgspec.Struct, frozen=True):
    """An operation as the log has it. `request`: the arguments of a tool, else a digest of what was asked for."""

    kind: OperationKind
    name: str
    request: Any


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an operation. `at` is the time of its commit, in Unix seconds.

    `status`: success, error, timed_out, rejected, aborted; of a question its decision; of a wait its outcome. `key` and
    `by` are those of a signal or an answer, `note` is that of an answer, `sent_at` the time of a signal.
    """

    status: str
    value: Any = None
    error: str = ""
    key: str = ""
    by: str = ""
    note: str = ""
    sent_at: float = 0.0
    at: float = 0.0


class FlowState(msgspec.Struct):
    """The operations of a workflow's run, by their places."""

    asked: dict[str, Asked] = {}
    """Every operation that the log has, in the order in which they were asked for."""
    ended: dict[str, Ended] = {}
    """The ends of those that are over."""
    order: list[str] = []
    """The places of `ended` in log order."""
    chosen: dict[str, int] = {}
    """The branch that won each race."""
    lost: dict[str, None] = {}
    """The operations without a branch of their own that lost a race, and the prefixes of the branches that lost."""
    marks: dict[str, Any] = {}
    """The values that the code got, by place."""
    skipped: dict[str, Ended] = {}
    """The steps of a table that are not run, by place. `status`: skipped, or failed; `error` says why."""
    children: dict[str, str] = {}
    """The place of each child run."""
    returned: dict[str, ChildReturned] = {}
    """The outcomes of child runs whose end is not folded yet."""
    failures: dict[str, str] = {}
    """Why a callback could not be told, by its place, until its wait has ended."""
    diverged: Diverged | None = None
    """The operation that the code asked for instead of the stored one; null once the run goes on."""

    def has_lost(self, place: str) -> bool:
        """Return whether the operation lost a race, by itself or with a branch that it is in."""
        if not self.lost:
            return False
        if place in self.lost:
            return True
        parts = place.split("/")
        return any("/".join(parts[:count]) + "/" in self.lost for count in range(1, len(parts)))
