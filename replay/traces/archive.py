"""Archives: families as JSON Lines that can be kept, checked, read and imported into another log, byte for byte.

One object a line. A commit has `shard`, `subject`, `position` and `data`, its stored bytes as text, verbatim, so that
nothing is lost, not even of events newer than this code. An artifact, written before the first commit that refers to
it, has `artifact`, the SHA-256 of its bytes (hex), and `base64`. Commits are in log order, shard by shard.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any, Self, TypeVar

import msgspec

from ...eventlog.commits import Chain, Recorded, as_read, decode, digest_of_bytes, tombstone_in
from ...eventlog.errors import (
    AppendUnsure,
    ArchiveCorrupted,
    ArchiveInvalid,
    ConfigError,
    Conflict,
    LogCorrupted,
    RunConflict,
    RunNotFound,
)
from ...eventlog.events import ApprovalRequested, Event, Memoized, Submitted, ToolResult, Unknown, is_terminal
from ...eventlog.names import SHARDS_MAX, parse_subject_token, shard_of, subject_token
from ...eventlog.offload import has_references, references, restore, restore_what_opens
from ...eventlog.ports import At, CommitWrite, Log, Selector, Shard, Stored, Subject
from ...eventlog.sealing.cipher import is_sealed
from ...eventlog.sealing.log import as_stored
from ...projections.content_files import files_in
from ...runtime.core import offloading
from ...runtime.journal.keys import check_keys, restore_keys
from ...runtime.shared.sessions import restore_turns
from .trace import Trace, family_of, find_run, trace_of

T = TypeVar("T")


class Archive(msgspec.Struct, frozen=True):
    """Families as they were stored; reading their events checks them. `artifacts` are their large values by digest."""

    stored: tuple[Stored, ...]
    artifacts: dict[str, bytes] = {}
    lines: tuple[int, ...] = ()
    """The line of each commit, if they were read from a file."""

    def vet(self) -> Self:
        """Check that foldlog can have written this. Raises `ArchiveInvalid` (line, field), `LogCorrupted`."""
        from .vetting import vet  # imported here because it needs the runtime

        known = len(self.lines) == len(self.stored)
        vet(zip(self.lines if known else range(1, len(self.stored) + 1), self.stored, strict=True))
        return self

    @property
    def runs(self) -> dict[Subject, tuple[Stored, ...]]:
        """The commits of each run, in order."""
        runs: dict[Subject, list[Stored]] = {}
        for stored in self.stored:
            runs.setdefault(stored.subject, []).append(stored)
        return {subject: tuple(commits) for subject, commits in runs.items()}

    @property
    def buried(self) -> frozenset[str]:
        """The roots of which it has a tombstone."""
        found = (each for each in self.stored if b'"buried"' in each.data)
        return frozenset(each.subject.root for each in found if tombstone_in(decode(each.data)) is not None)

    @property
    def traces(self) -> dict[str, Trace]:
        """The trace of each family by its root's id; offloaded fields are restored if their artifacts are there."""
        families: dict[str, list[Stored]] = {}
        buried = self.buried
        for stored in self.stored:
            if stored.subject.root not in buried:
                families.setdefault(stored.subject.root, []).append(stored)
        return {root: self._restored(trace_of(commits)) for root, commits in families.items()}

    def events(self, root: str) -> Iterator[Event]:
        """Yield the events of one family as read. Raises `LogCorrupted`."""
        chain = Chain()
        for stored in self.stored:
            if stored.subject.root == root:
                for event in as_read(chain.verify(stored)):
                    yield _at_once(self._restored_event(event)) if self.artifacts or event.sealed else event

    def _restored(self, trace: Trace) -> Trace:
        if not self.artifacts and not any(event.sealed for event in trace.events):
            return trace
        events = [_at_once(self._restored_event(event)) for event in trace.events]
        return msgspec.structs.replace(trace, events=tuple(events))

    async def _restored_event(self, event: Event) -> Event:
        lacking = [digest for digest in references([event]) if digest not in self.artifacts]
        return event if lacking else (await restore([event], _Held(self.artifacts)))[0]

    def trace(self, run: str | None = None) -> Trace:
        """Return the trace of the only family, or of the family of `run`. Raises `ConfigError`, `RunNotFound`."""
        traces = self.traces
        if run is not None:
            for stored in self.stored:
                if stored.subject.id == run:
                    return traces[stored.subject.root]
            raise RunNotFound(f"no run {run!r} in the file")
        if len(traces) != 1:
            found = f"holds {len(traces)} families: name one by its root" if traces else "holds no run"
            raise ConfigError(f"the file {found}")
        return next(iter(traces.values()))


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a check that found no damage. `newer` counts events of a newer writer, which are kept as they are.

    `erased` counts families of which only a tombstone is left.
    `missing` are digests of artifacts that events refer to and that are not there; `open` are the runs without a
    terminal status.
    """

    families: int
    erased: int = 0
    runs: int
    commits: int
    events: int
    newer: int
    artifacts: int
    missing: tuple[str, ...]
    open: tuple[str, ...]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import. `runs` were stored (or completed after an interrupted import), `skipped` existed."""

    runs: tuple[str, ...]
    skipped: tuple[str, ...]
    commits: int
    artifacts: int


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    shard: int = -1
    subject: str = ""
    position: int = 0
    data: str = ""
    artifact: str = ""
    base64: str = ""


