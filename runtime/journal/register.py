"""Registers: entities of the log whose last commit tells all that they are (lanes, circuit breakers, slots)."""

from __future__ import annotations

from ...eventlog.commits import ORIGIN, Commit, Head, decode, digest_of_bytes, encode
from ...eventlog.events import StoredEvent, Unknown
from ...eventlog.ports import At, CommitWrite, Log, Subject


async def read_register(log: Log, subject: Subject) -> tuple[Head, tuple[StoredEvent | Unknown, ...]]:
    """Where the register stands, and the events that tell what it holds; none before its first. May be stale.

    Raises `LogUnavailable`, `ValueError` for what is not a commit.
    """
    stored = await log.events.head(subject)
    if stored is None:
        return ORIGIN, ()
    commit = decode(stored.data)
    return Head(stored.position, commit.rev, digest_of_bytes(stored.data)), commit.events


def register_write(
    log: Log, subject: Subject, head: Head, event: StoredEvent, append: str = ""
) -> CommitWrite:
    """The write that makes this its next event, if it still stands at `head`."""
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
