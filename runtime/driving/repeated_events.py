"""Comparison of events that a repeated call emits again with the stored ones, which are kept."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

import msgspec

from ...eventlog.commits import ORIGIN, verified
from ...eventlog.errors import FoldlogError
from ...eventlog.events import Custom, Event, McpProgress, ToolPartial
from ..journal.journal import restored
from .host import Outbox

logger = logging.getLogger("foldlog.tool")


async def count_others(driver: Outbox, call_id: str, emitted: Mapping[int, Event]) -> int:
    """Return how many of these events, by their ordinals within the call, differ from those in the log.

    A difference is not an error (R21): a log line names the call. 0 if the log cannot be read now.
    """
    stored = list[Event]()
    if not emitted:
        return 0
    with contextlib.suppress(FoldlogError):
        stored = await _stored(driver, call_id)
    others = [n for n, event in emitted.items() if n < len(stored) and not _same(event, stored[n])]
    if others:
        run, count = driver.state.run, len(others)
        logger.warning(
            "run %s, call %s: %d event(s) differ from the stored ones, which are kept; the first is number %d",
            run,
            call_id,
            count,
            min(others),
        )
    return len(others)


async def _stored(driver: Outbox, call_id: str) -> list[Event]:
    """Return the events that the call has emitted, in order."""
    log, found = driver.host.log, list[Event]()
    async for recorded in verified(log.events.read(driver.journal.subject), ORIGIN):
        events = (await restored(recorded, log)).commit.events
        found += [
            event
            for event in events
            if event.tool_call_id == call_id
            and (event.agent_path or isinstance(event, McpProgress | Custom | ToolPartial))
        ]
    return found


def _same(emitted: Event, stored: Event) -> bool:
    return msgspec.structs.replace(emitted, step=stored.step, tool_call_id=stored.tool_call_id) == stored
