"""A trace: every verified commit of a family as it was stored, and the events that it holds as they read."""

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
    """The commits of a family in log order. `stored`, `commits` and the commits in `events` run in parallel.

    `events` are all events as read (R17), engine events among them, with offloaded fields restored
    where the trace was loaded with its artifacts.
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
    """The trace of commits in log order. Raises `LogCorrupted` where one is missing, altered or unreadable."""
    kept, chain = tuple(stored), Chain()
    commits = tuple(chain.verify(commit) for commit in kept)
    return Trace(kept, commits, tuple(event for commit in commits for event in as_read(commit)))


async def load_trace(log: Log, run: str | Subject) -> Trace:
    """Everything that the family of a run has stored by now; `run` is the id of any member, or its subject.

    Raises `RunNotFound` for a run that the namespace does not have, `LogCorrupted` for a damaged log.
    """
    subject = run if isinstance(run, Subject) else await find_run(log, run)
    trace = trace_of([stored async for stored in log.events.read(family_of(subject))])
    return msgspec.structs.replace(trace, events=tuple(await restore(trace.events, log.artifacts)))


async def find_run(log: Log, run: str) -> Subject:
    """The subject of a run: in the shard that its id tells, else in any. Raises `RunNotFound`."""
    told = shard_in(run)
    likely = [shard for shard in (told, shard_of(run, log.events.shards)) if shard is not None]
    for shard in dict.fromkeys([*likely, *range(log.events.shards)]):
        subject = await log.events.find(shard, run) if shard < log.events.shards else None
        if subject is not None:
            return subject
    raise RunNotFound(
        f"no run {run!r} in the namespace {log.namespace!r}; `foldlog runs list` shows those there are"
    )


def family_of(subject: Subject) -> Family:
    """The family that a run belongs to."""
    return Family(subject.shard, subject.root)
