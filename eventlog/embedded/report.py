"""The report of a failed start, from a keeper to the process that started it: one message through a pipe.

It does not need the disk, which may be the cause of the failure.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import ConfigError, FoldlogError
from .errors import (
    LINES_MAX,
    DirectoryUnusable,
    LostTail,
    NatsServerMissing,
    ServerDied,
    ServerNotReady,
    StoreDamaged,
    TailLost,
)

_KINDS: dict[str, type[FoldlogError]] = {
    kind.__name__: kind
    for kind in (ConfigError, DirectoryUnusable, NatsServerMissing, ServerDied, ServerNotReady)
}


class _Failure(Struct, frozen=True, kw_only=True):
    """An error as a message from one process to another."""

    kind: str
    message: str
    tails: tuple[LostTail, ...] = ()
    found: tuple[str, ...] = ()

    def error(self, directory: Path) -> FoldlogError:
        """Return the error."""
        if self.kind == TailLost.__name__:
            return TailLost(directory, self.tails, self.found)
        if self.kind == StoreDamaged.__name__:
            return StoreDamaged(directory, self.found)
        return _KINDS.get(self.kind, ServerDied)(self.message)


def send_failure(descriptor: int, error: FoldlogError) -> None:
    """Send the error to the starter, if it still reads."""
    tails = error.tails if isinstance(error, TailLost) else ()
    found = error.found[len(tails) : len(tails) + LINES_MAX] if isinstance(error, StoreDamaged) else ()
    failure = _Failure(kind=type(error).__name__, message=str(error), tails=tails, found=found)
    with suppress(OSError):
        os.write(descriptor, msgspec.json.encode(failure))


class Report:
    """The starter's end of the pipe. `sender` is the keeper's end, which it inherits."""

    def __init__(self) -> None:
        self._receiver, self.sender = os.pipe()
        os.set_blocking(self._receiver, False)

    def hand_over(self) -> None:
        """Close the sending end, which the keeper has inherited."""
        os.close(self.sender)

    def failure(self, directory: Path) -> FoldlogError | None:
        """Return the error that the keeper sent, once; None if it sent none (yet)."""
        try:
            return msgspec.json.decode(os.read(self._receiver, 1 << 16), type=_Failure).error(directory)
        except (BlockingIOError, msgspec.MsgspecError):
            return None

    def close(self) -> None:
        """Close the receiving end."""
        os.close(self._receiver)
