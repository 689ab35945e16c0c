"""Watching a log: its commits are verified and judged by the rules as they come, within bounded memory."""

from __future__ import annotations

from ...eventlog.commits import Head, as_read, decode, head_of, verify
from ...eventlog.errors import LogCorrupted
from ...eventlog.offload import outline_of
from ...eventlog.ports import Stored, Subject
from .monitor import Monitor, Violation

FINISHED_MAX = 1000
"""How many families that are over are still remembered."""


class Watch:
    """One shard's commits, fed in its order, from its beginning (or a family's).

    A run whose chain is broken is told once, as a violation of R11, and not judged any further.
    """

    def __init__(self, finished_max: int = FINISHED_MAX) -> None:
        self._heads: dict[str, dict[Subject, Head]] = {}
        self._monitor = Monitor(finished_max, lambda root: self._heads.pop(root, None))
        self._broken: set[str] = set()
        self.commits = self.events = 0

    @property
    def families(self) -> int:
        """How many families are remembered."""
        return len(self._heads)

    def feed(self, stored: Stored) -> list[Violation]:
        """What is wrong with the next commit."""
        self.commits += 1
        subject = stored.subject
        if subject.kind != "run" or subject.id in self._broken or self._is_forgotten(stored):
            return []
        heads = self._heads.setdefault(subject.root, {})
        try:
            recorded = verify(stored, heads.get(subject, Head()))
        except LogCorrupted as error:
            self._broken.add(subject.id)
            return [Violation("R11", str(error), subject.id, (0, error.revision))]
        heads[subject] = head_of(recorded)
        found: list[Violation] = []
        for event in as_read(recorded):
            self.events += 1
            found += self._monitor.feed(outline_of(event))
        return found

    def _is_forgotten(self, stored: Stored) -> bool:
        """Return whether the commit goes on with a run that is not remembered any more."""
        if stored.subject.root in self._heads:
            return False
        try:
            return decode(stored.data).rev > 1
        except ValueError:
            return False
