"""Losses that an operator has accepted, recorded in the artifacts' stream: audits list them apart, seals skip them."""

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
    """Positions whose loss is accepted, and why."""

    first: int
    last: int
    why: str


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Accepted)


async def accept(wire: Wire, layout: Layout, losses: tuple[Loss, ...]) -> None:
    """Record that these losses are accepted. Raises `LogUnavailable`."""
    for loss in losses:
        note = _Accepted(first=loss.first, last=loss.last, why=ACCEPTED_BY_OPERATOR)
        await store(wire, layout.loss(loss.stream), _ENCODER.encode(note))


async def known_losses(wire: Wire, layout: Layout, stream: str) -> AsyncIterator[tuple[str, int, int]]:
    """Yield each accepted loss: stream, first and last position. `>` means every stream. Raises `LogUnavailable`."""
    async for message in read_all(wire, layout.artifacts, layout.loss(stream)):
        with contextlib.suppress(msgspec.MsgspecError):
            note = _DECODER.decode(message.data)
            yield message.subject.split(b".")[3].decode(), note.first, note.last
