"""The base of the suites: the log under test, declarations about it, and writers of valid commits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar, TypeVar

import pytest
from anyio import fail_after

from ..clock import SystemClock
from ..commits import ORIGIN, Commit, Head, digest_of_bytes, encode
from ..events import Event, Text
from ..names import new_run_id, run_subject
from ..ports import At, CommitWrite, Delivery, Log, Stored, Subject, Wakeup, Write

T = TypeVar("T")
_IDS = SystemClock()


class Suite:
    """The declarations about the log under test, and the waiting of its tests."""

    durable: ClassVar[bool] = True
    """True if stored data is there when the namespace is opened again."""
    ack_wait_s: ClassVar[float] = 1.0
    """The time without a heartbeat after which the log under test redelivers a wake-up, in seconds."""
    patience_s: ClassVar[float] = 30.0
    """The longest time that a test waits for an item before it fails, in seconds."""

    @pytest.fixture
    def log(self) -> Log:
        """Return the log under test, open, with two shards and `ack_wait_s`. Override this; it may be async."""
        raise NotImplementedError("override the fixture `log`")

    def reopened(self, log: Log) -> AbstractAsyncContextManager[Log]:
        """Return another handle on the namespace of `log`, opened as in a new process. Override this."""
        raise NotImplementedError("override `reopened`")

    async def take(self, stream: AsyncIterator[T], count: int) -> list[T]:
        """Return the next items of a stream; fewer only if it ends. Raises `TimeoutError` if they do not come."""
        items: list[T] = []
        with fail_after(self.patience_s):
            async for item in stream:
                items.append(item)
                if len(items) == count:
                    break
        return items

    async def woken(self, log: Log, deliveries: AsyncIterator[Delivery], count: int) -> list[Wakeup]:
        """Return the next wake-ups of a pull, each acknowledged at once."""
        wakeups = []
        for _ in range(count):
            for delivery in await self.take(deliveries, 1):
                await log.wakeups.ack(delivery.token)
                wakeups.append(delivery.wakeup)
        return wakeups


class Writer:
    """Writes valid commits to one subject, from its beginning."""

    def __init__(self, log: Log, subject: Subject) -> None:
        self.log, self.subject, self.head = log, subject, ORIGIN
        self.stored: list[Stored] = []

    def write(self, text: str = "", *, expected: At | None = None, size_bytes: int = 0) -> CommitWrite:
        """Return the next commit, with one `text`; padded to `size_bytes` if given; `expected` replaces the head."""
        data = self._encode(Text(text=text))
        if size_bytes:
            data = self._encode(Text(text=text + "x" * (size_bytes - len(data))))
        return CommitWrite(self.subject, expected or At(self.head.position), data)

    def _encode(self, *events: Event) -> bytes:
        root = self.subject.root or self.subject.id
        return encode(
            Commit(
                run=self.subject.id,
                root=root,
                rev=self.head.rev + 1,
                append=_IDS.new_id(),
                prev=self.head.digest,
                epoch=0,
                at=1.5,
                path="conformance",
                events=events,  # type: ignore[arg-type]
            )
        )

    async def append(self, text: str = "", *others: Write) -> Stored:
        """Append the next commit, together with other writes."""
        return await self.store(self.write(text), *others)

    async def store(self, write: CommitWrite, *others: Write) -> Stored:
        """Append this commit of the writer, together with other writes, and move the head after it."""
        position, *_ = await self.log.events.append(write, *others)
        return self.accept(write, position)

    def accept(self, write: CommitWrite, position: int) -> Stored:
        """Move the head after a commit of the writer that is stored at `position`."""
        stored = Stored(self.subject, position, write.data)
        self.head = Head(position, self.head.rev + 1, digest_of_bytes(write.data))
        self.stored.append(stored)
        return stored


def run_in(log: Log, shard: int = 0, root: str = "") -> Writer:
    """Return a writer of a new run: a root run, or one of the family `root`."""
    run = new_run_id(shard, _IDS)
    return Writer(log, run_subject(shard, root or run, run))


def new_name(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{_IDS.new_id()}"


def wakeup_for(agent: str, cause: int = 0, *, shard: int = 0, run: str = "") -> Wakeup:
    """Return a wake-up of a run of this agent."""
    run = run or new_run_id(shard, _IDS)
    return Wakeup(shard=shard, agent=agent, root=run, run=run, cause=cause)


async def everything(stream: AsyncIterator[T]) -> list[T]:
    """Return all items of a stream that ends."""
    return [item async for item in stream]


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close the stream at the end, if it can be closed."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
