"""Calls of users' functions so that none blocks the rest: an async function is awaited, any other runs in a thread."""

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
"""If true, all functions run on the event loop's thread, for a simulation that has to own every interleaving."""


class Ended(NamedTuple):
    """The end of a function: a value, or an error."""

    value: Any = None
    error: BaseException | None = None


class Threads:
    """The functions of one call that run in threads: they cannot be stopped, so they may outlive the call."""

    def __init__(self) -> None:
        self._begun: list[asyncio.Future[Ended]] = []

    def watched(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Return the function wrapped so that its start and its end in a thread are noted."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()

        def report(end: Ended) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits for it
                loop.call_soon_threadsafe(ended.set_result, end)

        def watch() -> Any:
            self._begun.append(ended)
            try:
                value = run()
            except BaseException as error:
                report(Ended(error=error))
                raise
            report(Ended(value))
            return value

        return watch

    def at_work(self) -> asyncio.Future[Ended] | None:
        """Return the end of the last function that is still running, if any."""
        return next((ended for ended in reversed(self._begun) if not ended.done()), None)


THREADS: ContextVar[Threads | None] = ContextVar("THREADS", default=None)
"""The threads of the call that the current task performs."""

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
    """Call the function, and return its result, awaited if necessary.

    Raises what it raises; an error that is not an `Exception`, and does not end a task or a process, becomes a
    `RuntimeError`. A cancellation abandons a thread, and cannot stop it.
    """
    return await caller_of(function)(*arguments, **keywords)


def caller_of(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a caller for a function that is called often: its kind is determined once."""
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
            if INLINE.get():  # this is how a process of a simulation dies
                raise
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return call


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether the function, or the `__call__` of a callable object, is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - It is inspected, not called.
    )
