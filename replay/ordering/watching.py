"""Watch a log: verify each commit and check its events against the rules as they arrive, in bounded memory."""

from __future__ import annotations

from ...eventlog.commits import Head, as_read, decode, head_of, verify
from ...eventlog.errors import LogCorrupted
from ...eventlog.offload import outline_of
from ...eventlog.ports import Stored, Subject
from .monitor import Monitor, Violation

FINISHED_MAX = 1000
"""The number of finished families that are still remembered."""


class Watch:
    """Checks the commits of one shard (or one family), fed in log order from the beginning.

    A broken chain is reported once, as a violation of R11, and its run is not checked any further. Without
    `from_start`, families whose beginning was not fed are ignored.
    """

    def __init__(self, finished_max: int = FINISHED_MAX, *, from_start: bool = True) -> None:
        self._from_start = from_start
        self._heads: dict[str, dict[Subject, Head]] = {}
        self._monitor = Monitor(finished_max, lambda root: self._heads.pop(root, None))
        self._broken: set[str] = set()
        self.commits = self.events = 0

    @property
    def families(self) -> int:
        """The number of families that are remembered."""
        return len(self._heads)

    def feed(self, stored: Stored) -> list[Violation]:
        """Return the violations of the next commit."""
        self.commits += 1
        subject = stored.subject
        if subject.kind != "run" or subject.id in self._broken or self._is_forgotten(stored):
            return []
        heads = self._heads.setdefault(subject.root, {})
        try:
            recorded = verify(stored, heads.get(subject, Head()), tombstones=True)
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
        """Return whether the commit continues a run that is no longer remembered."""
        if stored.subject.root in self._heads:
            return False
        if not self._from_start and stored.subject.id != stored.subject.root:
            return True
        try:
            return decode(stored.data).rev > 1
        except ValueError:
            return False
