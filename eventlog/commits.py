"""Commits: what one append stores, its encoding, and the hash chain that ties a run's commits together.

A commit is one JSON object: `v` vocabulary version, `run`, `root`, `rev` the revision of its first event (1, 2, ...;
dense), `append` the writer's fresh id, `prev` the SHA-256 (hex) of the run's previous commit as stored ("" for the
first), `epoch` of the writer, `at` Unix seconds, `path` the agent path, `events`, and last `sum`: the first 16 hex
digits of the SHA-256 of all bytes before `,"sum":` closed with `}`. `prev` shows that an earlier commit was changed,
`sum` that this one was.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from .errors import LogCorrupted
from .events import Event, StoredEvent, Unknown
from .ports import Stored, Subject
from .upcasters import UPCASTERS, VERSION, Upcasters


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One append, decoded; the fields in the order in which they are stored."""

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
    """A commit as it is stored, and the SHA-256 (hex) of that: the `prev` of the next."""

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
    """A commit whose events were not decoded, for readers that need few of them."""

    v: int
    run: str
    rev: int
    prev: str
    path: str
    events: tuple[msgspec.Raw, ...]


class Recorded(msgspec.Struct, frozen=True):
    """A commit that was read and verified. `digest` is its own hash, the `prev` of the next."""

    subject: Subject
    position: int
    commit: Commit
    digest: str

    @property
    def last_rev(self) -> int:
        """The revision of the commit's last event."""
        return self.commit.rev + len(self.commit.events) - 1


class Head(msgspec.Struct, frozen=True):
    """Where a subject stands: position of its last commit, revision of its last event, hash of its last commit."""

    position: int = 0
    rev: int = 0
    digest: str = ""


ORIGIN = Head()
"""The head of a subject that does not exist."""

_SUM_DIGITS = 16
_SUM_KEY = b',"sum":"'
_SUM_BYTES = len(_SUM_KEY) + _SUM_DIGITS + 2
_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Commit)
_RAW_DECODER = msgspec.json.Decoder(_RawCommit)
_ENVELOPE_DECODER = msgspec.json.Decoder(Envelope)


def encode(commit: Commit) -> bytes:
    """The commit as it is stored."""
    return seal(commit).data


def seal(commit: Commit) -> Sealed:
    """Encode a commit, closed with its `sum`. Events read as `Unknown` are written back as they were."""
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
    """The SHA-256 (hex) of a commit's bytes, in the pass that checks its `sum`. Raises `ValueError`."""
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
    """SHA-256 (hex)."""
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, upcasters: Upcasters = UPCASTERS) -> Commit:
    """Read a commit of any version. Older events are upcast; newer kinds become `Unknown`.

    Raises `ValueError` for what is not a commit or does not match its `sum`.
    """
    _checked_digest(data)
    return _decoded(data, upcasters)


def _decoded(data: bytes, upcasters: Upcasters = UPCASTERS) -> Commit:
    try:
        commit = _DECODER.decode(data)
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


def verify(stored: Stored, head: Head) -> Recorded:
    """Decode a commit and check that it is the one that follows `head`. Raises `LogCorrupted`."""
    try:
        digest = _checked_digest(stored.data)
        commit = _decoded(stored.data)
    except ValueError as error:
        raise _unreadable(stored, head, error) from error
    _check_place(stored, head, commit)
    return Recorded(stored.subject, stored.position, commit, digest)


async def verified(commits: AsyncIterator[Stored], head: Head) -> AsyncIterator[Recorded]:
    """The commits of a subject behind `head`, each as soon as it is known to be as it was written.

    The hash that the next one has of it says so; only the last one has nothing but its own `sum`. So all others are
    hashed once. Raises what `verify` would.
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
    """The commit that follows `head`, and so vouches for it; None for what `verify` would raise for."""
    try:
        commit = _decoded(stored.data)
    except ValueError:
        return None
    if commit.rev != head.rev + 1 or commit.prev != head.digest or commit.run != stored.subject.id:
        return None
    return Recorded(stored.subject, stored.position, commit, digest_of_bytes(stored.data))


def verify_envelope(stored: Stored, head: Head) -> tuple[Envelope, Head]:
    """As `verify`, but its events stay bytes; and the head behind it. Raises `LogCorrupted`."""
    try:
        digest = _checked_digest(stored.data)
        envelope = _ENVELOPE_DECODER.decode(stored.data)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _unreadable(stored, head, error) from error
    _check_place(stored, head, envelope)
    last = envelope.rev + len(envelope.events) - 1
    return envelope, Head(stored.position, last, digest)


def _unreadable(stored: Stored, head: Head, error: Exception) -> LogCorrupted:
    return LogCorrupted(
        stored.subject.id, head.rev + 1, f"the commit at position {stored.position} is unreadable ({error})"
    )


def _check_place(stored: Stored, head: Head, commit: Commit | Envelope) -> None:
    run, rev = stored.subject.id, head.rev + 1
    if commit.run != run:
        raise LogCorrupted(run, rev, f"the commit that is stored there belongs to run {commit.run}")
    if commit.rev != rev:
        raise LogCorrupted(
            run, rev, f"the next stored commit begins at revision {commit.rev}, so commits are missing"
        )
    if commit.prev != head.digest:
        raise LogCorrupted(run, rev, "its hash of the previous commit does not match what is stored there")


class Chain:
    """Verifies the commits of many subjects, each from its known head (or its beginning) on."""

    def __init__(self, heads: dict[Subject, Head] | None = None) -> None:
        self._heads = dict(heads or {})

    def head(self, subject: Subject) -> Head:
        """Where the subject stands as far as was verified."""
        return self._heads.get(subject, ORIGIN)

    def verify(self, stored: Stored) -> Recorded:
        """The next commit of its subject, verified. Raises `LogCorrupted`."""
        recorded = verify(stored, self.head(stored.subject))
        self._heads[stored.subject] = head_of(recorded)
        return recorded


def head_of(recorded: Recorded) -> Head:
    """The head right behind a commit."""
    return Head(recorded.position, recorded.last_rev, recorded.digest)


def as_read(recorded: Recorded) -> Iterator[Event]:
    """The commit's events with all that a reader is promised (R17)."""
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
    """The cursor of a commit's event; cursors of a family sort as text in log order."""
    return f"{position:014d}.{index:05d}"


def parse_cursor(cursor: str | None) -> tuple[int, int]:
    """Position and index of a cursor; (0, 0) for none. Raises `ValueError` for what is not a cursor."""
    if cursor is None:
        return 0, 0
    position, _, index = cursor.partition(".")
    return int(position), int(index)


def as_stored(events: Iterable[Event]) -> Sequence[Event]:
    """The events without what only reading adds; the reverse of `as_read` but for forwarded events' own agent."""
    return [
        msgspec.structs.replace(
            event, run_id="", root_id="", revision=None, cursor=None, at=0.0, is_end=False
        )
        for event in events
    ]
