"""SIGKILL of the owner of a workflow at each commit boundary and within its calls: nothing is done twice or lost."""

from __future__ import annotations

from typing import Any

import pytest
from foldlog.eventlog import Error, Event, RunFailed, WaitStarted
from foldlog.replay import Canonical, canonical, compare, load_trace
from foldlog.runtime import RunHandle, Runtime

from tests.processes import workshop
from tests.processes.support import LEASE_S, PATIENCE_S, Place, one_is_gone, stored

OUTPUT = ["question", "hammer is on the bench", "Done", "remitted 12", 0, {"on": True}, 7, "remitted 13"]
APPENDS = 20
"""At least as many as the run and its child have."""
BOUNDARIES = [f"{side} append {number}" for number in range(2, APPENDS + 1) for side in ("before", "after")]
BY_DAY = ["after append 3", "before append 8", "after append 12", "in look", "in remit"]


@pytest.fixture(scope="module")
async def whole(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> Canonical:
    """The canonical form of the run where nothing happens."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("WORKSHOP", str(tmp_path_factory.mktemp("alone")))
        async with Runtime.open("memory://", registry=workshop.registry) as runtime:
            run = await runtime.start(workshop.errand, "question")
            assert await to_its_end(run) == ""
            return canonical(await load_trace(runtime.log, run.run_id))


async def to_its_end(run: RunHandle[Any]) -> str:
    """Send the signal once the run waits for it, and wait for the output; return why it failed, empty if it did not."""
    seen = await stored(run, Event, lambda event: isinstance(event, WaitStarted | Error))
    if isinstance(seen, WaitStarted):
        await run.signal("go", {"on": True}, key="once")
    try:
        assert (await run.result(timeout_s=PATIENCE_S)).output == OUTPUT
    except RunFailed as failed:
        return failed.message
    return ""


async def killed(place: Place, point: str, lease_s: float = LEASE_S) -> tuple[RunHandle[Any], str]:
    for _ in range(2):
        await place.worker(serves=["errand", "quick"], lease_s=lease_s, WORKSHOP_KILL=point)
    run = await place.runtime.start(workshop.errand, "question", executor="durable")
    return run, await to_its_end(run)


def done() -> list[int]:
    """Count the executions of each unsafe call."""
    return [workshop.read_diary().count(line) for line in ("remit 12", "remit 13")]


@pytest.mark.parametrize("point", BY_DAY)
async def test_a_killed_owner_leaves_a_workflow_that_ends_as_if_undisturbed(
    place: Place, whole: Canonical, point: str
) -> None:
    run, failed = await killed(place, point)
    await one_is_gone(list(place.processes.values()))
    assert (failed, done()) == ("", [1, 1])
    assert compare(await place.form(run), whole).equal


@pytest.mark.nightly
@pytest.mark.parametrize("point", BOUNDARIES)
async def test_a_killed_owner_leaves_a_workflow_that_ends_as_if_undisturbed_at_any_commit(
    place: Place, whole: Canonical, point: str
) -> None:
    """The last numbers may be beyond the end: then nobody dies.

    A call that was started and not done when its owner died is looked at, and ends as failed: it is not done.
    """
    run, failed = await killed(place, point, lease_s=1.0)  # who dies before a claim has no lease to be ended
    if failed:
        assert "remit#0 failed: the postcondition does not hold" in failed
        assert done() == ([0, 0] if "gather#" in failed else [1, 0])
    else:
        assert done() == [1, 1]
        assert compare(await place.form(run), whole).equal
    count = (workshop.directory() / "count-appends").stat().st_size
    assert count <= APPENDS, "there are more commits than points"
