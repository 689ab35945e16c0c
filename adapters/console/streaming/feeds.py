"""Follow families of runs for viewers: each family is read, verified and folded once, and shared by its viewers.

A family's entries are its stored events and pieces of text in progress, which are dropped when their reply is stored. A
viewer is an index into the entries, so a slow viewer costs no memory.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ....eventlog.commits import Recorded, as_read, parse_cursor
from ....eventlog.errors import FoldlogError, LogCorrupted
from ....eventlog.events import (
    Event,
    ModelRequested,
    Reasoning,
    Submitted,
    Text,
    TextReset,
    ToolCallDelta,
    Usage,
    is_terminal,
)
from ....eventlog.ports import DraftPiece, Family, Log, Stored, Subject
from ....projections.operating.why import Why
from ....projections.run_list import RunList, RunRow
from ....projections.timeline.fold import TimelineFold
from ....runtime.journal.journal import restored
from ....runtime.stream import FamilyView
from ..timeline import shown
from .frames import WAITING_BYTES_MAX, Frame, bare

LET_GO_S = 30.0
ROWS_MAX = 500
logger = logging.getLogger("foldlog.http")

Cursor = tuple[int, int]
Whys = Callable[[Sequence[RunRow]], Awaitable[Mapping[str, Why]]]
"""Returns why runs wait, by run id."""
WHY_S = 0.25
WHY_AGAIN_S = 2.0
"""How often the reasons are queried without a commit: a worker that dies does not write one."""


class Entry(NamedTuple):
    """A stored event with its cursor, or a piece of text without one.

    `data` is JSON: the whole row of an event, or the fields of a piece that come after its topic.
    """

    event: str
    run: str
    cursor: str
    data: bytes
    bars: tuple[tuple[str, bytes], ...] = ()


class FamilyFeed:
    """The entries of one family, in the order of the log."""

    def __init__(self, log: Log, root: Subject, whys: Whys) -> None:
        self.entries: list[Entry | None] = []
        self.bytes_total = 0
        self.caught_up = asyncio.Event()
        self.failed: FoldlogError | None = None
        self.watchers: set[Callable[[], None]] = set()
        self.watched: Counter[str] = Counter()
        """The number of viewers of each watched run."""
        self.whys: dict[str, bytes] = {}
        """Why each watched run waits, as JSON."""
        self._ask, self._moved = whys, asyncio.Event()
        self._log, self._root, self._view = log, root, FamilyView(root)
        self._list, self._timeline = RunList(), TimelineFold()
        self._rows: dict[str, RunRow] = {}
        self._heads: dict[str, bytes] = {}
        self._parents: dict[str, str] = {}
        self._attempts: dict[str, int] = {}
        self._drafts: dict[str, list[int]] = {}
        self._stored: list[tuple[Cursor, int]] = []
        """The cursor of each stored event, with the index of its entry."""

    async def follow(self) -> None:
        """Follow the family until cancelled. An error of its log is passed to the viewers, and ends the feed."""
        try:
            async with self._log.drafts.follow(self._root.root) as drafts:
                await self._follow(drafts)
        except* FoldlogError as errors:
            self.failed = bare(errors)
            self.caught_up.set()
            self._tell()

    async def _follow(self, drafts: AsyncIterator[DraftPiece]) -> None:
        selector, position = Family(self._root.shard, self._root.root), 0
        async for stored in self._log.events.read(selector):
            position = stored.position
            await self._take(stored)
        self.caught_up.set()
        self._tell()
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(self._pump_drafts(drafts))
            pumps.create_task(self._pump_whys())
            async for stored in self._log.events.follow(selector, position):
                await self._take(stored)
                self._tell()

    async def _pump_drafts(self, drafts: AsyncIterator[DraftPiece]) -> None:
        async for piece in drafts:
            if self._add_drafts(self._view.draft(piece), piece.attempt):
                self._tell()

    async def _pump_whys(self) -> None:
        """Query why watched runs wait, after each change and periodically; wake the viewers if an answer changed."""
        while True:
            self._moved.clear()
            rows = [row for run in +self.watched if (row := self._rows.get(run)) is not None]
            found: Mapping[str, Why] = {}
            with contextlib.suppress(FoldlogError):  # reported to viewers by `follow`
                found = await self._ask([row for row in rows if not row.over])
            told = {row.run_id: msgspec.json.encode(found.get(row.run_id)) for row in rows}
            if told != self.whys:
                self.whys = told
                self._tell()
            await self._log.clock.sleep(WHY_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WHY_AGAIN_S):
                    await self._moved.wait()

    async def _take(self, stored: Stored) -> None:
        recorded = self._view.verify(stored)
        if recorded is None:
            return
        run = recorded.commit.run
        whole = await restored(recorded, self._log)
        corrections = [event for event in self._view.commit(whole) if event.revision is None]
        self._rows[run] = self._list.evolve(self._rows.get(run), recorded)
        self._heads.pop(run, None)
        self._moved.set()
        resets = [event for event in corrections if isinstance(event, TextReset)]
        self._add_drafts(resets, self._attempts.get(run, 1))
        self._note(whole)
        for event in as_read(whole):
            row, bars = self._timeline.add(event)
            self._stored.append((parse_cursor(event.cursor), len(self.entries)))
            told = tuple((bar.id, msgspec.json.encode(bar)) for bar in bars)
            self._add(Entry("row", run, event.cursor or "", msgspec.json.encode(shown(row)), told))
        pieces = [event for event in corrections if not isinstance(event, TextReset)]
        self._add_drafts(pieces, self._attempts.get(run, 1))

    def _note(self, recorded: Recorded) -> None:
        """Record parents and attempts for later entries; drop the pieces of replies that are stored or abandoned."""
        run = recorded.commit.run
        for event in recorded.commit.events:
            if isinstance(event, Submitted) and event.parent is not None:
                self._parents[run] = event.parent.run
            elif isinstance(event, ModelRequested):
                self._attempts[run] = event.attempt
            if isinstance(event, Usage) or is_terminal(event):
                for number in self._drafts.pop(run, ()):
                    self.entries[number] = None

    def _add_drafts(self, events: list[Any] | list[Event], attempt: int) -> bool:
        for event in events:
            fields = _piece(event)
            data = msgspec.json.encode(
                {"run_id": event.run_id, "step": event.step, "attempt": attempt} | fields
            )
            kind = "draft_reset" if isinstance(event, TextReset) else "draft"
            self._drafts.setdefault(event.run_id, []).append(len(self.entries))
            self._add(Entry(kind, event.run_id, "", data))
        return bool(events)

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.bytes_total += len(entry.data)

    def _tell(self) -> None:
        for watcher in self.watchers:
            watcher()

    def watch(self, run: str, viewers: int) -> None:
        """Add to the number of a run's viewers; `viewers` is negative when some leave."""
        self.watched[run] += viewers
        self._moved.set()

    def number_after(self, cursor: str) -> int | None:
        """Return the index of the first entry after a cursor; None if no stored event has this cursor."""
        at = parse_cursor(cursor)
        place = bisect.bisect_right(self._stored, (at, len(self.entries)))
        if place == 0 or self._stored[place - 1][0] != at:
            return None
        return self._stored[place - 1][1] + 1

    @property
    def last_cursor(self) -> str:
        """The cursor of the last stored event; empty for none."""
        entry = self.entries[self._stored[-1][1]] if self._stored else None
        return entry.cursor if entry is not None else ""

    def is_below(self, run: str, top: str) -> bool:
        """Return whether a run is `top` or one below it."""
        above: str | None = run
        while above is not None and above != top:
            above = self._parents.get(above)
        return above is not None

    def head(self, run: str) -> bytes:
        """Return the row of a run as JSON."""
        if run not in self._heads:
            self._heads[run] = msgspec.json.encode(self._rows.get(run))
        return self._heads[run]

    def why(self, run: str) -> bytes:
        """Return why a run waits, as JSON; `null` if it does not wait, or the reason is not known yet."""
        return self.whys.get(run, b"null")


