"""Workers with a hook on the ends of runs are killed around all that they store: each end starts one run (W41)."""

import asyncio
from typing import Any

import pytest
from foldlog.eventlog.names import hook_subject

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place

LEASE_S = 2.0
HOOK: dict[str, Any] = {
    "name": "after",
    "on": "run.completed",
    "of": ["quick"],
    "agent": "reader",
    "input": "${run.id} said ${run.output}",
}
ENDS = 3
POINTS = [
    *(f"{side} append {number}" for number in range(1, 13) for side in ("before", "after")),
    *(f"{side} key {number}" for number in (1, 2, 3) for side in ("before", "after")),
    *(f"{side} place {number}" for number in (1, 2) for side in ("before", "after")),
]
BY_DAY = {"before key 1", "after key 2"}
"""An end is known and nothing stored for it yet; a run has its key and its worker does not know of it."""


async def following(place: Place) -> None:
    """Wait until the hook has begun in every shard: what ends earlier is none of its business."""
    events = place.log.events
    subjects = [hook_subject(shard, HOOK["name"]) for shard in range(events.shards)]
    async with asyncio.timeout(PATIENCE_S):
        while any([await events.head(each) is None for each in subjects]):  # noqa: ASYNC110 - by others
            await asyncio.sleep(0.01)


async def started(place: Place, count: int) -> dict[str, str]:
    """Wait until the hook has started so many runs, and all are over; the inputs of those runs, by the ends' runs."""
    async with asyncio.timeout(PATIENCE_S):
        while True:  # by others
            rows = [row for row in await place.runtime.list_runs() if row.agent == "reader"]
            if len(rows) >= count and all(row.over for row in rows):
                break
            await asyncio.sleep(0.05)
    triggers = [row.trigger for row in rows if row.trigger is not None]
    assert [(each.kind, each.name) for each in triggers] == [("hook", "after")] * len(rows)
    assert len({each.key for each in triggers}) == len(rows)
    return {row.trigger.key: row.input for row in rows if row.trigger is not None}


async def end_some(place: Place) -> list[str]:
    """Have runs end, some here and one on a worker."""
    runs = [await place.runtime.start(workshop.quick, "question") for _ in range(ENDS - 1)]
    runs.append(await place.runtime.start(workshop.quick, "question", executor="durable"))
    for run in runs:
        await run.result(timeout_s=PATIENCE_S)
    return [run.run_id for run in runs]


@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=[] if p in BY_DAY else pytest.mark.nightly) for p in POINTS]
)
async def test_a_worker_that_is_killed_at_work_on_an_end_leaves_one_run_for_each(
    place: Place, point: str
) -> None:
    serves = ["quick", "reader"]
    workers = [
        await place.worker(serves=serves, lease_s=LEASE_S, hooks=[HOOK], WORKSHOP_KILL=point)
        for _ in range(2)
    ]
    await following(place)
    ends = await end_some(place)
    found = await started(place, ENDS)
    if "place" in point:  # it is stored some seconds later
        async with asyncio.timeout(PATIENCE_S):
            while all(worker.is_alive() for worker in workers):  # noqa: ASYNC110 - no event tells of a death
                await asyncio.sleep(0.05)
        ends += await end_some(place)
        found = await started(place, 2 * ENDS)
    assert sum(not worker.is_alive() for worker in workers) == 1
    assert found == {run: f"{run} said Done" for run in ends}


@pytest.mark.nightly
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 5.5])
async def test_what_ends_while_all_workers_are_dead_is_made_up_for_once(place: Place, after_s: float) -> None:
    """They are killed so long after the first ends."""
    serves = ["quick", "reader"]
    ends: list[str] = []
    for _ in range(3):
        workers = [await place.worker(serves=serves, lease_s=LEASE_S, hooks=[HOOK]) for _ in range(2)]
        await following(place)
        ends += await end_some(place)
        await asyncio.sleep(after_s)
        for worker in workers:
            worker.kill()
        for worker in workers:
            await worker.gone()
        for _ in range(2):
            meanwhile = await place.runtime.start(workshop.quick, "question")
            await meanwhile.result(timeout_s=PATIENCE_S)
            ends.append(meanwhile.run_id)
    await place.worker(serves=serves, lease_s=LEASE_S, hooks=[HOOK])
    found = await started(place, len(ends))
    assert found == {run: f"{run} said Done" for run in ends}
