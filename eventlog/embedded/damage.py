"""Whether a store still holds what was stored in it, asked before clients are let in.

The server itself drops what it cannot read and goes on. So all streams of foldlog are read and accounted for, unless
every file is as it was left at the last clean stop: the keeper notes their sizes, times and inodes then. A copy of the
store that was put in its place is read once, and is not a loss.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from .layout import Layout, write_private

_CONSUMERS = "obs"
_Files = dict[str, tuple[int, int, int, int]]


def note_clean_stop(layout: Layout) -> None:
    """Write down what the files are, once the server has ended. Raises OSError."""
    write_private(layout.clean_stop, msgspec.json.encode(_files(layout.store)))


def is_touched(layout: Layout) -> bool:
    """Whether a file was touched since the last clean stop, or there was none. The note of it is good for one start.

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
    """Size, times of change and inode of each file but those of consumers, which hold nothing that is lost."""
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
    """A line for each loss in the namespaces of the server there.

    With `accept_loss` they are noted in the log as known. Raises `LogUnavailable`.
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
