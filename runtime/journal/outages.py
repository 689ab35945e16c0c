"""Retries of reads and writes through an outage of the log, and bounds for replicas that lag a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from ...eventlog.clock import Clock
from ...eventlog.errors import LogUnavailable
from ...eventlog.ports import Log, Selector

P = ParamSpec("P")
T = TypeVar("T")
OUTAGE_POLL_S = 0.25
STALE_READ_S = 0.1
REFUSALS_MAX = 50
"""The most stale reads in a row: a replica may lag a moment after a conflict, but not five seconds."""


async def through_outages(
    clock: Clock, attempt: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return the attempt's result; repeat it until the log is back. Only for idempotent attempts."""
    while True:
        try:
            return await attempt(*args, **kwargs)
        except LogUnavailable:
            await clock.sleep(OUTAGE_POLL_S)


async def is_last(log: Log, selector: Selector, position: int) -> bool:
    """Return whether nothing that is selected came after a position that was read; else give replicas time to catch up.

    Reads may be stale, so what one of them lacks is only said after this. Raises `LogUnavailable`.
    """
    if await log.events.last_position(selector) <= position:
        return True
    await log.clock.sleep(STALE_READ_S)
    return False
