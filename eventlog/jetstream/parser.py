"""The client side of the NATS protocol, read fast: bytes in, messages out.

It takes the place of nats-py's parser, which matches each message with several regular expressions and parses every
header into a dictionary. Messages go straight to a function; the few other commands go to nats-py as before.
"""

from __future__ import annotations

from typing import Protocol

from nats.errors import ProtocolError

_LINE_END = b"\r\n"
_M, _H = b"MH"


class Receiver(Protocol):
    """What a connection does with what the server sent."""

    def message(self, sid: bytes, subject: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        """One message for a subscription; `header` and `reply` may be empty."""
        ...

    def command(self, line: bytes) -> None:
        """Any other command, without the end of its line."""
        ...


class Parser:
    """Collects what arrives and cuts it into commands."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.reset()

    def reset(self) -> None:
        """Forget what is incomplete: a new connection begins."""
        self._buffer = bytearray()
        self._needed = 0  # bytes before it is worth looking again

    async def parse(self, data: bytes = b"") -> None:
        """`feed`, under the name by which nats-py calls it."""
        self.feed(data)

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes and hand on every command that is complete. Raises `ProtocolError`."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._needed:
            return
        self._needed = 0
        try:
            position = self._take(buffer)
        except (ValueError, IndexError) as error:
            raise ProtocolError from error  # nats-py then connects again
        del buffer[:position]

    def _take(self, buffer: bytearray) -> int:
        """Hand on what is complete; returns where the rest begins."""
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
        """`MSG subject sid [reply] size` or `HMSG subject sid [reply] header-size size`."""
        sizes = 2 if has_header else 1
        reply = arguments[3] if len(arguments) == 4 + sizes else b""  # HMSG, subject, sid, reply
        split = int(arguments[-2]) if has_header else 0
        self._receiver.message(arguments[2], arguments[1], reply, body[:split], body[split:])
