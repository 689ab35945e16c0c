"""Registers: entities of the log whose newest commit is their whole value (lanes, circuit breakers, slots)."""

from __future__ import annotations

from ...eventlog.commits import ORIGIN, Commit, Head, decode, digest_of_bytes, encode
from ...eventlog.events import StoredEvent, Unknown
from ...eventlog.ports import At, CommitWrite, Log, Subject


async def read_register(log: Log, subject: Subject) -> tuple[Head, tuple[StoredEvent | Unknown, ...]]:
    """Return the register's head and the events of its newest commit, none before its first. May be stale.

    Raises `LogUnavailable`, `ValueError` for bytes that are not a commit.
    """
    stored = await log.events.head(subject)
    if stored is None:
        return ORIGIN, ()
    commit = decode(stored.data)
    return Head(stored.position, commit.rev, digest_of_bytes(stored.data)), commit.events


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
