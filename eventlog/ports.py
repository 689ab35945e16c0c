"""The seven ports of the log, named by what they guarantee, and the values that pass through them.

`EventLog`   commits, appended at an expected position, read and followed in one total order per shard
`Wakeups`    obligations to look at a run, delivered at least once until acknowledged
`Timers`     wake-ups that are sent at a given time
`Leases`     hints who drives what, and news of holders that vanished
`Drafts`     what a model is still writing: at most once, never synced to disk
`Artifacts`  content-addressed bytes
`Snapshots`  the newest cached state of a run, which may be missing at any time

Any method may raise `LogUnavailable` (the log cannot be reached; the call may be repeated); methods that raise more
say so. Conformance suites for each port stand in `eventlog.conformance`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

from .clock import Clock

COMMIT_BYTES_MAX = 900 * 1024
"""How large one encoded commit may be: below the server's default for a message, with room for headers."""


class Subject(msgspec.Struct, frozen=True, order=True):
    """One strictly ordered sequence of commits: of a run, a lane's queue, a key's owner, a breaker, or slots."""

    shard: int
    kind: Literal["run", "lane", "key", "breaker", "slots"]
    root: str
    id: str


class Family(msgspec.Struct, frozen=True):
    """Selects the commits of a root run and of all runs below it."""

    shard: int
    root: str


class Shard(msgspec.Struct, frozen=True):
    """Selects the commits of all runs of a shard."""

    shard: int


Selector = Subject | Family | Shard


class At(msgspec.Struct, frozen=True):
    """The expected position of a subject: the position of its last commit, 0 for none."""

    position: int


NEW = At(0)
"""The subject must not exist yet."""


class Wakeup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An obligation to look at a run, never data.

    `cause` is the lowest revision of the run, `lane_cause` of its lane, `root_cause` of its root, `slots_cause` of its
    agent's slots, that a reader must have seen to judge it (W10). `kind`: wake, timer (`ref` is the
    timer id), child (`ref` is the child run).
    """

    shard: int
    agent: str
    root: str
    run: str
    kind: Literal["wake", "timer", "child"] = "wake"
    cause: int = 0
    lane_cause: int = 0
    root_cause: int = 0
    slots_cause: int = 0
    ref: str = ""


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A wake-up that is sent at `due_at` (Unix seconds). Setting the same (run, id) again replaces it."""

    id: str
    due_at: float
    wakeup: Wakeup


class CommitWrite(msgspec.Struct, frozen=True):
    """Append `data` (one encoded commit) to `subject`, whose last position must be `expected`.

    Commits of one subject in one append follow one another in the order given; all name the position that the subject
    has before the append. One that `ends` its run is what those wait for who follow `to_end`.
    """

    subject: Subject
    expected: At
    data: bytes
    ends: bool = False


class WakeWrite(msgspec.Struct, frozen=True):
    """Send a wake-up."""

    wakeup: Wakeup


class TimerWrite(msgspec.Struct, frozen=True):
    """Set a timer."""

    timer: Timer


Write = CommitWrite | WakeWrite | TimerWrite


class Stored(msgspec.Struct, frozen=True):
    """A commit as the log holds it. Positions rise within a shard, not densely."""

    subject: Subject
    position: int
    data: bytes


class EventLog(Protocol):
    """Commits under optimistic concurrency, one total order per shard."""

    @property
    def shards(self) -> int:
        """How many shards the namespace has; fixed when it is made."""
        ...

    async def append(self, *writes: Write) -> tuple[int, ...]:
        """Store all writes or none, and return their positions in order. All subjects must be of one shard.

        Durable when it returns, as far as the log's sync setting promises.
        Raises `Conflict` when a condition does not hold (nothing is stored), `AppendUnsure` when no answer came
        (the writes may be stored, now or later), `PayloadTooLarge` for a commit over the limit.
        """
        ...

    def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        """All commits behind position `after` that are stored now, in order.

        May be stale by what other writers stored in the last instants. Raises `LogCorrupted` for an unreadable commit.
        """
        ...

    async def head(self, subject: Subject) -> Stored | None:
        """The last commit of the subject, None if it has none; may be stale like `read`."""
        ...

    async def find(self, shard: int, run: str) -> Subject | None:
        """The subject of a run of which only the id is known; None if the shard has no such run."""
        ...

    def follow(self, selector: Selector, after: int = 0, *, to_end: bool = False) -> AsyncIterator[Stored]:
        """Every commit behind `after`, stored or still to come, once and in order, until the iterator is closed.

        Survives outages of the log: it waits and goes on where it was, without a gap. `to_end`: commits may come late,
        together with the one that `ends` the run; who waits for that alone is not woken by each.
        """
        ...


class Delivery(msgspec.Struct, frozen=True):
    """A wake-up in somebody's hands. `token` names it to `ack`, `nak` and `extend`, also on behalf of the holder."""

    wakeup: Wakeup
    token: str
    attempt: int = 1


