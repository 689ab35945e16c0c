"""A trace: every verified commit of a family as it was stored, and the events that it holds as they read.

As JSON Lines a trace is one object a line, in log order: `shard`, `subject`, `position` and `data`, the commit's
stored bytes as text, verbatim. So nothing is lost, also of events newer than this code, and the hash chain is checked
on reading.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..eventlog.commits import Chain, Recorded, as_read
from ..eventlog.errors import ConfigError, RunNotFound
from ..eventlog.events import OBSERVABLE, Event
from ..eventlog.names import parse_subject_token, shard_in, shard_of, subject_token
from ..eventlog.offload import restore
from ..eventlog.ports import Family, Log, Stored, Subject


class Trace(msgspec.Struct, frozen=True):
    """The commits of a family in log order. `stored`, `commits` and the commits in `events` run in parallel.

    `events` are all events as read (contract.md section 2), engine events among them, with offloaded fields restored
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


class _Line(msgspec.Struct, frozen=True):
    shard: int
    subject: str
    position: int
    data: str


_LINE = msgspec.json.Decoder(_Line)


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
    trace = trace_of([stored async for stored in log.events.read(Family(subject.shard, subject.root))])
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


def to_jsonl(trace: Trace) -> bytes:
    """The trace as JSON Lines."""
    lines = [
        _Line(stored.subject.shard, subject_token(stored.subject), stored.position, stored.data.decode())
        for stored in trace.stored
    ]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def from_jsonl(data: bytes) -> Trace:
    """The trace that `to_jsonl` wrote. Raises `ConfigError` for other text, `LogCorrupted` for a broken chain."""
    return trace_of(
        _parse_line(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()
    )


def _parse_line(number: int, line: bytes) -> Stored:
    try:
        parsed = _LINE.decode(line)
        return Stored(
            parse_subject_token(parsed.shard, parsed.subject), parsed.position, parsed.data.encode()
        )
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"line {number} is not a commit of an exported trace: {error}") from error
