"""The check of a store for lost data, before clients are admitted.

The server drops data that it cannot read, and continues. So all streams of foldlog are read and accounted for, unless
every file is as it was at the last clean stop, when the keeper records their sizes, times and inodes. A restored copy
of the store is therefore read once, and is not a loss.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from .layout import Layout, write_private

_CONSUMERS = "obs"
_Files = dict[str, tuple[int, int, int, int]]


def note_clean_stop(layout: Layout) -> None:
    """Record the files after the server has ended. Raises OSError."""
    write_private(layout.clean_stop, msgspec.json.encode(_files(layout.store)))


def is_touched(layout: Layout) -> bool:
    """Return whether a file changed since the last clean stop, or there was none. The record is used only once.

    Raises OSError.
    """
    try:
        noted = msgspec.json.decode(layout.clean_stop.read_bytes(), type=_Files)
    except (FileNotFoundError, msgspec.MsgspecError):
        noted = None
    layout.clean_stop.unlink(missing_ok=True)
    files = _files(layout.store)
    return bool(files) and files != noted


def _files(store: Path) -> _Files:
    """Return size, times and inode of each file, except those of consumers, whose loss does not matter."""
    found: _Files = {}
    for place, directories, names in os.walk(store):
        directories[:] = [name for name in directories if name != _CONSUMERS]
        for name in names:
            path = Path(place, name)
            state = path.stat()
            found[str(path.relative_to(store))] = (
                state.st_size,
                state.st_mtime_ns,
                state.st_ctime_ns,
                state.st_ino,
            )
    return found


async def damage(url: str, *, accept_loss: bool) -> list[str]:
    """Return a line for each loss in the namespaces of the server.

    With `accept_loss`, the losses are recorded in the log as accepted. Raises `LogUnavailable`.
    """
    from ..jetstream.audit import audit, namespaces
    from ..jetstream.known_losses import accept
    from ..jetstream.layout import Layout as Names
    from ..jetstream.wire import Wire

    lines: list[str] = []
    wire = await Wire.open(url, inbox=b"_INBOX.keeper", name="foldlog keeper")
    try:
        for namespace, shards in sorted((await namespaces(wire)).items()):
            found = await audit(wire, Names(namespace), shards)
            if accept_loss:
                await accept(wire, Names(namespace), found.losses)
            if found.losses:
                lines += [f"namespace {namespace!r}, {line}" for line in found.lines()]
    finally:
        await wire.close()
    return lines
