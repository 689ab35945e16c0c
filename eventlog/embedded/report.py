"""How a keeper tells the process that started it why it failed: one message through a pipe, which needs no disk."""

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
    """An error on its way from one process to another."""

    kind: str
    message: str
    tails: tuple[LostTail, ...] = ()
    found: tuple[str, ...] = ()

    def error(self, directory: Path) -> FoldlogError:
        """The error again."""
        if self.kind == TailLost.__name__:
            return TailLost(directory, self.tails, self.found)
        if self.kind == StoreDamaged.__name__:
            return StoreDamaged(directory, self.found)
        return _KINDS.get(self.kind, ServerDied)(self.message)


def send_failure(descriptor: int, error: FoldlogError) -> None:
    """Write the error for the starter, if it still listens."""
    tails = error.tails if isinstance(error, TailLost) else ()
    found = error.found[len(tails) : len(tails) + LINES_MAX] if isinstance(error, StoreDamaged) else ()
    failure = _Failure(kind=type(error).__name__, message=str(error), tails=tails, found=found)
    with suppress(OSError):
        os.write(descriptor, msgspec.json.encode(failure))


class Report:
    """The starter's end of the pipe. `sender` is the keeper's end, for it to inherit."""

    def __init__(self) -> None:
        self._receiver, self.sender = os.pipe()
        os.set_blocking(self._receiver, False)

    def hand_over(self) -> None:
        """Leave the sending end to the keeper, which has inherited it."""
        os.close(self.sender)

    def failure(self, directory: Path) -> FoldlogError | None:
        """The error that the keeper sent, once; None if it sent none (yet)."""
        try:
            return msgspec.json.decode(os.read(self._receiver, 1 << 16), type=_Failure).error(directory)
        except (BlockingIOError, msgspec.MsgspecError):
            return None

    def close(self) -> None:
        """Stop listening."""
        os.close(self._receiver)
