"""The errors of the embedded server, each with its remedy.

ConfigError
├── NatsServerMissing       install nats-server
└── PlatformUnsupported     start nats-server yourself and set NATS_URL
LogUnavailable
├── ServerNotReady          it is still starting, or hangs: try again, or read its log
├── ServerDied              it ended while starting: the message has the last lines of its log
├── StoreLocked             another process uses this store: end it, or choose another directory
└── DirectoryUnusable       permissions, a full disk, not a directory: the message says which
FoldlogError
└── StoreDamaged            the store has lost data: restore a copy, or accept the loss
    └── TailLost            streams end earlier than before
"""

from __future__ import annotations

import errno
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError, FoldlogError, LogUnavailable


class NatsServerMissing(ConfigError):
    """There is no nats-server binary on this machine."""


class PlatformUnsupported(ConfigError):
    """The embedded server needs file locks that this platform does not have."""


class ServerNotReady(LogUnavailable):
    """The server did not reply, or did not end, in time."""


class ServerDied(LogUnavailable):
    """The server, or its keeper, ended while starting."""


class StoreLocked(LogUnavailable):
    """Another process holds the lock of the store. Two servers on one store would lose data without an error."""


class DirectoryUnusable(LogUnavailable):
    """The directory of the log cannot be read or written."""

    @classmethod
    def because(cls, directory: Path, cause: OSError) -> DirectoryUnusable:
        """Return the error for a failed file operation, with the remedy for its errno."""
        remedy = _REMEDIES.get(cause.errno or 0, "Make it a directory that you can write to")
        return cls(f"The log cannot be kept in {directory}: {cause}. {remedy}, or set FOLDLOG_HOME.")


_REMEDIES = {
    errno.ENOSPC: "Free some space on its disk",
    errno.EDQUOT: "Free some of your quota on its disk",
    errno.EROFS: "Its file system is read-only: mount it writable",
}


class LostTail(Struct, frozen=True, kw_only=True):
    """A stream that has lost its end: `found` is its last sequence now, None if the stream is lost."""

    stream: str
    recorded: int
    found: int | None

    def __str__(self) -> str:
        """Return the loss in one line."""
        now = (
            "the stream is lost (or was deleted just before a crash)"
            if self.found is None
            else f"it now ends at sequence {self.found:,}"
        )
        return f"stream {self.stream} was stored up to sequence {self.recorded:,}, {now}"


LINES_MAX = 20


class StoreDamaged(FoldlogError):
    """Messages are lost or altered. Attributes: `directory`, `found` (a line for each loss).

    The server does not report such losses: it drops data that it cannot read.
    """

    def __init__(self, directory: Path, found: tuple[str, ...]) -> None:
        shown = [*found[:LINES_MAX], *([f"and {len(found) - LINES_MAX} more"] if found[LINES_MAX:] else [])]
        super().__init__(
            f"The log in {directory} has lost data: {'; '.join(shown)}. "
            "The disk may be failing, or an older copy was put in its place. Restore a copy of the directory, or, "
            "to continue without the lost data: foldlog log up --accept-loss."
        )
        self.directory, self.found = directory, found


class TailLost(StoreDamaged):
    """Streams end before their recorded high-water mark. Additional attribute: `tails` (of `LostTail`).

    The server would assign the lost sequence numbers again.
    """

    def __init__(self, directory: Path, tails: tuple[LostTail, ...], found: tuple[str, ...] = ()) -> None:
        super().__init__(directory, (*map(str, tails), *found))
        self.tails = tails
