"""Removals: the messages that foldlog itself takes out of a stream, each noted before with its position.

The notes are in the artifacts' stream. An audit counts a missing position that is noted as removed and any other as
lost. A note whose purge never came names positions that are still there, which is harmless.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from .layout import Layout
from .streams import read_page, read_stream, store
from .wire import Done, Wire

NOTE_POSITIONS_MAX = 50_000
"""The most positions of a note; each takes two to six bytes."""

Span = tuple[int, int]
"""A first and a last position."""


class _Removed(msgspec.Struct, frozen=True):
    """Positions as numbers in pairs: how far a span begins after the end of the one before, and its length."""

    spans: list[int]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Removed)


class Removed:
    """Positions of one stream that were removed, as spans in order."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.spans = list(_joined(sorted(spans)))
        self._firsts = [first for first, _ in self.spans]

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether any of these positions was removed."""
        return any(True for _ in self._within(first, last))

    def without(self, first: int, last: int) -> Iterator[Span]:
        """Yield the spans of these positions that were not removed."""
        for begin, end in self._within(first, last):
            if begin > first:
                yield first, begin - 1
            first = end + 1
        if first <= last:
            yield first, last

    def _within(self, first: int, last: int) -> Iterator[Span]:
        index = max(0, bisect_right(self._firsts, first) - 1)
        for begin, end in islice(self.spans, index, None):
            if begin > last:
                return
            if end >= first:
                yield begin, end


async def remove(wire: Wire, layout: Layout, stream: str, positions: Mapping[bytes, Sequence[int]]) -> None:
    """Note, and then purge, the first messages of subjects: those at these positions, in order (`places_of`).

    Raises `LogUnavailable`.
    """
    subjects = {subject: places for subject, places in positions.items() if places}
    await _note(wire, layout, stream, sorted(place for places in subjects.values() for place in places))
    for subject, places in subjects.items():
        body = {"filter": subject.decode(), "seq": places[-1] + 1}
        await wire.api(f"STREAM.PURGE.{stream}", body, Done)


async def places_of(wire: Wire, stream: str, subject: bytes, below: int | None = None) -> list[int]:
    """Return the positions below one of the messages on a subject, perhaps with wildcards; null: of all.

    Included are those of the schedules that the messages announce: without the message nothing else accounts for them.
    Raises `LogUnavailable`.
    """
    found: list[int] = []
    async for message in read_stream(wire, stream, subject):
        if below is not None and message.position >= below:
            break
        found += range(message.position, message.position + message.timers + 1)
    return found


async def removed(wire: Wire, layout: Layout, stream: str) -> Removed:
    """Return what was noted as removed from a stream. Raises `LogUnavailable`."""
    return Removed([span async for span in _noted(wire, layout, stream)])


async def _note(wire: Wire, layout: Layout, stream: str, positions: Sequence[int]) -> None:
    for first in range(0, len(positions), NOTE_POSITIONS_MAX):
        some = positions[first : first + NOTE_POSITIONS_MAX]
        numbers, after = list[int](), 0
        for begin, end in _joined((position, position) for position in some):
            numbers += [begin - after, end - begin + 1]
            after = end
        await store(wire, layout.removed(stream), _ENCODER.encode(_Removed(numbers)))


async def _noted(wire: Wire, layout: Layout, stream: str) -> AsyncIterator[Span]:
    after, more = 0, True
    while more:
        page = await read_page(wire, layout.artifacts, layout.removed(stream), after)
        for message in page.messages:
            after = message.position
            with contextlib.suppress(msgspec.MsgspecError):
                for span in _spans(_DECODER.decode(message.data).spans):
                    yield span
        more = page.more


def _spans(numbers: Sequence[int]) -> Iterator[Span]:
    end = 0
    for skipped, length in zip(numbers[::2], numbers[1::2], strict=False):
        yield end + skipped, end + skipped + length - 1
        end += skipped + length - 1


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans, which are in order, with those that touch or overlap joined."""
    before: Span | None = None
    for first, last in spans:
        if before is not None and first <= before[1] + 1:
            before = before[0], max(before[1], last)
            continue
        if before is not None:
            yield before
        before = first, last
    if before is not None:
        yield before
