"""Follow the log of a namespace, and send spans, records and counts to sinks.

The state is kept in a file: the cursor, the open spans and the counts so far. The file is replaced atomically after the
sinks have taken everything up to the cursor, so a restart loses nothing. A process that dies in between sends the last
batch again after its restart: the same spans and records with the same ids, and the same counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ...eventlog.commits import cursor_of, decode, parse_cursor
from ...eventlog.errors import ConfigError
from ...eventlog.events import Event
from ...eventlog.ports import Log, Shard, Stored
from ...runtime.follow import follow_runs
from .records import Counts, Record, Violated, record_of, record_of_violation
from .spans import Span, SpanFold

BATCH_S = 1.0
"""How long a finished span may wait for others, in seconds."""
SPANS_MAX = 512

Start = Literal["beginning", "now"]


Judge = Callable[[Event], Awaitable[Sequence[Violated]]]
"""Returns the rules that an event breaks. It is called with the events in order."""


class Told(msgspec.Struct, frozen=True):
    """New finished spans, new log records, and the total counts at `at` (Unix seconds)."""

    spans: Sequence[Span]
    records: Sequence[Record]
    counts: Counts
    at: float


class Sink(Protocol):
    """A destination of telemetry."""

    async def send(self, told: Told) -> None:
        """Store or forward it, and return when that has succeeded. Retries while the destination is unavailable."""
        ...


class _Saved(msgspec.Struct, kw_only=True):
    """The content of the state file."""

    namespace: str
    cursor: str | None
    fold: SpanFold
    counts: Counts = msgspec.field(default_factory=Counts)


async def subscribe(
    log: Log,
    sinks: Sequence[Sink],
    *,
    state: Path | None = None,
    start: Start = "now",
    content: bool = False,
    once: bool = False,
    told: Callable[[float], None] | None = None,
    judge: Judge | None = None,
) -> None:
    """Follow a namespace and send its telemetry to the sinks until cancelled, from the cursor in the file `state`.

    Without a file, `start` decides between the beginning of the log and now; runs submitted before that have no spans.
    `once`: return after everything stored so far is sent. `told` is called with the time of the newest event folded.
    `judge` is called with each event, and returns the rules that it breaks. Raises `ConfigError` for a state file of
    another namespace or in another format, `LogCorrupted`, `LogUnavailable`.
    """
    saved = _load(state, log.namespace)
    if saved is None:
        cursor = await _end(log) if start == "now" and not once else None
        saved = _Saved(namespace=log.namespace, cursor=cursor, fold=SpanFold())
    saved.fold.content = content
    until = await _end(log) if once else None
    if once and (until is None or _reached(saved.cursor, until)):
        return
    if not saved.counts.since:
        saved.counts.since = log.clock.now()
    spans, records = list[Span](), list[Record]()
    async with contextlib.aclosing(follow_runs(log, after=saved.cursor, engine=True)) as events:
        async for batch in _batches(events, until):
            for event in batch:
                spans += saved.fold.feed(event)
                records += map(record_of, saved.fold.take_news())
                for number, each in enumerate(await judge(event) if judge is not None else ()):
                    records.append(record_of_violation(event, each, number))
                saved.cursor = event.cursor
            if spans or records:
                saved.counts.feed(spans, records)
                for sink in sinks:
                    await sink.send(Told(spans, records, saved.counts, log.clock.now()))
                spans, records = [], []
            _store(state, saved)
            if told is not None:
                told(batch[-1].at)


async def _batches(events: AsyncIterator[Event], until: str | None) -> AsyncIterator[list[Event]]:
    """Yield the events in batches, each of those that arrive within `BATCH_S`; end at the cursor `until`."""
    batch: list[Event] = []
    loop = asyncio.get_running_loop()
    due = loop.time() + BATCH_S
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            await asyncio.wait({coming}, timeout=max(0.0, due - loop.time()) if batch else None)
            if coming.done():
                event = coming.result()
                if event is None:
                    return
                if not batch:
                    due = loop.time() + BATCH_S
                batch.append(event)
                if _reached(event.cursor, until):
                    yield batch
                    return
                coming = asyncio.ensure_future(anext(events, None))
            if batch and (len(batch) >= SPANS_MAX or loop.time() >= due):
                yield batch
                batch = []
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def _reached(cursor: str | None, until: str | None) -> bool:
    """Return whether a cursor has reached `until` in every shard; false if either is None."""
    if cursor is None or until is None:
        return False
    places = [[parse_cursor(part) for part in each.split("_")] for each in (cursor, until)]
    return all(here >= there for here, there in zip(*places, strict=True))


async def _end(log: Log) -> str | None:
    """Return the cursor of the newest stored event of each shard; None if nothing is stored."""
    heads = [await log.events.head(Shard(shard)) for shard in range(log.events.shards)]
    if not any(heads):
        return None
    return "_".join(
        cursor_of(head.position, _last_index(head)) if head else cursor_of(0, 0) for head in heads
    )


def _last_index(head: Stored) -> int:
    """Return the index of the last event of a commit. Raises `LogCorrupted` for an unreadable one."""
    return len(decode(head.data).events) - 1


def _load(path: Path | None, namespace: str) -> _Saved | None:
    if path is None or not path.exists():
        return None
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=_Saved)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path} is not a file of `foldlog telemetry` ({error}): name another file, or delete it"
        ) from None
    if saved.namespace != namespace:
        raise ConfigError(f"{path} belongs to the namespace {saved.namespace!r}: name another file")
    return saved


def _store(path: Path | None, saved: _Saved) -> None:
    if path is None:
        return
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.json.encode(saved))
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
