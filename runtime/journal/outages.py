"""Retries: through an outage of the log, after a conflict, and while a replica lags a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from ...eventlog.clock import Clock
from ...eventlog.errors import AppendUnsure, Conflict, LogUnavailable
from ...eventlog.ports import Log, Selector, Write

P = ParamSpec("P")
T = TypeVar("T")
OUTAGE_POLL_S = 0.25
STALE_READ_S = 0.1
REFUSALS_MAX = 50
"""The most stale reads in a row: a replica may lag a moment after a conflict, but not five seconds."""
DECISIONS_MAX = 64
"""The most attempts at a change before its caller is told that other writers were first each time."""
FRESH_CONFLICTS = 1
"""After so many conflicts in a row, the reads between them are taken for stale."""


class Decisions:
    """The attempts at one change: in each, load, decide and append, and leave the loop once it is stored (W1, W2).

    Yields the number of attempts before, and ends after `DECISIONS_MAX`: raise `LogUnavailable` then. Pauses between
    attempts after some, to let a replica catch up.
    """

    def __init__(self, clock: Clock, fresh: int = FRESH_CONFLICTS) -> None:
        """`fresh`: the conflicts without a pause; more of them where many processes write at once."""
        self._clock, self._fresh, self._begun = clock, fresh, 0

    def __aiter__(self) -> Decisions:
        return self

    async def __anext__(self) -> int:
        before, self._begun = self._begun, self._begun + 1
        if before == DECISIONS_MAX:
            raise StopAsyncIteration
        if before > self._fresh:
            await self._clock.sleep(STALE_READ_S)
        return before


async def try_append(log: Log, *writes: Write) -> bool:
    """Append the writes; false after a conflict, or if it is unknown whether they are stored: read and decide again."""
    try:
        await log.events.append(*writes)
    except (Conflict, AppendUnsure):
        return False
    return True


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
