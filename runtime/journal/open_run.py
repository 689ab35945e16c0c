"""The turn that opens a run: its submission and its first status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...eventlog.events import Submitted
from ..core.submission import opening_events
from ..core.turn import Turn
from .journal import Journal


async def opened(
    journal: Journal, submitted: Submitted, path: str, store: Callable[[Turn], Awaitable[bool]]
) -> bool:
    """Open a run with a turn that `store` stores, or fails to store; return false if another submitter was first."""
    while True:
        if await store(open_turn(journal, submitted, path)):
            return True
        if journal.state.exists:
            return False


def open_turn(journal: Journal, submitted: Submitted, path: str) -> Turn:
    """Return the turn that opens a run in an empty journal: submitted, then `status(starting)`."""
    now = journal.log.clock.now()
    state = journal.state
    state.run, state.root, state.path, state.submitted_at = (
        journal.subject.id,
        journal.subject.root,
        path,
        now,
    )
    turn = Turn(state, journal.rules_for(submitted), now)
    turn.add(*opening_events(submitted))
    return turn
