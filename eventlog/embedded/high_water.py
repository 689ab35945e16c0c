"""The high-water marks: the last sequence seen in each stream, stored next to the store.

A flipped bit on disk can make the server drop the tail of a stream at its next start, without an error, and assign its
sequence numbers again. The keeper therefore records the end of each stream every few seconds and at a clean stop, and
compares before it admits clients. It cannot detect messages lost from the middle of a stream (the hash chain of each
run does, on reading), nor messages stored after the last record.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from .errors import LostTail
from .layout import Layout, write_private


class Head(Struct, frozen=True, kw_only=True):
    """The end of a stream. `created` distinguishes a stream from a later one of the same name."""

    created: str
    last_sequence: int
    messages: int


def lost_tails(recorded: Mapping[str, Head], found: Mapping[str, Head]) -> tuple[LostTail, ...]:
    """Return the streams that end before their record, or are missing.

    A stream that was created again since is not compared; one that was empty cannot have lost anything.
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
    """Return a line for the keeper's log for each stream that has fewer messages than recorded.

    It is not an error, because messages may have expired or been deleted.
    """
    return tuple(
        f"stream {name} has {head.messages - now.messages:,} messages fewer than when it was recorded "
        "(expired, deleted or lost; the hash chain of each run shows losses)"
        for name, head in sorted(recorded.items())
        for now in [found.get(name)]
        if now is not None and now.created == head.created and now.messages < head.messages
    )


def read_high_water(layout: Layout) -> dict[str, Head]:
    """Return the record; empty if there is none or it cannot be decoded."""
    try:
        return msgspec.json.decode(layout.high_water.read_bytes(), type=dict[str, Head])
    except (OSError, msgspec.MsgspecError):
        return {}


def write_high_water(layout: Layout, heads: Mapping[str, Head]) -> None:
    """Replace the record. Raises OSError."""
    write_private(layout.high_water, msgspec.json.format(msgspec.json.encode(heads), indent=2))
