"""The leases of the drives of one process."""

from types import SimpleNamespace
from typing import Any

import anyio
from foldlog.eventlog.memory import MemoryLog
from foldlog.runtime.driving.heartbeat import Heart


def driving(run: str, epoch: int) -> Any:
    state = SimpleNamespace(agent="helper", root=run, run=run, head=SimpleNamespace(rev=3))
    journal = SimpleNamespace(subject=SimpleNamespace(shard=0))
    return SimpleNamespace(journal=journal, state=state, epoch=epoch, renew=None, renewed=lambda _since: None)


async def test_who_loses_a_claim_to_another_delivery_in_its_process_does_not_end_the_lease_of_the_winner() -> (
    None
):
    log = MemoryLog()
    heart = Heart(SimpleNamespace(log=log, lease_s=10.0, worker="worker"))  # type: ignore[arg-type]  # of a host
    async with heart.beat_for(driving("run", 1), "first"):
        async with heart.beat_for(driving("run", 1), "second"):
            await anyio.wait_all_tasks_blocked()
        await anyio.wait_all_tasks_blocked()
        assert await log.leases.live("run", "worker", 1)
    await anyio.wait_all_tasks_blocked()
    assert not await log.leases.live("run", "worker", 1)
    await heart.aclose()
