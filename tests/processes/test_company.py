"""SIGKILL at each commit of a family that uses everything: a planner, an approval, copies, a swarm and a loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from foldlog.eventlog import ApprovalRequested, Parked, Shard
from foldlog.eventlog.commits import decode
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import Canonical, canonical, compare, load_trace
from foldlog.runtime import RunHandle, Runtime

from tests.processes import workshop
from tests.processes.support import PATIENCE_S, Place, submitted, until

APPENDS_MAX = 70
"""Maximum number of appends of the executors; concurrent events are stored in one append or in several."""
LEASE_S = 2.0
"""Only then is a worker missed that died with a wake-up and without a claim."""
BOUNDARIES = [
    f"{side} append {number}" for number in range(1, APPENDS_MAX + 1) for side in ("before", "after")
]
EFFECTS = [
    *("in planner call 1", "in planner call 2", "in model call 1", "in model call 2", "in model call 3"),
    *("in look", "in put", "in ship to the customer", "in ship to the port"),
    *("in score 1", "in lesson 1", "in lesson 2", "in score 3"),
]
EVERY_TIME = {"after append 4", "before append 45", "in ship to the port"}
POINTS = [
    point if point in EVERY_TIME else pytest.param(point, marks=pytest.mark.nightly)
    for point in [*BOUNDARIES[1:], *EFFECTS]  # before its first append a local run is in nobody's log
]


@pytest.fixture(scope="module", params=["durable", "local"])
def executor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def server(executor: str, anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    """One for each executor: the namespaces of all points are too many for the memory of one."""
    async with EphemeralServer() as server:
        yield server
        server.kill()


async def answer(runtime: Runtime, run_id: str) -> None:
    """Approve what is asked; of what nobody knows if it happened, say so, and otherwise have it done again."""
    run = runtime.get_run(run_id)
    for approval in (await run.state()).pending_approvals:
        asked = approval.request
        if asked.kind == "tool":
            await run.resolve(asked.approval_id, "approved")
        elif f"ship to {asked.arguments['to']}" in workshop.read_diary():
            result = workshop.shipped(str(asked.arguments["to"]))
            await run.resolve(asked.approval_id, "approved", outcome="succeeded", result=result)
        else:
            await run.resolve(asked.approval_id, "approved", outcome="retry")


async def answer_all(runtime: Runtime, shard: int) -> None:
    """Answer approvals once nobody works on the run that asks; at once where a worker has died."""
    async with aclosing(runtime.log.events.follow(Shard(shard))) as commits:
        async for stored in commits:
            for event in decode(stored.data).events:
                unverifiable = isinstance(event, ApprovalRequested) and event.kind == "unverifiable"
                if unverifiable or (isinstance(event, Parked) and event.reason == "approval"):
                    await answer(runtime, stored.subject.id)


@asynccontextmanager
async def people(runtime: Runtime, run: RunHandle[str]) -> AsyncIterator[None]:
    """Somebody who answers."""
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(answer_all(runtime, (await runtime.locate(run.run_id)).shard))
        yield
        answering.cancel()


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> Canonical:
    log = MemoryLog()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("WORKSHOP", str(tmp_path_factory.mktemp("company")))
        async with Runtime.open(log=log, registry=workshop.registry) as runtime:
            run = await runtime.start(workshop.company, "question")
            async with people(runtime, run):
                await run.result(timeout_s=PATIENCE_S)
            return canonical(await load_trace(log, run.run_id))


def appends(place: Place) -> int:
    return (place.directory / "count-appends").stat().st_size


async def begun(place: Place, executor: str, point: str) -> RunHandle[str]:
    """Start a run of the company, in which the first process at the point dies."""
    for _ in range(2):
        await place.worker(serves=["company"], lease_s=LEASE_S, WORKSHOP_KILL=point)
    if executor == "durable":
        return await place.runtime.start(workshop.company, "question", executor="durable")
    await place.local_process("company", "mine", lease_s=LEASE_S, WORKSHOP_KILL=point)
    return await submitted(place, "mine")


async def assert_somebody_died_there(place: Place, point: str) -> None:
    """At most one did; nobody only if this time there were fewer appends."""
    number = point.rpartition(" append ")[2]
    if number == point or appends(place) >= int(number):
        await until((place.directory / f"first-{point}").exists)
        await until(lambda: not all(process.is_alive() for process in place.processes.values()))
    workers = [process for name, process in place.processes.items() if name != "mine"]
    assert sum(not worker.is_alive() for worker in workers) <= 1


async def test_the_points_below_are_all_that_the_company_has(place: Place, whole: Canonical, executor: str):
    run = await begun(place, executor, "nowhere")
    async with people(place.runtime, run):
        await run.result(timeout_s=PATIENCE_S)
    assert 45 < appends(place) <= APPENDS_MAX
    assert compare(await place.form(run), whole).equal


@pytest.mark.parametrize("point", POINTS)
async def test_a_death_leaves_a_company_that_ends_as_if_undisturbed(
    place: Place, whole: Canonical, executor: str, point: str
):
    run = await begun(place, executor, point)
    async with people(place.runtime, run):
        assert (await run.result(timeout_s=PATIENCE_S)).output == "All seen to"
    await assert_somebody_died_there(place, point)
    assert compare(await place.form(run), whole).equal
    diary = workshop.read_diary()
    assert (diary.count("ship to the customer"), diary.count("ship to the port")) == (1, 1)
    assert 3 <= diary.count("put") <= 6
    assert "ship to nowhere" not in diary
