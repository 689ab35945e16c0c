"""Redelivery after a lease holder died: its wake-ups go to other workers at once, which claim as always."""

from __future__ import annotations

from ...eventlog.ports import Lease, Log, Wakeup


async def redeliver(log: Log, lease: Lease) -> None:
    """Redeliver the wake-up that a dead holder's lease belongs to, or send a new one. Raises `LogUnavailable`."""
    if lease.token:
        await log.wakeups.nak(lease.token)
        return
    await log.wakeups.send(
        Wakeup(
            shard=lease.shard,
            agent=lease.agent,
            root=lease.root,
            run=lease.run,
            cause=lease.revision,
            priority=lease.priority,
        )
    )
