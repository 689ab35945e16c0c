"""Commits in JetStream: conditional appends, batched reads.

The condition of an append is on the exact subject of its commit: on three replicas, a condition on a wildcard is not
safe from writers without one. One write is one message; several writes are one atomic batch, stored all or none.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from ..commits import decode
from ..errors import AppendUnsure, Conflict, FoldlogError, LogCorrupted, LogUnavailable, PayloadTooLarge
from ..ports import (
    COMMIT_BYTES_MAX,
    REGISTERS,
    CommitWrite,
    Family,
    RegisterKind,
    Selector,
    Shard,
    Stored,
    Subject,
    TimerWrite,
    WakeWrite,
    Write,
)
from . import headers
from .appends import Appends
from .driver_deaths import DriverDeaths
from .follower import Follower, Page
from .layout import Layout
from .messages import Outgoing, mark_message, timer_message, wake_message
from .removals import Places, erase, places_of, remove
from .seals import Sealer
from .streams import Message, WrongPosition, last_position, read_last, read_lasts, read_page, subjects_on
from .wire import Refused, Unanswered, Wire
from .witness import Witness

_STANDS = re.compile(r"wrong last sequence: (\d+)")
_TOO_LARGE = 10054
_SERVER_TROUBLE = 503
_HEADER_ROOM_BYTES = 512


class JetStreamEvents:
    """`EventLog` on the streams of the shards."""

    def __init__(self, wire: Wire, layout: Layout, shards: int, gate: str = "") -> None:
        self._gate = f"{gate}.".encode() if gate else b""
        self._wire = wire
        self._layout = layout
        self._shards = shards
        self._witness = Witness(wire, layout, shards)
        self._deaths = DriverDeaths(wire, layout)
        self.sealer = Sealer(wire, layout, shards)
        self._appends = [Appends(wire) for _ in range(shards)]

    @property
    def shards(self) -> int:
        """The number of shards of the namespace."""
        return self._shards

    async def append(self, *writes: Write) -> tuple[int, ...]:
        """Store all writes or none, and return their positions in order.

        Raises `Conflict` (nothing is stored), `AppendUnsure` (sent, but no reply), `LogUnavailable` (never sent, or no
        responder), `PayloadTooLarge`, `ValueError` for writes of several shards or commits of one subject that expect
        different positions, and `LogCorrupted` if the log is found to have lost stored commits.
        """
        if not writes:
            return ()
        self._check(writes)
        shard = _shard_of(writes[0])
        await self._witness.settle(shard)
        try:
            positions = await self._store(self._appends[shard], writes)
        except Refused as refused:
            await self._examine(refused, writes)
            raise _explained(refused, writes) from refused
        except Unanswered as error:
            raise _unsure(error) from error
        self._witness.saw(shard, max(positions))
        self.sealer.appended(shard, max(positions))
        self._announce_ends(writes, positions)
        return positions

    def _announce_ends(self, writes: tuple[Write, ...], positions: tuple[int, ...]) -> None:
        """Publish the ends of runs, at most once; a waiting reader that misses it polls after some seconds."""
        for write, position in zip(writes, positions, strict=True):
            if isinstance(write, CommitWrite) and write.ends:
                with contextlib.suppress(LogUnavailable):
                    self._wire.publish(self._layout.over(write.subject), b"%d" % position)

    async def _store(self, appends: Appends, writes: tuple[Write, ...]) -> tuple[int, ...]:
        """Store the writes; timers go last, and such a batch is not shared with other appends.

        The server copies the batch headers of a schedule to its wake-up, and only those of the last messages are a
        complete batch. A schedule is the only kind of message in a shard that is ever removed. The message before it
        stays and announces it, so that any other missing position is known to be a loss (`audit`).
        """
        timers = sum(isinstance(write, TimerWrite) for write in writes)
        if not timers:
            messages, subjects = self._messages(writes)
            first = await appends.store(messages, subjects)
            return tuple(range(first, first + len(writes)))
        order = sorted(range(len(writes)), key=lambda index: isinstance(writes[index], TimerWrite))
        messages, _ = self._messages([writes[index] for index in order])
        lead = () if timers < len(writes) else (mark_message(self._layout, _shard_of(writes[0])),)
        messages[:0] = lead
        subject, data, fields = messages[-timers - 1]
        messages[-timers - 1] = subject, data, (*fields, (headers.TIMERS, b"%d" % timers))
        first = await appends.store_apart(messages) + len(lead)
        return tuple(first + order.index(index) for index in range(len(writes)))

    def _messages(self, writes: Sequence[Write]) -> tuple[list[Outgoing], Collection[bytes]]:
        """Return the messages of writes, and the subjects of their commits.

        The condition of a subject is on its first commit in a batch; the server does not accept further ones.
        """
        messages, subjects = list[Outgoing](), dict[bytes, None]()
        for write in writes:
            subject, data, fields = self._message(write)
            if isinstance(write, CommitWrite):
                fields = () if subject in subjects else fields
                subjects[subject] = None
            messages.append((subject, data, fields))
        return messages, subjects

    def _message(self, write: Write) -> Outgoing:
        match write:
            case CommitWrite(subject, expected, data):
                return (
                    self._gate + self._layout.subject(subject),
                    data,
                    ((headers.EXPECTED, b"%d" % expected.position),),
                )
            case WakeWrite(wakeup):
                return wake_message(self._layout, wakeup)
            case TimerWrite(timer):
                return timer_message(self._layout, timer)

    def _check(self, writes: tuple[Write, ...]) -> None:
        limit = min(COMMIT_BYTES_MAX, self._wire.payload_bytes_max - _HEADER_ROOM_BYTES)
        for write in writes:
            if isinstance(write, CommitWrite) and len(write.data) > limit:
                raise PayloadTooLarge(f"a commit of {write.subject.id}", len(write.data), limit)
        if len(writes) > 1:
            commits = [write for write in writes if isinstance(write, CommitWrite)]
            if len({_shard_of(write) for write in writes}) > 1:
                raise ValueError("all writes of one append must be of one shard")
            if len({(commit.subject, commit.expected) for commit in commits}) > len(
                {c.subject for c in commits}
            ):
                raise ValueError("commits of one subject in one append must expect the same position")

    async def _examine(self, refused: Refused, writes: tuple[Write, ...]) -> None:
        """Raise `LogCorrupted` if a subject now ends before a position that was seen: then it has lost commits."""
        last = _position_in(refused)
        for write in writes:
            if isinstance(write, CommitWrite) and last is not None and last < write.expected.position:
                await self._witness.examine(write.subject.shard)
                async for _ in self.read(write.subject):
                    pass

    async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        """Yield all commits after position `after` that are stored now. Raises `LogUnavailable`, `LogCorrupted`.

        The server skips a commit that it cannot read. `commits.Chain` finds the gap if others follow, and in any case
        `LogCorrupted` is raised at the end.
        """
        more = True
        while more:
            page = await self.page(selector, after)
            for stored in page.commits:
                yield stored
                after = stored.position
            if page.damage is not None:
                raise page.damage
            more = page.more

    async def page(self, selector: Selector, after: int) -> Page:
        """Return the next commits after `after`. Raises `LogUnavailable`, `LogCorrupted`."""
        await self._witness.settle(selector.shard)
        stream, subject = self._layout.shard(selector.shard), self._layout.selected(selector)
        page = await read_page(self._wire, stream, subject, after)
        if page.unreadable:  # or a schedule was removed between counting and reading
            page = await read_page(self._wire, stream, subject, after)
        commits = [self._stored(selector.shard, message) for message in page.messages]
        if commits:
            self.saw(commits[-1])
        damage = _damage(selector, commits, page.unreadable) if page.unreadable else None
        return Page(commits, page.more, damage)

    def saw(self, stored: Stored) -> None:
        """Note that this commit exists."""
        self._witness.saw(stored.subject.shard, stored.position)

    async def head(self, selector: Selector) -> Stored | None:
        """Return the last commit that is selected, None if there is none. Raises `LogUnavailable`, `LogCorrupted`."""
        await self._witness.settle(selector.shard)
        stream, subject = self._layout.shard(selector.shard), self._layout.selected(selector)
        last = await read_last(self._wire, stream, subject)
        if last is None:  # the server also reports "not found" for one that it cannot read
            return await self._last_of(selector) if isinstance(selector, Subject) else None
        stored = self._stored(selector.shard, last)
        self.saw(stored)
        return stored

    async def count(self, selector: Selector, after: int = 0) -> int:
        """Return the number of commits after position `after`, as the server counts them. Raises `LogUnavailable`."""
        await self._witness.settle(selector.shard)
        stream, subject = self._layout.shard(selector.shard), self._layout.selected(selector)
        page = await read_page(self._wire, stream, subject, after, count=1)
        return len(page.messages) + page.left

    async def last_position(self, selector: Selector) -> int:
        """Return the position of the last commit that is selected, 0 for none, as the stream's leader says.

        Raises `LogUnavailable`, also if the stream has no leader.
        """
        stream = self._layout.shard(selector.shard)
        return await last_position(self._wire, stream, self._layout.selected(selector))

    async def heads(self, shard: int, kind: RegisterKind) -> AsyncIterator[Stored]:
        """Yield the last commit of each register of a kind. Raises `LogUnavailable`."""
        await self._witness.settle(shard)
        subject = self._layout.registers(shard, kind)
        async for message in read_lasts(self._wire, self._layout.shard(shard), subject):
            stored = self._stored(shard, message)
            self.saw(stored)
            yield stored

    async def _last_of(self, selector: Selector) -> Stored | None:
        """Return the last commit, by reading all."""
        last = None
        async for stored in self.read(selector):
            last = stored
        return last

    async def find(self, shard: int, run: str) -> Subject | None:
        """Return the subject of a run by its id; None if the shard has no such run."""
        await self._witness.settle(shard)
        page = await read_page(
            self._wire, self._layout.shard(shard), self._layout.any_root(shard, run), count=1
        )
        return self._stored(shard, page.messages[0]).subject if page.messages else None

    async def purge(self, below: Mapping[Subject, int]) -> None:
        """Note the removal of all commits of subjects below a position, and overwrite them. Raises `LogUnavailable`."""
        shards: dict[int, list[Places]] = {}
        for subject, position in below.items():
            name, stream = self._layout.subject(subject), self._layout.shard(subject.shard)
            shards.setdefault(subject.shard, []).append(await places_of(self._wire, stream, name, position))
        for shard, places in shards.items():
            await erase(self._wire, self._layout, self._layout.shard(shard), places)

    async def sweep(self) -> int:
        """Remove all commits of keys, breakers and slots but the last of each. Raises `LogUnavailable`."""
        swept = 0
        for shard in range(self._shards):
            stream = self._layout.shard(shard)
            for kind in REGISTERS:
                counts = await subjects_on(self._wire, stream, self._layout.registers(shard, kind))
                places: dict[bytes, Places] = {}
                for name, count in counts.items():
                    subject = name.encode()
                    last = await read_last(self._wire, stream, subject) if count > 1 else None
                    if last is not None:
                        places[subject] = await places_of(self._wire, stream, subject, last.position)
                swept += await remove(self._wire, self._layout, stream, places)
        return swept

    def follow(self, selector: Selector, after: int = 0, *, to_end: bool = False) -> Follower:
        """Yield every commit after `after`, stored or still to come, once and in order, until the iterator is closed.

        With `to_end`, those of a run may come late, together with its end. It waits while the log is unavailable.
        Raises `LogCorrupted` if a commit is lost, and `ConfigError` if the server denies following.
        """
        return Follower(self._wire, self._layout, self, selector, after, self._deaths if to_end else None)

    def _stored(self, shard: int, message: Message) -> Stored:
        return Stored(self._layout.parse(shard, message.subject), message.position, message.data)


def _shard_of(write: Write) -> int:
    match write:
        case CommitWrite(subject):
            return subject.shard
        case WakeWrite(wakeup):
            return wakeup.shard
        case TimerWrite(timer):
            return timer.wakeup.shard


def _unsure(error: LogUnavailable) -> AppendUnsure:
    return AppendUnsure(f"the outcome of the append is unknown: {error}")


def _position_in(refused: Refused) -> int | None:
    """Return the last position of the subject, if the server's error has it."""
    match = _STANDS.search(refused.description)
    return int(match[1]) if isinstance(refused, WrongPosition) and match else None


