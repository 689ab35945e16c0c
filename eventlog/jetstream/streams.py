"""Messages of a stream: stored with an acknowledgement, read by subject in pages.

Reads are direct gets: any replica may reply, so with three replicas they may miss what was just stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from ..errors import LogUnavailable
from . import headers
from .wire import Fault, Refused, Reply, Wire

PAGE_MESSAGES = 512
PAGE_BYTES = 4 * 1024 * 1024

_WRONG_POSITION = {10071, 10164}
_NO_MESSAGE = 10037
_END_OF_BATCH, _NOT_FOUND = 204, 404


class WrongPosition(Refused):
    """The condition on the subject's last position does not hold. Nothing was stored."""


class _Ack(msgspec.Struct, frozen=True):
    seq: int = 0
    error: Fault | None = None


_ACKS = msgspec.json.Decoder(_Ack)


class _State(msgspec.Struct, frozen=True):
    subjects: dict[str, int] | None = None


class _Info(msgspec.Struct, frozen=True):
    state: _State
    total: int = 0


class _Sequence(msgspec.Struct, frozen=True):
    seq: int


class _Got(msgspec.Struct, frozen=True):
    message: _Sequence


class Message(msgspec.Struct, frozen=True):
    """A stored message. `timers`: the number of schedules after it; only `read_stream` sets it."""

    subject: bytes
    position: int
    data: bytes
    timers: int = 0


class Page(msgspec.Struct, frozen=True):
    """Messages in order. `more`: others follow; `left`: how many; `unreadable`: the number that the server skipped."""

    messages: list[Message]
    more: bool
    left: int
    unreadable: int = 0


async def store(wire: Wire, subject: bytes, data: bytes, header: bytes = b"") -> int:
    """Store a message and return its position.

    Raises `WrongPosition`, `Refused` (other errors of the server), `Unanswered` (maybe stored), `NoResponders`,
    `LogUnavailable` (never sent).
    """
    return position_in(await wire.request(subject, data, header))


def position_in(reply: Reply) -> int:
    """Return the position of the message that this reply acknowledges. Raises `WrongPosition`, `Refused`."""
    ack = _ACKS.decode(reply[1])
    if ack.error is None:
        return ack.seq
    kind = WrongPosition if ack.error.err_code in _WRONG_POSITION else Refused
    raise kind("to store a message", ack.error)


async def read_page(
    wire: Wire, stream: str, subject: bytes, after: int = 0, count: int = PAGE_MESSAGES
) -> Page:
    """Return the next messages after position `after` on a subject, perhaps with wildcards. Raises `LogUnavailable`."""
    replies = await _page(wire, stream, subject, after, count)
    end = replies.pop()
    _check(end)
    messages = [_message(reply) for reply in replies]
    left = headers.number(end[0], b"Nats-Num-Pending")
    exhausted = len(messages) < count and sum(len(message.data) for message in messages) < PAGE_BYTES // 2
    if exhausted:  # the server skips messages that it cannot read, but counts them
        return Page(messages, more=False, left=0, unreadable=left)
    return Page(messages, more=left > 0, left=left)


async def _page(wire: Wire, stream: str, subject: bytes, after: int, count: int) -> list[Reply]:
    body = {"seq": after + 1, "next_by_subj": subject.decode(), "batch": count, "max_bytes": PAGE_BYTES}
    return await wire.request_many(b"$JS.API.DIRECT.GET." + stream.encode(), msgspec.json.encode(body))


async def read_all(wire: Wire, stream: str, subject: bytes) -> AsyncIterator[Message]:
    """Yield all messages on a subject, perhaps with wildcards. Raises `LogUnavailable`."""
    after, more = 0, True
    while more:
        page = await read_page(wire, stream, subject, after)
        for message in page.messages:
            yield message
            after = message.position
        more = page.more


async def read_stream(wire: Wire, stream: str, subject: bytes, after: int = 0) -> AsyncIterator[Message]:
    """Yield all messages after `after`, with the schedules that they announce; unreadable ones are skipped.

    Raises `LogUnavailable`.
    """
    while True:
        replies = await _page(wire, stream, subject, after, PAGE_MESSAGES)
        _check(replies.pop())
        if not replies:
            return
        for header, data in replies:
            message = _message((header, data))
            timers = headers.number(header, headers.TIMERS)
            yield msgspec.structs.replace(message, timers=timers) if timers else message
            after = message.position


async def read_last(wire: Wire, stream: str, subject: bytes) -> Message | None:
    """Return the last message on a subject, which may have wildcards, or None. Raises `LogUnavailable`."""
    get, wild = b"$JS.API.DIRECT.GET." + stream.encode(), b"*" in subject or b">" in subject
    asked = (
        (get, msgspec.json.encode({"last_by_subj": subject.decode()})) if wild else (get + b"." + subject,)
    )
    reply = await wire.request(*asked)
    if headers.status(reply[0]) == _NOT_FOUND:
        return None
    _check(reply)
    return _message(reply)


async def last_position(wire: Wire, stream: str, subject: bytes) -> int:
    """Return the position of the last message on a subject, 0 for none. Raises `LogUnavailable`.

    It is the older request for a message, which only the stream's leader answers: a direct get may come from a replica
    that lags.
    """
    try:
        body = {"last_by_subj": subject.decode()}
        got = await wire.api(f"STREAM.MSG.GET.{stream}", body, _Got)
    except Refused as refused:
        if refused.err_code == _NO_MESSAGE:
            return 0
        raise
    return got.message.seq


async def read_lasts(wire: Wire, stream: str, subject: bytes) -> AsyncIterator[Message]:
    """Yield the last message of each subject that a subject with wildcards matches. Raises `LogUnavailable`."""
    names = list(await subjects_on(wire, stream, subject))
    for start in range(0, len(names), PAGE_MESSAGES):
        body = {"multi_last": names[start : start + PAGE_MESSAGES], "batch": PAGE_MESSAGES}
        get = b"$JS.API.DIRECT.GET." + stream.encode()
        replies = await wire.request_many(get, msgspec.json.encode(body))
        _check(replies.pop())
        for reply in replies:
            yield _message(reply)


async def subjects_on(wire: Wire, stream: str, subject: bytes) -> dict[str, int]:
    """Return the subjects that one with wildcards matches, with their numbers of messages. Raises `LogUnavailable`."""
    counts: dict[str, int] = {}
    total = 1
    while len(counts) < total:
        body = {"subjects_filter": subject.decode(), "offset": len(counts)}
        info = await wire.api(f"STREAM.INFO.{stream}", body, _Info)
        found = info.state.subjects or {}
        if not found:
            break
        counts |= found
        total = info.total
    return counts


def _message(reply: Reply) -> Message:
    header, data = reply
    return Message(headers.value(header, b"Nats-Subject"), headers.number(header, b"Nats-Sequence"), data)


def _check(reply: Reply) -> None:
    """Raise `LogUnavailable` unless a read succeeded (204) or found nothing (404)."""
    status = headers.status(reply[0])
    if status not in {0, _END_OF_BATCH, _NOT_FOUND}:
        raise LogUnavailable(f"the NATS server could not read ({status} {headers.description(reply[0])})")
