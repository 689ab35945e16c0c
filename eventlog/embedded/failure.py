"""Why a keeper could not start its server, told to the process that started the keeper through a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import ConfigError, FoldlogError
from .errors import (
    DirectoryUnusable,
    LostTail,
    NatsServerMissing,
    ServerDied,
    ServerNotReady,
    StoreLocked,
    TailLost,
)
from .layout import Layout, write_private

_KINDS: dict[str, type[FoldlogError]] = {
    kind.__name__: kind
    for kind in (ConfigError, DirectoryUnusable, NatsServerMissing, ServerDied, ServerNotReady, StoreLocked)
}


class Failure(Struct, frozen=True, kw_only=True):
    """An error on its way from one process to another. `start_id` says for whom it is."""

    start_id: str
    kind: str
    message: str
    tails: tuple[LostTail, ...] = ()

    def error(self, directory: Path) -> FoldlogError:
        """The error again."""
        if self.kind == TailLost.__name__:
            return TailLost(directory, self.tails)
        return _KINDS.get(self.kind, ServerDied)(self.message)


def write_failure(layout: Layout, start_id: str, error: FoldlogError) -> None:
    """Leave the error for the starter. Raises OSError."""
    tails = error.tails if isinstance(error, TailLost) else ()
    failure = Failure(start_id=start_id, kind=type(error).__name__, message=str(error), tails=tails)
    write_private(layout.failure, msgspec.json.encode(failure))


def read_failure(layout: Layout, start_id: str) -> FoldlogError | None:
    """The error that the keeper of this start left, if it did."""
    try:
        failure = msgspec.json.decode(layout.failure.read_bytes(), type=Failure)
    except (OSError, msgspec.MsgspecError):
        return None
    return failure.error(layout.directory) if failure.start_id == start_id else None
