"""Fold every run of a namespace from the log itself, for commands that cannot rely on a projection."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...eventlog.commits import Chain
from ...eventlog.ports import Log, Shard, Subject
from ...projections.fold import fold_commit
from ...projections.run_state import RunState


async def all_runs(log: Log) -> AsyncIterator[tuple[Subject, RunState]]:
    """Yield each run's subject and state. Reads the whole log once. Raises `LogCorrupted`."""
    for shard in range(log.events.shards):
        chain, states = Chain(), dict[Subject, RunState]()
        async for stored in log.events.read(Shard(shard)):
            recorded = chain.verify(stored)
            subject = stored.subject
            fold_commit(states.setdefault(subject, RunState(run=subject.id, root=subject.root)), recorded)
        for subject, state in states.items():
            yield subject, state
