"""Headers of NATS messages: written as bytes, read one at a time.

A server adds five headers to every stored message, but each reader needs only one or two of them, so headers are not
parsed into dictionaries.
"""

from __future__ import annotations

EXPECTED = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST = b"Nats-Expected-Last-Sequence"
BATCH_ID = b"Nats-Batch-Id"
BATCH_SEQUENCE = b"Nats-Batch-Sequence"
BATCH_COMMIT = b"Nats-Batch-Commit"
SCHEDULE = b"Nats-Schedule"
SCHEDULE_TARGET = b"Nats-Schedule-Target"
TTL = b"Nats-TTL"
TIMERS = b"Foldlog-Timers"
"""The number of messages right after this one that are schedules, which the server removes when they are due."""

_FIRST_LINE = b"NATS/1.0"
_STATUS_AT = len(_FIRST_LINE) + 1


def build(*fields: tuple[bytes, bytes]) -> bytes:
    """Return a header block with these fields; empty without any."""
    if not fields:
        return b""
    lines = [b"%b: %b\r\n" % field for field in fields]
    return b"%b\r\n%b\r\n" % (_FIRST_LINE, b"".join(lines))


def status(header: bytes) -> int:
    """Return the status in the first line, 0 for an ordinary message."""
    digits = header[_STATUS_AT : _STATUS_AT + 3]
    return int(digits) if digits.isdigit() else 0


def description(header: bytes) -> str:
    """Return the text after the status."""
    line = header[_STATUS_AT + 3 :].partition(b"\r\n")[0]
    return line.strip().decode(errors="replace")


def value(header: bytes, name: bytes) -> bytes:
    """Return the value of a header, empty if it is missing."""
    _, found, rest = header.partition(b"\r\n%b: " % name)
    return rest.partition(b"\r\n")[0] if found else b""


def number(header: bytes, name: bytes) -> int:
    """Return the value of a header as a number, 0 if it is missing."""
    return int(value(header, name) or 0)