def _piece(event: Event) -> dict[str, Any]:
    match event:
        case TextReset():
            return {"channel": event.channel, "offset": event.offset, "cause": event.cause}
        case Reasoning():
            return {"channel": "reasoning", "offset": event.offset, "text": event.text}
        case Text():
            return {"channel": "text", "offset": event.offset, "text": event.text}
        case ToolCallDelta():
            given = {"channel": "tool_calls", "index": event.index, "tool_name": event.tool_name}
            return given | {"text": event.arguments_delta}
        case _:
            return {}


class RunTopic:
    """The topic of one run and all runs below it, for one viewer."""

    def __init__(self, name: str, feed: FamilyFeed, run: str, cursor: str) -> None:
        self.name, self.cursor = name, cursor
        self._feed, self._run = feed, run
        self._topic = msgspec.json.encode(name)
        self._at, self._seen_bytes, self._live = -1, 0, False
        self._why = b"null"

    @property
    def has_news(self) -> bool:
        """True if frames are due."""
        if not self._feed.caught_up.is_set():
            return False
        return self._at < len(self._feed.entries) or self._feed.why(self._run) != self._why or self.ended

    @property
    def ended(self) -> bool:
        """True if the log of the family is damaged."""
        return self._feed.failed is not None

    def take(self) -> Iterator[Frame]:
        """Yield the frames that are due; `cursor` advances with each. Damage is raised after the frames before it."""
        failed = self._feed.failed
        if failed is not None and not isinstance(failed, LogCorrupted):
            raise failed  # the run may have been erased: its entries must not be shown
        if self._at < 0:
            yield from self._begin()
        yield from self._news()
        if failed is not None:
            raise failed

    def _news(self) -> Iterator[Frame]:
        rows: list[Entry] = []
        for entry in self._unseen():
            if entry is not None and entry.event == "row":
                rows.append(entry)
            if rows and (entry is None or entry.event != "row" or self._is_full(rows)):
                yield self._rows(rows)
                rows = []
            if entry is None:
                yield self._resync()
            elif entry.event != "row":
                yield Frame(entry.event, b'{"topic":%b,%b' % (self._topic, entry.data[1:]))
        if rows or self._feed.why(self._run) != self._why:
            yield self._rows(rows)

    def _unseen(self) -> Iterator[Entry | None]:
        """Yield the entries that the viewer has not seen: rows of the run and the runs below it, and the run's pieces.

        Yields None if the viewer was up to date and has fallen too far behind: it must load the run again.
        """
        feed = self._feed
        while self._at < len(feed.entries):
            if self._live and feed.bytes_total - self._seen_bytes > WAITING_BYTES_MAX:
                self._live = False
                yield None
                continue
            entry = feed.entries[self._at]
            self._at += 1
            self._seen_bytes += 0 if entry is None else len(entry.data)
            if self._at == len(feed.entries):
                self._live, self._seen_bytes = True, feed.bytes_total
            if entry is None:
                continue
            if entry.event == "row":
                self.cursor = entry.cursor
            if entry.run == self._run or (entry.event == "row" and feed.is_below(entry.run, self._run)):
                yield entry

    def _is_full(self, rows: list[Entry]) -> bool:
        return len(rows) >= ROWS_MAX

    def _begin(self) -> Iterator[Frame]:
        """Find the index of the first entry to send, once the feed has caught up with the log and knows all cursors."""
        found = self._feed.number_after(self.cursor) if self.cursor else 0
        if found is None:
            yield self._resync()
        else:
            self._at = found

    def _resync(self) -> Frame:
        self._at, self._seen_bytes = len(self._feed.entries), self._feed.bytes_total
        self.cursor = self._feed.last_cursor
        return Frame("resync", b'{"topic":%b}' % self._topic)

    def _rows(self, entries: list[Entry]) -> Frame:
        rows = b",".join(entry.data for entry in entries)
        bars = b",".join({name: bar for entry in entries for name, bar in entry.bars}.values())
        self._why = self._feed.why(self._run)
        told = self._topic, rows, bars, self._feed.head(self._run)
        why = b',"why":%b' % self._why if self._run in self._feed.whys else b""
        return Frame("run", b'{"topic":%b,"rows":[%b],"bars":[%b],"head":%b' % told + why + b"}")


