"""Small views of a namespace that are looked at again and again: one look a second for all of their viewers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from ....eventlog.clock import Clock
from ....eventlog.errors import FoldlogError
from .frames import Frame

PERIOD_S = 1.0
logger = logging.getLogger("foldlog.http")


class Snapshots:
    """One view, looked at while it has viewers: `look` returns it as it is now."""

    def __init__(self, clock: Clock, look: Callable[[], Awaitable[object]]) -> None:
        self._clock, self._look = clock, look
        self._wakes: set[Callable[[], None]] = set()
        self._task: asyncio.Task[None] | None = None
        self.now: bytes | None = None
        """The view as JSON; None until the first look."""

    @contextlib.contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Keep looking while open; `wake` is called when the view has changed."""
        self._wakes.add(wake)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._wakes.discard(wake)

    async def _follow(self) -> None:
        while self._wakes:
            try:
                found = msgspec.json.encode(await self._look())
            except FoldlogError as error:  # the log is out of reach: viewers are told of that elsewhere
                logger.debug("a view could not be looked at: %s", error)
            else:
                self._show(found)
            await self._clock.sleep(PERIOD_S)
        self.now = None

    def _show(self, found: bytes) -> None:
        if found == self.now:
            return
        self.now = found
        for wake in self._wakes:
            wake()

    async def aclose(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class SnapshotTopic:
    """A viewer of one view: it gets the whole view with each change, and needs no cursor."""

    cursor = ""
    ended = False

    def __init__(self, name: str, view: Snapshots) -> None:
        self.name, self._view = name, view
        self._topic = msgspec.json.encode(name)
        self._seen: bytes | None = None

    @property
    def has_news(self) -> bool:
        """True if the view is another one than the viewer has."""
        return self._view.now is not None and self._view.now != self._seen

    def take(self) -> Iterator[Frame]:
        """Yield the view as it is now."""
        self._seen = self._view.now
        yield Frame("list", b'{"topic":%b,"whole":%b}' % (self._topic, self._seen or b"null"))
