"""The one write path: load, decide, append at the expected position, and on a conflict decide again.

A `Journal` is one process' view of one run. Every writer uses one: executors, cancellers, approvers, injectors,
submitters (W1 to W3).

The state runs ahead of the log while a turn is stored: the turn has folded its events already when `store` appends
them at the known head. Then there are three cases:

    stored     the head moves to the new commit; the state is right as it is
    conflict   another writer was first: the state is rebuilt from the log, and the caller decides again
    unsure     the acknowledgement was lost: the run is read from its beginning, and the append id tells whether the
               commit is stored (W2). All that was read is folded first (W3): a later claim or cancel may follow it

A read may come from a replica that lags behind, so no read may take the state back before a position that was seen
once (W10). If it tries, it is repeated for some seconds; then the log is reported as corrupted.

Ownership is a claim, the event `claimed` with the next epoch: of two claims at one head the log accepts one. Every
commit of an executor carries its epoch, and the fold rejects one that is not in force (W4), so the epoch is the
fencing token of the run. Cancels and answers come from outside, and carry epoch 0.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeVar

import msgspec

from ...eventlog.commits import (
    Commit,
    Head,
    Recorded,
    buried_by,
    digest_of_bytes,
    gone,
    seal,
    verified,
    verify,
)
from ...eventlog.errors import (
    AppendUnsure,
    Conflict,
    KeyErased,
    LogCorrupted,
    LogUnavailable,
    PayloadTooLarge,
)
from ...eventlog.events import (
    NOBODY,
    Actor,
    ChildFinished,
    Claimed,
    Custom,
    LateOutcome,
    McpProgress,
    PlannerToolReturned,
    StoredEvent,
    Submitted,
    ToolPartial,
    ToolResult,
    is_by_provider,
    is_terminal,
)
from ...eventlog.names import run_subject
from ...eventlog.offload import has_large, has_references, put_aside, restore, spill
from ...eventlog.ports import (
    COMMIT_BYTES_MAX,
    At,
    CommitWrite,
    FamilyArtifacts,
    Log,
    Selector,
    Stored,
    Subject,
    Write,
)
from ...eventlog.sealing.log import SealedFamily, opened_bytes
from ...projections.fold import fold_commit
from ...projections.run_state import RunState
from ...projections.snapshot import decode_state
from ..core import offloading
from ..core.rules import Rules, rules_of_run
from ..core.turn import Turn
from .lanes import hand_lane_on
from .open_family import in_batches, open_below, open_family
from .outages import REFUSALS_MAX, STALE_READ_S, through_outages

logger = logging.getLogger("foldlog.journal")

T = TypeVar("T")


Counting = Callable[[Commit], AbstractAsyncContextManager[Sequence[Write]]]
"""Yields the writes that belong to a commit, and keeps what they were read from until the context is left."""


class Writing(NamedTuple):
    """A commit about to be stored, with the digest of its bytes."""

    write: CommitWrite
    commit: Commit
    digest: str


class Journal:
    """A run's state, and the only way to write to the run. Not for use by two tasks at once.

    `state` is folded in place by turns that are about to be stored; after a conflict it is rebuilt from the log.
    """

    def __init__(
        self, log: Log, subject: Subject, *, wait_for_log: bool = False, outside: bool = False
    ) -> None:
        self.log, self.subject = log, subject
        self.outside = outside
        """An erased key is not an error: the state has what is readable without it, which is enough to end the run."""
        self.state = RunState(run=subject.id, root=subject.root)
        self.wait_for_log = wait_for_log
        """Executors wait through an outage, which delays runs but fails none; callers get `LogUnavailable`."""
        self.snapshot_rev = 0
        """The revision of the newest known snapshot; 0 for none."""
        self._rules = Rules()
        self._rules_from: Submitted | None = None
        self._refusals = 0
        self._writer, self._appends = "", 0
        self.counting: Counting | None = None
        """Counts what is spent of the budgets of the namespace, in the batch that stores it (W65); null without any."""

    @property
    def _artifacts(self) -> FamilyArtifacts:
        return self.log.artifacts.of(self.subject.root)

    @property
    def rules(self) -> Rules:
        """The rules of the run, read from its configuration on first use."""
        submitted = self.state.submitted
        if submitted is None or submitted is self._rules_from:  # asked for all the time
            return self._rules
        return self.rules_for(submitted)

    def rules_for(self, submitted: Submitted) -> Rules:
        """Return the rules of a run submitted like this."""
        if submitted is not self._rules_from:
            self._rules, self._rules_from = rules_of_run(submitted), submitted
        return self._rules

    async def load(self, *, short: bool = False) -> RunState:
        """Fold the run from its snapshot, or from its beginning. Raises `LogCorrupted`.

        `short`: the run is probably too short for a snapshot to be worth a request.
        """
        known = self.state.head.position
        try_snapshot = bool(self.snapshot_rev) or not (known or short)
        state = await self._from_snapshot() if try_snapshot else None
        if state is None or state.head.position < known:
            await self._read_all()
        else:
            self.state = state
        return self.state

    async def _from_snapshot(self) -> RunState | None:
        """Return the snapshot plus the commits after it; None if there is none, or the log contradicts it."""
        try:
            data = await snapshot_of(self)
        except (LogUnavailable, LogCorrupted):
            return None
        state = decode_state(data, self.subject) if data is not None else None
        if state is None:
            return None
        rev = state.head.rev
        try:
            if not await self._persist(lambda: self._fold_tail(state)):
                return None
            newest = await self._persist(lambda: self.log.events.head(self.subject))
            if newest is not None and newest.position > state.head.position:  # stored in the meantime
                await self._persist(lambda: self._fold_onto(state))
            if newest is None or newest.position > state.head.position:
                return None  # an unreadable last commit shows only when counting from the first
        except LogCorrupted:  # reading from the beginning finds out what is damaged
            return None
        self.snapshot_rev = rev
        return state

    async def _fold_tail(self, state: RunState) -> bool:
        """Fold the tail onto a snapshot's state; return whether the log has the commit that the snapshot was taken at.

        The commit at the head is read, too: a state that is ahead of the log, or from another log, is worthless.
        """
        is_ours: bool | None = None
        async for stored in self.log.events.read(self.subject, state.head.position - 1):
            if is_ours is None:
                found = stored.position, digest_of_bytes(stored.data)
                is_ours = found == (state.head.position, state.head.digest)
            elif is_ours:
                fold_commit(state, await self._restored(verify(stored, state.head)))
        return bool(is_ours)

    async def _read_all(self, see: Callable[[Recorded], None] | None = None) -> None:
        """Fold the run from its beginning, calling `see` with each commit.

        The read may come from a replica that lags: it is repeated until it shows all that is known (W10).
        """
        known = self.state.head.position
        state = RunState(run=self.subject.id, root=self.subject.root)
        for _ in range(REFUSALS_MAX):
            try:
                await self._persist(functools.partial(self._fold_onto, state, see))
            except LogCorrupted:
                await (
                    self.check_erased()
                )  # while a family is erased, some of its commits are gone before others
                raise
            if state.head.position >= known:
                self.state = state
                return
            await self.log.clock.sleep(STALE_READ_S)
        await self.check_erased()
        raise LogCorrupted(
            self.subject.id, state.head.rev + 1, "the log no longer shows commits that it has shown before"
        )

    async def check_erased(self) -> None:
        """Raise `RunGone` if the run's family has a tombstone."""
        root = run_subject(self.subject.shard, self.subject.root, self.subject.root)
        last = await self._persist(lambda: self.log.events.head(root))
        if (found := buried_by(last)) is not None:
            raise gone(*found, self.subject.id)

    async def catch_up(self) -> RunState:
        """Fold the commits after the known head."""
        await self._persist(lambda: self._fold_onto(self.state))
        return self.state

    async def _fold_onto(self, state: RunState, see: Callable[[Recorded], None] | None = None) -> None:
        commits = self.log.events.read(self.subject, state.head.position)
        async for recorded in verified(commits, state.head):
            if has_references(recorded.commit.events):
                recorded = await self._restored(recorded)  # noqa: PLW2901
            if see is not None:
                see(recorded)
            fold_commit(state, recorded)

    async def _restored(self, recorded: Recorded) -> Recorded:
        return await (outside_of if self.outside else restored)(recorded, self.log)

    async def _persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Await the attempt; if this journal waits for the log, repeat it until an outage is over."""
        return await (through_outages(self.log.clock, attempt) if self.wait_for_log else attempt())

    async def follow_until(self, done: Callable[[RunState], bool]) -> RunState:
        """Fold the run's log as it grows until `done` holds, checked once and after each commit. Waits out outages."""
        if done(self.state):
            return self.state
        async with following(self.log, self.subject, self.state.head.position) as commits:
            async for stored in commits:
                recorded = verify(stored, self.state.head)
                fold_commit(
                    self.state,
                    await through_outages(self.log.clock, self._restored, recorded),
                )
                if done(self.state):
                    break
        return self.state

    async def wait_for_news(self) -> RunState:
        """Wait until the run's log has more than is known, and fold that."""
        known = self.state.head.rev
        return await self.follow_until(lambda state: state.head.rev > known)

    async def store(
        self,
        events: Sequence[StoredEvent],
        *,
        epoch: int,
        extra: Sequence[Write] = (),
        append: str | None = None,
        at: float | None = None,
    ) -> bool:
        """Append events that are already folded into `state`; return whether they are stored.

        `append` is the append id of a decision that must not be stored twice: a caller that passes it again with the
        next attempt finds an earlier one that landed late (W2). Two commits with one id are never both stored.
        `at` is the time of the decision (Unix seconds); null is now.

        False: another writer was first, and `state` is what the log has now: decide again, after checking whether
        there still is something to decide. Raises `PayloadTooLarge` with `state` rebuilt.
        """
        at = (
            self.log.clock.now() if at is None else at
        )  # offloading takes time, and the decision was before it
        try:
            spilled = await self.spilled(events)
            writing = self.write(spilled, epoch=epoch, append=append, at=at)
            fits = len(writing.write.data) <= COMMIT_BYTES_MAX
            groups = [spilled] if fits else await self._groups(spilled)
        except PayloadTooLarge:
            await self.load()
            raise
        if len(groups) == 1:
            if groups[0] is not spilled:
                writing = self.write(groups[0], epoch=epoch, append=append, at=at)
            return await self._store_one(writing, extra, append)
        for number, group in enumerate(groups, 1):
            writing = self.write(group, epoch=epoch, at=at)
            if not await self._store_one(writing, extra if number == len(groups) else (), None):
                return False
        return True

    async def _groups(self, events: Sequence[StoredEvent]) -> list[Sequence[StoredEvent]]:
        """Return the events in commits that fit; where they cannot be split, the largest values are offloaded.

        Raises `PayloadTooLarge`.
        """
        try:
            return split(events)
        except PayloadTooLarge:
            return split(await self._put_aside(events))

    async def write_in_one(
        self, events: Sequence[StoredEvent], *, epoch: int, at: float | None = None
    ) -> Writing:
        """Return the write as `write` does, with values offloaded if it would be too large for one commit."""
        if isinstance(self._artifacts, SealedFamily):
            events = await self._persist(functools.partial(spill, events, self._artifacts))
        writing = self.write(events, epoch=epoch, at=at)
        if len(writing.write.data) <= COMMIT_BYTES_MAX:
            return writing
        return self.write(await self._put_aside(events), epoch=epoch, at=writing.commit.at)

    async def _put_aside(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        return await self._persist(lambda: put_aside(events, EVENTS_BYTES_MAX, self._artifacts))

    async def spilled(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Return the events as they are stored, with their large values offloaded."""
        for event in events:
            if offloading.is_offloaded(event):
                await self._persist(functools.partial(offloading.store, event, self._artifacts))
        if not has_large(events, self._artifacts):
            return events
        return await self._persist(lambda: spill(events, self._artifacts))

    def write(
        self,
        events: Sequence[StoredEvent],
        *,
        epoch: int,
        append: str | None = None,
        at: float | None = None,
    ) -> Writing:
        """Return the write that would store these events after the known head, for a batch over several subjects.

        `at` is the time of the decision (Unix seconds); null is now.
        """
        state = self.state
        commit = Commit(
            run=self.subject.id,
            root=self.subject.root,
            rev=state.head.rev + 1,
            append=append or self._fresh(),
            prev=state.head.digest,
            epoch=epoch,
            at=self.log.clock.now() if at is None else at,
            path=state.path,
            events=tuple(events),
        )
        data, digest = seal(commit)
        ends = bool(events) and is_terminal(events[-1])
        return Writing(CommitWrite(self.subject, At(state.head.position), data, ends), commit, digest)

    def cancel_write(self, reason: str, actor: Actor = NOBODY, append: str | None = None) -> CommitWrite:
        """Return the write that cancels the run at its known head."""
        turn = Turn(self.state, self.rules, self.log.clock.now())
        turn.cancel(reason, actor)
        return self.write(turn.events, epoch=0, append=append).write

    async def relative(self, run: str, *, at_once: bool = False) -> Journal:
        """Return a loaded run of the same family, as soon as it can be read; with `at_once`, it may not exist.

        Raises `LogUnavailable`.
        """
        journal = Journal(
            self.log, run_subject(self.subject.shard, self.subject.root, run), outside=self.outside
        )
        for _ in range(REFUSALS_MAX):
            if (await journal.load()).exists or at_once:
                return journal
            await self.log.clock.sleep(STALE_READ_S)
        raise LogUnavailable(f"the family of {self.subject.root} cannot be read as a whole; try again")

    def _fresh(self) -> str:
        """Return a new append id: a random part for the journal, which is slow to generate, plus a counter.

        It is searched for among the commits of one run, so fifty random bits are enough.
        """
        self._writer = self._writer or self.log.clock.new_id()[-10:]
        self._appends += 1
        return f"{self._writer}-{self._appends}"

    async def _store_one(self, writing: Writing, extra: Sequence[Write], append: str | None) -> bool:
        write, commit, _digest = writing
        below: list[Write] = []
        lane: list[Write] = []
        try:
            if is_terminal(commit.events[-1]):
                below, lane = await self._ended_below(), await self._lane_handed_on()
            if self.counting is None:
                positions = await self.log.events.append(*below, write, *lane, *extra)
            else:
                async with self.counting(commit) as counts:
                    positions = await self.log.events.append(*below, write, *lane, *extra, *counts)
        except Conflict:  # anywhere in the batch: read and decide everything again (W7)
            alone = not (below or lane or extra) and self.counting is None
            await self._read_past(write.expected.position, alone=alone)
            return append is not None and await self._find(append)
        except LogUnavailable as error:
            if not isinstance(error, AppendUnsure) and not self.wait_for_log:
                raise
            return await self._find(commit.append)
        self.stored(writing, positions[len(below)])
        return True

    async def _read_past(self, position: int, *, alone: bool) -> None:
        """Read what came first. It must become visible: a log that rejects a position and shows no newer one lost it.

        `alone`: no other subject can have caused the conflict.
        """
        if (await self.load()).head.position > position:
            self._refusals = 0
            return
        self._refusals += 1
        if alone and self._refusals > REFUSALS_MAX:
            raise LogCorrupted(
                self.subject.id,
                self.state.head.rev + 1,
                "the log refuses to append after the last commit it can show, so a newer one is lost or unreadable",
            )
        if self._refusals > 1:
            await self.log.clock.sleep(STALE_READ_S)

    def stored(self, writing: Writing, position: int) -> None:
        """Move the head to the write, now stored at `position`; the state has its events already."""
        commit = writing.commit
        for index, event in enumerate(commit.events):
            if isinstance(event, Claimed):
                self.state.owner_revision = commit.rev + index
        last = commit.rev + len(commit.events) - 1
        self.state.head = Head(position, last, writing.digest)
        self.state.updated_at = commit.at

    async def _find(self, append: str) -> bool:
        """Return whether the append id is in the log: read and fold everything first, then answer (W2, W3).

        A snapshot does not record append ids.
        """
        appends: set[str] = set()
        await self._read_all(lambda recorded: appends.add(recorded.commit.append))
        return append in appends

    async def _ended_below(self) -> list[Write]:
        """Return the writes that cancel open children in the batch of the parent's terminal, before it (W24)."""
        if not self.state.open_children:
            return []
        # The children are taken from this journal: another read of the run may be older.
        below = open_below(await open_family(self, self.relative), self.subject.id)
        *first, last = in_batches([each.cancel_write("its parent ended") for each in below])
        for batch in first:  # if there are too many for one batch, all but the last batch go first
            await self.log.events.append(*batch)
        return last

    async def _lane_handed_on(self) -> list[Write]:
        """Return the writes that hand the lane on, in the batch of the terminal (W6)."""
        submitted = self.state.submitted
        if submitted is None or submitted.lane is None:
            return []
        return await hand_lane_on(self.log, submitted.lane, self.subject.id)


@contextlib.asynccontextmanager
async def following(
    log: Log, selector: Selector, after: int, *, to_end: bool = False
) -> AsyncIterator[AsyncIterator[Stored]]:
    """Yield `EventLog.follow`, and close it when the context is left."""
    commits = log.events.follow(selector, after, to_end=to_end)
    try:
        yield commits
    finally:
        close = getattr(commits, "aclose", None)
        if close is not None:
            await close()


async def restored(recorded: Recorded, log: Log) -> Recorded:
    """Return the commit with its offloaded values restored."""
    commit = recorded.commit
    artifacts = log.artifacts.of(recorded.subject.root)
    events = await restore(commit.events, artifacts, run=commit.run, rev=commit.rev)
    if events is recorded.commit.events:
        return recorded
    commit = msgspec.structs.replace(commit, events=tuple(events))
    return Recorded(recorded.subject, recorded.position, commit, recorded.digest)


async def snapshot_of(journal: Journal) -> bytes | None:
    """Return the opened snapshot of the journal's run; none for one that is read from outside only."""
    subject, log = journal.subject, journal.log
    data = None if journal.outside else await log.snapshots.get(subject.id)
    if data is None:
        return None
    return await opened_bytes(data, log.artifacts.of(subject.root), snapshot_place(subject))


def snapshot_place(subject: Subject) -> str:
    """Return the place for which the snapshot of a run is sealed."""
    return f"snapshot of run {subject.id}"


async def outside_of(recorded: Recorded, log: Log) -> Recorded:
    """Return what `restored` returns; if the key was erased, the commit as it is, whose content is empty."""
    try:
        return await restored(recorded, log)
    except KeyErased:
        return recorded


EVENTS_BYTES_MAX = COMMIT_BYTES_MAX - 2048
"""The size limit for the events of a commit; the rest is for the fields around them."""
CUT_BEHIND = (
    ToolResult,
    PlannerToolReturned,
    McpProgress,
    Custom,
    ToolPartial,
    ChildFinished,
    LateOutcome,
)
"""Events after which a turn may be split: the rest is decided again by the next turn."""


def split(events: Sequence[StoredEvent]) -> list[Sequence[StoredEvent]]:
    """Split events into commits that fit, only where no rule requires atomicity. Raises `PayloadTooLarge`."""
    limit = EVENTS_BYTES_MAX
    sizes = [len(msgspec.json.encode(event)) + 1 for event in events]
    groups: list[Sequence[StoredEvent]] = []
    begin, border, size, size_at_border = 0, 0, 0, 0
    for index, event in enumerate(events):
        size += sizes[index]
        if size > limit:
            if border == begin:
                raise _too_large(events[begin:], sizes[begin:])
            groups.append(events[begin:border])
            begin, size, size_at_border = border, size - size_at_border, 0
            if size > limit:
                raise _too_large(events[begin:], sizes[begin:])
        if isinstance(event, CUT_BEHIND) and not is_by_provider(event):
            border, size_at_border = index + 1, size
    return [*groups, events[begin:]]


def _too_large(events: Sequence[StoredEvent], sizes: Sequence[int]) -> PayloadTooLarge:
    largest = max(range(len(events)), key=sizes.__getitem__)
    alone = sizes[largest] > EVENTS_BYTES_MAX
    kind = events[largest].type
    what = f"an event of type {kind!r}" if alone else f"the events that belong together with {kind!r}"
    return PayloadTooLarge(what, sizes[largest] if alone else sum(sizes), EVENTS_BYTES_MAX)