def _damage(selector: Selector, commits: list[Stored], unreadable: int) -> LogCorrupted:
    """Return the error for a selection in which the server cannot read some commits."""
    expected = f"{unreadable} of the commits stored there cannot be read"
    match selector:
        case Subject(id=run):
            return LogCorrupted(run, _first_missing(commits), expected)
        case Family(root=root):
            return LogCorrupted(root, 0, f"{expected}, its own or of a run below it")
        case Shard(shard):
            return LogCorrupted(f"(any of shard {shard})", 0, expected)


def _first_missing(commits: list[Stored]) -> int:
    """Return the first revision that is missing in or after these commits of one run; 0 if unknown."""
    missing = 0
    with contextlib.suppress(ValueError):  # not commits of foldlog
        for commit in (decode(stored.data) for stored in commits):
            if missing and commit.rev != missing:
                break
            missing = commit.rev + len(commit.events)
    return missing


def _explained(refused: Refused, writes: tuple[Write, ...]) -> FoldlogError:
    """Return the error to raise for a refused append."""
    commits = [write for write in writes if isinstance(write, CommitWrite)]
    if isinstance(refused, WrongPosition):
        named = ", ".join(f"{c.subject.kind} {c.subject.id} at {c.expected.position}" for c in commits)
        return Conflict(f"expected {named}, but {refused.description}; nothing was stored")
    if refused.err_code == _TOO_LARGE:
        return PayloadTooLarge("a commit", max((len(c.data) for c in commits), default=0), COMMIT_BYTES_MAX)
    if refused.code == _SERVER_TROUBLE:
        return _unsure(refused)
    return refused
