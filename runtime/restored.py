"""After a restore from a backup: hold all open runs, record keys again, and pause all schedules (W55, W56)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from ..eventlog.commits import Chain, tombstone_in
from ..eventlog.errors import RunConflict
from ..eventlog.events import Submitted
from ..eventlog.names import schedule_subject
from ..eventlog.ports import Log, Shard, Subject
from ..projections.fold import fold_commit
from ..projections.run_state import RunState
from .core.commands import Restore
from .core.decide import take
from .core.turn import Turn
from .journal.journal import Journal
from .journal.keys import restore_keys
from .triggers import judging
from .triggers.register import read_schedule, read_schedules, store_schedule


class Held(msgspec.Struct, frozen=True):
    """The open runs that were held, the number of runs whose key was looked for, and the schedules that were paused."""

    runs: tuple[str, ...]
    keys: int
    schedules: tuple[str, ...] = ()


async def hold_everything(log: Log, at: float) -> Held:
    """Hold every open run of a log that was restored at `at` (Unix seconds), pause schedules, record missing keys.

    Only this process may write to the log. Reads all of it, and checks every chain. Idempotent. Raises `LogCorrupted`,
    `LogUnavailable`.
    """
    held: list[str] = []
    keyed: list[tuple[float, Subject, Submitted]] = []
    for shard in range(log.events.shards):
        found = await _scanned(log, shard, keyed)
        held += [subject.id for subject in found if await _hold(log, subject, at)]
    for _, subject, submitted in sorted(keyed, key=lambda each: each[0], reverse=True):
        with contextlib.suppress(RunConflict):  # a later run has the key
            await restore_keys(log, [(subject, submitted)])
    return Held(tuple(held), len(keyed), tuple([name async for name in _paused_schedules(log)]))


async def _scanned(log: Log, shard: int, keyed: list[tuple[float, Subject, Submitted]]) -> list[Subject]:
    """Return the open runs of a shard; adds its root runs to `keyed`."""
    chain, states = Chain(tombstones=True), dict[Subject, RunState | None]()
    async for stored in log.events.read(Shard(shard)):
        recorded = chain.verify(stored)
        subject = stored.subject
        if tombstone_in(recorded.commit) is not None:
            states = {each: state for each, state in states.items() if each.root != subject.root}
            continue
        state = states.setdefault(subject, RunState(run=subject.id, root=subject.root))
        if state is None:  # it is over
            continue
        is_new = state.submitted is None
        fold_commit(state, recorded)
        if is_new and state.submitted is not None and state.submitted.parent is None:
            keyed.append((recorded.commit.at, subject, state.submitted))
        if state.over:
            states[subject] = None
    return [subject for subject, state in states.items() if state is not None and state.exists]


async def _hold(log: Log, subject: Subject, at: float) -> bool:
    """Hold a run; returns false for one that is about to be cancelled, which nothing else can happen to."""
    journal = Journal(log, subject)
    while True:
        await journal.load()
        turn = Turn(journal.state, journal.rules, at)
        take(turn, Restore(at))
        if not turn.events:
            return journal.state.held_at is not None
        if await journal.store(turn.events, epoch=0):
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
