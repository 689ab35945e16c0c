"""`foldlog doctor --repair`: wake-ups for runs that nobody drives although somebody should (W27).

Not needed for correctness: a defence against consumers that were deleted and streams that were purged by hand. A
wake-up too many is harmless.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from .opening import opened
from .scan import all_runs
from .settings import Settings

IDLE_LEASES = 3
UNCLAIMED_LEASE_S = 10.0


async def wake_idle_runs(settings: Settings) -> AsyncIterator[str]:
    """Wake each runnable run whose log has been still for three leases; the ids of those runs."""
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
            )
            await log.wakeups.send(wakeup)
            yield state.run
