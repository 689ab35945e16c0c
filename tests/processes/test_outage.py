"""The server is killed under load and comes back on the same port and store: nothing acknowledged is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from foldlog.eventlog import Claimed, Event, LogUnavailable, Shard, Stored
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.replay import canonical, compare
from foldlog.runtime import RunHandle

from tests.processes import workshop
from tests.processes.nursery import lethal
from tests.processes.support import PATIENCE_S, Place, kinds, undisturbed

RUNS = 10
COMMITS_BEFORE_KILL = 30


@pytest.fixture
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    """One for each test, since it is killed."""
    async with EphemeralServer() as server:
        yield server


async def started(place: Place, lease_s: float) -> list[RunHandle[str]]:
    """Half of them are driven by this process, half by two others; all remember what the log said it has."""
    lethal(place.log)
    for _ in range(2):
        await place.worker(lease_s=lease_s)
    executors = ["local" if number % 2 else "durable" for number in range(RUNS)]
    starting = [place.runtime.start(workshop.walker, "question", executor=each) for each in executors]
    return list(await asyncio.gather(*starting))


async def commits(place: Place, count: int) -> None:
    """Wait until the log of any run holds so many more."""
    shards = [aclosing(place.log.events.follow(Shard(shard))) for shard in range(place.log.events.shards)]
    seen = asyncio.Semaphore(0)

    async def tell(following: aclosing[AsyncIterator[Stored]]) -> None:
        async with following as stored:
            async for _ in stored:
                seen.release()

    telling = [asyncio.create_task(tell(shard)) for shard in shards]
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                await seen.acquire()
    finally:
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)


async def assert_nothing_acknowledged_is_lost(place: Place) -> None:
    promised = [line.split(" ", 2) for line in (place.directory / "acknowledged").read_text().splitlines()]
    assert len(promised) > COMMITS_BEFORE_KILL / 2
    there = {
        (stored.subject.shard, stored.position): stored.data.decode()
        for shard in range(place.log.events.shards)
        for stored in [commit async for commit in place.log.events.read(Shard(shard))]
    }
    runs = {place for place, data in there.items()}
    for shard, position, data in promised:
        key = (int(shard), int(position))
        if key in runs:  # keys and lanes are not commits of runs
            assert there[key] == data
        else:
            assert '"type":"key_recorded"' in data


async def assert_all_end_as_if_undisturbed(place: Place, runs: list[RunHandle[str]]) -> None:
    whole = canonical(await undisturbed(workshop.walker))
    for run in runs:
        assert (await run.result(timeout_s=PATIENCE_S)).output == "Four rounds"
        assert compare(await place.form(run), whole).equal


async def test_a_server_killed_under_load_loses_nothing_and_all_runs_end(
    place: Place, server: EphemeralServer
):
    runs = await started(
        place, lease_s=5.0
    )  # what is under way to a worker as the server dies waits for so long
    for _ in range(3):
        await commits(place, COMMITS_BEFORE_KILL // 3)
        await server.restart()
    await assert_all_end_as_if_undisturbed(place, runs)
    await assert_nothing_acknowledged_is_lost(place)


@pytest.mark.parametrize("outage_s", [7.0, pytest.param(10.0, marks=pytest.mark.nightly)])
async def test_an_outage_fails_no_run_and_followers_go_on_without_a_gap(
    place: Place, server: EphemeralServer, outage_s: float
):
    """It outlasts all leases; still nobody takes a run from a driver that lives."""
    runs = await started(place, lease_s=6.0)
    begun = [asyncio.Event() for _ in runs]
    watching = [asyncio.create_task(watched(*each)) for each in zip(runs, begun, strict=True)]
    for each in begun:
        await each.wait()
    server.kill()
    await asyncio.sleep(outage_s)
    await server.restart()
    await assert_all_end_as_if_undisturbed(place, runs)
    await assert_nothing_acknowledged_is_lost(place)
    for run in runs:
        claims = [event for event in (await place.trace(run)).events if isinstance(event, Claimed)]
        logs = [log.read_text() for log in place.directory.glob("*.log")]
        assert len(claims) == 1, (claims, logs)
    for run, live in zip(runs, await asyncio.gather(*watching), strict=True):
        late = await watched(run, asyncio.Event())
        assert kinds(live) == kinds(late)
        assert [event.cursor for event in live] == [event.cursor for event in late]


async def watched(run: RunHandle[str], begun: asyncio.Event) -> list[Event]:
    """The stored events of a detailed stream, but for text, which may come as drafts."""
    events = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.stream(detailed=True):
            if event.type not in DRAFTS:
                events.append(event)
                begun.set()
    return events


DRAFTS = {"text", "tool_call_delta", "text_reset"}


async def test_commands_in_an_outage_say_so_and_do_not_hang(place: Place, server: EphemeralServer):
    await place.worker()
    run = await place.runtime.start(workshop.waiter, "question", executor="durable")
    server.kill()
    commands = {
        "cancel": run.cancel(),
        "inject": run.inject("hurry"),
        "pause": run.pause(),
        "state": run.state(),
        "history": run.history(),
        "start": place.runtime.start(workshop.quick, "question", executor="durable"),
        "start locally": place.runtime.start(workshop.quick, "question"),
        "locate": place.runtime.locate("nothing"),
        "list": asyncio.wait_for(list_runs(place), PATIENCE_S),
    }
    async with asyncio.timeout(PATIENCE_S):
        outcomes = await asyncio.gather(*commands.values(), return_exceptions=True)
    said = dict(zip(commands, outcomes, strict=True))
    assert [name for name, outcome in said.items() if not isinstance(outcome, LogUnavailable)] == []
    await server.restart()
    workshop.open_gate()
    assert (await run.result(timeout_s=PATIENCE_S)).output == "At last"


async def list_runs(place: Place) -> list[object]:
    return list(await place.runtime.list_runs())
