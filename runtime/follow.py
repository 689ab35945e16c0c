"""The events of all runs of a namespace, as they are stored, with cursors to resume from.

A family is in one shard, so its events come in log order. There is no order between shards, and a cursor has a place in
each: `POSITION.INDEX` of the last event that was read there, joined by `_` in the order of the shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from ..eventlog.commits import (
    Head,
    Recorded,
    as_read,
    before,
    cursor_of,
    head_of,
    parse_cursor,
    tombstone_in,
    verify,
)
from ..eventlog.errors import ConfigError, FoldlogError
from ..eventlog.events import Event, is_terminal
from ..eventlog.ports import Log, Shard, Stored, Subject
from .journal.journal import following, restored
from .stream import is_shown

ShardPlace = tuple[int, int]
"""The position of a commit in its shard, and the index of an event in it; (0, 0) is the beginning."""

AHEAD_MAX = 256
"""The most commits that are read ahead."""


async def follow_runs(
    log: Log, *, after: str | None = None, detailed: bool = False, engine: bool = False
) -> AsyncGenerator[Event]:
    """Yield every event after the cursor `after`, stored or still to come, until the iterator is closed.

    `engine` includes all events that are stored, such as claims and model requests.
    Survives outages of the log. Each commit is verified against the one before it of its run, if that was read here.
    Raises `LogCorrupted`, and `ConfigError` for text that is not a cursor of this namespace.
    """
    places = _parse(after, log.events.shards)
    heads: dict[Subject, Head] = {}
    queue: asyncio.Queue[Stored | FoldlogError] = asyncio.Queue(AHEAD_MAX)
    pumps = [asyncio.create_task(_pump(log, shard, place, queue)) for shard, place in enumerate(places)]
    try:
        while True:
            item = await queue.get()
            if isinstance(item, FoldlogError):
                raise item
            recorded = await restored(_verified(item, heads), log)
            for event, place in _events(recorded):
                if place <= places[item.subject.shard]:
                    continue
                places[item.subject.shard] = place
                if engine or is_shown(event, detailed=detailed):
                    yield msgspec.structs.replace(event, cursor=_cursor(places))
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(log: Log, shard: int, place: ShardPlace, queue: asyncio.Queue[Stored | FoldlogError]) -> None:
    """Put the commits of a shard into the queue, from the one where the reader stopped."""
    try:
        async with following(log, Shard(shard), max(place[0] - 1, 0)) as commits:
            async for stored in commits:
                await queue.put(stored)
    except FoldlogError as error:
        await queue.put(error)


def _verified(stored: Stored, heads: dict[Subject, Head]) -> Recorded:
    """Return the verified commit. The first one of a run that is read here is checked only against itself."""
    head = heads.get(stored.subject)
    if head is None:
        head = before(stored)
    recorded = verify(stored, head, tombstones=True)
    if any(map(is_terminal, recorded.commit.events)) or tombstone_in(recorded.commit):
        heads.pop(stored.subject, None)
    else:
        heads[stored.subject] = head_of(recorded)
    return recorded


def _events(recorded: Recorded) -> list[tuple[Event, ShardPlace]]:
    """Return the events of a commit with their places. The run's own terminal is marked, a forwarded one is not."""
    path = recorded.commit.path
    return [
        (
            msgspec.structs.replace(event, is_end=is_terminal(event) and event.agent_path == path),
            (recorded.position, index),
        )
        for index, event in enumerate(as_read(recorded))
    ]


def _cursor(places: list[ShardPlace]) -> str:
    return "_".join(cursor_of(*place) for place in places)


def _parse(cursor: str | None, shards: int) -> list[ShardPlace]:
    if cursor is None:
        return [(0, 0)] * shards
    try:
        places = [parse_cursor(part) for part in cursor.split("_")]
    except (ValueError, AttributeError):
        places = []
    if len(places) != shards or any(number < 0 for place in places for number in place):
        raise ConfigError(
            f"{cursor!r:.80} is not a cursor of this namespace's runs: use the cursor of a followed event"
        )
    return places
