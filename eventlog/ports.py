"""The eight ports of the log, named by what they guarantee, and the values that pass through them.

`EventLog`   commits, appended at an expected position, read and followed in one total order per shard
`Wakeups`    obligations to look at a run, delivered at least once until acknowledged
`Timers`     wake-ups that are sent at a given time
`Leases`     hints on which worker drives which run, and news of workers that died
`Drafts`     the text that a model is still writing: at most once, never synced to disk
`Artifacts`  content-addressed bytes
`Snapshots`  the newest cached state of a run, which may be missing at any time
`Keys`       wrapped keys of sealed values, apart from all that they seal

Any method may raise `LogUnavailable` (the log cannot be reached; the call may be repeated); methods that raise more
say so. `eventlog.conformance` has a conformance suite for each port.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

import msgspec

from .clock import Clock
from .priorities import Priority

COMMIT_BYTES_MAX = 900 * 1024
"""The largest size of an encoded commit: below the server's default for a message, with room for headers."""


RegisterKind = Literal[
    "lane",
    "key",
    "breaker",
    "slots",
    "policy",
    "sched",
    "once",
    "hook",
    "access",
    "answer",
    "agent",
    "plan",
    "budget",
]
"""A lane's queue, the run of a key, a breaker, the slots of a name, approved calls, a schedule, the call of a key,
how far a hook has followed a shard, the tokens of the HTTP API, what was answered to a request with a key, all versions
of the stored agents, those of a standing plan, or what a shard has spent of a budget."""


class Subject(msgspec.Struct, frozen=True, order=True):
    """One strictly ordered sequence of commits: of a run, or of a register (see `RegisterKind`)."""

    shard: int
    kind: Literal["run"] | RegisterKind
    root: str
    id: str


class Family(msgspec.Struct, frozen=True):
    """Selects the commits of a root run and its descendants."""

    shard: int
    root: str


class Shard(msgspec.Struct, frozen=True):
    """Selects the commits of all runs of a shard."""

    shard: int


Selector = Subject | Family | Shard

REGISTERS: tuple[RegisterKind, ...] = (
    "key",
    "breaker",
    "slots",
    "policy",
    "sched",
    "once",
    "hook",
    "answer",
    "budget",
)
"""The registers whose last commit is their whole value; of a lane it is the queue, of the other kinds nothing."""


class At(msgspec.Struct, frozen=True):
    """The expected position of a subject: the position of its last commit, 0 for none."""

    position: int


NEW = At(0)
"""The subject must not exist yet."""


class Wakeup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An obligation to look at a run, never data.

    `cause` is the lowest revision of the run, `lane_cause` of its lane, `root_cause` of its root, and `slots_cause` of
    the slots named `slots`, that a worker must have read before it decides about the wake-up (W10). `kind`: wake, timer
    (`ref` is the timer id), child (`ref` is the child run), schedule (`run` is the id of a schedule's register, `cause`
    its revision, `ref` its name). Wake-ups of each `priority` are queued apart (W64).
    """

    shard: int
    agent: str
    root: str
    run: str
    kind: Literal["wake", "timer", "child", "schedule"] = "wake"
    cause: int = 0
    lane_cause: int = 0
    root_cause: int = 0
    slots_cause: int = 0
    slots: str = ""
    ref: str = ""
    priority: Priority = "normal"


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A wake-up that is sent at `due_at` (Unix seconds). Setting the same (run, id) again replaces it."""

    id: str
    due_at: float
    wakeup: Wakeup


