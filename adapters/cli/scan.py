"""Fold every run of a namespace from the log itself, for commands that cannot rely on a projection."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...eventlog.commits import Chain, tombstone_in
from ...eventlog.ports import Log, Shard, Subject
from ...projections.fold import fold_commit
from ...projections.run_state import RunState


async def all_runs(log: Log) -> AsyncIterator[tuple[Subject, RunState]]:
    """Yield each run's subject and state, but for runs that were erased. Reads the whole log once.

    Raises `LogCorrupted`.
    """
    for shard in range(log.events.shards):
        chain, states = Chain(tombstones=True), dict[Subject, RunState]()
        async for stored in log.events.read(Shard(shard)):
            recorded = chain.verify(stored)
            subject = stored.subject
            if tombstone_in(recorded.commit) is not None:
                states = {each: state for each, state in states.items() if each.root != subject.root}
                continue
            fold_commit(states.setdefault(subject, RunState(run=subject.id, root=subject.root)), recorded)
        for subject, state in states.items():
            yield subject, state