_LINE = msgspec.json.Decoder(_Line)
POSITIONS_MAX = 2**63


# --- writing ----------------------------------------------------------------------------------------------------------


def to_jsonl(trace: Trace | Archive) -> bytes:
    """Return the trace or archive as JSON Lines; the artifacts of an archive come first."""
    artifacts = trace.artifacts if isinstance(trace, Archive) else {}
    lines = [_artifact_line(digest, data) for digest, data in artifacts.items()]
    return b"".join([*lines, *map(_commit_line, trace.stored)])


async def export(log: Log, run: str | None = None, *, artifacts: bool = False) -> AsyncIterator[bytes]:
    """Yield the lines of a run's family, or of all runs of the namespace, each with its line end, verified.

    An unfinished run is exported as far as it has come. With `artifacts`, each artifact comes before the first commit
    that refers to it: large values, and those that tools stored and files, if they still exist. Raises `RunNotFound`,
    `LogCorrupted`.
    """
    written: set[str] = set()
    async for recorded, stored in _verified(log, run):
        artifacts_here, kept = (
            log.artifacts.of(recorded.subject.root),
            as_stored(log).of(recorded.subject.root),
        )
        for digest in references(recorded.commit.events) if artifacts else ():
            if digest not in written:
                written.add(digest)
                yield _artifact_line(digest, await _artifact(log, digest, recorded))
        events = recorded.commit.events
        if artifacts and has_references(events):  # a list of parts may be a large value
            events = tuple(await restore_what_opens(events, artifacts_here))
        for digest in named(events) if artifacts else ():
            if digest not in written:
                written.add(digest)
                with contextlib.suppress(KeyError):
                    yield _artifact_line(digest, await kept.get(digest))
        yield _commit_line(stored)


async def _verified(log: Log, run: str | None) -> AsyncIterator[tuple[Recorded, Stored]]:
    for selector in await _selectors(log, run):
        chain = Chain(tombstones=run is None)
        async for stored in log.events.read(selector):
            yield chain.verify(stored), stored


async def _selectors(log: Log, run: str | None) -> list[Selector]:
    if run is None:
        return [Shard(shard) for shard in range(log.events.shards)]
    subject = await find_run(log, run)
    return [family_of(subject)]


async def _artifact(log: Log, digest: str, recorded: Recorded) -> bytes:
    try:
        return await as_stored(log).of(recorded.subject.root).get(digest)
    except KeyError:
        raise LogCorrupted(
            recorded.commit.run, recorded.commit.rev, f"the artifact {digest} that it refers to is missing"
        ) from None


