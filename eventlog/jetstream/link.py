"""nats-py's connection, with a short cut for messages in both directions.

nats-py does the hard parts of a connection: TLS, authentication, the servers of a cluster, reconnecting, subscribing
again. Messages bypass the rest of it, because its streams, tasks, queues and header dictionaries cost more than the
work of the log itself:

- Out: all messages sent in one turn of the event loop leave in one write (`send`, `_end_turn`). If the turn before had
  only one message, the next one is written at once: a lone request must not wait. `unhurried` messages, for which
  no caller waits, may wait up to `UNHURRIED_S` to share a write.
- In: a protocol of our own replaces the stream reader of the socket once nats-py has finished the handshake
  (`_take_short_cut`). It reads into one reused buffer and feeds the parser, which calls plain handlers (`message`).
  nats-py's reading task only sees the end of the connection, so its reconnecting works unchanged.

All private names of nats-py and asyncio that are used are in this module; its tests fail if one of them changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import Error, ProtocolError

from .parser import Parser

Handler = Callable[[bytes, bytes, bytes, bytes], None]
"""The handler of a subscription: subject, reply, header, data. It must not block."""

_log = logging.getLogger(__name__)

LOST = "the connection was lost"
ARRIVAL_BYTES = 64 * 1024
"""The most bytes that are read from the socket at once."""
TURN_BYTES = 8 * 1024
"""The most bytes that wait for the end of a turn; more are written at once, while the next ones are prepared."""
UNHURRIED_S = 0.002
"""The longest time, in seconds, that an unhurried message waits for another one, to share a system call with it."""


class Link(Client):
    """A connection; `connect` and `close` are nats-py's."""

    def __init__(self, denied: Callable[[str], None]) -> None:
        super().__init__()
        self._ps: Any = Parser(self)
        self._denied = denied
        self._handlers: dict[bytes, Handler] = {}
        self._event_loop = asyncio.get_running_loop()
        self._in_turn = 0  # messages that were sent in this turn
        self._lonely = True
        self._late_flush: asyncio.TimerHandle | None = None
        self._commands: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> bool:
        """True if the connection is up."""
        return bool(self._status == Client.CONNECTED)

    @property
    def info(self) -> dict[str, Any]:
        """The server's description of itself, from when the connection was made."""
        return self._server_info

    def send(self, command: bytes, *, unhurried: bool = False) -> None:
        """Send with everything else in this turn of the loop; `unhurried`, with a later message. Only while `up`.

        After a turn with only one message, the first message of the next turn does not wait for the end of the turn.
        """
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._in_turn:
            self._in_turn += 1
            if self._pending_data_size > TURN_BYTES:
                self.flush_now()
        elif not unhurried:
            self._in_turn = 1
            self._event_loop.call_soon(self._end_turn)
            if self._lonely:
                self.flush_now()
        elif self._late_flush is None:
            self._late_flush = self._event_loop.call_later(UNHURRIED_S, self.flush_now)

    def _end_turn(self) -> None:
        self._lonely = self._in_turn == 1
        self._in_turn = 0
        self.flush_now()

    def flush_now(self) -> None:
        """Pass everything that was sent so far to the operating system."""
        if self._late_flush is not None:
            self._late_flush.cancel()
            self._late_flush = None
        if self._pending and self.up and self._transport is not None:
            try:
                self._transport.write(b"".join(self._pending))
            except (
                OSError
            ) as error:  # the connection broke unnoticed; requests in flight fail when nats-py handles it
                self.forget_unsent()
                self._later(self._process_op_err(error))
                return
            self.forget_unsent()
            if not isinstance(self._transport, TcpTransport):
                self._later(self._drain(self._transport))

    async def _drain(self, transport: Any) -> None:
        """Make a WebSocket send; its `write` only buffers."""
        try:
            await transport.drain()
        except OSError as error:
            await self._process_op_err(error)

    def forget_unsent(self) -> None:
        """Drop messages that were not written before the connection broke; their requests have failed."""
        self._pending.clear()
        self._pending_data_size = 0

    async def end(self) -> None:
        """Close the connection, even if it was never opened."""
        if self._flush_queue is not None:
            await self.close()

    def listen(self, subject: bytes, handler: Handler) -> int:
        """Subscribe, and return the subscription's id. The subscription survives reconnects."""
        self._sid += 1
        self._handlers[b"%d" % self._sid] = handler
        self._subs[self._sid] = Subscription(self, self._sid, subject.decode())
        if self.up:
            self.send(b"SUB %b %d\r\n" % (subject, self._sid))
        return self._sid

    def unlisten(self, sid: int) -> None:
        """End a subscription. Messages in flight still go to its handler until `forget`."""
        if self._subs.pop(sid, None) is not None and self.up:
            self.send(b"UNSUB %d\r\n" % sid)

    def forget(self, sid: int) -> None:
        """Drop the handler of a subscription that was ended."""
        self._handlers.pop(b"%d" % sid, None)

    def ping(self) -> asyncio.Future[Any]:
        """Return a future that is done when the server has processed everything sent before. Only while `up`."""
        pong: asyncio.Future[Any] = self._event_loop.create_future()
        self._pongs.append(pong)
        self._pending.append(b"PING\r\n")
        self.flush_now()  # at once: nats-py's own pings do not queue, and pongs are matched only by their order
        return pong

    def message(self, sid: bytes, subject: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        """Pass a message to the handler of its subscription. An error in the handler must not end the reading."""
        handler = self._handlers.get(sid)
        if handler is None:
            return
        try:
            handler(subject, reply, header, data)
        except Exception:  # noqa: BLE001  # an error must not end the reading
            _log.exception("a message on %s could not be handled", subject.decode(errors="replace"))

    def command(self, line: bytes) -> None:
        """Handle a protocol line about the connection itself; rare and slow ones are left to nats-py."""
        if line.startswith(b"PING"):
            self.send(b"PONG\r\n")
        elif line.startswith(b"PONG"):
            self._take_pong()
        elif line.startswith(b"INFO"):
            self._later(self._process_info(msgspec.json.decode(line[5:])))
        elif line.startswith(b"-ERR"):
            self._later(self._process_error_line(line[4:].strip(b" '").decode(errors="replace")))

    def _take_pong(self) -> None:
        """Match a pong with the oldest ping; the pong of a cancelled ping also comes."""
        self._pings_outstanding = 0
        if self._pongs:
            pong = self._pongs.pop(0)
            if not pong.done():
                pong.set_result(True)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _process_error_line(self, text: str) -> None:
        """Handle an error: a denial concerns one subject; after any other the server closes, and nats-py reconnects."""
        if "permissions violation" in text.lower():
            self._denied(text)
        else:
            await self._process_op_err(Error(f"nats: {text}"))

    async def _connect_to_server(self, server: Srv) -> None:
        await super()._connect_to_server(server)
        if type(self._transport) is TcpTransport:
            self._transport.__class__ = _Tcp

    async def _read_loop(self) -> None:
        """Run nats-py's reading task, which only sees the end of the connection."""
        if isinstance(self._transport, TcpTransport):
            self._take_short_cut(self._transport)
        await super()._read_loop()

    def _take_short_cut(self, tcp: Any) -> None:
        """Bypass the stream reader from here on; begin with the bytes that it has already read."""
        reader, socket = tcp._io_reader, tcp._io_writer.transport  # noqa: SLF001  # see the head of this module
        if socket.is_closing():
            return  # it broke already, and the stream reader knows
        is_tls = socket.get_extra_info("ssl_object") is not None
        socket.set_protocol(_ShortCut(socket.get_protocol(), reader, self._ps, half_open=not is_tls))
        socket.set_write_buffer_limits(0)  # otherwise uvloop buffers writes until its turn ends
        held: bytearray = reader._buffer  # noqa: SLF001
        self._ps.feed(held)
        held.clear()


class _Tcp(TcpTransport):
    """A socket that reports a lost connection as `ConnectionResetError`, where uvloop raises `RuntimeError`.

    nats-py does not expect a `RuntimeError` there, and would stop reconnecting.
    """

    def write(self, payload: bytes) -> None:
        try:
            super().write(payload)  # type: ignore[no-untyped-call] # nats-py's
        except RuntimeError as error:
            raise ConnectionResetError(LOST) from error

    def writelines(self, payload: list[bytes]) -> None:
        try:
            super().writelines(payload)  # type: ignore[no-untyped-call] # nats-py's
        except RuntimeError as error:
            raise ConnectionResetError(LOST) from error


class _ShortCut(asyncio.BufferedProtocol):
    """A protocol in front of a connection's stream: data goes to the parser, everything else to the stream.

    It reads into one reused buffer; a plain protocol would get a new object of 256 KiB for each message.
    """

    def __init__(
        self,
        stream: asyncio.StreamReaderProtocol,
        reader: asyncio.StreamReader,
        parser: Parser,
        *,
        half_open: bool,
    ) -> None:
        self._reader, self._parser, self._stream, self._half_open = reader, parser, stream, half_open
        self._arrived = memoryview(bytearray(ARRIVAL_BYTES))
        self.connection_lost = stream.connection_lost  # type: ignore[method-assign]
        self.pause_writing = stream.pause_writing  # type: ignore[method-assign]
        self.resume_writing = stream.resume_writing  # type: ignore[method-assign]

    def eof_received(self) -> bool:
        """Tell the stream; TLS cannot stay open for writing, of which the stream knows nothing after an upgrade."""
        self._stream.eof_received()
        return self._half_open

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._arrived

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._parser.feed(self._arrived[:nbytes])
        except ProtocolError as error:
            self._reader.set_exception(error)  # ends nats-py's reading task, which then reconnects
