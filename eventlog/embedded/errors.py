"""What can be wrong with the embedded server, each error with what to do about it.

ConfigError
├── NatsServerMissing       install nats-server
└── PlatformUnsupported     start nats-server yourself and set NATS_URL
LogUnavailable
├── ServerNotReady          it still starts, or hangs: try again, or read its log
├── ServerDied              it ended while starting: the message holds the last lines of its log
├── StoreLocked             another process uses this store: end it, or choose another directory
└── DirectoryUnusable       permissions, a full disk, not a directory: the message says which
FoldlogError
└── StoreDamaged            the store holds less than was stored in it: restore a copy, or accept the loss
    └── TailLost            streams end before where they ended
"""

from __future__ import annotations

import errno
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError, FoldlogError, LogUnavailable


class NatsServerMissing(ConfigError):
    """No nats-server binary on this machine."""


class PlatformUnsupported(ConfigError):
    """The embedded server relies on locks that this platform does not have."""


class ServerNotReady(LogUnavailable):
    """The server did not answer, or did not end, in the time given."""


class ServerDied(LogUnavailable):
    """The server, or its keeper, ended while starting."""


class StoreLocked(LogUnavailable):
    """Another process holds the lock of the store. Two servers on one store lose data without a word."""


class DirectoryUnusable(LogUnavailable):
    """The directory of the log cannot be read or written."""

    @classmethod
    def because(cls, directory: Path, cause: OSError) -> DirectoryUnusable:
        """The error for a failed file operation, with the remedy that fits its errno."""
        remedy = _REMEDIES.get(cause.errno or 0, "Make it a directory that you can write to")
        return cls(f"The log cannot be kept in {directory}: {cause}. {remedy}, or set FOLDLOG_HOME.")


_REMEDIES = {
    errno.ENOSPC: "Free some space on its disk",
    errno.EDQUOT: "Free some of your quota on its disk",
    errno.EROFS: "Its file system is read-only: mount it writable",
}


class LostTail(Struct, frozen=True, kw_only=True):
    """One stream that holds less than it did: `found` is its last sequence now, None if the stream is gone."""

    stream: str
    recorded: int
    found: int | None

    def __str__(self) -> str:
        """For people."""
        now = (
            "the stream is gone (or was deleted just before a crash)"
            if self.found is None
            else f"it now ends at sequence {self.found:,}"
        )
        return f"stream {self.stream} was stored up to sequence {self.recorded:,}, {now}"


LINES_MAX = 20


class StoreDamaged(FoldlogError):
    """Messages are gone, or are not what was stored. Attributes: `directory`, `found` (a line for each loss).

    The server reports no such loss itself: it drops what it cannot read.
    """

    def __init__(self, directory: Path, found: tuple[str, ...]) -> None:
        shown = [*found[:LINES_MAX], *([f"and {len(found) - LINES_MAX} more"] if found[LINES_MAX:] else [])]
        super().__init__(
            f"The log in {directory} has lost what was stored in it: {'; '.join(shown)}. "
            "The disk may be failing, or an older copy was put in its place. Restore a copy of the directory, or, "
            "to go on without what is lost: foldlog log up --accept-loss."
        )
        self.directory, self.found = directory, found


class TailLost(StoreDamaged):
    """Streams end before their recorded high-water mark. Also `tails` (of `LostTail`).

    The server gives the sequence numbers that were lost out again.
    """

    def __init__(self, directory: Path, tails: tuple[LostTail, ...], found: tuple[str, ...] = ()) -> None:
        super().__init__(directory, (*map(str, tails), *found))
        self.tails = tails
