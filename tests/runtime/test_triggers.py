"""The cause of a run: stored with it, handed down to the runs below it, and shown in lists and log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.eventlog import ConfigError
from foldlog.runtime import Agent, LogIds, Trigger, tool

from tests.runtime.conftest import Place, call, calls, says, when

Script = Callable[..., str]
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
logger = logging.getLogger("a_users.triggered")


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(LogIds())
        self.ids: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.ids.append(vars(record)["foldlog"])


@tool(effect="pure")
def look() -> str:
    """Write a log line."""
    logger.warning("seen")
    return ""


async def test_the_ids_of_a_request_reach_the_runs_below_and_the_log_lines_of_their_tools(
    place: Place, script: Script
) -> None:
    spawn = call("spawn_self", "c1", task="below", tool_names=["look"])
    below = when("below", calls(call("look", "c2")), says("done"))
    agent = Agent(
        "lead",
        model=script(calls(spawn), says("done"), scenes=[below]),
        tools=[look],
        allow_self_spawn=True,
    )
    handler = _Kept()
    logger.addHandler(handler)
    try:
        runtime = await place.open(agent)
        trigger = Trigger(kind="hook", name="desk", key="d1", request_id="r-17", traceparent=TRACE)
        run = await place.start(agent, "top", trigger=trigger)
        await run.result()
    finally:
        logger.removeHandler(handler)
    rows = {row.parent is None: row for row in await runtime.list_runs()}
    assert rows[True].trigger == trigger
    assert rows[False].trigger == Trigger(kind="child", request_id="r-17", traceparent=TRACE)
    (ids,) = handler.ids
    assert (ids["request"], ids["trace"]) == ("r-17", TRACE.split("-")[1])


async def test_a_run_without_a_trigger_was_started_by_the_api(place: Place, script: Script) -> None:
    agent = Agent("lead", model=script(says("done")))
    await place.open(agent)
    run = await place.start(agent, "hello")
    await run.result()
    submitted = (await run.state()).submitted
    assert submitted is not None
    assert submitted.trigger is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Trigger(kind="cron", traceparent="00-1-2-3"), "is not a traceparent"),
        (Trigger(kind="cron", request_id="a\nb"), "the trigger's request_id"),
        (Trigger(kind="cron", name="x" * 600), "the trigger's name"),
        (Trigger(kind="moon"), "the trigger's kind"),  # type: ignore[arg-type] # on purpose
        ("cron", "must be a Trigger, not str"),
    ],
    ids=lambda given: str(given)[:40],
)
async def test_a_trigger_that_is_none_is_refused(place: Place, script: Script, given: Any, told: str) -> None:
    agent = Agent("lead", model=script(says("done")))
    runtime = await place.open(agent)
    with pytest.raises(ConfigError, match=told):
        await place.start(agent, "hello", trigger=given)
    assert await runtime.list_runs() == []
