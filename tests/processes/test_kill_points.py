"""SIGKILL of the owner at each commit boundary and within each model and tool call: nobody sees it in the end."""

import json
from collections.abc import AsyncIterator

import pytest
from foldlog.eventlog import ApprovalRequested
from foldlog.replay import Canonical, canonical, compare
from foldlog.runtime import RunHandle

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, command, one_is_gone, stored, submitted, undisturbed

APPENDS = 9
"""How many appends an executor makes in the clerk's run."""
BOUNDARIES = [f"{side} append {number}" for number in range(1, APPENDS + 1) for side in ("before", "after")]
EFFECTS = ["in model call 1", "in look", "in put", "in pay", "in model call 2"]
REPEATED = {
    "look": ("before append 3", "after append 3", "in look", "before append 4"),
    "put": ("before append 5", "after append 5", "in put", "before append 6"),
}


async def retry(place: Place, run: RunHandle[str], approval_id: str) -> None:
    await run.resolve(approval_id, "approved", outcome="retry")


async def mark_succeeded(place: Place, run: RunHandle[str], approval_id: str) -> None:
    await run.resolve(approval_id, "approved", outcome="succeeded", result="paid 12")


async def mark_succeeded_by_command(place: Place, run: RunHandle[str], approval_id: str) -> None:
    listed = await command(place, "approvals", "list", "--json")
    assert [(row["approval_id"], row["kind"]) for row in json.loads(listed)] == [
        (approval_id, "unverifiable")
    ]
    await command(
        place, "approvals", "approve", approval_id, "--outcome", "succeeded", "--result", '"paid 12"'
    )


UNVERIFIABLE = {
    "after append 7": retry,
    "in pay": mark_succeeded_by_command,
    "before append 8": mark_succeeded,
}
"""Between the stored start of the unsafe tool and its stored outcome nobody knows if it ran; somebody has to say."""


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Canonical]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("WORKSHOP", str(tmp_path_factory.mktemp("undisturbed")))
        yield canonical(await undisturbed(workshop.clerk))


async def test_the_points_below_are_all_that_the_run_has(place: Place, whole: Canonical):
    await place.worker()
    run = await place.runtime.start(workshop.clerk, "question", executor="durable")
    await run.result(timeout_s=PATIENCE_S)
    commits = [recorded.commit for recorded in (await place.trace(run)).commits]
    assert sum(commit.epoch > 0 for commit in commits) == APPENDS
    assert compare(await place.form(run), whole).equal


@pytest.mark.parametrize("point", [*BOUNDARIES, *EFFECTS])
async def test_a_killed_owner_leaves_a_run_that_ends_as_if_undisturbed(
    place: Place, whole: Canonical, point: str
):
    lease_s = (
        1.0 if point == "before append 1" else 30.0
    )  # without a claim there is no lease to be ended by a death
    for _ in range(2):
        await place.worker(serves=["clerk"], lease_s=lease_s, WORKSHOP_KILL=point)
    run = await place.runtime.start(workshop.clerk, "question", executor="durable")
    await assert_ends_as_if_undisturbed(place, run, whole, point)


@pytest.mark.parametrize("point", [*BOUNDARIES[1:], *EFFECTS])
async def test_a_killed_process_leaves_a_local_run_that_a_worker_ends_as_if_undisturbed(
    place: Place, whole: Canonical, point: str
):
    lease_s = 1.0 if point == "after append 1" else 30.0  # not told yet: the watch in the log covers it
    await place.worker(serves=["clerk"])
    await place.local_process("clerk", "mine", lease_s=lease_s, WORKSHOP_KILL=point)
    run = await submitted(place, "mine")
    await assert_ends_as_if_undisturbed(place, run, whole, point)


async def assert_ends_as_if_undisturbed(
    place: Place, run: RunHandle[str], whole: Canonical, point: str
) -> None:
    if point in UNVERIFIABLE:
        approval = await stored(run, ApprovalRequested)
        assert (approval.kind, approval.tool_call_id) == ("unverifiable", "pay-1")
        assert (await run.state()).paused == "unverifiable"
        assert workshop.read_diary().count("pay") == (0 if point == "after append 7" else 1)
        await UNVERIFIABLE[point](place, run, approval.approval_id)
    assert (await run.result(timeout_s=PATIENCE_S)).output == "All three done"
    await one_is_gone(list(place.processes.values()))
    assert compare(await place.form(run), whole).equal
    diary = workshop.read_diary()
    assert {name: diary.count(name) for name in ("look", "put")} == {
        name: 2 if point in points else 1 for name, points in REPEATED.items()
    }
    assert diary.count("pay") == 1