def _commit_line(stored: Stored) -> bytes:
    subject = stored.subject
    line = {
        "shard": subject.shard,
        "subject": subject_token(subject),
        "position": stored.position,
        "data": stored.data.decode(),
    }
    return msgspec.json.encode(line) + b"\n"


def _artifact_line(digest: str, data: bytes) -> bytes:
    return msgspec.json.encode({"artifact": digest, "base64": base64.b64encode(data).decode()}) + b"\n"


# --- reading ----------------------------------------------------------------------------------------------------------


def read_archive(data: bytes) -> Archive:
    """Read and check an archive. Raises `ArchiveInvalid` for other text, `LogCorrupted` for damage."""
    return parse_archive(data).vet()


def parse_archive(data: bytes) -> Archive:
    """Read an archive like `read_archive`, but leave checking the commits to their first use."""
    return Archive(*_parse(data))


def from_jsonl(data: bytes) -> Trace:
    """Read the trace of the only family in an archive. Raises `ArchiveInvalid` for other text, `LogCorrupted`."""
    return Archive(*_parse(data)).vet().trace()


def _parse(data: bytes) -> tuple[tuple[Stored, ...], dict[str, bytes], tuple[int, ...]]:
    stored: list[Stored] = []
    artifacts: dict[str, bytes] = {}
    lines: list[int] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            parsed = _LINE.decode(line)
            if parsed.artifact:
                artifacts[parsed.artifact] = _content(number, parsed)
            else:
                subject = _subject(number, parsed)
                stored.append(Stored(subject, parsed.position, parsed.data.encode()))
                lines.append(number)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ArchiveInvalid(number, "", str(error)) from error
        except RecursionError:
            raise ArchiveInvalid(number, "", "it is nested too deeply") from None
        if not parsed.artifact and not (0 <= parsed.shard < SHARDS_MAX):
            raise ArchiveInvalid(number, "shard", f"{parsed.shard} is not in 0 to {SHARDS_MAX - 1}")
        if not parsed.artifact and not (0 < parsed.position < POSITIONS_MAX):
            raise ArchiveInvalid(number, "position", f"{parsed.position} is not a position in a log")
    return tuple(stored), artifacts, tuple(lines)


def _subject(number: int, line: _Line) -> Subject:
    try:
        return parse_subject_token(line.shard, line.subject)
    except ValueError as error:
        raise ArchiveInvalid(number, "subject" if line.subject else "", str(error)) from error


def _content(number: int, line: _Line) -> bytes:
    try:
        content = base64.b64decode(line.base64, validate=True)
    except ValueError as error:
        raise ArchiveInvalid(number, "base64", str(error)) from error
    if digest_of_bytes(content) != line.artifact and not is_sealed(content):
        reason = f"the bytes of artifact {line.artifact} do not match its digest"
        raise ArchiveCorrupted(number, "base64", "", 0, reason)
    return content


def named(events: Iterable[Event]) -> Iterator[str]:
    """Yield the digests of the artifacts that tools stored."""
    for event in events:
        yield from (file.artifact for file in files_in(event) if file.artifact)
        for reference in _evidence(event):
            if isinstance(reference, dict) and isinstance(reference.get("id"), str):
                yield reference["id"]


def _evidence(event: Event) -> Iterable[Any]:
    found: Any = ()
    if isinstance(event, ToolResult):
        found = event.metadata.get("evidence", ())
    elif isinstance(event, Memoized | ApprovalRequested):
        found = event.evidence
    return found if isinstance(found, list | tuple) else ()


def check(archive: Archive) -> Checked:
    """Verify and count an archive. Raises `LogCorrupted` for a commit that is missing, altered or unreadable."""
    chain, tally = Chain(tombstones=True), _Tally()
    for stored in archive.stored:
        tally.add(chain.verify(stored))
    return tally.checked(archive.artifacts.keys())


