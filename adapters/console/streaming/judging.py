"""Check the ordering rules for viewers: over the newest commits, and all that follow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ....eventlog.errors import FoldlogError
from ....eventlog.ports import Log, Shard
from .frames import Frame

if TYPE_CHECKING:
    from ....replay import Violation, Watch

LOOK_BACK_COMMITS = 10_000
"""How many of the newest commits of a shard are checked at first: about a second of CPU time."""
TOGETHER = 50
"""How many stored commits are checked before other tasks get a turn."""
AGAIN_S = 1.0
TOLD_MAX = 100


class Judge:
    """Checks one log for all viewers. Once started it runs until it is closed, so that no violation is forgotten.

    Runs that began before the first commit checked are ignored.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._wakes: set[Callable[[], None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._watches: list[Watch] = []
        self.found: list[Violation] = []

    @contextlib.contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` for new violations while open."""
        self._wakes.add(wake)
        if not self._tasks:
            from ....replay import Watch

            self._watches = [Watch(from_start=False) for _ in range(self._log.events.shards)]
            self._tasks = [
                asyncio.create_task(self._follow(shard, watch)) for shard, watch in enumerate(self._watches)
            ]
        try:
            yield
        finally:
            self._wakes.discard(wake)

    async def _follow(self, shard: int, watch: Watch) -> None:
        position = -1
        while True:
            try:
                if position < 0:
                    last = await self._log.events.head(Shard(shard))
                    position = max(0, (last.position if last is not None else 0) - LOOK_BACK_COMMITS)
                async for stored in self._log.events.follow(Shard(shard), position):
                    position = stored.position
                    if found := watch.feed(stored):
                        self._tell(found)
                    if watch.commits % TOGETHER == 0:
                        await asyncio.sleep(0)
            except FoldlogError:  # the log cannot be reached, which a notice tells the viewers
                pass
            await self._log.clock.sleep(AGAIN_S)

    def _tell(self, found: list[Violation]) -> None:
        self.found += found
        for wake in self._wakes:
            wake()

    @property
    def events(self) -> int:
        """The number of events checked so far."""
        return sum(watch.events for watch in self._watches)

    async def aclose(self) -> None:
        """Stop checking."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class MonitorTopic:
    """The topic of violations, for one viewer: first those already found, then each as it is found."""

    cursor = ""
    ended = False

    def __init__(self, name: str, judge: Judge) -> None:
        self.name, self._judge = name, judge
        self._topic = msgspec.json.encode(name)
        self._seen = -1

    @property
    def has_news(self) -> bool:
        """True if there are unseen violations, and before the first frame."""
        return self._seen < len(self._judge.found)

    def take(self) -> Iterator[Frame]:
        """Yield one frame with the new violations (at most the last `TOLD_MAX`) and the number of all."""
        found = self._judge.found
        new = found[max(self._seen, 0, len(found) - TOLD_MAX) :]
        self._seen = len(found)
        told = {"count": len(found), "events": self._judge.events, "violations": new}
        yield Frame("violation", b'{"topic":%b,%b' % (self._topic, msgspec.json.encode(told)[1:]))
