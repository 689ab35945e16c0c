"""The open runs of a family, and the batches that cancel them (W22 to W24)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeVar

from ...eventlog.events import NOBODY, Actor
from ...eventlog.ports import CommitWrite, Write
from ...projections.run_state import RunState

BATCH_RUNS_MAX: ContextVar[int] = ContextVar("BATCH_RUNS_MAX", default=500)
"""The number of runs that one batch cancels. A simulation sets it lower."""


class Member(Protocol):
    """One run of a family as it is stored. `Journal` implements it."""

    @property
    def state(self) -> RunState:
        """The folded run."""
        ...

    def cancel_write(self, reason: str, actor: Actor = NOBODY, append: str | None = None) -> CommitWrite:
        """Return the write that cancels the run at its known head."""
        ...


M = TypeVar("M", bound=Member)


async def open_family(named: M, load: Callable[[str], Awaitable[M]]) -> dict[str, M]:
    """Return the run, its parent, and every open run below it, by id, each as of some moment.

    `load` reads a run of the family by its id. A torn read heals when repeated: the batch that announces a child also
    stores it (W5).
    """
    members = dict[str, M]()
    level = [named]
    while level:
        members.update({member.state.run: member for member in level})
        below = [child for member in level for child in member.state.open_children]
        level = list(await asyncio.gather(*(load(child) for child in below)))
    parent = _parent(named)
    if parent is not None:
        members[parent] = await load(parent)
    return members


def open_from(members: dict[str, M], run: str) -> list[M]:
    """Return the open runs from `run` down, children before their parents."""
    below = open_below(members, run)
    return below if members[run].state.over else [*below, members[run]]


def open_below(members: dict[str, M], run: str) -> list[M]:
    """Return the open runs below `run`, children before their parents."""
    children = [member.state.run for member in members.values() if _parent(member) == run]
    return [member for child in children for member in open_from(members, child)]


def in_batches(writes: Sequence[Write]) -> list[list[Write]]:
    """Cut the writes, in their order, into as few batches as hold them; at least one."""
    size = BATCH_RUNS_MAX.get()
    return [list(writes[at : at + size]) for at in range(0, len(writes) or 1, size)]


def _parent(member: Member) -> str | None:
    submitted = member.state.submitted
    return submitted.parent.run if submitted is not None and submitted.parent is not None else None
