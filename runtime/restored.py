"""After a restore from a backup: hold all that would start or go on by itself, and record keys again (W55, W56)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from ..eventlog.commits import Chain, Recorded, tombstone_in
from ..eventlog.errors import LogUnavailable, RunConflict
from ..eventlog.events import HookAdvanced, Submitted
from ..eventlog.names import schedule_subject
from ..eventlog.ports import Log, Shard, Subject
from ..projections.fold import fold_commit
from ..projections.run_state import RunState
from .core.commands import Restore
from .core.decide import take
from .core.turn import Turn
from .journal.journal import Journal
from .journal.keys import restore_keys
from .journal.outages import REFUSALS_MAX, STALE_READ_S, is_last
from .journal.register import read_register, register_write
from .triggers import judging
from .triggers.register import read_schedule, read_schedules, store_schedule


class Held(msgspec.Struct, frozen=True):
    """The open runs that were held, the number of runs whose key was looked for, and the schedules that were paused.

    `hooks`: hooks on ends of runs that pass over the ends that they had not looked at.
    """

    runs: tuple[str, ...]
    keys: int
    schedules: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()


async def hold_everything(log: Log, at: float) -> Held:
    """Hold every open run of a log that was restored at `at` (Unix seconds), pause schedules, record missing keys.

    Hooks on ends of runs go on after the end of the log.

    Only this process may write to the log. Reads all of it, and checks every chain. Idempotent. Raises `LogCorrupted`,
    `LogUnavailable`.
    """
    held: list[str] = []
    keyed: list[tuple[float, Subject, Submitted]] = []
    for shard in range(log.events.shards):
        scan = await _scanned(log, shard)
        keyed += scan.keyed
        held += [subject.id for subject in scan.open if await _hold(log, subject, at)]
    for _, subject, submitted in sorted(keyed, key=lambda each: each[0], reverse=True):
        with contextlib.suppress(RunConflict):  # a later run has the key
            await restore_keys(log, [(subject, submitted)])
    schedules = [name async for name in _paused_schedules(log)]
    hooks = {name async for name in _moved_hooks(log)}
    return Held(tuple(held), len(keyed), tuple(schedules), tuple(sorted(hooks)))


class _Scan(msgspec.Struct):
    """All that a read of a shard shows: the states of its runs (null: over), and the submissions of its roots."""

    states: dict[Subject, RunState | None] = {}
    keyed: list[tuple[float, Subject, Submitted]] = []
    read_to: int = 0

    def fold(self, recorded: Recorded) -> None:
        """Take the next commit of the shard."""
        subject, self.read_to = recorded.subject, recorded.position
        if tombstone_in(recorded.commit) is not None:
            self.states = {each: state for each, state in self.states.items() if each.root != subject.root}
            return
        state = self.states.setdefault(subject, RunState(run=subject.id, root=subject.root))
        if state is None:  # it is over
            return
        is_new = state.submitted is None
        fold_commit(state, recorded)
        if is_new and state.submitted is not None and state.submitted.parent is None:
            self.keyed.append((recorded.commit.at, subject, state.submitted))
        if state.over:
            self.states[subject] = None

    @property
    def open(self) -> list[Subject]:
        """The runs that are not over."""
        return [subject for subject, state in self.states.items() if state is not None and state.exists]


async def _scanned(log: Log, shard: int) -> _Scan:
    """Read a shard to its end: a replica that was just restored may lag. Raises `LogCorrupted`, `LogUnavailable`."""
    last = await log.events.last_position(Shard(shard))
    for _ in range(REFUSALS_MAX):
        chain, scan = Chain(tombstones=True), _Scan()
        async for stored in log.events.read(Shard(shard)):
            scan.fold(chain.verify(stored))
        if scan.read_to >= last:
            return scan
        await log.clock.sleep(STALE_READ_S)
    raise LogUnavailable(f"shard {shard} is not visible up to its end yet; try again")


async def _hold(log: Log, subject: Subject, at: float) -> bool:
    """Hold a run; returns false for one that is about to be cancelled, which nothing else can happen to."""
    journal = Journal(log, subject)
    while True:
        await journal.load()
        turn = Turn(journal.state, journal.rules, at)
        take(turn, Restore(at))
        if not turn.events:
            if journal.state.held_at is not None:
                return True
            if await is_last(log, subject, journal.state.head.position):
                return False
        elif await journal.store(turn.events, epoch=0):
            return True


async def _paused_schedules(log: Log) -> AsyncIterator[str]:
    """Pause every schedule, since its times after the backup may have started runs; yields their names."""
    for each in [each async for each in read_schedules(log) if not (each.deleted or each.paused)]:
        subject = schedule_subject(each.name, log.events.shards)
        head, before = await read_schedule(log, subject)
        after = judging.paused(before, "restore") if before is not None else None
        if after is not None:
            await store_schedule(log, subject, head, msgspec.structs.replace(after, wanted=[]))
            yield each.name


async def _moved_hooks(log: Log) -> AsyncIterator[str]:
    """Move the place of every hook on ends of runs to the end of its shard; yields their names, some several times.

    The ends that it had not looked at may have started runs after the backup.
    """
    for shard in range(log.events.shards):
        subjects = [stored.subject async for stored in log.events.heads(shard, "hook")]
        for subject in subjects:
            head, events = await read_register(log, subject)
            for event in events:
                if isinstance(event, HookAdvanced):
                    moved = HookAdvanced(name=event.name)
                    await log.events.append(register_write(log, subject, head, moved))
                    yield event.name
