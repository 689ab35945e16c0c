"""Commits: the unit of an append, its encoding, and the hash chain over a run's commits.

A commit is one JSON object: `v` vocabulary version, `run`, `root`, `rev` the revision of its first event (1, 2, ...;
dense), `append` the writer's unique id, `prev` the SHA-256 (hex) of the run's previous commit as stored ("" for the
first), `epoch` of the writer, `at` Unix seconds, `path` the agent path, `events`, and last `sum`: the first 16 hex
digits of the SHA-256 of all bytes before `,"sum":` closed with `}`. `prev` detects that an earlier commit was changed,
`sum` that this one was.

Each byte is hashed at most twice. `seal` and `_checked_digest` compute `sum` and the digest for the next `prev` in one
pass, by copying the state of the hash. `verified` reads a sequence and checks `sum` only for its last commit: every
other one is checked by the `prev` of its successor.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from .errors import LogCorrupted, RunGone
from .events import Buried, Event, StoredEvent, Unknown
from .ports import Stored, Subject
from .upcasters import UPCASTERS, VERSION, Upcasters


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One decoded append, with its fields in stored order."""

    append: str
    at: float
    epoch: int
    events: tuple[StoredEvent | Unknown, ...]
    path: str
    prev: str
    rev: int
    root: str
    run: str
    v: int = VERSION
    sum: str = ""


class Sealed(NamedTuple):
    """A commit as stored, and its SHA-256 (hex), which is the `prev` of the next commit."""

    data: bytes
    digest: str


class _RawCommit(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    run: str
    root: str
    rev: int
    append: str
    prev: str
    epoch: int
    at: float
    path: str
    events: tuple[dict[str, Any], ...]
    sum: str = ""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A commit whose events are not decoded, for readers that need few of them."""

    v: int
    run: str
    rev: int
    prev: str
    path: str
    events: tuple[msgspec.Raw, ...]


class Recorded(msgspec.Struct, frozen=True):
    """A commit that was read and verified. `digest` is its hash, the `prev` of the next commit."""

    subject: Subject
    position: int
    commit: Commit
    digest: str

    @property
    def last_rev(self) -> int:
        """The revision of the commit's last event."""
        return self.commit.rev + len(self.commit.events) - 1


class Head(msgspec.Struct, frozen=True):
    """The end of a subject: position of its last commit, revision of its last event, hash of its last commit."""

    position: int = 0
    rev: int = 0
    digest: str = ""


ORIGIN = Head()
"""The head of a subject that does not exist."""

_TOMBSTONE = b'{"type":"buried"'
_SUM_DIGITS = 16
_SUM_KEY = b',"sum":"'
_SUM_BYTES = len(_SUM_KEY) + _SUM_DIGITS + 2
_ENCODER = msgspec.json.Encoder(order="deterministic")
_RAW_DECODER = msgspec.json.Decoder(_RawCommit)
_ENVELOPE_DECODER = msgspec.json.Decoder(Envelope)


@cache
def _decoder() -> msgspec.json.Decoder[Commit]:
    """Return the decoder of commits, made with the first: the types of all events take longer than most imports."""
    return msgspec.json.Decoder(Commit)


def encode(commit: Commit) -> bytes:
    """Encode a commit as it is stored."""
    return seal(commit).data


def seal(commit: Commit) -> Sealed:
    """Encode a commit, including its `sum`. `Unknown` events are written as they were read."""
    if Unknown in map(type, commit.events):
        plain = [event.data if type(event) is Unknown else event for event in commit.events]
        commit = msgspec.structs.replace(commit, events=plain)
    body = memoryview(_ENCODER.encode(commit))[: -len(_SUM_KEY) - len(commit.sum) - 2]
    whole = hashlib.sha256(body)
    closed = whole.copy()
    closed.update(b"}")
    tail = b'%b%b"}' % (_SUM_KEY, closed.hexdigest()[:_SUM_DIGITS].encode())
    whole.update(tail)
    return Sealed(b"".join((body, tail)), whole.hexdigest())


def _checked_digest(data: bytes) -> str:
    """Check the `sum` of a commit's bytes, and return their SHA-256 (hex). Raises `ValueError`."""
    tail = data[-_SUM_BYTES:]
    whole = hashlib.sha256(memoryview(data)[:-_SUM_BYTES])
    body = whole.copy()
    body.update(b"}")
    if not tail.startswith(_SUM_KEY) or body.hexdigest()[:_SUM_DIGITS].encode() != tail[len(_SUM_KEY) : -2]:
        raise ValueError("its bytes do not match its checksum")
    whole.update(tail)
    return whole.hexdigest()


def is_intact(data: bytes) -> bool:
    """Return whether the bytes of a commit match its `sum`."""
    try:
        _checked_digest(data)
    except ValueError:
        return False
    return True


def digest_of_bytes(data: bytes) -> str:
    """Return the SHA-256 (hex)."""
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, upcasters: Upcasters = UPCASTERS) -> Commit:
    """Decode a commit of any version. Older events are upcast; events of unknown types become `Unknown`.

    Raises `ValueError` for bytes that are not a commit or do not match their `sum`.
    """
    _checked_digest(data)
    return _decoded(data, upcasters)


