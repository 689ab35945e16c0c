"""A trace: every commit of a family as stored, verified, and the events in it as read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...eventlog.commits import Chain, Recorded, as_read
from ...eventlog.errors import RunNotFound
from ...eventlog.events import OBSERVABLE, Event
from ...eventlog.names import shard_in, shard_of
from ...eventlog.offload import restore
from ...eventlog.ports import Family, Log, Stored, Subject


class Trace(msgspec.Struct, frozen=True):
    """The commits of a family in log order; `stored` and `commits` correspond one to one.

    `events` are all events of these commits as read (R17), including engine events, with offloaded fields restored if
    the trace was loaded with its artifacts.
    """

    stored: tuple[Stored, ...]
    commits: tuple[Recorded, ...]
    events: tuple[Event, ...]

    @property
    def observable(self) -> tuple[Event, ...]:
        """The events that callers see."""
        return tuple(event for event in self.events if isinstance(event, OBSERVABLE))

    @property
    def root(self) -> str:
        """The id of the family's root run; empty for an empty trace."""
        return self.commits[0].commit.root if self.commits else ""


def trace_of(stored: Iterable[Stored]) -> Trace:
    """Build the trace of commits in log order. Raises `LogCorrupted` if one is missing, altered or unreadable."""
    kept, chain = tuple(stored), Chain()
    commits = tuple(chain.verify(commit) for commit in kept)
    return Trace(kept, commits, tuple(event for commit in commits for event in as_read(commit)))


async def load_trace(log: Log, run: str | Subject) -> Trace:
    """Load everything that a run's family has stored so far; `run` is the id of any member, or its subject.

    Raises `RunNotFound` for a run that the namespace does not have, `LogCorrupted` for a damaged log.
    """
    subject = run if isinstance(run, Subject) else await find_run(log, run)
    return await restored(trace_of(await read_family(log, subject)), log)


async def read_family(log: Log, subject: Subject) -> list[Stored]:
    """Return the commits of a run's family as they are stored so far."""
    return [stored async for stored in log.events.read(family_of(subject))]


async def restored(trace: Trace, log: Log) -> Trace:
    """Return a trace with its offloaded and sealed values. Raises `LogCorrupted`, `KeyMissing`, `KeyErased`."""
    events = await restore(trace.events, log.artifacts.of(trace.root))
    return msgspec.structs.replace(trace, events=tuple(events))


async def find_run(log: Log, run: str) -> Subject:
    """Return the subject of a run, first looking in the shard that its id implies. Raises `RunNotFound`."""
    likely = [shard for shard in (shard_in(run), shard_of(run, log.events.shards)) if shard is not None]
    for shard in dict.fromkeys([*likely, *range(log.events.shards)]):
        subject = await log.events.find(shard, run) if shard < log.events.shards else None
        if subject is not None:
            return subject
    raise RunNotFound(
        f"no run {run!r} in the namespace {log.namespace!r}; `foldlog runs list` shows those that exist"
    )


def family_of(subject: Subject) -> Family:
    """Return the family that a run belongs to."""
    return Family(subject.shard, subject.root)
