"""The end of a snapshot may be in the middle of an atomic batch: the server stores its messages one after the other.

What the snapshot has of such a batch is removed, as if it had been made a moment earlier: nothing that was stored all
or none may be there in part. The messages of a batch follow one another and carry its id and their number in it; the
last one says so.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..jetstream import headers
from ..jetstream.layout import Layout
from ..jetstream.removals import note_removal, remove_at
from ..jetstream.wire import Reply, Wire

LOOK_BACK = 2000
"""The number of messages among which the newest is looked for: a batch has at most 1,000."""


class End(NamedTuple):
    """The end of a snapshot: positions of an incomplete batch, and those that the server counts but does not have."""

    torn: tuple[int, ...]
    missing: tuple[int, ...]


async def end_of(wire: Wire, layout: Layout, shard: int, stream: str, last: int) -> End:
    """Look at the end of a snapshot of a shard of `layout`, restored as `stream`. A mirror has no batch headers."""
    due = f"{layout.prefix(shard)}.due.".encode()
    position, header, came_later = last, b"", set[int]()
    while position > max(0, last - LOOK_BACK):
        found = await _message_at(wire, stream, position)
        if found is not None and not headers.value(found[0], b"Nats-Subject").startswith(due):
            header = found[0]
            break
        if (
            found is not None
        ):  # what a timer became, perhaps since the restore, with the headers of its schedule
            came_later.add(position)
        position -= 1
    if not header:
        return End((), ())
    held = position + headers.number(header, headers.TIMERS)
    number = headers.number(header, headers.BATCH_SEQUENCE)
    in_batch = headers.value(header, headers.BATCH_ID) and not headers.value(header, headers.BATCH_COMMIT)
    is_torn = bool(in_batch) and (held == position or held > last)
    torn = tuple(range(max(1, position - number + 1), position + 1)) if is_torn else ()
    after = position if is_torn else held
    missing = tuple(each for each in range(after + 1, last + 1) if each not in came_later)
    return End(torn, missing)


async def drop_end(wire: Wire, layout: Layout, stream: str, end: End) -> None:
    """Remove what a stream has of an incomplete batch, and note what it does not have. Raises `LogUnavailable`."""
    if end.missing:
        await note_removal(wire, layout, stream, end.missing)
    if end.torn:
        await remove_at(wire, layout, stream, end.torn)


async def _message_at(wire: Wire, stream: str, position: int) -> Reply | None:
    """Return the message at a position, None if it was removed."""
    body = msgspec.json.encode({"seq": position})
    reply = await wire.request(b"$JS.API.DIRECT.GET." + stream.encode(), body)
    return reply if not headers.status(reply[0]) else None
