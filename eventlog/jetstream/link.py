"""nats-py's connection with a shorter way in and out.

nats-py does what is hard about a connection: TLS, authentication, the servers of a cluster, reconnecting, subscribing
again. Around it, messages take a short cut: what is sent in one turn of the loop leaves in one write, and what arrives
goes to a plain function without task, queue or header dictionary. The private names of nats-py used here are
all in this module; the tests of this package fail when one of them changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error

from .parser import Parser

Handler = Callable[[bytes, bytes, bytes, bytes], None]
"""What a subscription does with a message: subject, reply, header, data. It must not block."""

_log = logging.getLogger(__name__)

UNHURRIED_S = 0.002
"""How long a message that nobody waits for may wait for another one to share a system call with."""


class Link(Client):
    """A connection; `connect` and `close` are nats-py's."""

    def __init__(self, denied: Callable[[str], None]) -> None:
        super().__init__()
        self._ps: Any = Parser(self)
        self._denied = denied
        self._handlers: dict[bytes, Handler] = {}
        self._flush_planned = False
        self._late_flush: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        """Whether something that is sent now reaches a server."""
        return bool(self._status == Client.CONNECTED)

    @property
    def info(self) -> dict[str, Any]:
        """What the server said about itself when the connection was made."""
        return self._server_info

    def send(self, command: bytes, *, unhurried: bool = False) -> None:
        """Send with all else of this turn of the loop; `unhurried`, with what comes next. Only while `up`."""
        self._pending.append(command)
        self._pending_data_size += len(command)
        if unhurried and not self._flush_planned and self._late_flush is None:
            self._late_flush = asyncio.get_running_loop().call_later(UNHURRIED_S, self.flush_now)
        elif not unhurried and not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self.flush_now)

    def flush_now(self) -> None:
        """Hand everything that was sent so far to the operating system."""
        self._flush_planned = False
        if self._late_flush is not None:
            self._late_flush.cancel()
            self._late_flush = None
        if self._pending and self.up and self._transport is not None:
            self._transport.write(b"".join(self._pending))
            self.forget_unsent()

    def forget_unsent(self) -> None:
        """Drop what was not handed over before the connection broke: nobody waits for it any more."""
        self._pending.clear()
        self._pending_data_size = 0

    async def end(self) -> None:
        """Close, also if nothing was ever opened."""
        if self._flush_queue is not None:
            await self.close()

    def listen(self, subject: bytes, handler: Handler) -> int:
        """Subscribe and return the subscription's id. It lasts over reconnects."""
        self._sid += 1
        self._handlers[b"%d" % self._sid] = handler
        self._subs[self._sid] = Subscription(self, self._sid, subject.decode())
        if self.up:
            self.send(b"SUB %b %d\r\n" % (subject, self._sid))
        return self._sid

    def unlisten(self, sid: int) -> None:
        """End a subscription. What is still under way goes to its handler until `forget`."""
        if self._subs.pop(sid, None) is not None and self.up:
            self.send(b"UNSUB %d\r\n" % sid)

    def forget(self, sid: int) -> None:
        """Drop the handler of a subscription that was ended."""
        self._handlers.pop(b"%d" % sid, None)

    def ping(self) -> asyncio.Future[Any]:
        """A future that is done when the server has processed everything sent before. Only while `up`."""
        pong: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self._pending.append(b"PING\r\n")
        self.flush_now()  # at once: nats-py's own pings do not queue, and pongs are told apart by order alone
        return pong

    def message(self, sid: bytes, subject: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        """Hand a message to its subscription. An error in there must not end the reading."""
        handler = self._handlers.get(sid)
        if handler is None:
            return
        try:
            handler(subject, reply, header, data)
        except Exception:  # noqa: BLE001  # see above
            _log.exception("a message on %s could not be handled", subject.decode(errors="replace"))

    async def command(self, line: bytes) -> None:
        """Leave to nats-py what is about the connection itself."""
        if line.startswith(b"PING"):
            await self._process_ping()
        elif line.startswith(b"PONG"):
            self._drop_abandoned_pongs()
            await self._process_pong()
        elif line.startswith(b"INFO"):
            await self._process_info(msgspec.json.decode(line[5:]))
        elif line.startswith(b"-ERR"):
            await self._process_error_line(line[4:].strip(b" '").decode(errors="replace"))

    def _drop_abandoned_pongs(self) -> None:
        """Nobody waits for a cancelled ping, but its pong comes: nats-py would set its result and fail."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()

    async def _process_error_line(self, text: str) -> None:
        """A refusal concerns one subject; after any other error the server closes, and we come back for ever."""
        if "permissions violation" in text.lower():
            self._denied(text)
        else:
            await self._process_op_err(Error(f"nats: {text}"))
