"""The ids of the work at hand in log records, also in those of a tool's own loggers and threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from foldlog.eventlog import ChildStarted
from foldlog.runtime import Agent, LogIds, tool
from foldlog.runtime.shared.log_ids import at_no_work, at_work, done_with

from tests.runtime.conftest import Place, call, calls, says, when

Script = Callable[..., str]
logger = logging.getLogger("a_users.own")


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(LogIds())
        self.ids: dict[str, Any] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.ids[record.getMessage()] = vars(record)["foldlog"]


@contextmanager
def kept() -> Iterator[_Kept]:
    handler = _Kept()
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


@tool(effect="pure")
async def here() -> str:
    logger.warning("in the event loop")
    return ""


@tool(effect="pure")
def there() -> str:
    logger.warning("in a thread")
    return ""


async def test_a_users_own_log_lines_have_the_ids_of_the_call_that_wrote_them(
    place: Place, script: Script
) -> None:
    spawn = call("spawn_self", "c2", task="below", tool_names=["there"])
    below = when("below", calls(call("there", "c3")), says("done"))
    model = script(calls(call("here", "c1"), spawn), says("done"), scenes=[below])
    agent = Agent("lead", model=model, tools=[here, there], allow_self_spawn=True)
    with kept() as handler:
        await place.open(agent)
        run = await place.start(agent)
        await run.result()
        logger.warning("outside")
    (child,) = [event.child_run for event in await place.events(run) if isinstance(event, ChildStarted)]
    assert handler.ids == {
        "in the event loop": {"run": run.run_id, "agent": "lead", "step": 1, "call": "c1"},
        "in a thread": {"run": child, "agent": "lead", "step": 1, "call": "c3"},
        "outside": {},
    }


async def test_the_heartbeats_that_a_run_starts_for_all_runs_have_the_ids_of_none() -> None:
    async def beat() -> None:
        logger.warning("beat")

    with kept() as handler:
        token = at_work({"run": "first"})
        await asyncio.create_task(beat(), context=at_no_work())
        logger.warning("at work")
        done_with(token)
    assert handler.ids == {"beat": {}, "at work": {"run": "first"}}