class Feeds:
    """The feeds of all families that are followed now."""

    def __init__(self, log: Log, whys: Whys) -> None:
        self._log, self._whys = log, whys
        self._feeds: dict[str, tuple[FamilyFeed, asyncio.Task[None]]] = {}
        self._letting_go: dict[str, asyncio.Task[None]] = {}

    @contextlib.contextmanager
    def watched(self, root: Subject, run: str, wake: Callable[[], None]) -> Iterator[FamilyFeed]:
        """Yield the feed of a run's family, and call `wake` for news while open.

        A feed without viewers is followed for a while longer, in case one comes back.
        """
        if (leaving := self._letting_go.pop(root.id, None)) is not None:
            leaving.cancel()
        if root.id in self._feeds and self._feeds[root.id][0].failed is not None:
            self._drop(root.id)
        if root.id not in self._feeds:
            feed = FamilyFeed(self._log, root, self._whys)
            self._feeds[root.id] = feed, asyncio.create_task(feed.follow())
        feed = self._feeds[root.id][0]
        feed.watchers.add(wake)
        feed.watch(run, 1)
        try:
            yield feed
        finally:
            feed.watchers.discard(wake)
            feed.watch(run, -1)
            if not feed.watchers:
                self._letting_go[root.id] = asyncio.create_task(self._let_go(root.id))

    async def _let_go(self, root: str) -> None:
        await self._log.clock.sleep(LET_GO_S)
        self._letting_go.pop(root, None)
        self._drop(root)

    def _drop(self, root: str) -> None:
        _feed, task = self._feeds.pop(root, (None, None))
        if task is not None:
            task.cancel()

    async def aclose(self) -> None:
        """Stop following."""
        tasks = [*self._letting_go.values(), *(task for _, task in self._feeds.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
