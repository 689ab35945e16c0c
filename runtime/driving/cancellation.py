"""Cancellation: telling our own from one raised by called code, and work that must not be cut off by it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def is_being_cancelled() -> bool:
    """Return whether the running task was cancelled; otherwise a `CancelledError` in it is an ordinary failure."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def shielded(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if this task is cancelled meanwhile; the cancellation is raised afterwards."""
    task, cut = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cut = error
    task.result()
    if cut is not None:
        raise cut
