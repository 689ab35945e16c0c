"""One connection to the stream: sends the due frames of its topics until the client or the server closes it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlencode

import msgspec

from ....eventlog.errors import FoldlogError
from ...http.answers import Refused
from ..holders import holders_of, workers_of
from ..queries import RunQuery
from .feeds import Feeds, RunTopic
from .frames import COMMENT, Frame, on_the_wire
from .judging import Judge, MonitorTopic
from .lists import Lists, ListTopic
from .selections import ApprovalsSelection, RunsSelection
from .snapshots import Snapshots, SnapshotTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....eventlog.ports import Subject
    from ....runtime import Runtime

COMMENT_S = 15.0
TOGETHER_S = 0.012
"""Changes within this time are sent together."""
TOPICS_MAX = 64
KINDS = ("runs", "approvals", "workers", "lanes", "monitor")
_CURSOR = re.compile(r"\d[\d._]*")


class Topic(Protocol):
    """One topic of a connection: the changes of a run, a list or a view."""

    @property
    def name(self) -> str:
        """The topic as requested, without its cursor."""
        ...

    @property
    def cursor(self) -> str:
        """The cursor after the last frame taken; empty for a topic without one."""
        ...

    @property
    def has_news(self) -> bool:
        """True if frames are due."""
        ...

    @property
    def ended(self) -> bool:
        """True if the topic has failed and no more frames will come."""
        ...

    def take(self) -> Iterator[Frame]:
        """Yield the frames that are due. Raises the error that ended the topic."""
        ...


class Wanted(msgspec.Struct, frozen=True):
    """A requested topic: its name, its kind, its subject (a run id or filters), and the cursor to resume after.

    `cursor` is empty for a topic that begins now.
    """

    name: str
    kind: str
    about: str
    cursor: str


def wanted_topics(given: Sequence[str], last_event_id: str) -> list[Wanted]:
    """Parse the topics of a request. `last_event_id` holds the cursors reached before a reconnect.

    Raises `Refused` (422).
    """
    if not 1 <= len(given) <= TOPICS_MAX:
        raise Refused(422, f"a stream has 1 to {TOPICS_MAX} topics: ?t=runs&t=run:ID&t=approvals")
    reached = dict(parse_qsl(last_event_id))
    found = {topic.name: topic for topic in map(_wanted, given)}
    return [
        msgspec.structs.replace(topic, cursor=reached.get(name, topic.cursor))
        for name, topic in found.items()
    ]


def _wanted(text: str) -> Wanted:
    name, at, cursor = text.rpartition("@")
    if not at or not _CURSOR.fullmatch(cursor):
        if at and not cursor:
            raise Refused(422, f"the topic {text!r:.80} has an empty cursor")
        name, cursor = text, ""
    kind, colon, about = name.partition(":")
    if kind == "run" and colon and about:
        return Wanted(name, "run", about, cursor)
    kind, _, about = name.partition("?")
    if kind == "runs" or (kind in KINDS and not about):
        return Wanted(name, kind, about, cursor)
    known = ", ".join(("runs?FILTERS", "run:ID", *KINDS))
    raise Refused(422, f"there is no topic {name!r:.80}; known are {known}")


def query_of(filters: str) -> RunQuery:
    """Parse the filters of a topic `runs?FILTERS`. Raises `Refused` (422)."""
    try:
        return msgspec.convert(dict(parse_qsl(filters, keep_blank_values=True)), RunQuery, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(422, f"the topic runs: {error}") from None


class Streams:
    """All that this process follows for its viewers, shared between connections."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._feeds = Feeds(runtime.log, runtime.operations.why)
        self._lists = Lists(runtime.log, runtime.index)
        self._judge, clock = Judge(runtime.log), runtime.log.clock
        self._views = {
            "workers": Snapshots(clock, partial(workers_of, runtime.operations)),
            "lanes": Snapshots(clock, partial(holders_of, runtime.operations)),
        }
        self._viewers: set[asyncio.Event] = set()
        self._closing = False

    async def prepared(self, wanted: Sequence[Wanted]) -> list[tuple[Wanted, Subject | RunQuery | None]]:
        """Resolve each topic to its run or filters, before anything is sent. Raises `Refused`, `RunNotFound`."""
        found: list[tuple[Wanted, Subject | RunQuery | None]] = []
        for topic in wanted:
            about: Subject | RunQuery | None = None
            if topic.kind == "run":
                about = await self._runtime.locate(topic.about)
            elif topic.kind == "runs":
                about = query_of(topic.about)
            found.append((topic, about))
        return found

    async def frames(
        self,
        topics: Sequence[tuple[Wanted, Subject | RunQuery | None]],
        still: Callable[[], bool] = lambda: True,
    ) -> AsyncGenerator[bytes]:
        """Yield the bytes of a connection: frames, each with the cursors of all topics, and a comment every 15 s.

        The stream ends when `still`, called at least every 15 s, returns false: the viewer has lost access.
        """
        news, notices, clock = asyncio.Event(), list[str](), self._runtime.log.clock
        asked_at = clock.now()

        def notice(what: str) -> None:
            notices.append(what)
            news.set()

        async with contextlib.AsyncExitStack() as stack:
            yield COMMENT
            self._viewers.add(news)
            stack.callback(self._viewers.discard, news)
            stack.enter_context(self._lists.noticed(notice))
            open_topics = [await self._opened(stack, topic, about, news) for topic, about in topics]
            news.set()
            while not self._closing:
                if not await self._awaited(news):
                    yield COMMENT
                if clock.now() - asked_at >= COMMENT_S:
                    asked_at = clock.now()
                    if not still():
                        return
                news.clear()
                while notices:
                    yield on_the_wire(Frame("notice", msgspec.json.encode({"log": notices.pop(0)})), "")
                for topic in [each for each in open_topics if each.has_news]:
                    ended = topic.ended  # one that ends while its frames are sent is removed in the next turn
                    for frame in _taken(topic):
                        yield on_the_wire(frame, _places(open_topics))
                    if ended:
                        open_topics.remove(topic)
                await asyncio.sleep(TOGETHER_S)
            yield on_the_wire(Frame("bye", b"{}"), _places(open_topics))

    async def _awaited(self, news: asyncio.Event) -> bool:
        """Wait for news or for the server's end; return false after `COMMENT_S` without either."""
        try:
            async with asyncio.timeout(COMMENT_S):
                await news.wait()
        except TimeoutError:
            return False
        return True

    async def _opened(
        self, stack: contextlib.AsyncExitStack, wanted: Wanted, about: object, news: asyncio.Event
    ) -> Topic:
        from ....eventlog.names import run_subject
        from ....eventlog.ports import Subject

        if isinstance(about, Subject):
            root = run_subject(about.shard, about.root, about.root)
            feed = stack.enter_context(self._feeds.watched(root, about.id, news.set))
            return RunTopic(wanted.name, feed, about.id, wanted.cursor)
        if wanted.kind == "monitor":
            stack.enter_context(self._judge.watched(news.set))
            return MonitorTopic(wanted.name, self._judge)
        if (view := self._views.get(wanted.kind)) is not None:
            stack.enter_context(view.watched(news.set))
            return SnapshotTopic(wanted.name, view)
        selection = RunsSelection(about) if isinstance(about, RunQuery) else ApprovalsSelection()
        topic = ListTopic(wanted.name, selection, wanted.cursor)
        await stack.enter_async_context(self._lists.watched(topic, news.set))
        return topic

    async def keep_up(self) -> None:
        """Follow the projections from now on, even while no list is viewed."""
        await self._lists.start()

    async def aclose(self) -> None:
        """Stop following."""
        self._closing = True
        for news in self._viewers:
            news.set()
        await self._feeds.aclose()
        await self._lists.aclose()
        await self._judge.aclose()
        for view in self._views.values():
            await view.aclose()


def _taken(topic: Topic) -> Iterator[Frame]:
    try:
        yield from topic.take()
    except FoldlogError as error:
        yield _damage(topic.name, error)


def _places(topics: Sequence[Topic]) -> str:
    return urlencode([(topic.name, topic.cursor) for topic in topics if topic.cursor])


def _damage(topic: str, error: FoldlogError) -> Frame:
    told = {"topic": topic, "error": type(error).__name__, "detail": str(error)}
    more = {name: getattr(error, name) for name in ("run", "revision", "expected") if hasattr(error, name)}
    return Frame("damage", msgspec.json.encode(told | more))
