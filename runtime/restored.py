"""After a restore from a backup: hold all that would start or go on by itself, and record keys again (W55, W56)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from ..eventlog.commits import Chain, tombstone_in
from ..eventlog.errors import RunConflict
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
        found = await _scanned(log, shard, keyed)
        held += [subject.id for subject in found if await _hold(log, subject, at)]
    for _, subject, submitted in sorted(keyed, key=lambda each: each[0], reverse=True):
        with contextlib.suppress(RunConflict):  # a later run has the key
            await restore_keys(log, [(subject, submitted)])
    schedules = [name async for name in _paused_schedules(log)]
    hooks = {name async for name in _moved_hooks(log)}
    return Held(tuple(held), len(keyed), tuple(schedules), tuple(sorted(hooks)))


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