class CommitWrite(msgspec.Struct, frozen=True):
    """Append `data` (one encoded commit) to `subject`, whose last position must be `expected`.

    Commits of one subject in one append follow one another in the given order; all name the position that the subject
    has before the append. `ends`: it ends its run, which readers that follow `to_end` wait for.
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
    """A commit as stored. Positions increase within a shard, with gaps."""

    subject: Subject
    position: int
    data: bytes


class EventLog(Protocol):
    """Commits under optimistic concurrency, one total order per shard."""

    @property
    def shards(self) -> int:
        """The number of shards of the namespace; fixed when it is created."""
        ...

    async def append(self, *writes: Write) -> tuple[int, ...]:
        """Store all writes or none, and return their positions in order. All subjects must be of one shard.

        The writes are durable when it returns, as far as the log's sync setting guarantees.
        Raises `Conflict` if a condition does not hold (nothing is stored), `AppendUnsure` if no reply came (the writes
        may be stored, now or later), `PayloadTooLarge` for a commit over the limit.
        """
        ...

    def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        """Yield all commits after position `after` that are stored now, in order.

        May be stale: commits that other writers have just stored may be missing. Raises `LogCorrupted` for an
        unreadable commit.
        """
        ...

    async def head(self, selector: Selector) -> Stored | None:
        """Return the last commit that is selected, None if there is none; may be stale like `read`."""
        ...

    async def count(self, selector: Selector, after: int = 0) -> int:
        """Return the number of commits that `read` would yield, without reading them; may be stale like it."""
        ...

    async def last_position(self, selector: Selector) -> int:
        """Return the position of the last commit that is selected, 0 for none. Never stale, unlike `read` and `head`.

        It covers every append that was acknowledged, to any writer, before the call.
        """
        ...

    def heads(self, shard: int, kind: RegisterKind) -> AsyncIterator[Stored]:
        """Yield the last commit of each register of a kind, in no particular order; may be stale like `read`."""
        ...

    async def find(self, shard: int, run: str) -> Subject | None:
        """Return the subject of a run by its id; None if the shard has no such run."""
        ...

    async def purge(self, below: Mapping[Subject, int]) -> None:
        """Remove all commits of subjects below a position.

        The others stay where they are, so that an append still expects the last position. Not all at once: a reader may
        see some of them gone and others not. Idempotent.
        """
        ...

    async def sweep(self) -> int:
        """Remove all commits of keys, breakers, slots and schedules but the last of each; return their number.

        The last commit of such a subject is its whole value (W53).
        """
        ...

    def follow(self, selector: Selector, after: int = 0, *, to_end: bool = False) -> AsyncIterator[Stored]:
        """Yield every commit after `after`, stored or still to come, once and in order, until the iterator is closed.

        Survives outages of the log: it waits and continues where it was, without a gap. With `to_end`, commits may be
        delivered late, together with the one that `ends` the run, for readers that only wait for the end.
        """
        ...


class Delivery(msgspec.Struct, frozen=True):
    """A wake-up delivered to a worker. Its `token` is for `ack`, `nak` and `extend`, by any process."""

    wakeup: Wakeup
    token: str
    attempt: int = 1


class Deliveries(Protocol):
    """The wake-ups of some agents, and of more that are added. Cancelling a wait loses nothing."""

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Return itself."""
        ...

    async def __anext__(self) -> Delivery:
        """Return the next one."""
        ...

    async def serve(self, agents: frozenset[str]) -> None:
        """Yield those of these agents, too. Repeatable."""
        ...


class Wakeups(Protocol):
    """Obligations, delivered to one consumer at a time, and redelivered until one acknowledges."""

    async def send(self, wakeup: Wakeup) -> None:
        """Store a wake-up. Never deduplicated (W9)."""
        ...

    def pull(self, agents: frozenset[str]) -> AbstractAsyncContextManager[Deliveries]:
        """Yield wake-ups of runs of these agents; many consumers share them. Survives outages.

        If wake-ups of several priorities wait, each gets its turns (W64); within one, those of a shard come in
        the order in which they were stored.
        """
        ...

    async def ack(self, token: str) -> None:
        """Acknowledge a delivery: it is done. A stale token is accepted silently (W15 makes that harmless)."""
        ...

    async def nak(self, token: str, delay_s: float = 0.0) -> None:
        """Give a delivery back: it is redelivered, to any consumer, after the delay."""
        ...

    async def extend(self, token: str) -> None:
        """Send a heartbeat: restart the time after which the wake-up is redelivered."""
        ...

    async def waiting(self, agents: frozenset[str]) -> dict[str, int]:
        """Return the number of wake-ups of each of these agents that no consumer has taken yet."""
        ...

    async def sweep(self) -> int:
        """Remove wake-ups that are acknowledged, with all before them, and return their number (W16, W53)."""
        ...


