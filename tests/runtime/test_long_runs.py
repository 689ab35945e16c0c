"""The cost of a step does not grow with the number of earlier steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import MemoryLog
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.driving.driver import Driver

from tests.runtime.conftest import call, calls, says

STEPS = 30


@tool(effect="pure")
async def look(at: int) -> str:
    """Look."""
    return f"saw {at}"


@pytest.mark.parametrize(
    "options", [{}, {"step_timeout_s": 900.0, "run_timeout_s": 9000.0}], ids=["", "timed"]
)
async def test_a_driver_lets_go_of_what_earlier_steps_left(
    script: Callable[..., str], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    kept = list[int]()
    real = Driver._launch

    def launch(self: Driver, *, leaving: bool = False) -> None:
        real(self, leaving=leaving)
        kept.append(len(self._tasks))

    monkeypatch.setattr(Driver, "_launch", launch)
    looks = [calls(call("look", f"c{n}", at=n)) for n in range(STEPS)]
    agent = Agent("long", model=script(*looks, says("done")), tools=[look], max_steps=STEPS + 1, **options)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        await runtime.run(agent, "question")
    assert len(kept) > 2 * STEPS
    assert max(kept) <= 6  # this step's model call, tool call and time-out, and those of the one before


async def test_a_prompt_that_is_kept_within_bounds_keeps_the_state_within_them(
    script: Callable[..., str],
) -> None:
    looks = [calls(call("look", f"c{n}", at=n)) for n in range(STEPS)]
    agent = Agent(
        "long",
        model=script(*looks, says("done")),
        tools=[look],
        max_steps=STEPS + 1,
        context={"mode": "navigator", "overflow": "truncate"},
    )
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        state = await run.state()
    assert len(state.messages) <= 12
    assert len(state.calls) <= 1
