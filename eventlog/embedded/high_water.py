"""The last sequence seen in each stream, kept beside the store: a server that lost its tail does not say so.

A bit that flips on disk may make the server drop the tail of a stream at its next start and give its sequence
numbers out again. The keeper therefore writes down where each stream ends, every few seconds and at a clean stop,
and compares before it lets clients in. What this cannot see: messages lost from the middle of a stream (the hash
chain of each run finds those on read), and what was stored after the last record and lost with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from .errors import LostTail
from .layout import Layout, write_private


class Head(Struct, frozen=True, kw_only=True):
    """Where a stream ends. `created` tells a stream from a later one of the same name."""

    created: str
    last_sequence: int
    messages: int


def lost_tails(recorded: Mapping[str, Head], found: Mapping[str, Head]) -> tuple[LostTail, ...]:
    """The streams that end before their record, or are gone.

    A stream that was made again since is not compared. One that was empty cannot have lost anything.
    """
    return tuple(
        LostTail(stream=name, recorded=head.last_sequence, found=now.last_sequence if now else None)
        for name, head in sorted(recorded.items())
        for now in [found.get(name)]
        if (now is None and head.last_sequence) or _ends_before(now, head)
    )


def _ends_before(now: Head | None, head: Head) -> bool:
    return now is not None and now.created == head.created and now.last_sequence < head.last_sequence


def fewer_messages(recorded: Mapping[str, Head], found: Mapping[str, Head]) -> tuple[str, ...]:
    """A line for the keeper's log about each stream that holds fewer messages than recorded.

    No error: expired and deleted messages are gone rightly. Nor does it name all that is lost, see above.
    """
    return tuple(
        f"stream {name} holds {head.messages - now.messages:,} messages fewer than when it was seen last "
        "(expired, deleted or lost; the chain of each run tells)"
        for name, head in sorted(recorded.items())
        for now in [found.get(name)]
        if now is not None and now.created == head.created and now.messages < head.messages
    )


def read_high_water(layout: Layout) -> dict[str, Head]:
    """The record; empty if there is none. An unreadable one is not a record: it is replaced, not trusted."""
    try:
        return msgspec.json.decode(layout.high_water.read_bytes(), type=dict[str, Head])
    except (OSError, msgspec.MsgspecError):
        return {}


def write_high_water(layout: Layout, heads: Mapping[str, Head]) -> None:
    """Replace the record. Raises OSError."""
    write_private(layout.high_water, msgspec.json.format(msgspec.json.encode(heads), indent=2))