async def check_log(log: Log, run: str | None = None) -> Checked:
    """Verify and count a run's family, or all runs of the log. Raises `RunNotFound`, `LogCorrupted`."""
    tally, there = _Tally(), set[str]()
    async for recorded, _stored in _verified(log, run):
        tally.add(recorded)
        for digest in references(recorded.commit.events):
            try:
                await as_stored(log).of(recorded.subject.root).get(digest)
            except KeyError:
                continue
            there.add(digest)
    return tally.checked(there)


class _Tally:
    """The counts of verified commits."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.erased: set[str] = set()
        self.open: dict[str, bool] = {}
        self.commits = self.events = self.newer = 0
        self.referred: set[str] = set()

    def add(self, recorded: Recorded) -> None:
        commit = recorded.commit
        if tombstone_in(commit) is not None:
            self.erased.add(commit.run)
            return
        self.roots.add(recorded.subject.root)
        ended = any(is_terminal(event) and not event.agent_path for event in commit.events)
        self.open[commit.run] = self.open.get(commit.run, True) and not ended
        self.commits += 1
        self.events += len(commit.events)
        self.newer += sum(isinstance(event, Unknown) for event in commit.events)
        self.referred.update(references(commit.events))

    def checked(self, there: Iterable[str]) -> Checked:
        return Checked(
            families=len(self.roots),
            erased=len(self.erased),
            runs=len(self.open),
            commits=self.commits,
            events=self.events,
            newer=self.newer,
            artifacts=len(self.referred & set(there)),
            missing=tuple(sorted(self.referred - set(there))),
            open=tuple(run for run, is_open in self.open.items() if is_open),
        )


# --- into another log -------------------------------------------------------------------------------------------------


async def import_archive(archive: Archive, log: Log) -> Imported:
    """Store the archive's runs in a log, byte for byte.

    A run that the log has with the same bytes (or with further commits after them) is skipped; one of which the log has
    only the beginning is completed. Idempotency keys and sessions are restored: a key finds its run, and ended runs
    count as turns. No wake-up is published: a run that was open when it was exported stays a record until a caller
    drives it. An open run of a session always stays a record, because the lane's queue is not part of the archive.

    Raises `RunConflict`, before anything is stored, for a run that exists with other commits, or whose key belongs to
    another run of this log; `ArchiveInvalid`; `ConfigError` for artifacts that neither the archive nor the log has.
    """
    archive.vet()
    open_runs = set(check(archive).open)
    runs, roots = archive.runs, _roots(archive)
    lanes = {root: submitted.lane for root, submitted in roots.items()}
    known = {
        subject: await _known(log, subject, commits, lanes.get(subject.root))
        for subject, commits in runs.items()
    }
    targets = {subject.id: target for subject, (target, _there, _position) in known.items()}
    keyed = [(targets[root], submitted) for root, submitted in roots.items()]
    await check_keys(log, keyed)
    await _check_artifacts(archive, log)
    await _store_artifacts(archive, log)
    counts = dict.fromkeys(runs, 0)
    written = 0
    for stored in archive.stored:
        subject, (target, there, position) = stored.subject, known[stored.subject]
        counts[subject] += 1
        if counts[subject] <= there:
            continue
        position = await _append(log, CommitWrite(target, At(position), stored.data))
        known[subject] = target, there, position
        written += 1
    await restore_keys(log, keyed)
    for lane in dict.fromkeys(lane for lane in lanes.values() if lane is not None):
        ended = [root for root in roots if lanes[root] == lane and root not in open_runs]
        await restore_turns(log, lane, ended)
    added = tuple(subject.id for subject, commits in runs.items() if known[subject][1] < len(commits))
    skipped = tuple(subject.id for subject in runs if subject.id not in added)
    return Imported(runs=added, skipped=skipped, commits=written, artifacts=len(archive.artifacts))


def _roots(archive: Archive) -> dict[str, Submitted]:
    """Return the `submitted` of each root run by its id, in the order of the archive."""
    roots: dict[str, Submitted] = {}
    for stored in archive.stored:
        if stored.subject.id == stored.subject.root not in roots:
            first = decode(stored.data).events[0]
            if isinstance(first, Submitted):
                roots[stored.subject.id] = first
    return roots


async def _known(
    log: Log, subject: Subject, commits: tuple[Stored, ...], lane: str | None
) -> tuple[Subject, int, int]:
    """Return the run's subject in this log, how many of its commits are there, and the position of the last of them."""
    shards = log.events.shards
    if lane is not None:  # a lane and its runs share a shard
        shard = shard_of(lane, shards)
    else:
        shard = subject.shard if subject.shard < shards else shard_of(subject.root, shards)
    target = msgspec.structs.replace(subject, shard=shard)
    existing = [stored async for stored in log.events.read(target)]
    elsewhere = await log.events.find(shard, subject.id)
    same = all(ours.data == theirs.data for ours, theirs in zip(commits, existing, strict=False))
    if not same or (elsewhere is not None and elsewhere != target):
        raise RunConflict(
            f"run {subject.id} exists in namespace {log.namespace!r} with other commits; import it into another one",
            run_id=subject.id,
        )
    return target, len(existing), existing[-1].position if existing else 0


