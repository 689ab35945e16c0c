"""A fast parser for the client side of the NATS protocol: bytes in, messages out.

It replaces nats-py's parser, which matches each message with several regular expressions and parses every header into a
dictionary. Messages are passed directly to a function; other commands still go to nats-py.
"""

from __future__ import annotations

from typing import Protocol

from nats.errors import ProtocolError

_LINE_END = b"\r\n"
_M, _H = b"MH"


class Receiver(Protocol):
    """Receives what the server sent."""

    def message(self, sid: bytes, subject: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        """Receive a message for a subscription; `header` and `reply` may be empty."""
        ...

    def command(self, line: bytes) -> None:
        """Receive any other command, without its line end."""
        ...


class Parser:
    """Collects bytes and splits them into commands."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.reset()

    def reset(self) -> None:
        """Drop an incomplete command, because a new connection begins."""
        self._buffer = bytearray()
        self._needed = 0  # bytes that the next command needs to be complete

    async def parse(self, data: bytes = b"") -> None:
        """Call `feed`; nats-py uses this name."""
        self.feed(data)

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes, and pass on every complete command. Raises `ProtocolError`."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._needed:
            return
        self._needed = 0
        try:
            position = self._take(buffer)
        except (ValueError, IndexError) as error:
            raise ProtocolError from error  # nats-py then reconnects
        del buffer[:position]

    def _take(self, buffer: bytearray) -> int:
        """Pass on every complete command; returns the position of the rest."""
        position = 0
        while (line_end := buffer.find(_LINE_END, position)) >= 0:
            first = buffer[position]
            if first in (_M, _H):
                arguments = bytes(buffer[position:line_end]).split()
                end = line_end + 2 + int(arguments[-1])
                if len(buffer) < end + 2:
                    self._needed = end + 2 - position
                    break
                self._hand_on(arguments, bytes(buffer[line_end + 2 : end]), has_header=first == _H)
                position = end + 2
            else:
                line = bytes(buffer[position:line_end])
                position = line_end + 2
                self._receiver.command(line)
        return position

    def _hand_on(self, arguments: list[bytes], body: bytes, *, has_header: bool) -> None:
        """Pass on a message: `MSG subject sid [reply] size` or `HMSG subject sid [reply] header-size size`."""
        sizes = 2 if has_header else 1
        reply = arguments[3] if len(arguments) == 4 + sizes else b""  # HMSG, subject, sid, reply
        split = int(arguments[-2]) if has_header else 0
        self._receiver.message(arguments[2], arguments[1], reply, body[:split], body[split:])
