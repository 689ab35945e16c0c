"""Follow lists for viewers: the projections are followed once, and each change is offered to every list.

At most every 250 ms the changed rows are read, and each list determines which of them it contains now, and which not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ....eventlog.errors import FoldlogError, LogUnavailable
from ....eventlog.names import run_subject
from ....eventlog.ports import Log, Shard
from ....projections.projector import RunIndex
from ..listed import ListedRun, listed_runs
from .frames import WAITING_BYTES_MAX, Frame, bare

if TYPE_CHECKING:
    from ....projections.approvals import ApprovalRow

PERIOD_S = 0.25
FAMILY_RUN_S = 0.0002
"""How much longer a period is for each run whose row is read for totals, which takes less than a tenth of this time."""
AGAIN_S = 1.0
PROBE_S = 2.0
PROBE_MAX_S = 2.0
MISSED_MAX = 2000
"""How many missed commits are read for a viewer that comes back; if there are more, it must load the list again."""
logger = logging.getLogger("foldlog.http")


class Selection(Protocol):
    """The definition of a list: a condition on rows, and counts.

    `has_totals`: its rows change with all runs below them, whose totals they have.
    """

    has_totals: bool

    def changed(
        self, runs: Sequence[ListedRun], approvals: Sequence[ApprovalRow]
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return the changed rows that the list contains, as JSON by id, and the ids of those that it does not."""
        ...

    async def counts(self, index: RunIndex) -> dict[str, Any]:
        """Return the counts that belong to the list."""
        ...


class ListTopic:
    """The topic of one list, for one viewer."""

    def __init__(self, name: str, selection: Selection, cursor: str) -> None:
        self.name, self.cursor, self.selection = name, cursor, selection
        self._topic = msgspec.json.encode(name)
        self._upserts: dict[str, bytes] = {}
        self._removes: dict[str, None] = {}
        self._counts: dict[str, Any] | None = None
        self._stale = False
        self._failed: FoldlogError | None = None
        self.reached = cursor

    @property
    def has_news(self) -> bool:
        """True if a frame is due."""
        return self.ended or self._stale or self._counts is not None or bool(self._upserts or self._removes)

    @property
    def ended(self) -> bool:
        """True if the list can no longer be followed."""
        return self._failed is not None

    def fail(self, error: FoldlogError) -> None:
        """End the topic with the error for which the list cannot be followed."""
        self._failed = error

    def offer(
        self, upserts: dict[str, bytes], removes: Sequence[str], counts: dict[str, Any], places: str
    ) -> None:
        """Add changes to the next frame. `places` is the cursor after them."""
        self.reached = places
        for name in removes:
            self._upserts.pop(name, None)
            self._removes[name] = None
        for name, row in upserts.items():
            self._removes.pop(name, None)
            self._upserts[name] = row
        self._counts = counts
        if sum(map(len, self._upserts.values())) > WAITING_BYTES_MAX:
            self.lose(places)

    def lose(self, places: str) -> None:
        """Drop the changes so far, and tell the viewer to load the list again."""
        self._upserts, self._removes, self._counts = {}, {}, None
        self._stale, self.reached = True, places

    def reach(self, places: str) -> None:
        """Advance the cursor to `places`, up to which the list has not changed."""
        if not self.has_news:
            self.cursor = self.reached = places

    def take(self) -> Iterator[Frame]:
        """Yield the frames that are due, and advance `cursor`. Raises the error that ended the topic."""
        if self._failed is not None:
            raise self._failed
        self.cursor = self.reached
        if self._stale:
            self._stale = False
            yield Frame("resync", b'{"topic":%b}' % self._topic)
        if self._counts is None:
            return
        rows = b",".join(self._upserts.values())
        rest = msgspec.json.encode({"removes": list(self._removes), "counts": self._counts})
        self._upserts, self._removes, self._counts = {}, {}, None
        yield Frame("list", b'{"topic":%b,"upserts":[%b],%b' % (self._topic, rows, rest[1:]))


