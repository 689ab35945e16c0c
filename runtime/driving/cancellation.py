"""Whether somebody cancels us, or what we called has only raised as if somebody did; and what is done all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def is_being_cancelled() -> bool:
    """Return whether the running task was asked to end; else a `CancelledError` in it is a failure like any other."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def shielded(work: Coroutine[Any, Any, None]) -> None:
    """Do work that is not cut off half way: who cancels us meanwhile gets its way once it is done."""
    task, cut = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cut = error
    task.result()
    if cut is not None:
        raise cut