class Timers(Protocol):
    """Wake-ups at a given time: up to half a second late, never early."""

    async def set(self, timer: Timer) -> None:
        """Set or replace the timer; one that is already due fires at once."""
        ...

    async def cancel(self, timer: Timer) -> None:
        """Remove the timer, if it is still set."""
        ...

    def named(self, timer_id: str) -> AsyncIterator[Wakeup]:
        """Yield the wake-ups of all timers with this id that are set, of any run."""
        ...


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The statement of `worker` that it drives `run` in `epoch`. `token` is the wake-up it holds for it, if any."""

    shard: int
    agent: str
    root: str
    run: str
    epoch: int
    worker: str
    revision: int = 0
    token: str = ""
    priority: Priority = "normal"


class Offer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts for stored agents that a worker has: names of tools, providers and secrets, and entries of MCP servers.

    `agents` are those of its code, whose names stored agents cannot have.
    """

    tools: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    mcp_servers: dict[str, list[dict[str, Any]]] = {}
    agents: tuple[str, ...] = ()


class Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that drives runs, as it announces itself: a worker, or a program with runs of its own.

    `serves` are the agents whose wake-ups it takes, up to `concurrency` at a time; a program takes none. `release` is
    the version of foldlog, `build` what its operator calls the code it runs, and `since` is Unix seconds. `offer` is
    null for a program: its runs are its own. A worker that is `draining` takes no more wake-ups, and finishes its runs.
    """

    worker: str
    serves: tuple[str, ...] = ()
    concurrency: int = 0
    host: str = ""
    pid: int = 0
    release: str = ""
    build: str = ""
    since: float = 0.0
    offer: Offer | None = None
    draining: bool = False


def served(present: Iterable[Presence]) -> frozenset[str]:
    """Return the agents whose wake-ups are taken by these processes."""
    return frozenset(agent for each in present if not each.draining for agent in each.serves)


Announce = Callable[[Presence], Awaitable[None]]
"""Announces a present process again. Raises `LogUnavailable`."""


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease in force, and when its worker renewed it last, by that worker's clock (Unix seconds)."""

    lease: Lease
    renewed_at: float


class Leases(Protocol):
    """Hints only: a wrong one costs a fenced executor, never correctness (W17)."""

    async def vouch(self, lease: Lease, ttl_s: float) -> None:
        """Set or renew the lease for the next `ttl_s` seconds (at least 1)."""
        ...

    async def end(self, lease: Lease) -> None:
        """End the lease, because the worker no longer drives the run."""
        ...

    async def live(self, run: str, worker: str, epoch: int) -> bool:
        """Return whether the worker has a lease on this run and epoch now."""
        ...

    async def held(self) -> tuple[HeldLease, ...]:
        """Return all leases in force, in no particular order."""
        ...

    def presence(self, announced: Presence) -> AbstractAsyncContextManager[Announce]:
        """Announce the process while the context is open; if its connection ends, `deaths` reports its leases.

        What is yielded announces it again, under the same name, when something about it has changed.
        """
        ...

    async def present(self) -> tuple[Presence, ...]:
        """Return the processes that are present now, by their names."""
        ...

    def deaths(self) -> AbstractAsyncContextManager[AsyncIterator[Lease]]:
        """Yield the leases of workers whose connection ended unexpectedly; a reported lease is ended."""
        ...


class DraftPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of text that a model is writing. `offset` counts characters of the channel within the attempt."""

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
    """Pieces of text, delivered at most once, in order per writer, and kept for a short time for late readers.

    Consecutive pieces may arrive as one: the first of them, with the text of all. A long piece may arrive in several
    consecutive ones.
    """

    async def publish(self, root: str, piece: DraftPiece) -> None:
        """Send a piece to all followers; return without waiting for them."""
        ...

    def follow(self, root: str) -> AbstractAsyncContextManager[AsyncIterator[DraftPiece]]:
        """Yield the recent pieces of the family, then new ones. Pieces published after entering are not missed."""
        ...

    async def purge(self, root: str) -> None:
        """Remove the recent pieces of the family. Idempotent."""
        ...


class FamilyArtifacts(Protocol):
    """The artifacts of one family: bytes under the SHA-256 of their content (hex)."""

    async def put(self, data: bytes, digest: str = "") -> str:
        """Store the bytes and return their digest. Idempotent.

        Sealed bytes (`sealing.cipher.is_sealed`) are stored under the `digest` that they had before.
        """
        ...

    async def get(self, digest: str) -> bytes:
        """Return the bytes. Raises `LogCorrupted` if they do not match the digest, `KeyError` if there are none.

        Of sealed bytes it is checked that they are intact.
        """
        ...


class Artifacts(Protocol):
    """Bytes below the root run that refers to them, so that a family is erased without counting references."""

    def of(self, root: str) -> FamilyArtifacts:
        """Return the artifacts of the family of `root`."""
        ...

    async def find(self, digest: str) -> bytes:
        """Return the bytes, whatever family has them; raises what `FamilyArtifacts.get` raises.

        The cost grows with the number of families: for what a run takes over from another, not for its own.
        """
        ...

    async def purge(self, root: str) -> None:
        """Remove all artifacts of a family. Idempotent."""
        ...


class Snapshots(Protocol):
    """A cache with one value for each run, which may be missing, old or damaged at any time; readers check it."""

    async def put(self, run: str, data: bytes) -> None:
        """Store the value for the run, replacing any other. Of two concurrent values either may remain, or neither."""
        ...

    async def get(self, run: str) -> bytes | None:
        """Return the last value; None if there is none or it is incomplete. The cost depends only on its size."""
        ...

    async def purge(self, run: str) -> None:
        """Remove the value of the run. Idempotent."""
        ...


class Keys(Protocol):
    """Wrapped keys, apart from all that they seal: in no backup, and overwritten when they are replaced."""

    async def in_use(self) -> bool:
        """Return whether the namespace has, or had, any. A no may be half a minute old."""
        ...

    async def get(self, name: str) -> tuple[int, bytes] | None:
        """Return the position and the value of a name; null for none. Never stale, unlike `EventLog.read`."""
        ...

    async def put(self, name: str, data: bytes, expected: At) -> int:
        """Store a value in place of the one at the expected position, and return its position.

        The bytes of earlier values of the name are overwritten before it returns. Raises `Conflict`.
        """
        ...

    async def tidy(self, name: str) -> None:
        """Overwrite what an interrupted `put` has left of earlier values. Idempotent."""
        ...

    def all(self) -> AsyncIterator[tuple[str, int, bytes]]:
        """Yield the names with their positions and values."""
        ...


class Log(Protocol):
    """A namespace of a log with its eight ports."""

    @property
    def namespace(self) -> str:
        """The name of the namespace."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock for time stamps and waiting."""
        ...

    @property
    def events(self) -> EventLog:
        """Commits."""
        ...

    @property
    def wakeups(self) -> Wakeups:
        """Obligations to look at runs."""
        ...

    @property
    def timers(self) -> Timers:
        """Wake-ups at a given time."""
        ...

    @property
    def leases(self) -> Leases:
        """Hints on which worker drives which run."""
        ...

    @property
    def drafts(self) -> Drafts:
        """Text that models are writing."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """Large values."""
        ...

    @property
    def snapshots(self) -> Snapshots:
        """Cached states of runs."""
        ...

    @property
    def keys(self) -> Keys:
        """Wrapped keys of sealed values."""
        ...