class Wakeups(Protocol):
    """Obligations, delivered to one consumer at a time, again and again until one acknowledges."""

    async def send(self, wakeup: Wakeup) -> None:
        """Store a wake-up. Never deduplicated (W9)."""
        ...

    def pull(self, agents: frozenset[str]) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Wake-ups of runs of these agents, as they come; many consumers share them. Survives outages."""
        ...

    async def ack(self, token: str) -> None:
        """Done with it for ever. A stale token is accepted silently (W15 makes that harmless)."""
        ...

    async def nak(self, token: str, delay_s: float = 0.0) -> None:
        """Not done: deliver it again, to anybody, after the delay."""
        ...

    async def extend(self, token: str) -> None:
        """Still at work: restart the time after which it is delivered again by itself."""
        ...


class Timers(Protocol):
    """Wake-ups at a time. Not exact: up to half a second late, never early."""

    async def set(self, timer: Timer) -> None:
        """Set or replace the timer; one that is due already fires at once."""
        ...

    async def cancel(self, timer: Timer) -> None:
        """Forget the timer, if it is still set."""
        ...


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`worker` says that it drives `run` in `epoch`. `token` is the wake-up it holds for it, if any."""

    shard: int
    agent: str
    root: str
    run: str
    epoch: int
    worker: str
    revision: int = 0
    token: str = ""


class Leases(Protocol):
    """Hints only: a wrong one costs a fenced executor, never correctness (W17)."""

    async def vouch(self, lease: Lease, ttl_s: float) -> None:
        """Say, or say again, that the lease holds for the next `ttl_s` seconds (at least 1)."""
        ...

    async def end(self, lease: Lease) -> None:
        """The drive is over, for whatever reason."""
        ...

    async def live(self, run: str, worker: str, epoch: int) -> bool:
        """Return whether this holder vouches for this run and epoch now."""
        ...

    def presence(
        self, worker: str, agents: frozenset[str] = frozenset()
    ) -> AbstractAsyncContextManager[None]:
        """While open, the worker counts as there; when its connection ends, its leases become news in `deaths`.

        `agents` are those whose wake-ups it takes.
        """
        ...

    async def served(self) -> frozenset[str]:
        """Return the agents whose wake-ups are taken by workers that are there now."""
        ...

    def deaths(self) -> AbstractAsyncContextManager[AsyncIterator[Lease]]:
        """The leases of workers whose connection ended without a word; each is ended by being told."""
        ...


class DraftPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of what a model is writing. `offset` counts characters of the channel within the attempt."""

    run: str
    step: int
    attempt: int
    epoch: int
    channel: Literal["text", "reasoning", "tool_calls"]
    offset: int
    text: str
    index: int = 0
    tool_name: str = ""
    at: float = 0.0


class Drafts(Protocol):
    """At most once, in order per writer, kept a short while for late readers.

    Pieces that continue one another may arrive as one: the first of them, with the text of all. A long one may arrive
    in parts that continue one another.
    """

    async def publish(self, root: str, piece: DraftPiece) -> None:
        """Send a piece to all followers; return without waiting for them."""
        ...

    def follow(self, root: str) -> AbstractAsyncContextManager[AsyncIterator[DraftPiece]]:
        """The recent pieces of the family, then the new ones. Everything published after entering is seen."""
        ...


class Artifacts(Protocol):
    """Bytes under the SHA-256 of their content (hex)."""

    async def put(self, data: bytes) -> str:
        """Store the bytes and return their digest; storing them again changes nothing."""
        ...

    async def get(self, digest: str) -> bytes:
        """The bytes. Raises `LogCorrupted` when they no longer match the digest, `KeyError` when there are none."""
        ...


class Snapshots(Protocol):
    """One value for each run, a cache: it may be gone, old or damaged at any time, and its readers check it."""

    async def put(self, run: str, data: bytes) -> None:
        """Keep this for the run, in place of what was kept before. Of two at the same time either may stay, or none."""
        ...

    async def get(self, run: str) -> bytes | None:
        """What was put last, whole; None when there is nothing, or nothing whole. Needs no more than is kept."""
        ...


class Log(Protocol):
    """A namespace of a log with its seven ports."""

    @property
    def namespace(self) -> str:
        """The namespace's name."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that stamps and waits."""
        ...

    @property
    def events(self) -> EventLog:
        """Commits."""
        ...

    @property
    def wakeups(self) -> Wakeups:
        """Obligations."""
        ...

    @property
    def timers(self) -> Timers:
        """Wake-ups at a time."""
        ...

    @property
    def leases(self) -> Leases:
        """Who drives what."""
        ...

    @property
    def drafts(self) -> Drafts:
        """Text in the making."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """Large values."""
        ...

    @property
    def snapshots(self) -> Snapshots:
        """Cached states of runs."""
        ...