class Lists:
    """All lists that are viewed now, and the one task that follows the projections for them."""

    def __init__(self, log: Log, index: Callable[[], Any]) -> None:
        self._log, self._open = log, index
        self._topics: dict[ListTopic, Callable[[], None]] = {}
        self._notices: set[Callable[[str], None]] = set()
        self._following: asyncio.Task[FoldlogError] | None = None
        self._probing: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def watched(self, topic: ListTopic, wake: Callable[[], None]) -> AsyncGenerator[None]:
        """Offer changes to a list while open: first those since its cursor, then new ones.

        If the log cannot be listed, only this topic ends; the other topics of the connection go on.
        """
        try:
            await self._begin(topic, wake)
        except LogUnavailable:
            raise  # the viewer reconnects
        except FoldlogError as error:
            topic.fail(error)
        wake()
        try:
            yield
        finally:
            self._topics.pop(topic, None)

    async def _begin(self, topic: ListTopic, wake: Callable[[], None]) -> None:
        index = await self.start()
        await self._until_followed(index)
        places = index.places()
        if topic.cursor:
            self._topics[topic] = wake
            await self._make_up(index, topic, places)
        else:
            topic.offer({}, [], await topic.selection.counts(index), places_text(places))
            self._topics[topic] = wake

    async def _until_followed(self, index: RunIndex) -> None:
        """Wait until the projections are followed. Raises the error for which they cannot be."""
        reached, following = asyncio.ensure_future(index.following.wait()), self._kept_up(index)
        try:
            await asyncio.wait({reached, following}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reached.cancel()
        if following.done() and not following.cancelled():
            raise following.result()

    async def start(self) -> RunIndex:
        """Follow the projections, unless this process does already; return them."""
        index: RunIndex = await self._open()
        self._kept_up(index)
        return index

    def _kept_up(self, index: RunIndex) -> asyncio.Task[FoldlogError]:
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(index))
        return self._following

    @contextlib.contextmanager
    def noticed(self, notice: Callable[[str], None]) -> Iterator[None]:
        """Call `notice` with `lost` or `back` while open, when the connection to the log is lost or restored."""
        self._notices.add(notice)
        self._probing = self._probing or asyncio.create_task(self._probe())
        try:
            yield
        finally:
            self._notices.discard(notice)

    async def _make_up(self, index: RunIndex, topic: ListTopic, now: Sequence[int]) -> None:
        """Offer the rows that changed since the viewer's cursor, found by reading the log."""
        then = parse_places(topic.reached)
        if then is None or len(then) != len(now) or any(a > b for a, b in zip(then, now, strict=True)):
            topic.lose(places_text(now))
            return
        changed: set[str] = set()
        read = 0
        for shard, (position, until) in enumerate(zip(then, now, strict=True)):
            if position >= until:
                continue
            async for stored in self._log.events.read(Shard(shard), after=position):
                changed.add(stored.subject.id)
                read += 1
                if read > MISSED_MAX:
                    topic.lose(places_text(now))
                    return
                if stored.position >= until:
                    break
        await self._offer(index, changed, [topic], places_text(now))

    async def _follow(self, index: RunIndex) -> FoldlogError:
        """Follow the projections through outages of the log; return the error if the log turns out to be damaged."""
        while not (error := await self._followed(index)) or isinstance(error, LogUnavailable):
            await self._log.clock.sleep(AGAIN_S)
        logger.error("the lists cannot be followed", exc_info=error)
        for topic, wake in self._topics.items():
            topic.fail(error)
            wake()
        return error

    async def _followed(self, index: RunIndex) -> FoldlogError | None:
        """Follow the projections until an error, and return it."""
        found: list[FoldlogError] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(index.follow())
                await self._offer_changes(index)
        except* FoldlogError as errors:
            found.append(bare(errors))
        return found[0] if found else None

    async def _probe(self) -> None:
        """Notice when the log cannot be reached, and when it can again: its followers would just wait in silence."""
        lost = False
        while True:
            if lost == await self._reaches_log():
                lost = not lost
                self._notice("lost" if lost else "back")
            await self._log.clock.sleep(PROBE_S)

    async def _reaches_log(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_MAX_S):
                await self._log.events.head(run_subject(0, "probe", "probe"))
        except (FoldlogError, TimeoutError):
            return False
        return True

    def _notice(self, what: str) -> None:
        for notice in self._notices:
            notice(what)

    async def _offer_changes(self, index: RunIndex) -> None:
        begun = False
        async with contextlib.aclosing(index.changes()) as changes:
            async for runs in changes:
                places = index.places()  # before anything is awaited: later changes come after these places
                summed = 0
                if runs is not None:
                    summed = await self._offer(index, runs, list(self._topics), places_text(places))
                elif begun:
                    for topic, wake in self._topics.items():
                        topic.lose(places_text(places))
                        wake()
                else:
                    begun = True
                    await index.following.wait()
                    for topic in list(self._topics):  # changes from before the projections were followed
                        await self._make_up(index, topic, index.places())
                await self._log.clock.sleep(PERIOD_S + FAMILY_RUN_S * summed)

    async def _offer(
        self, index: RunIndex, runs: frozenset[str] | set[str], topics: Sequence[ListTopic], places: str
    ) -> int:
        """Offer the changes of these runs to lists; return how many runs were read for totals."""
        if not topics:
            return 0
        rows, approvals = await index.rows_of(runs)
        damaged = any(row.damage is not None for row in rows)
        listed: list[ListedRun] = []
        if not damaged and any(topic.selection.has_totals for topic in topics):
            listed = await listed_runs(index, [*rows, *await index.rows_above(rows)])
        for topic in topics:
            if damaged:  # no list can place such a run, and each of them tells of it
                topic.lose(places)
                self._wake(topic)
                continue
            upserts, removes = topic.selection.changed(listed, approvals)
            if upserts or removes:
                topic.offer(upserts, removes, await topic.selection.counts(index), places)
                self._wake(topic)
            else:
                topic.reach(places)
        return sum(row.family.runs for row in listed if row.parent is None)

    def _wake(self, topic: ListTopic) -> None:
        if (wake := self._topics.get(topic)) is not None:
            wake()

    async def aclose(self) -> None:
        """Stop following."""
        tasks = [task for task in (self._following, self._probing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def places_text(places: Sequence[int]) -> str:
    """Format the positions of all shards as a cursor."""
    return "_".join(map(str, places))


def parse_places(cursor: str) -> list[int] | None:
    """Parse a cursor into the positions of all shards; None if it is not a cursor."""
    parts = cursor.split("_")
    return (
        [int(part) for part in parts] if all(part.isascii() and part.isdecimal() for part in parts) else None
    )
