"""`foldlog doctor --repair`: send wake-ups for runs that should be driven but have no driver (W27).

Correctness does not depend on it: it repairs the damage of consumers deleted, or streams purged, by hand. A redundant
wake-up is harmless.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from .opening import opened
from .scan import all_runs
from .settings import Settings

IDLE_LEASES = 3
UNCLAIMED_LEASE_S = 10.0


async def wake_idle_runs(settings: Settings) -> AsyncIterator[str]:
    """Wake each runnable run without an event for three leases, and yield its id."""
    from ...eventlog.ports import Wakeup

    async with opened(settings) as runtime:
        log = runtime.log
        async for subject, state in all_runs(log):
            idle_s = log.clock.now() - state.updated_at
            if not state.runnable or idle_s < IDLE_LEASES * (state.owner_lease_s or UNCLAIMED_LEASE_S):
                continue
            if state.owner is not None and await log.leases.live(state.run, state.owner, state.epoch):
                continue
            wakeup = Wakeup(
                shard=subject.shard,
                agent=state.served_as,
                root=state.root,
                run=state.run,
                cause=state.head.rev,
                priority=state.priority,
            )
            await log.wakeups.send(wakeup)
            yield state.run
