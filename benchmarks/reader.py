"""A reader process: reads the streams of runs, or a bare subject, and reports when each piece arrived.

python -m benchmarks.reader URL, then a JSON line for each order:
    {"run": ID, "readers": N}           read the run's stream to its end with N readers at once
    {"subject": NAME, "pieces": N}      receive N messages with nats-py; print "ready" when subscribed
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import nats
import uvloop
from foldlog.eventlog.events import Event, Text, TextReset
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Runtime
from nats.aio.msg import Msg

PATIENCE_S = 60.0
"""How long the server may take to answer, while a process starts a thousand readers at once."""


class Order(msgspec.Struct):
    """What to read: a run by a number of readers, or a number of messages of a subject."""

    run: str = ""
    readers: int = 1
    subject: str = ""
    pieces: int = 0


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """An event as received: time of arrival (nanoseconds since the epoch), type, text (of a reset: cause), offset."""

    at_ns: int
    type: str
    text: str = ""
    offset: int | None = None
    draft: bool = False


class Report(msgspec.Struct, frozen=True):
    """The events that the readers received, in order."""

    seen: list[Seen] = []

    @property
    def delays_ms(self) -> list[float]:
        """The delay of each time stamp in the drafts, in milliseconds."""
        drafts = (seen for seen in self.seen if seen.draft)
        return [(seen.at_ns - int(stamp)) / 1e6 for seen in drafts for stamp in seen.text.split()]

    @property
    def text(self) -> str:
        """The text that a reader ends up with if it applies the resets as the protocol says."""
        text = ""
        for seen in self.seen:
            if seen.type in {"text", "text_reset"}:
                text = (text if seen.offset is None else text[: seen.offset]) + seen.text * (
                    seen.type == "text"
                )
        return text


class Reader:
    """A handle on a reader process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str) -> Reader:
        """Start a reader process; it is connected when this returns."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.reader", url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        reader = cls(process)
        await reader.line()
        return reader

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def line(self) -> bytes:
        """Return its next line of output. Raises `RuntimeError` if the process has ended."""
        if self._process.stdout is None or not (line := await self._process.stdout.readline()):
            raise RuntimeError("the reader process has ended")
        return line

    def order(self, order: Order) -> None:
        """Send an order."""
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")

    async def report(self) -> Report:
        """Wait for the report of the last order."""
        return msgspec.json.decode(await self.line(), type=Report)

    async def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        await self._process.wait()


async def _serve(url: str) -> None:
    async with JetStreamLog.open(url, request_timeout_s=PATIENCE_S) as log, Runtime.open(log=log) as runtime:
        _say(b"ready")
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            order = msgspec.json.decode(line, type=Order)
            seen = await (_runs(runtime, order) if order.run else _subject(url, order))
            _say(msgspec.json.encode(Report(seen)))


async def _runs(runtime: Runtime, order: Order) -> list[Seen]:
    """Return what all readers saw, one reader after the other, each in its order of arrival."""
    readers = (_run(runtime, order.run) for _ in range(order.readers))
    return [seen for read in await asyncio.gather(*readers) for seen in read]


async def _run(runtime: Runtime, run: str) -> list[Seen]:
    return [_seen(event) async for event in runtime.get_run(run).stream()]


def _seen(event: Event) -> Seen:
    now = time.time_ns()
    match event:
        case Text():
            return Seen(now, event.type, event.text, event.offset, event.revision is None)
        case TextReset():
            return Seen(now, event.type, event.cause, event.offset)
        case _:
            return Seen(now, event.type)


async def _subject(url: str, order: Order) -> list[Seen]:
    seen, complete = list[Seen](), asyncio.Event()

    async def take(message: Msg) -> None:
        seen.append(Seen(time.time_ns(), "text", message.data.decode(), draft=True))
        if len(seen) == order.pieces:
            complete.set()

    connection = await nats.connect(url)
    await connection.subscribe(order.subject, cb=take)
    await connection.flush()
    _say(b"ready")
    await complete.wait()
    await connection.close()
    return seen


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
