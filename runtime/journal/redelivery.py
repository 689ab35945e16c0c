"""A holder of leases vanished: what it held is offered to others at once; the normal claim does the rest."""

from __future__ import annotations

from ...eventlog.ports import Lease, Log, Wakeup


async def redeliver(log: Log, lease: Lease) -> None:
    """Have the wake-up behind a dead holder's lease delivered again, or send one. Raises `LogUnavailable`."""
    if lease.token:
        await log.wakeups.nak(lease.token)
        return
    await log.wakeups.send(
        Wakeup(shard=lease.shard, agent=lease.agent, root=lease.root, run=lease.run, cause=lease.revision)
    )
