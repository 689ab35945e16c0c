"""Following a log without a consumer: the server's republished messages, and reads for whatever they lack.

Republished messages come at most once. A follower therefore reads from where it stands when it begins, after the
connection broke, when it fell behind, when a message names a predecessor that it has not seen, and when nothing came
for a while. It knows by position what it has, so nothing is yielded twice.

Who waits for the end of a run need not be woken by each of its commits: instead of them he hears at which position it
ended, and reads.
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
from .layout import Layout
from .mailbox import Mailbox
from .obituaries import DriverDeaths
from .wire import Wire

IDLE_S = 5.0
"""How long a follower trusts silence, and in a cluster also what it got, before it reads."""
POLL_S = 0.1
"""How often one reads what is not republished: lanes and keys."""
BEHIND_MAX = 20_000
"""How many messages may wait for a slow reader before they are dropped, to be read later."""
HOLE_WAITS_S = (0.0, 0.01, 0.05, 0.2, 0.5)
"""How long to wait for a missing commit before each read. Then it is lost, and who verifies the chain says so."""

_RETRY_S = 0.05


class Page(msgspec.Struct, frozen=True):
    """Some commits in order; `more` says that others follow, `damage` that others are there and cannot be read."""

    commits: list[Stored]
    more: bool
    damage: LogCorrupted | None = None


class Source(Protocol):
    """Where a follower reads."""

    async def page(self, selector: Selector, after: int) -> Page:
        """The next commits behind `after`. Raises `LogUnavailable`, `LogCorrupted`."""
        ...

    def saw(self, stored: Stored) -> None:
        """Take note of a commit that came by itself."""
        ...


class _Live(msgspec.Struct, frozen=True):
    """A commit as it was republished, with the position of its predecessor on the same subject."""

    stored: Stored
    previous: int


class _Inbox(Mailbox[tuple[bytes, bytes, bytes]]):
    """What was republished (subject, header, data). `stale` says that something may be missing in it."""

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

    `_floor` is the position up to which everything was seen. On a single server, what is republished comes in order and
    without gaps between two breaks of the connection, so every message raises it. In a cluster the way between two
    servers can lose some silently: there only reads raise it, and `_above` holds what was yielded beyond it.
    """

    def __init__(
        self,
        wire: Wire,
        layout: Layout,
        source: Source,
        selector: Selector,
        after: int,
        obituaries: DriverDeaths | None = None,
    ) -> None:
        """With `obituaries` it waits for the end of the run."""
        self._wire, self._layout, self._source, self._selector = wire, layout, source, selector
        self._obituaries = obituaries if isinstance(selector, Subject) and selector.kind == "run" else None
        self._to_end = self._obituaries is not None
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
        """The next commit.

        Raises `LogCorrupted` where one is lost, `ConfigError` if the server denies following, and `LogUnavailable` only
        when the log was closed.
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
        """Yield nothing more."""
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
        if self._obituaries is not None and isinstance(self._selector, Subject):
            self._obituaries.add(self._selector.root, inbox.doubt)
            ending.callback(self._obituaries.discard, self._selector.root, inbox.doubt)
        self._wire.on_down.add(inbox.doubt)
        ending.callback(self._wire.on_down.discard, inbox.doubt)
        self._end = weakref.finalize(self, _end, asyncio.get_running_loop(), ending)
        self._end.atexit = False

    def _heard_on(self) -> bytes:
        if self._to_end and isinstance(self._selector, Subject):
            return self._layout.over(self._selector)
        return b"live." + self._layout.selected(self._selector)

    async def _catch_up(self) -> None:
        """Read one page behind the floor."""
        self._inbox.stale = False  # it may be set again while the read is under way
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
        """Take what was republished, up to a hole."""
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
        """Read as far as it was told, unless that is in vain."""
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
    """End a follower's subscriptions, also when it was forgotten and is collected by whatever thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(ending.close)
