"""The leases of the drives of one process."""

import math
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Lease
from foldlog.runtime.driving import heartbeat
from foldlog.runtime.driving.driver import Driver
from foldlog.runtime.driving.heartbeat import Beating, LeaseKeeper
from foldlog.runtime.executors.worker import Worker


def driving(run: str, epoch: int) -> Any:
    state = SimpleNamespace(agent="helper", root=run, run=run, priority="normal", head=SimpleNamespace(rev=3))
    journal = SimpleNamespace(subject=SimpleNamespace(shard=0))
    return SimpleNamespace(journal=journal, state=state, epoch=epoch, renew=None, renewed=lambda _since: None)


async def test_who_loses_a_claim_to_another_delivery_in_its_process_does_not_end_the_lease_of_the_winner() -> (
    None
):
    log = MemoryLog()
    heart = LeaseKeeper(SimpleNamespace(log=log, lease_s=10.0, worker="worker"))  # type: ignore[arg-type]  # of a host
    async with heart.beat_for(driving("run", 1), "first"):
        async with heart.beat_for(driving("run", 1), "second"):
            await anyio.wait_all_tasks_blocked()
        await anyio.wait_all_tasks_blocked()
        assert await log.leases.live("run", "worker", 1)
    await anyio.wait_all_tasks_blocked()
    assert not await log.leases.live("run", "worker", 1)
    await heart.aclose()


class SlowLog:
    """A log that takes three seconds for an answer."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.watches: list[float] = []
        self.clock = SimpleNamespace(monotonic=lambda: self.now_s, now=lambda: 1e9 + self.now_s)
        self.leases = SimpleNamespace(vouch=self._answer, end=self._answer)
        self.wakeups = SimpleNamespace(extend=self._answer)
        self.timers = SimpleNamespace(set=self._set)

    async def _answer(self, *_: Any) -> None:
        self.now_s += 3.0

    async def _set(self, timer: Any) -> None:
        self.watches.append(timer.due_at - 1e9)
        self.now_s += 3.0


@pytest.mark.parametrize("token", ["a wake-up", ""])
async def test_a_lease_is_counted_from_when_it_was_sent_and_a_watch_is_due_at_its_end(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SlowLog()
    monkeypatch.setattr(heartbeat, "watch_timer", lambda _journal, due_at: SimpleNamespace(due_at=due_at))
    heart = LeaseKeeper(SimpleNamespace(log=log, lease_s=10.0, worker="worker"))  # type: ignore[arg-type]  # of a host
    driver, renewed = driving("run", 1), list[float]()
    driver.renewed = renewed.append
    await heart._vouch(Beating(driver, token))
    await heart._beat(Beating(driver, token))
    assert renewed == [100.0, 103.0]
    assert log.watches == ([] if token else [116.0])


async def test_only_the_drive_of_the_claim_in_force_counts_as_one_of_this_process() -> None:
    heart = LeaseKeeper(SimpleNamespace(log=MemoryLog(), lease_s=10.0, worker="worker"))  # type: ignore[arg-type]  # of a host
    async with heart.beat_for(driving("run", 2), "first"):
        assert [heart.drives("run", epoch) for epoch in (1, 2, 3)] == [False, True, False]
        assert not heart.drives("another", 2)
    await heart.aclose()


def test_a_lease_that_lapsed_and_came_back_is_another_one() -> None:
    clock = SimpleNamespace(now_s=100.0)
    driver: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: clock.now_s),
        host=SimpleNamespace(lease_s=10.0),
        lease_number=0,
        lease_deadline=-math.inf,
    )

    def in_force() -> int:
        return Driver.lease_in_force.fget(driver)  # type: ignore[attr-defined, no-any-return]

    assert in_force() == 0
    Driver.renewed(driver, 98.0)
    assert (in_force(), driver.lease_deadline) == (1, 108.0)
    clock.now_s = 107.0
    Driver.renewed(driver, 105.0)
    assert (in_force(), driver.lease_deadline) == (1, 115.0)
    clock.now_s = 115.0
    assert in_force() == 0
    Driver.renewed(driver, 114.0)  # the news came behind its end
    assert in_force() == 2


async def test_a_run_is_driven_if_its_owner_vouches_for_the_claim_in_force() -> None:
    log = MemoryLog()
    lease = Lease(shard=0, agent="a", root="run", run="run", epoch=2, worker="w", revision=1)
    await log.leases.vouch(lease, 10.0)
    worker: Any = SimpleNamespace(_log=log, _keeper=SimpleNamespace(drives=lambda _run, epoch: epoch == 7))
    driven = [
        await Worker._is_driven(worker, SimpleNamespace(run="run", owner=owner, epoch=epoch))  # type: ignore[arg-type] # as much of a state as it needs
        for owner, epoch in (("w", 1), ("w", 2), ("w", 3), ("v", 2), (None, 2), ("w", 7))
    ]
    assert driven == [False, True, False, False, False, True], "or if this process does"
