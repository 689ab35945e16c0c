"""A cancel of a family that does not fit into one batch: a fence first, then the rest, by any process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from foldlog.eventlog import (
    CancelRequested,
    LateOutcome,
    LogUnavailable,
    ModelRequested,
    RunCancelled,
    RunFinished,
    Status,
)
from foldlog.eventlog.commits import decode
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import CommitWrite, Family, Write
from foldlog.runtime import Agent, RunHandle, ToolContext, tool
from foldlog.runtime.journal import cancel, open_family

from .conftest import Place, call, calls, says

Script = Callable[..., str]

MANY = 5


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "CANCELLER_S", 0.05)


@pytest.fixture
async def durable() -> AsyncIterator[Place]:
    """A place in memory with workers."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(), "durable", stack)
        yield place
        await place.check_rules()


class Crowd:
    """An agent whose call starts many children, each of which blocks in a call of its own."""

    def __init__(self, script: Script) -> None:
        self.entered, self.all_in = 0, asyncio.Event()

        @tool(effect="pure")
        async def block() -> str:
            """Block."""
            self.entered += 1
            if self.entered == MANY:
                self.all_in.set()
            await asyncio.Event().wait()
            return ""

        self.inner = Agent("inner", model=script(calls(call("block")), says("x")), tools=[block])

        @tool(effect="pure")
        async def gather(context: ToolContext) -> str:
            """Ask many."""
            return " ".join(
                await asyncio.gather(*(context.run(self.inner, f"part {n}") for n in range(MANY)))
            )

        self.outer = Agent("outer", model=script(calls(call("gather")), says("done")), tools=[gather])

    async def start(self, place: Place, *, batch: int = 2) -> RunHandle[str]:
        open_family.BATCH_RUNS_MAX.set(batch)
        await place.open(self.outer, self.inner)
        run = await place.start(self.outer)
        await self.all_in.wait()
        return run


async def ends(place: Place, run: RunHandle[str]) -> list[tuple[str, str]]:
    """The terminals of the family in log order, with what is observable behind the fence besides them."""
    subject, found = await place.runtime.locate(run.run_id), list[tuple[str, str]]()
    fenced = False
    async for stored in place.log.events.read(Family(subject.shard, subject.root)):
        commit = decode(stored.data)
        for event in commit.events:
            fenced = fenced or (commit.run == run.run_id and isinstance(event, CancelRequested))
            if fenced and not isinstance(event, (CancelRequested, LateOutcome)):
                found.append((commit.path, event.status if isinstance(event, Status) else event.type))
    return found


async def test_a_family_above_the_limit_of_a_batch_is_fenced_and_then_cancelled_children_first(
    place: Place, script: Script
) -> None:
    run = await Crowd(script).start(place)
    assert await run.cancel("enough", by="ada") == "cancelled"
    with pytest.raises(RunCancelled, match="enough"):
        await run.result()
    assert await ends(place, run) == [("outer/inner", "cancelled")] * MANY + [("outer", "cancelled")]
    state = await run.state()
    assert (state.cancel_reason, state.cancel_by) == ("enough", "ada")
    assert await run.cancel() == "already_cancelled"


async def test_effects_in_progress_in_the_children_are_reported_after_their_end(
    cheap: Place, script: Script
) -> None:
    run = await Crowd(script).start(cheap)
    await run.cancel("enough")
    subject, late = await cheap.runtime.locate(run.run_id), 0
    async with asyncio.timeout(120):
        async for stored in cheap.log.events.follow(Family(subject.shard, subject.root)):
            late += sum(isinstance(event, LateOutcome) for event in decode(stored.data).events)
            if late == MANY + 1:
                break


