"""Whether somebody cancels us, or what we called has only raised as if somebody did."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether the running task was asked to end; else a `CancelledError` in it is a failure like any other."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
