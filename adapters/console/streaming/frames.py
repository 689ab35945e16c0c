"""Frames of the stream, encoded as Server-Sent Events."""

from __future__ import annotations

from typing import NamedTuple

from ....eventlog.errors import FoldlogError

COMMENT = b": still here\n\n"
WAITING_BYTES_MAX = 2 << 20
"""A viewer that was up to date and now lacks more than this is too slow: it is told to load everything again."""


class Frame(NamedTuple):
    """One frame: the name of its event, and its data as JSON on one line."""

    event: str
    data: bytes


def on_the_wire(frame: Frame, places: str) -> bytes:
    """Encode a frame. `places` are the cursors of all topics after it, sent as the event's id; empty: unchanged."""
    told = f"id: {places}\n" if places else ""
    return b"event: %b\n%bdata: %b\n\n" % (frame.event.encode(), told.encode(), frame.data)


def bare(error: BaseException) -> FoldlogError:
    """Return the first error in a group of `FoldlogError`s."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, FoldlogError)  # noqa: S101 - it was caught as one
    return error
