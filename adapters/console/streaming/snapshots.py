"""Small views of a namespace that are polled once a second on behalf of all their viewers."""

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
    """One view, polled while it has viewers: `look` returns its present content."""

    def __init__(self, clock: Clock, look: Callable[[], Awaitable[object]]) -> None:
        self._clock, self._look = clock, look
        self._wakes: set[Callable[[], None]] = set()
        self._task: asyncio.Task[None] | None = None
        self.now: bytes | None = None
        """The view as JSON; None until the first poll."""

    @contextlib.contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Poll the view while open, and call `wake` when it changes."""
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
            except FoldlogError as error:  # the log cannot be reached, which a notice tells the viewers
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
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class SnapshotTopic:
    """The topic of one view, for one viewer: every change sends the whole view, so it needs no cursor."""

    cursor = ""
    ended = False

    def __init__(self, name: str, view: Snapshots) -> None:
        self.name, self._view = name, view
        self._topic = msgspec.json.encode(name)
        self._seen: bytes | None = None

    @property
    def has_news(self) -> bool:
        """True if the view differs from the one last sent."""
        return self._view.now is not None and self._view.now != self._seen

    def take(self) -> Iterator[Frame]:
        """Yield one frame with the whole view."""
        self._seen = self._view.now
        yield Frame("list", b'{"topic":%b,"whole":%b}' % (self._topic, self._seen or b"null"))
