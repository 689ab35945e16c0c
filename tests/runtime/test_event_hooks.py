"""Hooks on the ends of runs: each end starts one run, whichever worker follows the log and whichever dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, Log, MemoryLog
from foldlog.runtime import Agent, EventHook, Registry, Runtime, Worker
from foldlog.runtime.driving.host import Host
from foldlog.runtime.restored import hold_everything
from foldlog.runtime.triggers.event_hooks import DEPTH_MAX, checked_hooks

from tests.runtime.conftest import Place, says

Script = Callable[..., str]


def hook(**fields: Any) -> EventHook:
    given: dict[str, Any] = {"name": "after", "on": "run.completed", "of": ("writer",), "agent": "reader"}
    return EventHook(**(given | fields))


def agents(script: Script) -> list[Agent]:
    return [
        Agent("writer", model=script(says("a text"))),
        Agent("reader", model=script(says("read"))),
        Agent("broken", model=script({"error": {"type": "auth", "times": 9}})),
    ]


@contextlib.asynccontextmanager
async def working(
    log: Log, registry: Registry, hooks: Sequence[EventHook], count: int = 2
) -> AsyncIterator[None]:
    workers = [
        Worker(Host(log=log, registry=registry, worker=f"h{number}"), hooks=hooks) for number in range(count)
    ]
    tasks = [asyncio.create_task(each.serve()) for each in workers]
    try:
        yield
    finally:
        for each in workers:
            each.stop()
        await asyncio.gather(*tasks)


async def ended(runtime: Runtime, count: int) -> None:
    """Wait until so many runs have ended."""
    async with asyncio.timeout(120), contextlib.aclosing(runtime.follow()) as events:
        async for event in events:
            count -= event.is_end
            if not count:
                return


async def inputs(runtime: Runtime, agent: str) -> list[str]:
    rows = [row for row in await runtime.list_runs() if row.agent == agent]
    states = [await runtime.get_run(row.run_id).state() for row in rows]
    return sorted(state.submitted.input for state in states if state.submitted is not None)


async def test_the_end_of_a_run_starts_one_run_however_many_workers_follow(
    place: Place, script: Script
) -> None:
    runtime = await place.open(*agents(script), workers=0)
    writer = runtime.registry.agents["writer"]
    hooks = [
        hook(input="${run.id}: ${run.output} for ${run.metadata.team}", when="run.metadata.team == 'ops'")
    ]
    async with working(place.log, runtime.registry, hooks, 3):
        ops = [
            await runtime.start(writer, f"{n}", executor="durable", metadata={"team": "ops"})
            for n in range(4)
        ]
        other = await runtime.start(writer, "other", executor="durable", metadata={"team": "hr"})
        nothing = await runtime.start(writer, "nothing", executor="durable")  # it has no team
        await ended(runtime, 10)
    assert await inputs(runtime, "reader") == sorted(f"{each.run_id}: a text for ops" for each in ops)
    rows = [row for row in await runtime.list_runs() if row.agent == "reader"]
    triggers = [row.trigger for row in rows if row.trigger is not None]
    assert {(each.kind, each.name, each.depth) for each in triggers} == {("hook", "after", 1)}
    assert {each.key for each in triggers} == {each.run_id for each in ops} - {other.run_id, nothing.run_id}


async def test_a_hook_starts_nothing_after_a_restore_for_what_had_ended_before_it(script: Script) -> None:
    """W56: nobody knows what such ends have started after the backup."""
    log, registry = MemoryLog(), Registry(agents=agents(script))
    writer = registry.agents["writer"]
    async with Runtime.open(log=log, registry=registry) as runtime:
        async with working(log, registry, [hook()], 1):
            await runtime.start(writer, "before", executor="durable")
            await ended(runtime, 2)
        await runtime.run(
            writer, "unknown"
        )  # a worker that died with the server started the run that follows
        for _ in range(2):
            assert (await hold_everything(log, log.clock.now())).hooks == ("after",)
        async with working(log, registry, [hook(input="${run.id}")], 1):
            last = await runtime.start(writer, "afterwards", executor="durable")
            await ended(runtime, 5)
        assert await inputs(runtime, "reader") == sorted(["a text", last.run_id])


async def test_only_the_ends_that_are_meant_count(script: Script) -> None:
    log, registry = MemoryLog(), Registry(agents=agents(script))
    hooks = [
        hook(name="failed", on="run.failed", of=("broken",), input="${run.error_type}"),
        hook(name="never", on="run.completed", of=("broken",), input="never"),
        hook(name="any", on="run.ended", of=("broken", "writer"), input="${run.agent} ${run.status}"),
    ]
    async with Runtime.open(log=log, registry=registry) as runtime:
        async with working(log, registry, hooks):
            for name in ("broken", "writer"):
                await runtime.start(registry.agents[name], "x", executor="durable")
            await ended(runtime, 5)
        assert await inputs(runtime, "reader") == ["auth", "broken error", "writer completed"]


async def test_what_ended_while_no_worker_followed_is_made_up_for_and_what_was_before_the_hook_is_not(
    script: Script,
) -> None:
    log, registry = MemoryLog(), Registry(agents=agents(script))
    writer = registry.agents["writer"]
    async with Runtime.open(log=log, registry=registry) as runtime:
        await runtime.run(writer, "before the hook")
        async with working(log, registry, [hook()], 1):
            await runtime.run(writer, "one")
            await ended(runtime, 3)
        await runtime.run(writer, "meanwhile")
        async with working(log, registry, [hook()], 2):
            await ended(runtime, 5)
        assert len(await inputs(runtime, "reader")) == 2


async def test_a_worker_that_dies_anywhere_leaves_one_run_for_each_end(script: Script) -> None:
    """W41: the worker is cut off after each number of turns of the loop; then another one follows."""
    for turns in range(0, 120, 24):
        log, registry = MemoryLog(ack_wait_s=1.0), Registry(agents=agents(script))
        async with Runtime.open(log=log, registry=registry) as runtime:
            async with working(log, registry, [hook()], 1):
                await runtime.run(registry.agents["writer"], "first")
                await ended(runtime, 2)
            await runtime.run(registry.agents["writer"], "second")
            dying = Worker(Host(log=log, registry=registry, worker="dying"), hooks=[hook()])
            task = asyncio.create_task(dying.serve())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with working(log, registry, [hook()], 1):
                await ended(runtime, 4)
            assert len(await inputs(runtime, "reader")) == 2


async def test_a_loop_that_no_check_saw_ends(script: Script) -> None:
    log, registry = MemoryLog(), Registry(agents=agents(script))
    there, back = hook(name="there"), hook(name="back", of=("reader",), agent="writer")
    async with Runtime.open(log=log, registry=registry) as runtime:
        async with working(log, registry, [there], 1), working(log, registry, [back], 1):
            await runtime.start(registry.agents["writer"], "x", executor="durable")
            await ended(runtime, DEPTH_MAX + 1)
        depths = [row.trigger.depth for row in await runtime.list_runs() if row.trigger is not None]
        assert sorted(depths) == list(range(DEPTH_MAX + 1))


@pytest.mark.parametrize(
    ("hooks", "told"),
    [
        ([hook(of=("reader",))], "it would start itself: reader -> reader"),
        ([hook(), hook(name="b", of=("reader",), agent="writer")], "it would start itself: reader -> writer"),
        ([hook(of=())], "of must name the agents"),
        ([hook(on="run.stopped")], "on must be one of run.completed"),
        ([hook(when="run.team ==")], "is not CEL"),
        ([hook(when="team == 'a'")], "uses 'team'"),
        ([hook(input="${body.x}")], "must begin with 'run'"),
        ([hook(name="a b")], "must be 1 to 64 letters"),
    ],
)
def test_a_hook_that_can_never_work_is_refused_when_it_is_loaded(hooks: list[EventHook], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_hooks(hooks)
    assert told in str(refused.value)
