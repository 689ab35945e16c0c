"""The end of a snapshot may be in the middle of an atomic batch: the server stores its messages one after the other.

What the snapshot has of such a batch is removed, as if it had been made a moment earlier: nothing that was stored all
or none may be there in part. The messages of a batch follow one another and carry its id and their number in it; the
last one says so.
"""

from __future__ import annotations

import msgspec

from ..jetstream import headers
from ..jetstream.layout import Layout
from ..jetstream.removals import remove_at
from ..jetstream.wire import Reply, Wire


async def drop_torn_batch(wire: Wire, layout: Layout, shard: int, last: int) -> tuple[int, ...]:
    """Remove what a restored shard, which ends at `last`, has of an incomplete batch; returns the positions."""
    stream = layout.shard(shard)
    newest = await _message_at(wire, stream, last) if last else None
    if newest is None or _is_complete(layout, shard, newest[0]):
        return ()
    number = headers.number(newest[0], headers.BATCH_SEQUENCE)
    torn = tuple(range(max(1, last - number + 1), last + 1))
    await remove_at(wire, layout, stream, torn)
    return torn


def _is_complete(layout: Layout, shard: int, header: bytes) -> bool:
    """Return whether the newest message of a shard is not of a batch, or is its last one."""
    due = f"{layout.prefix(shard)}.due.".encode()
    if not headers.value(header, headers.BATCH_ID) or headers.value(header, b"Nats-Subject").startswith(due):
        return True  # a wake-up that a timer became has the headers of its schedule
    return bool(headers.value(header, headers.BATCH_COMMIT))


async def _message_at(wire: Wire, stream: str, position: int) -> Reply | None:
    """Return the message at a position, None if it was removed."""
    body = msgspec.json.encode({"seq": position})
    reply = await wire.request(b"$JS.API.DIRECT.GET." + stream.encode(), body)
    return reply if not headers.status(reply[0]) else None