async def _check_artifacts(archive: Archive, log: Log) -> None:
    needed = {digest for stored in archive.stored for digest in references(decode(stored.data).events)}
    for digest in sorted(needed - archive.artifacts.keys()):
        try:
            await log.artifacts.find(digest)
        except KeyError:
            raise ConfigError(
                f"the file refers to artifact {digest[:16]}…, which it does not hold; export it with --artifacts"
            ) from None


async def _store_artifacts(archive: Archive, log: Log) -> None:
    """Store the artifacts below the roots that refer to them; one that no event names, below all."""
    owned: dict[str, dict[str, bytes]] = {stored.subject.root: {} for stored in archive.stored}
    for stored in archive.stored:
        artifacts, root = log.artifacts.of(stored.subject.root), stored.subject.root
        kept = as_stored(log).of(root)
        events = decode(stored.data).events
        for digest in references(events):
            owned[root][digest] = archive.artifacts.get(digest) or await as_stored(log).find(digest)
            await kept.put(owned[root][digest], digest)
        for event in await restore_what_opens(events, artifacts):
            found = {
                digest: archive.artifacts[digest] for digest in named([event]) if digest in archive.artifacts
            }
            owned[root].update(found)
            await offloading.store(event, artifacts)  # where the retrieval tools of models find it
            for digest, data in found.items():
                await kept.put(data, digest)
    known = {digest for digests in owned.values() for digest in digests}
    for digest, data in archive.artifacts.items():
        for root in owned if digest not in known else ():
            await as_stored(log).of(root).put(data, digest)


async def _append(log: Log, write: CommitWrite) -> int:
    """Store one commit, even if a reply is lost. Raises `RunConflict` if another writer was first."""
    while True:
        try:
            (position,) = await log.events.append(write)
        except (Conflict, AppendUnsure) as error:
            last = await log.events.head(write.subject)
            if last is not None and last.data == write.data:
                return last.position
            if isinstance(error, Conflict):
                raise RunConflict(
                    f"run {write.subject.id} was written by another process meanwhile",
                    run_id=write.subject.id,
                ) from error
        else:
            return position


class _Held:
    """The artifacts of an archive, as an artifact store that can only be read."""

    def __init__(self, data: dict[str, bytes]) -> None:
        self._data = data

    async def put(self, data: bytes, digest: str = "") -> str:
        raise NotImplementedError

    async def get(self, digest: str) -> bytes:
        return self._data[digest]


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the value of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("the coroutine was suspended")
