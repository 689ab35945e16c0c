"""A feature that a run's executor lacks is refused by name when it is requested, not dropped silently (R20)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from foldlog.eventlog import MemoryLog, UnsupportedByExecutor
from foldlog.runtime import CAPABILITIES, Agent, Registry, RunHandle, Runtime

from .conftest import says
from .test_refusals import Lacking

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("feature", "ask"),
    [("inject", lambda run: run.inject("more")), ("pause", lambda run: run.pause())],
    ids=["inject", "pause"],
)
async def test_an_executor_that_cannot_is_not_told_anything(
    script: Callable[..., str], feature: str, ask: Callable[[RunHandle[str]], object]
) -> None:
    agent = Agent("helper", model=script(says("x")))
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
    executors = {"durable": Lacking(feature)}
    assert feature in CAPABILITIES
    async with Runtime.open(log=log, registry=Registry(agents=[agent]), executors=executors) as runtime:
        before = await runtime.get_run(run.run_id).state()
        with pytest.raises(UnsupportedByExecutor) as refusal:
            await ask(runtime.get_run(run.run_id))  # type: ignore[misc]
        assert (refusal.value.feature, refusal.value.executor) == (feature, "lacking")
        assert (await runtime.get_run(run.run_id).state()).head == before.head
