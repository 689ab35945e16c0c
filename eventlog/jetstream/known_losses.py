"""Losses that an operator knows of, noted among the artifacts: audits list them apart, and seals go on behind."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from ..losses import Loss
from .layout import Layout
from .streams import read_all, store
from .wire import Wire

ACCEPTED_BY_OPERATOR = "an operator accepted their loss"


class _Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """Positions that are known to be gone, and why."""

    first: int
    last: int
    why: str


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Accepted)


async def accept(wire: Wire, layout: Layout, losses: tuple[Loss, ...]) -> None:
    """Note in the log that these losses are known. Raises `LogUnavailable`."""
    for loss in losses:
        note = _Accepted(first=loss.first, last=loss.last, why=ACCEPTED_BY_OPERATOR)
        await store(wire, layout.loss(loss.stream), _ENCODER.encode(note))


async def known_losses(wire: Wire, layout: Layout, stream: str) -> AsyncIterator[tuple[str, int, int]]:
    """Each note: the stream, and the first and last position. `>` is every stream. Raises `LogUnavailable`."""
    async for message in read_all(wire, layout.artifacts, layout.loss(stream)):
        with contextlib.suppress(msgspec.MsgspecError):
            note = _DECODER.decode(message.data)
            yield message.subject.split(b".")[3].decode(), note.first, note.last