def _decoded(data: bytes, upcasters: Upcasters = UPCASTERS) -> Commit:
    try:
        commit = _decoder().decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _decode_leniently(data, upcasters)
    except RecursionError:
        raise ValueError("not a commit: it is nested too deeply") from None
    return commit if commit.v == VERSION else _decode_leniently(data, upcasters)


def _decode_leniently(data: bytes, upcasters: Upcasters) -> Commit:
    try:
        raw = _RAW_DECODER.decode(data)
        events = tuple(_event(upcasters.upcast(event, raw.v)) for event in raw.events)
    except (
        msgspec.ValidationError,
        msgspec.DecodeError,
        KeyError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        raise ValueError(f"not a commit: {error}") from error
    fields = {name: getattr(raw, name) for name in raw.__struct_fields__}
    return Commit(**{**fields, "events": events})


_KNOWN_TYPES = {str(cls.__struct_config__.tag): cls for cls in StoredEvent.__args__}


def _event(event: dict[str, Any]) -> StoredEvent | Unknown:
    kind = event["type"]
    if not isinstance(kind, str):
        raise msgspec.ValidationError(f"the type of an event is a string, not {kind!r:.60}")
    known = _KNOWN_TYPES.get(kind)
    if known is None:
        return Unknown(original_type=kind, data=event)
    result: StoredEvent = msgspec.convert(event, known)
    return result


def verify(stored: Stored, head: Head, *, tombstones: bool = False) -> Recorded:
    """Decode a commit and check that it is the one that follows `head`. Raises `LogCorrupted`.

    A tombstone (`Buried`) follows any earlier head, because it stands for what was erased before it. It raises
    `RunGone`, so that no reader takes it for a run without events; `tombstones` is for readers that know them.
    """
    try:
        digest = _checked_digest(stored.data)
        commit = _decoded(stored.data)
    except ValueError as error:
        raise _unreadable(stored, head, error) from error
    buried = tombstone_in(commit)
    _check_place(stored, head, commit, buried=buried is not None)
    if buried is not None and not tombstones:
        raise gone(commit, buried)
    return Recorded(stored.subject, stored.position, commit, digest)


def before(stored: Stored) -> Head:
    """Return the head that the commit follows by its own account, to verify it alone."""
    try:
        commit = decode(stored.data)
    except ValueError:
        return Head()  # unreadable: `verify` raises the error for that
    return Head(rev=commit.rev - 1, digest=commit.prev)


def tombstone_in(commit: Commit) -> Buried | None:
    """Return the tombstone that the commit is, if it is one."""
    last = commit.events[-1] if commit.events else None
    return last if type(last) is Buried else None


def buried_by(head: Stored | None) -> tuple[Commit, Buried] | None:
    """Return the last commit of a root run and the tombstone that it is; null if it is none, or unreadable."""
    try:
        commit = decode(head.data) if head is not None else None
    except ValueError:  # reported to readers of the run
        return None
    tombstone = tombstone_in(commit) if commit is not None else None
    return None if commit is None or tombstone is None else (commit, tombstone)


def gone(commit: Commit, buried: Buried, run: str = "", *, missing: bool = False) -> RunGone:
    """Return the error of a run, the root or one below it, whose family was erased; `missing`: its copy is, too."""
    told = buried.how, commit.at, buried.url, buried.by, buried.reason
    return RunGone(run or commit.run, *told, missing=missing)


async def verified(commits: AsyncIterator[Stored], head: Head) -> AsyncIterator[Recorded]:
    """Yield the verified commits of a subject after `head`.

    A commit is verified by the hash of it in the next one; only the last one needs its own `sum`. So all others are
    hashed only once. Raises the errors of `verify`.
    """
    last: tuple[Stored, Head, Recorded] | None = None
    async for stored in commits:
        recorded = _next(stored, head)
        if last is not None:
            yield last[2] if recorded is not None else verify(last[0], last[1])
        recorded = recorded if recorded is not None else verify(stored, head)
        last, head = (stored, head, recorded), head_of(recorded)
    if last is not None:
        yield verify(last[0], last[1])


def _next(stored: Stored, head: Head) -> Recorded | None:
    """Return the commit that follows `head`, and so verifies it; None if `verify` would raise an error."""
    try:
        commit = _decoded(stored.data)
    except ValueError:
        return None
    if commit.rev != head.rev + 1 or commit.prev != head.digest or commit.run != stored.subject.id:
        return None
    if tombstone_in(commit) is not None:
        return None
    return Recorded(stored.subject, stored.position, commit, digest_of_bytes(stored.data))


def verify_envelope(stored: Stored, head: Head) -> tuple[Envelope, Head]:
    """Verify a commit without decoding its events; return it and the head after it. Raises `LogCorrupted`."""
    try:
        digest = _checked_digest(stored.data)
        envelope = _ENVELOPE_DECODER.decode(stored.data)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _unreadable(stored, head, error) from error
    if len(envelope.events) == 1 and bytes(envelope.events[0]).startswith(_TOMBSTONE):
        verify(stored, head)
    _check_place(stored, head, envelope)
    last = envelope.rev + len(envelope.events) - 1
    return envelope, Head(stored.position, last, digest)


def _unreadable(stored: Stored, head: Head, error: Exception) -> LogCorrupted:
    return LogCorrupted(
        stored.subject.id, head.rev + 1, f"the commit at position {stored.position} is unreadable ({error})"
    )


def _check_place(stored: Stored, head: Head, commit: Commit | Envelope, *, buried: bool = False) -> None:
    run, rev = stored.subject.id, head.rev + 1
    if commit.run != run:
        raise LogCorrupted(run, rev, f"the stored commit belongs to run {commit.run}")
    if buried and commit.rev > rev:
        return
    if commit.rev != rev:
        raise LogCorrupted(
            run, rev, f"the next stored commit begins at revision {commit.rev}, so commits are missing"
        )
    if commit.prev != head.digest:
        raise LogCorrupted(run, rev, "its hash of the previous commit does not match the stored one")


class Chain:
    """Verifies the commits of many subjects, each from a known head or from its beginning.

    `tombstones` as for `verify`.
    """

    def __init__(self, heads: dict[Subject, Head] | None = None, *, tombstones: bool = False) -> None:
        self._heads, self._tombstones = dict(heads or {}), tombstones

    def head(self, subject: Subject) -> Head:
        """Return the head of the last verified commit."""
        return self._heads.get(subject, ORIGIN)

    def verify(self, stored: Stored) -> Recorded:
        """Verify the next commit of its subject. Raises `LogCorrupted`, `RunGone`."""
        recorded = verify(stored, self.head(stored.subject), tombstones=self._tombstones)
        self._heads[stored.subject] = head_of(recorded)
        return recorded


def head_of(recorded: Recorded) -> Head:
    """Return the head after a commit."""
    return Head(recorded.position, recorded.last_rev, recorded.digest)


def as_read(recorded: Recorded) -> Iterator[Event]:
    """Yield the commit's events with all fields that readers get (R17)."""
    commit = recorded.commit
    agent = commit.path.rpartition("/")[2]
    for index, event in enumerate(commit.events):
        yield msgspec.structs.replace(
            event,
            run_id=commit.run,
            root_id=commit.root,
            agent=event.agent or agent,
            agent_path=event.agent_path or commit.path,
            revision=commit.rev + index,
            cursor=cursor_of(recorded.position, index),
            at=commit.at,
        )


def cursor_of(position: int, index: int) -> str:
    """Return the cursor of a commit's event; cursors of a family sort as text in log order."""
    return f"{position:014d}.{index:05d}"


def parse_cursor(cursor: str | None) -> tuple[int, int]:
    """Return the position and index of a cursor; (0, 0) for None. Raises `ValueError` for an invalid cursor."""
    if cursor is None:
        return 0, 0
    position, _, index = cursor.partition(".")
    return int(position), int(index)


def as_stored(events: Iterable[Event]) -> Sequence[Event]:
    """Remove the fields that reading adds; the reverse of `as_read`, except for the agent of forwarded events."""
    return [
        msgspec.structs.replace(
            event, run_id="", root_id="", revision=None, cursor=None, at=0.0, is_end=False
        )
        for event in events
    ]
