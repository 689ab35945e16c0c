"""A process that leaves waits for the claims it releases, and for nothing else."""

from collections.abc import Callable

import pytest
from foldlog.eventlog import MemoryLog, decode
from foldlog.runtime import Agent, Registry, Runtime, local, tool

from tests.runtime.conftest import call, calls


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
