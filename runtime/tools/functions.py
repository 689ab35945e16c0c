"""Functions of users are called so that none holds up the rest: an async one is awaited, any other runs in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import anyio.to_thread

from ..ports.tools import Asked

INLINE: ContextVar[bool] = ContextVar("INLINE", default=False)
"""True: all of them run on the event loop's thread, for a simulation that must own every interleaving."""


class Ended(NamedTuple):
    """How a function ended: with a value, or with an error."""

    value: Any = None
    error: BaseException | None = None


class Threads:
    """The functions of one call that run in threads: nothing can stop them, so they may outlive the call."""

    def __init__(self) -> None:
        self._begun: list[asyncio.Future[Ended]] = []

    def watched(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """The function, whose end is seen here; one that no thread has begun is not at work."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()

        def tell(end: Ended) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it
                loop.call_soon_threadsafe(ended.set_result, end)

        def watch() -> Any:
            self._begun.append(ended)
            try:
                value = run()
            except BaseException as error:
                tell(Ended(error=error))
                raise
            tell(Ended(value))
            return value

        return watch

    def at_work(self) -> asyncio.Future[Ended] | None:
        """The end of the last one that goes on, if any does."""
        return next((ended for ended in reversed(self._begun) if not ended.done()), None)


THREADS: ContextVar[Threads | None] = ContextVar("THREADS", default=None)
"""Where the threads of the call are seen that the task performs."""

_KNOWN = (
    Asked,
    Exception,
    BaseExceptionGroup,
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    SystemExit,
)


async def call_function(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """What the function returns, awaited if it has to be.

    Raises what it raises; what is no `Exception`, and does not end a task or a process, as a `RuntimeError`.
    A thread is abandoned by a cancellation, which cannot stop it.
    """
    return await caller_of(function)(*arguments, **keywords)


def caller_of(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """What calls the function so, for one that is called often: what kind it is of is looked at once."""
    is_async = _is_async(function)

    async def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            if is_async or INLINE.get():
                result = function(*arguments, **keywords)
            else:
                run: Callable[[], Any] = functools.partial(function, *arguments, **keywords)
                threads = THREADS.get()
                run = run if threads is None else threads.watched(run)
                result = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
            return await result if inspect.isawaitable(result) else result
        except _KNOWN:
            raise
        except BaseException as error:
            if INLINE.get():  # a process of a simulation dies so
                raise
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return call


def _is_async(function: Callable[..., Any]) -> bool:
    """Of a callable object the method may be the coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - It is looked at, not asked for.
    )
