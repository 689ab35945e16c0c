"""SIGKILL of the owner at each commit boundary and within each model and tool call: nobody sees it in the end."""

import json
from pathlib import Path

import pytest
from foldlog.eventlog import ApprovalRequested, ChildStarted
from foldlog.replay import Canonical, canonical, compare
from foldlog.runtime import Agent, RunHandle

from tests.processes import workshop
from tests.processes.support import (
    LEASE_S,
    PATIENCE_S,
    Place,
    command,
    one_is_gone,
    stored,
    submitted,
    undisturbed,
)

APPENDS = 9
"""Number of appends of an executor in the clerk's run."""
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
async def whole(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> Canonical:
    return await undisturbed_form(tmp_path_factory.mktemp("alone"), workshop.clerk)


@pytest.fixture(scope="module")
async def whole_family(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> Canonical:
    return await undisturbed_form(tmp_path_factory.mktemp("family"), workshop.boss)


async def undisturbed_form(directory: Path, agent: Agent[str]) -> Canonical:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("WORKSHOP", str(directory))
        return canonical(await undisturbed(agent))


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
        1.0 if point == "before append 1" else LEASE_S
    )  # without a claim there is no lease to be ended by a death
    for _ in range(2):
        await place.worker(serves=["clerk"], lease_s=lease_s, WORKSHOP_KILL=point)
    run = await place.runtime.start(workshop.clerk, "question", executor="durable")
    await assert_ends_as_if_undisturbed(place, run, whole, point)


@pytest.mark.parametrize("point", [*BOUNDARIES[1:], *EFFECTS])
async def test_a_killed_process_leaves_a_local_run_that_a_worker_ends_as_if_undisturbed(
    place: Place, whole: Canonical, point: str
):
    lease_s = 1.0 if point == "after append 1" else LEASE_S  # not told yet: the watch in the log covers it
    await place.worker(serves=["clerk"])
    await place.local_process("clerk", "mine", lease_s=lease_s, WORKSHOP_KILL=point)
    run = await submitted(place, "mine")
    await assert_ends_as_if_undisturbed(place, run, whole, point)


FAMILY_APPENDS = 14
BEFORE_CHILD = 2
"""The boss appends claim and reply; the third append announces the clerk's run, and is also the clerk's first."""


async def test_the_points_of_the_family_are_all_that_it_has(place: Place, whole_family: Canonical):
    await place.worker(serves=["boss"])
    run = await place.runtime.start(workshop.boss, "question", executor="durable")
    await run.result(timeout_s=PATIENCE_S)
    commits = [recorded.commit for recorded in (await place.trace(run)).commits]
    assert sum(commit.epoch > 0 for commit in commits) == FAMILY_APPENDS + 1  # two of them are one append
    assert compare(await place.form(run), whole_family).equal


FAMILY_POINTS = [
    f"{side} append {number}" for number in range(2, FAMILY_APPENDS + 1) for side in ("before", "after")
]


@pytest.mark.parametrize("point", [*FAMILY_POINTS, "in pay"])
async def test_a_killed_owner_leaves_a_family_that_ends_as_if_undisturbed(
    place: Place, whole_family: Canonical, point: str
):
    for _ in range(2):
        await place.worker(serves=["boss"], WORKSHOP_KILL=point)
    run = await place.runtime.start(workshop.boss, "question", executor="durable")
    of_clerk = in_clerks_words(point)
    if of_clerk in UNVERIFIABLE:
        child = await stored(run, ChildStarted)
        await answer(place, place.runtime.get_run(child.child_run), of_clerk)
    assert (await run.result(timeout_s=PATIENCE_S)).output == "Seen to"
    await assert_undisturbed(place, run, whole_family, of_clerk)
    started = [event for event in (await place.trace(run)).events if isinstance(event, ChildStarted)]
    assert len(started) == 1


def in_clerks_words(point: str) -> str:
    """The point of the clerk's run that a point of the family is."""
    side, _, number = point.rpartition(" append ")
    return f"{side} append {int(number) - BEFORE_CHILD}" if side else point


async def assert_ends_as_if_undisturbed(
    place: Place, run: RunHandle[str], whole: Canonical, point: str
) -> None:
    if point in UNVERIFIABLE:
        await answer(place, run, point)
    assert (await run.result(timeout_s=PATIENCE_S)).output == "All three done"
    await assert_undisturbed(place, run, whole, point)


async def answer(place: Place, run: RunHandle[str], point: str) -> None:
    """Say what became of the unsafe call; until then the run is paused."""
    approval = await stored(run, ApprovalRequested)
    assert (approval.kind, approval.tool_call_id) == ("unverifiable", "pay-1")
    assert (await run.state()).paused == "unverifiable"
    assert workshop.read_diary().count("pay") == (0 if point == "after append 7" else 1)
    await UNVERIFIABLE[point](place, run, approval.approval_id)


async def assert_undisturbed(place: Place, run: RunHandle[str], whole: Canonical, point: str) -> None:
    """One died, and neither the trace nor the world tells of it."""
    await one_is_gone(list(place.processes.values()))
    assert compare(await place.form(run), whole).equal
    diary = workshop.read_diary()
    assert {name: diary.count(name) for name in ("look", "put")} == {
        name: 2 if point in points else 1 for name, points in REPEATED.items()
    }
    assert diary.count("pay") == 1


LAST_IN_SESSION = APPENDS + 1
"""A run of a session reads its history before it is prepared, so its claim and its preparation are two appends."""


@pytest.mark.parametrize("point", [f"{side} append {LAST_IN_SESSION}" for side in ("before", "after")])
async def test_the_next_run_of_a_session_follows_when_the_owner_dies_at_the_hand_over(
    place: Place, whole: Canonical, point: str
):
    first, second = [
        await place.runtime.start(agent, "question", executor="durable", session="talk")
        for agent in (workshop.clerk, workshop.quick)
    ]
    for _ in range(
        2
    ):  # who dies may have been handed the second run and not have claimed it: the time for that is short
        await place.worker(serves=["clerk", "quick"], lease_s=1.0, WORKSHOP_KILL=point)
    assert (await second.result(timeout_s=PATIENCE_S)).output == "Done"
    await assert_undisturbed(place, first, whole, point)
    over, begun = (await place.trace(first)).commits[-1], (await place.trace(second)).commits[1]
    assert over.position < begun.position
