"""Run a command's coroutine: the event loop, and the handling of SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from .exits import INTERRUPTED, TERMINATED

T = TypeVar("T")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a command to completion, on uvloop if it is installed."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Interruption:
    """A request of the user to stop. `signal` is the number of the signal received, 0 for none."""

    def __init__(self) -> None:
        self.signal = 0
        self.told = asyncio.Event()
        """Set once a signal came."""

    @property
    def code(self) -> int:
        """The exit code of a command that was interrupted."""
        return TERMINATED if self.signal == signal.SIGTERM else INTERRUPTED

    async def wait(self) -> None:
        """Wait for a signal."""
        await self.told.wait()

    def tell(self, number: int) -> None:
        """Record a signal; the second one ends the process immediately."""
        if self.signal:
            os._exit(INTERRUPTED)
        self.signal = number
        self.told.set()


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Report SIGINT and SIGTERM, while open, instead of ending the command."""
    told, loop = Interruption(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels the main task instead
            loop.add_signal_handler(number, told.tell, number)
    try:
        yield told
    finally:
        for number in numbers:
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
