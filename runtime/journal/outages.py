"""How reads and writes sit through an outage of the log, and through replicas that are a moment behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from ...eventlog.clock import Clock
from ...eventlog.errors import LogUnavailable

P = ParamSpec("P")
T = TypeVar("T")
OUTAGE_POLL_S = 0.25
STALE_READ_S = 0.1
REFUSALS_MAX = 50
"""A read from a replica may be a moment behind the refusal; five seconds behind it is not."""


async def through_outages(
    clock: Clock, attempt: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """What the attempt gives; repeated until the log is back. Only for what may be repeated."""
    while True:
        try:
            return await attempt(*args, **kwargs)
        except LogUnavailable:
            await clock.sleep(OUTAGE_POLL_S)
