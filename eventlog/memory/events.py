"""Commits in memory, with a list for each selector that a reader may use."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import assert_never

from ..errors import Conflict, PayloadTooLarge
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
from .positions import Positions
from .waiting import Signal, Takes, checkpoint
from .wakeups import MemoryWakeups

SLICE = 256
"""So many commits are read before other tasks have a turn: reading a long run holds none of them up for long."""


class MemoryEvents:
    """`EventLog` in memory."""

    def __init__(self, positions: Positions, wakeups: MemoryWakeups) -> None:
        self.shards = positions.shards
        self._positions = positions
        self._wakeups = wakeups
        self._commits: dict[Selector, list[Stored]] = defaultdict(list)
        self._arrivals: dict[Selector, Signal] = defaultdict(Signal)
        self._runs: dict[tuple[int, str], Subject] = {}
        self.stored: list[Stored] = []
        """Every commit of every subject, in the order of storing, for observers such as a simulation."""

    async def append(self, *writes: Write) -> tuple[int, ...]:
        """Store all writes or none, and return their positions in order (`EventLog.append`)."""
        await checkpoint()
        self._check(writes)
        return tuple([self._store(write) for write in writes])

    def _check(self, writes: tuple[Write, ...]) -> None:
        shards = {_shard_of(write) for write in writes}
        if len(shards) > 1:
            raise ValueError(f"all writes of one append must be of one shard, not of {sorted(shards)}")
        commits = [write for write in writes if isinstance(write, CommitWrite)]
        if len({(commit.subject, commit.expected) for commit in commits}) > len({c.subject for c in commits}):
            raise ValueError("commits of one subject in one append must expect the same position")
        for commit in commits:
            if len(commit.data) > COMMIT_BYTES_MAX:
                raise PayloadTooLarge(f"a commit of {commit.subject.id}", len(commit.data), COMMIT_BYTES_MAX)
        for commit in commits:
            last = self._last(commit.subject)
            if last != commit.expected.position:
                raise Conflict(
                    f"{commit.subject.kind} {commit.subject.id} is at position {last}, "
                    f"not at {commit.expected.position} as expected; nothing was stored"
                )

    def _last(self, subject: Subject) -> int:
        commits = self._commits.get(subject)
        return commits[-1].position if commits else 0

    def _store(self, write: Write) -> int:
        match write:
            case CommitWrite(subject, _, data):
                return self._store_commit(subject, data)
            case WakeWrite(wakeup):
                return self._wakeups.put(wakeup)
            case TimerWrite(timer):
                return self._wakeups.put_timer(timer)
            case _:
                assert_never(write)

    def _store_commit(self, subject: Subject, data: bytes) -> int:
        stored = Stored(subject, self._positions.next(subject.shard), data)
        self._add(stored)
        return stored.position

    def _add(self, stored: Stored) -> None:
        subject = stored.subject
        if subject.kind == "run":
            self._runs[subject.shard, subject.id] = subject
        self.stored.append(stored)
        for selector in _selectors_of(subject):
            self._commits[selector].append(stored)
            self._arrivals[selector].notify()

    def adopt(self, commits: Iterable[Stored]) -> None:
        """Store commits of an archive at the positions that they had, so that their cursors stay valid."""
        for stored in commits:
            self._positions.reach(stored.subject.shard, stored.position)
            self._add(stored)

    def now(self, selector: Selector) -> tuple[Stored, ...]:
        """Return the commits that are stored now, for observers such as a simulation."""
        return tuple(self._commits.get(selector, ()))

    async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        """Yield all commits after position `after` that are stored now, in order."""
        await checkpoint()
        commits = self._commits.get(selector, [])
        for number, stored in enumerate(commits[_index_behind(commits, after) :], 1):
            yield stored
            if number % SLICE == 0:
                await checkpoint()

    async def head(self, selector: Selector) -> Stored | None:
        """Return the last commit that is selected, None if there is none."""
        await checkpoint()
        commits = self._commits.get(selector)
        return commits[-1] if commits else None

    async def count(self, selector: Selector, after: int = 0) -> int:
        """Return the number of commits after position `after` that are stored now."""
        await checkpoint()
        commits = self._commits.get(selector, [])
        return len(commits) - _index_behind(commits, after)

    async def last_position(self, selector: Selector) -> int:
        """Return the position of the last commit that is selected, 0 for none."""
        last = await self.head(selector)
        return last.position if last is not None else 0

    async def heads(self, shard: int, kind: RegisterKind) -> AsyncIterator[Stored]:
        """Yield the last commit of each register of a kind."""
        await checkpoint()
        found = [
            commits[-1]
            for selector, commits in self._commits.items()
            if isinstance(selector, Subject) and (selector.shard, selector.kind) == (shard, kind) and commits
        ]
        for stored in found:
            yield stored

    async def purge(self, below: Mapping[Subject, int]) -> None:
        """Remove all commits of subjects below a position."""
        await checkpoint()
        for subject, position in below.items():
            for selector in _selectors_of(subject):
                commits = self._commits[selector]
                commits[:] = [c for c in commits if c.subject != subject or c.position >= position]
            if subject.kind == "run" and not self._commits[subject]:
                self._runs.pop((subject.shard, subject.id), None)

    async def sweep(self) -> int:
        """Remove all commits of keys, breakers and slots but the last of each."""
        await checkpoint()
        swept = 0
        for subject, commits in self._commits.items():
            if isinstance(subject, Subject) and subject.kind in REGISTERS:
                swept += max(0, len(commits) - 1)
                del commits[:-1]
        return swept

    async def find(self, shard: int, run: str) -> Subject | None:
        """Return the subject of a run by its id."""
        await checkpoint()
        return self._runs.get((shard, run))

    def follow(self, selector: Selector, after: int = 0, *, to_end: bool = False) -> AsyncIterator[Stored]:
        """Yield every commit after `after`, stored or still to come, once and in order."""
        commits, arrivals = self._commits[selector], self._arrivals[selector]
        position = after

        async def take() -> Stored:
            nonlocal position
            while (index := _index_behind(commits, position)) == len(commits):
                await arrivals.wait()
            position = commits[index].position
            return commits[index]

        return Takes(take)


def _shard_of(write: Write) -> int:
    match write:
        case CommitWrite(subject):
            return subject.shard
        case WakeWrite(wakeup):
            return wakeup.shard
        case TimerWrite(timer):
            return timer.wakeup.shard
        case _:
            assert_never(write)


def _selectors_of(subject: Subject) -> tuple[Selector, ...]:
    if subject.kind != "run":
        return (subject,)
    return subject, Family(subject.shard, subject.root), Shard(subject.shard)


def _index_behind(commits: list[Stored], after: int) -> int:
    if not commits or commits[-1].position <= after:
        return len(commits)
    return bisect_right(commits, after, key=lambda stored: stored.position)
