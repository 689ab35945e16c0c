"""Following a log without a consumer: the server's republished messages, plus reads of what they miss.

The server republishes each stored commit as a core message, at most once. A follower therefore reads from its last
position when it begins, after the connection broke, when its inbox overflowed, when a message names a predecessor that
it has not seen, and when nothing came for a while. It knows by position which commits it has, so none is yielded twice.

A reader that waits only for the end of a run should not be woken by each commit. It subscribes to the announcements of
ends instead, which have the position of the last commit, and then reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from typing import Protocol

import msgspec

from ..errors import LogCorrupted, LogUnavailable
from ..ports import Selector, Stored, Subject
from . import headers
from .driver_deaths import DriverDeaths
from .layout import Layout
from .mailbox import Mailbox
from .wire import Wire

IDLE_S = 5.0
"""The time, in seconds, after which a silent follower reads; in a cluster, also one that got messages."""
POLL_S = 0.1
"""The interval of reads, in seconds, for subjects that are not republished: lanes and keys."""
BEHIND_MAX = 20_000
"""The most messages that wait for a slow reader; then they are dropped, and read later."""
HOLE_WAITS_S = (0.0, 0.01, 0.05, 0.2, 0.5)
"""The waits before reads for a missing commit, in seconds. After them it is lost, which the chain will show."""

_RETRY_S = 0.05


class Page(msgspec.Struct, frozen=True):
    """Commits in order. `more`: others follow; `damage`: others are there but cannot be read."""

    commits: list[Stored]
    more: bool
    damage: LogCorrupted | None = None


class Source(Protocol):
    """The log from which a follower reads."""

    async def page(self, selector: Selector, after: int) -> Page:
        """Return the next commits after `after`. Raises `LogUnavailable`, `LogCorrupted`."""
        ...

    def saw(self, stored: Stored) -> None:
        """Note a commit that was republished."""
        ...


class _Live(msgspec.Struct, frozen=True):
    """A republished commit, with the position of its predecessor on the same subject."""

    stored: Stored
    previous: int


class _Inbox(Mailbox[tuple[bytes, bytes, bytes]]):
    """Republished messages (subject, header, data). `stale`: some may be missing."""

    stale = True

    def take(self, subject: bytes, _reply: bytes, header: bytes, data: bytes) -> None:
        if len(self.items) >= BEHIND_MAX:
            self.items.clear()
            self.stale = True
        self.post((subject, header, data))

    def doubt(self) -> None:
        self.stale = True
        self.wake()


class Follower:
    """The iterator that `follow` returns. Cancelling a wait loses nothing; `aclose` ends the subscription.

    `_floor` is the position up to which everything was seen. A single server republishes in order and without gaps
    while the connection is up, so every message raises the floor. In a cluster, messages between two servers can be
    lost silently: there only reads raise it, and `_above` has the positions that were yielded beyond it.
    """

    def __init__(
        self,
        wire: Wire,
        layout: Layout,
        source: Source,
        selector: Selector,
        after: int,
        deaths: DriverDeaths | None = None,
    ) -> None:
        """`deaths` is given to wait only for the end of the run."""
        self._wire, self._layout, self._source, self._selector = wire, layout, source, selector
        self._deaths = deaths if isinstance(selector, Subject) and selector.kind == "run" else None
        self._to_end = self._deaths is not None
        self._floor = after
        self._above: dict[Subject, int] = {}
        self._ready: deque[Stored] = deque()
        self._inbox = _Inbox()
        self._republished = not isinstance(selector, Subject) or selector.kind == "run"
        self._in_cluster = wire.clustered
        self._read_at = 0.0
        self._waits = iter(HOLE_WAITS_S)
        self._end: weakref.finalize[..., Follower] | None = None
        self._damage: LogCorrupted | None = None
        self._closed = False

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Stored:
        """Return the next commit.

        Raises `LogCorrupted` if one is lost, `ConfigError` if the server denies following, and `LogUnavailable` only
        if the log was closed.
        """
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            if self._damage is not None:
                raise self._damage
            try:
                await self._more()
            except LogUnavailable:
                if self._wire.closed:
                    raise
                await asyncio.sleep(_RETRY_S)
        return self._ready.popleft()

    async def aclose(self) -> None:
        """End the iterator and its subscriptions."""
        self._closed = True
        self._ready.clear()
        if self._end is not None:
            self._end()
        self._inbox.wake()

    async def _more(self) -> None:
        if self._end is None:
            await self._begin()
        elif self._inbox.stale:
            await self._catch_up()
        elif self._inbox.items:
            await (self._take_end() if self._to_end else self._take_live())
        else:
            await self._inbox.wait(IDLE_S if self._republished else POLL_S)
            self._inbox.stale |= not self._inbox.items

    async def _begin(self) -> None:
        inbox, ending = self._inbox, contextlib.ExitStack()
        if self._republished:
            ending.callback(self._wire.unsubscribe, await self._wire.subscribe(self._heard_on(), inbox.take))
        if self._deaths is not None and isinstance(self._selector, Subject):
            self._deaths.add(self._selector.root, inbox.doubt)
            ending.callback(self._deaths.discard, self._selector.root, inbox.doubt)
        self._wire.on_down.add(inbox.doubt)
        ending.callback(self._wire.on_down.discard, inbox.doubt)
        self._end = weakref.finalize(self, _end, asyncio.get_running_loop(), ending)
        self._end.atexit = False

    def _heard_on(self) -> bytes:
        if self._to_end and isinstance(self._selector, Subject):
            return self._layout.over(self._selector)
        return b"live." + self._layout.selected(self._selector)

    async def _catch_up(self) -> None:
        """Read one page after the floor."""
        self._inbox.stale = False  # before the read, because it may be set again during it
        try:
            page = await self._source.page(self._selector, self._floor)
        except BaseException:
            self._inbox.stale = True
            raise
        self._ready.extend(s for s in page.commits if s.position > self._above.get(s.subject, 0))
        if page.commits:
            self._floor = page.commits[-1].position
            self._above = {subject: at for subject, at in self._above.items() if at > self._floor}
        self._inbox.stale |= page.more
        self._damage = page.damage
        self._read_at = asyncio.get_running_loop().time()

    async def _take_live(self) -> None:
        """Take republished commits, up to a gap."""
        while self._inbox.items:
            live = self._parse(*self._inbox.items[0])
            if self._lacks(live.previous, live.stored) and (wait_s := next(self._waits, None)) is not None:
                await asyncio.sleep(wait_s)
                self._inbox.stale = True
                return
            self._inbox.items.popleft()
            self._accept(live.stored)
        if self._in_cluster and asyncio.get_running_loop().time() > self._read_at + IDLE_S:
            self._inbox.stale = True

    async def _take_end(self) -> None:
        """Read up to the announced end, with a limited number of attempts."""
        if self._floor < int(self._inbox.items[0][2]) and (wait_s := next(self._waits, None)) is not None:
            await asyncio.sleep(wait_s)
            self._inbox.stale = True
            return
        self._inbox.items.popleft()
        self._waits = iter(HOLE_WAITS_S)

    def _parse(self, subject: bytes, header: bytes, data: bytes) -> _Live:
        selector = self._selector
        of = selector if isinstance(selector, Subject) else self._layout.parse(selector.shard, subject)
        stored = Stored(of, headers.number(header, b"Nats-Sequence"), data)
        return _Live(stored, headers.number(header, b"Nats-Last-Sequence"))

    def _seen(self, subject: Subject) -> int:
        return max(self._floor, self._above.get(subject, 0))

    def _lacks(self, previous: int, stored: Stored) -> bool:
        return self._seen(stored.subject) < previous < stored.position

    def _accept(self, stored: Stored) -> None:
        self._waits = iter(HOLE_WAITS_S)
        if stored.position <= self._seen(stored.subject):
            return
        self._source.saw(stored)
        self._ready.append(stored)
        if self._in_cluster:
            self._above[stored.subject] = stored.position
        else:
            self._floor = stored.position


def _end(loop: asyncio.AbstractEventLoop, ending: contextlib.ExitStack) -> None:
    """End a follower's subscriptions, even if it is garbage-collected, in any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(ending.close)
