"""SIGKILL of the owner of a rollback at each commit boundary and within its calls: each sale is undone once (W42)."""

from __future__ import annotations

from typing import Any

import pytest
from foldlog.eventlog import RunFailed
from foldlog.runtime import RunHandle

from tests.processes import workshop
from tests.processes.support import LEASE_S, PATIENCE_S, Place, one_is_gone

APPENDS = 12
"""At least as many as the workers make for an undisturbed rollback."""
POINTS = [f"{side} append {number}" for number in range(2, APPENDS + 1) for side in ("before", "after")]
BY_DAY = ["after append 4", "in refund"]


async def approved(run: RunHandle[Any]) -> str:
    """Approve all steps, and wait for the end; return why it failed, empty if it did not."""
    async for event in run.stream():
        if event.type == "approval_requested" and event.approval_id in {
            each.request.approval_id for each in (await run.state()).pending_approvals
        }:
            await run.resolve(event.approval_id, "approved")
    try:
        await run.result(timeout_s=PATIENCE_S)
    except RunFailed as failed:
        return failed.message
    return ""


async def rolled_back(place: Place, point: str, lease_s: float = LEASE_S) -> str:
    """Sell here, and roll it back on two workers, one of which dies at the point."""
    run = await place.runtime.start(workshop.seller, "question")
    await run.result(timeout_s=PATIENCE_S)
    for _ in range(2):
        await place.worker(serves=["seller"], lease_s=lease_s, WORKSHOP_KILL=point)
    failed = await approved(await place.runtime.rollback(run.run_id, executor="durable"))
    if failed:  # what was started and is not done has failed: a further rollback does what is left
        assert "the postcondition does not hold" in failed
        assert await approved(await place.runtime.rollback(run.run_id, executor="durable")) == ""
    return failed


def undone() -> list[str]:
    return [line for line in workshop.read_diary() if line.startswith("refund")]


@pytest.mark.parametrize("point", BY_DAY)
async def test_a_killed_owner_leaves_a_rollback_that_undoes_each_sale_once(place: Place, point: str) -> None:
    assert await rolled_back(place, point) == ""
    await one_is_gone(list(place.processes.values()))
    assert undone() == ["refund 13", "refund 12"]


@pytest.mark.nightly
@pytest.mark.parametrize("point", [*POINTS, "before refund"])
async def test_a_killed_owner_leaves_a_rollback_that_undoes_each_sale_once_at_any_commit(
    place: Place, point: str
) -> None:
    """The last numbers may be beyond the end: then nobody dies."""
    await rolled_back(place, point, lease_s=1.0)
    assert undone() == ["refund 13", "refund 12"]
