"""Wake-ups and timers as messages of a shard's stream."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import msgspec

from ..ports import Timer, Wakeup
from . import headers
from .layout import Layout

Fields = tuple[tuple[bytes, bytes], ...]
"""Header fields, as (name, value)."""
Outgoing = tuple[bytes, bytes, Fields]
"""The subject, data and header fields of a message."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Wakeup)


def wake_message(layout: Layout, wakeup: Wakeup) -> Outgoing:
    """Return the message of a wake-up that is delivered at once."""
    return layout.wake(wakeup), _ENCODER.encode(wakeup), ()


def timer_message(layout: Layout, timer: Timer) -> Outgoing:
    """Return a schedule, which the server turns into a wake-up. Another one on the same subject replaces it."""
    at = b"@at " + _timestamp(timer.due_at)
    fields = ((headers.SCHEDULE, at), (headers.SCHEDULE_TARGET, layout.due(timer.wakeup)))
    return layout.timer(timer), _ENCODER.encode(timer.wakeup), fields


def mark_message(layout: Layout, shard: int) -> Outgoing:
    """Return an empty message to store before a schedule that is stored alone."""
    return layout.mark(shard), b"", ()


def read_wakeup(data: bytes) -> Wakeup:
    """Decode a wake-up. Raises `msgspec.MsgspecError` for other data."""
    return _DECODER.decode(data)


def _timestamp(at: float) -> bytes:
    """Return the time as RFC 3339 in UTC, rounded up to the millisecond, so that a timer is never early."""
    moment = datetime.fromtimestamp(math.ceil(at * 1000) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00").encode() + b"Z"
