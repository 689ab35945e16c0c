"""A process that leaves waits for the claims it releases, and for nothing else."""

import asyncio
from collections.abc import Callable

import pytest
from foldlog.eventlog import MemoryLog, decode
from foldlog.runtime import Agent, Registry, Runtime, Worker, durable, local, tool
from foldlog.runtime.drive import Host

from tests.runtime.conftest import HeldTool, call, calls, says


async def test_a_process_that_leaves_as_its_run_comes_to_rest_does_not_wait_for_the_answer(
    script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    async def deploy() -> str:
        """Deploy."""
        return "deployed"

    monkeypatch.setattr(local, "RELEASE_GRACE_S", 3600.0)  # whoever waits that long outlasts the test
    agent = Agent("ops", model=script(calls(call("deploy"))), tools=[deploy], hitl_tools=["deploy"])
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        async for stored in log.events.follow(await runtime.locate(run.run_id)):
            if any(event.type == "parked" for event in decode(stored.data).events):
                break


async def test_a_worker_that_has_no_time_to_release_a_run_leaves_it_to_others_at_once(
    script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "RELEASE_S_MIN", 0.0)
    held = HeldTool()
    agent = Agent("ops", model=script(calls(call("wait")), says("done")), tools=[held.wait])
    log, registry = MemoryLog(ack_wait_s=3600.0), Registry(agents=[agent])  # silence alone tells nobody
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
        leaving = Worker(Host(log=log, registry=registry, worker="leaving"), grace_s=0.0)
        left = asyncio.create_task(leaving.serve())
        await held.entered.wait()
        leaving.stop()
        await left
        held.let_go.set()
        coming = Worker(Host(log=log, registry=registry, worker="coming"))
        serving = asyncio.create_task(coming.serve())
        assert (await run.result(timeout_s=30)).output == "done"
        coming.stop()
        await serving
