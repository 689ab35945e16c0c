"""Frames of the stream, as Server-Sent Events have them on the wire."""

from __future__ import annotations

from typing import NamedTuple

from ....eventlog.errors import FoldlogError

COMMENT = b": still here\n\n"
WAITING_BYTES_MAX = 2 << 20
"""A reader that has been up to date and now has more than this to come is too slow: it reads the lists again."""


class Frame(NamedTuple):
    """One frame: the name of its event, and its data as JSON on one line."""

    event: str
    data: bytes


def on_the_wire(frame: Frame, places: str) -> bytes:
    """Return a frame as it is sent; `places` are those of all topics after it, empty to leave them as they are."""
    told = f"id: {places}\n" if places else ""
    return b"event: %b\n%bdata: %b\n\n" % (frame.event.encode(), told.encode(), frame.data)


def bare(error: BaseException) -> FoldlogError:
    """Return the first error of a group that was caught as one of ours."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, FoldlogError)  # noqa: S101 - it was caught as one
    return error
