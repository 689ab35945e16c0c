"""Drafts in memory: the recent pieces of each family, and the mailboxes of its followers."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator

from ..clock import Clock
from ..ports import DraftPiece
from .waiting import Mailbox, checkpoint

PIECES_KEPT = 4096
"""The most pieces of a family that a late reader gets."""
KEPT_S = 120.0
"""The time, in seconds, for which they are kept."""


class MemoryDrafts:
    """`Drafts` in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[str, deque[tuple[float, DraftPiece]]] = {}
        self._followers: dict[str, list[Mailbox[DraftPiece]]] = {}

    async def publish(self, root: str, piece: DraftPiece) -> None:
        """Send a piece to all followers."""
        await checkpoint()
        recent = self._recent.pop(root, deque(maxlen=PIECES_KEPT))
        recent.append((self._clock.monotonic(), piece))
        self._recent[root] = recent  # moved to the end: families are in the order of their latest pieces
        self._forget_the_old()
        for mailbox in self._followers.get(root, ()):
            mailbox.post([piece])

    def _forget_the_old(self) -> None:
        oldest = self._clock.monotonic() - KEPT_S
        for root in [*self._recent]:
            if self._recent[root][-1][0] >= oldest:
                return
            del self._recent[root]

    async def purge(self, root: str) -> None:
        """Remove the recent pieces of the family."""
        await checkpoint()
        self._recent.pop(root, None)

    @contextlib.asynccontextmanager
    async def follow(self, root: str) -> AsyncIterator[AsyncIterator[DraftPiece]]:
        """Yield the recent pieces of the family, then new ones."""
        oldest = self._clock.monotonic() - KEPT_S
        recent = [piece for at, piece in self._recent.get(root, ()) if at >= oldest]
        mailbox = Mailbox(recent)
        self._followers.setdefault(root, []).append(mailbox)
        try:
            yield mailbox
        finally:
            self._followers[root].remove(mailbox)
            if not self._followers[root]:
                del self._followers[root]
