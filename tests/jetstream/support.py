"""Support for tests of outages: a connection to a server that can break, writers that never give up, waiting."""

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self, TypeVar

from anyio import fail_after
from foldlog.eventlog import Chain, LogUnavailable, Stored, head_of
from foldlog.eventlog.conformance.suite import Writer, everything
from foldlog.eventlog.jetstream import JetStreamLog

PATIENCE_S = 60.0


class Gate:
    """Listens on loopback, and passes on to a port there."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._blocked = self._muted = False
        self.blocked_bytes = 0
        """Number of bytes for the server that were held back since `block`."""
        self.lag_s = 0.0
        """Seconds that bytes for the server are on their way."""
        self._left: int | None = None
        self._clients = set[asyncio.StreamWriter]()
        self._servers = set[asyncio.StreamWriter]()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def block(self) -> None:
        """Let nothing through to the server any more, until `cut`."""
        self._blocked, self.blocked_bytes = True, 0

    def mute(self) -> None:
        """Let nothing through from the server any more, until `cut`."""
        self._muted = True

    def cut_after(self, count: int) -> None:
        """Let so many more bytes through to the server, then break the connection and let nothing new in."""
        self._left = count

    def cut(self) -> None:
        """Break all connections; new ones are let through."""
        self._blocked = self._muted = False
        self._left = None
        for writer in self._clients | self._servers:
            writer.transport.abort()

    def babble(self, data: bytes) -> None:
        """Say something to the clients that the server never said."""
        for writer in self._clients:
            writer.write(data)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        if self._left == 0:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._clients.add(writer)
        self._servers.add(back)
        with suppress(OSError):
            await asyncio.gather(self._to_server(reader, back), self._to_client(there, writer))
        for end in (writer, back):
            end.transport.abort()
        self._clients.discard(writer)
        self._servers.discard(back)

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self.lag_s)
            if self._left is not None:
                data, self._left = data[: self._left], max(0, self._left - len(data))
            if self._blocked:
                self.blocked_bytes += len(data)
            else:
                writer.write(data)
            if self._left == 0:
                await writer.drain()
                break
        writer.close()  # what was let through arrives

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not (self._blocked or self._muted):
                writer.write(data)
        writer.transport.abort()


opened = functools.partial(JetStreamLog.open, connect_timeout_s=PATIENCE_S, request_timeout_s=PATIENCE_S)
"""Open a log that waits for a busy machine."""
T = TypeVar("T")


async def take(stream: AsyncIterator[T], count: int, within_s: float = PATIENCE_S) -> list[T]:
    with fail_after(within_s):
        return [await anext(stream) for _ in range(count)]


async def until(condition: Callable[[], object]) -> None:
    with fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # nothing else tells of it
            await asyncio.sleep(0.005)


async def down(log: JetStreamLog) -> None:
    await until(lambda: not log._wire.is_up)


async def up(log: JetStreamLog) -> None:
    await until(lambda: log._wire.is_up)


async def cut_off(log: JetStreamLog, gate: Gate) -> None:
    """Break the connection and wait until it is back."""
    async with again(log):
        gate.cut()


@asynccontextmanager
async def again(log: JetStreamLog) -> AsyncIterator[None]:
    """Run a block that breaks the connection, and wait until it is back."""
    before = log._wire._link.stats["reconnects"]
    yield
    await until(lambda: log._wire._link.stats["reconnects"] > before)
    await up(log)


async def keep_writing(
    writer: Writer, acknowledged: list[Stored], troubles: list[LogUnavailable], enough: int
) -> None:
    """Append until `enough` is stored, through all troubles, looking for the own commit after each."""
    for number in itertools.count():
        write = writer.write(f"{number}")
        try:
            position, *_ = await writer.log.events.append(write)
            acknowledged.append(writer.accept(write, position))
        except LogUnavailable as trouble:
            troubles.append(trouble)
            await look_again(writer)
        if len(writer.stored) >= enough:
            return


async def look_again(writer: Writer) -> None:
    while True:
        try:
            stored = await everything(writer.log.events.read(writer.subject))
        except LogUnavailable:
            continue
        chain = Chain()
        for commit in stored:
            writer.head = head_of(chain.verify(commit))
        writer.stored = stored
        return
