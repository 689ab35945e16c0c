"""Removals: the messages that foldlog itself takes out of a stream, each noted before with its position.

The notes are in the artifacts' stream. An audit counts a missing position that is noted as removed and any other as
lost. A note whose purge never came names positions that are still there, which is harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from .layout import Layout
from .streams import read_page, read_stream, store
from .wire import Done, Refused, Wire

ERASED_AT_ONCE = 32
"""The most deletions in flight."""
_GONE_ALREADY = {10037, 10043, 10057}
"""The error codes of a message that is not there: no message found, sequence not found, delete failed."""
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


class Places(NamedTuple):
    """The positions of messages, and with them (`noted`) those of the schedules that the messages announce.

    Without the message nothing else accounts for such a schedule.
    """

    messages: list[int]
    noted: list[int]


async def places_of(wire: Wire, stream: str, subject: bytes, below: int | None = None) -> Places:
    """Return the places below a position of the messages on a subject, perhaps with wildcards; null: of all.

    Raises `LogUnavailable`.
    """
    places = Places([], [])
    async for message in read_stream(wire, stream, subject):
        if below is not None and message.position >= below:
            break
        places.messages.append(message.position)
        places.noted.extend(range(message.position, message.position + message.timers + 1))
    return places


async def remove(wire: Wire, layout: Layout, stream: str, places: Mapping[bytes, Places]) -> int:
    """Note, and then purge, the first messages of subjects; return their number. Raises `LogUnavailable`.

    Their bytes stay in the server's files until it compacts a block: this is for messages without content.
    """
    subjects = {subject: each for subject, each in places.items() if each.messages}
    await note_removal(wire, layout, stream, (place for each in subjects.values() for place in each.noted))
    for subject, each in subjects.items():
        body = {"filter": subject.decode(), "seq": each.messages[-1] + 1}
        await wire.api(f"STREAM.PURGE.{stream}", body, Done)
    return sum(len(each.messages) for each in subjects.values())


async def erase(wire: Wire, layout: Layout, stream: str, places: Iterable[Places]) -> None:
    """Note messages, and then delete them one by one: the server overwrites their bytes. Raises `LogUnavailable`."""
    every = list(places)
    await note_removal(wire, layout, stream, (place for each in every for place in each.noted))
    await overwrite(wire, stream, [place for each in every for place in each.messages])


async def overwrite(wire: Wire, stream: str, positions: Sequence[int]) -> None:
    """Delete messages whose removal needs no note, or has one. Raises `LogUnavailable`."""
    for first in range(0, len(positions), ERASED_AT_ONCE):
        some = positions[first : first + ERASED_AT_ONCE]
        await asyncio.gather(*(_overwrite(wire, stream, position) for position in some))


async def _overwrite(wire: Wire, stream: str, position: int) -> None:
    try:
        await wire.api(f"STREAM.MSG.DELETE.{stream}", {"seq": position}, Done)
    except Refused as refused:
        if refused.err_code not in _GONE_ALREADY:
            raise


async def removed(wire: Wire, layout: Layout, stream: str) -> Removed:
    """Return what was noted as removed from a stream. Raises `LogUnavailable`."""
    return Removed([span async for span in _noted(wire, layout, stream)])


async def remove_at(wire: Wire, layout: Layout, stream: str, positions: Sequence[int]) -> None:
    """Note, and then delete, the messages at these positions. Raises `LogUnavailable`."""
    await note_removal(wire, layout, stream, positions)
    for position in positions:
        await wire.api(f"STREAM.MSG.DELETE.{stream}", {"seq": position}, Done)


async def note_removal(wire: Wire, layout: Layout, stream: str, positions: Iterable[int]) -> None:
    """Note that the messages at these positions are about to be removed. Raises `LogUnavailable`."""
    every = sorted(positions)
    for first in range(0, len(every), NOTE_POSITIONS_MAX):
        some = every[first : first + NOTE_POSITIONS_MAX]
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
