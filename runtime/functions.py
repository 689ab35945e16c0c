"""Functions of users are called so that none holds up the rest: an async one is awaited, any other runs in a thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio.to_thread

INLINE: ContextVar[bool] = ContextVar("INLINE", default=False)
"""True: all of them run on the event loop's thread, for a simulation that must own every interleaving."""


async def call_function(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """What the function returns, awaited if it has to be. Raises what it raises.

    A thread is abandoned by a cancellation, which cannot stop it.
    """
    run = functools.partial(function, *arguments, **keywords)
    if INLINE.get() or _is_async(function):
        result = run()
    else:
        result = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def _is_async(function: Callable[..., Any]) -> bool:
    """Of a callable object the method may be the coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - It is looked at, not asked for.
    )