def dies_behind_its_fence(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next canceller get no further than its first append."""
    append, fenced = place.log.events.append, False

    async def once(*writes: Write) -> tuple[int, ...]:
        nonlocal fenced
        commits = [decode(write.data) for write in writes if isinstance(write, CommitWrite)]
        if fenced and any(isinstance(event, Status) for commit in commits for event in commit.events):
            monkeypatch.setattr(place.log.events, "append", append)
            raise LogUnavailable("the canceller dies")
        fenced = fenced or any(isinstance(e, CancelRequested) for commit in commits for e in commit.events)
        return await append(*writes)

    monkeypatch.setattr(place.log.events, "append", once)


async def test_the_driver_finishes_the_cancel_of_a_canceller_that_died_after_its_fence(
    cheap: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await Crowd(script).start(cheap)
    dies_behind_its_fence(cheap, monkeypatch)
    with pytest.raises(LogUnavailable):
        await run.cancel("enough", by="ada")
    with pytest.raises(RunCancelled, match="enough"):
        await run.result()
    assert (await ends(cheap, run))[-1] == ("outer", "cancelled")
    assert (await run.state()).cancel_by == "ada"


async def test_a_worker_that_is_woken_finishes_the_cancel_of_a_family_that_rested(
    durable: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    @tool(effect="pure")
    async def deploy() -> str:
        """Deploy."""
        return ""

    @tool(effect="pure", timeout_s=None)
    async def gather(context: ToolContext) -> str:
        """Ask many."""
        nonlocal asked
        asked += 1
        return " ".join(await asyncio.gather(*(context.run(inner, f"part {n}") for n in range(MANY))))

    inner = Agent(
        "inner", model=script(calls(call("deploy")), says("x")), tools=[deploy], hitl_tools=["deploy"]
    )
    outer = Agent("outer", model=script(calls(call("gather")), says("done")), tools=[gather])
    open_family.BATCH_RUNS_MAX.set(2)
    await durable.open(outer, inner, workers=0)
    worker = await durable.add_worker("w", park_after_s=0.05)
    run = await durable.start(outer)
    async with asyncio.timeout(120):
        subject = await durable.runtime.locate(run.run_id)
        async for stored in durable.log.events.follow(subject):
            if any(event.type == "parked" for event in decode(stored.data).events):
                break
    worker.stop()
    await durable.workers[0][1]
    dies_behind_its_fence(durable, monkeypatch)
    with pytest.raises(LogUnavailable):
        await run.cancel("enough")
    with pytest.raises(RunFinished, match="being cancelled"):
        await run.inject("wait")
    assert await run.status() == "running"
    await durable.add_worker("later")
    with pytest.raises(RunCancelled, match="enough"):
        await run.result()
    assert asked == 1


async def test_a_second_canceller_finishes_the_work_of_the_first_and_says_that_it_was_cancelled_already(
    cheap: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await Crowd(script).start(cheap)
    monkeypatch.setattr(cancel, "CANCELLER_S", 30.0)
    dies_behind_its_fence(cheap, monkeypatch)
    with contextlib.suppress(LogUnavailable):
        await run.cancel("enough")
    assert await run.cancel("no, for this reason") == "already_cancelled"
    assert (await run.state()).cancel_reason == "enough"


async def test_a_child_that_ends_in_between_does_not_let_the_run_complete_before_its_cancel(
    cheap: Place, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small family that changes between the read and the batch is fenced; its model is asked nothing more."""
    run = await Crowd(script).start(cheap, batch=500)
    child = min((await run.state()).open_children)
    append, in_between = cheap.log.events.append, True

    async def later(*writes: Write) -> tuple[int, ...]:
        nonlocal in_between
        if in_between and sum(isinstance(write, CommitWrite) for write in writes) > 2:
            in_between = False
            await cheap.runtime.get_run(child).cancel("this one alone")
        return await append(*writes)

    monkeypatch.setattr(cheap.log.events, "append", later)
    assert await run.cancel("enough") == "cancelled"
    asked = [e for e in await cheap.events(run) if isinstance(e, ModelRequested) and e.agent == "outer"]
    assert len(asked) <= 1
    assert not in_between
    assert (await run.state()).cancel_reason == "enough"
