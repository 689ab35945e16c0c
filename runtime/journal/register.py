"""Registers: entities of the log whose newest commit is their whole value (lanes, circuit breakers, slots)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from ...eventlog.commits import ORIGIN, Commit, Head, decode, digest_of_bytes, encode
from ...eventlog.events import StoredEvent, Unknown
from ...eventlog.ports import At, CommitWrite, Log, RegisterKind, Subject

EventT = TypeVar("EventT", bound=StoredEvent)


async def read_register(log: Log, subject: Subject) -> tuple[Head, tuple[StoredEvent | Unknown, ...]]:
    """Return the register's head and the events of its newest commit, none before its first. May be stale.

    Raises `LogUnavailable`, `ValueError` for bytes that are not a commit.
    """
    head, commit = await newest_commit(log, subject)
    return head, () if commit is None else commit.events


async def newest_commit(log: Log, subject: Subject) -> tuple[Head, Commit | None]:
    """Return the register's head and its newest commit; null before its first. As `read_register`."""
    stored = await log.events.head(subject)
    if stored is None:
        return ORIGIN, None
    commit = decode(stored.data)
    return Head(stored.position, commit.rev, digest_of_bytes(stored.data)), commit


async def each_register(log: Log, kind: RegisterKind, event_type: type[EventT]) -> AsyncIterator[EventT]:
    """Yield the newest value of each register of a kind, shard by shard; other events are left out."""
    for shard in range(log.events.shards):
        async for stored in log.events.heads(shard, kind):
            for event in decode(stored.data).events:
                if isinstance(event, event_type):
                    yield event


def register_write(
    log: Log, subject: Subject, head: Head, event: StoredEvent, append: str = ""
) -> CommitWrite:
    """Return the write that makes this the register's next event, if its head is still `head`."""
    commit = Commit(
        run=subject.id,
        root="",
        rev=head.rev + 1,
        append=append or log.clock.new_id(),
        prev=head.digest,
        epoch=0,
        at=log.clock.now(),
        path="",
        events=(event,),
    )
    return CommitWrite(subject, At(head.position), encode(commit))
