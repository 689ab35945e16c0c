"""The stream of a run for its callers: stored events in log order, joined with drafts of text still being written.

Drafts are not stored, and attempts may differ. So a stream tracks what it has shown of each channel of the open step,
and what the current attempt has written. Deltas are shown as they arrive. While a retry repeats what was shown, nothing
is shown again; at the first difference one `text_reset` removes what no longer holds (R14, R21). The stored text
corrects the rest, so every stream ends with the same text, however many drafts were lost or late.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

import msgspec

from ..eventlog.commits import Chain, Recorded, as_read, parse_cursor
from ..eventlog.errors import ConfigError
from ..eventlog.events import (
    ENGINE,
    TERMINAL_STATUSES,
    DetailedEvent,
    Event,
    ModelFailed,
    Parked,
    Reasoning,
    Status,
    Step,
    StreamEvent,
    Submitted,
    Text,
    TextReset,
    ToolCallDelta,
    Usage,
    is_terminal,
)
from ..eventlog.ports import DraftPiece, Family, Log, Stored, Subject
from ..projections.pauses import Pauses
from .journal.journal import restored

Channel = Literal["text", "reasoning", "tool_calls"]

_PLAIN, _DETAILED = frozenset(StreamEvent.__args__), frozenset(DetailedEvent.__args__)


def is_shown(event: Event, *, detailed: bool) -> bool:
    """Return whether the stream includes events of this kind."""
    if detailed:
        return type(event) in _DETAILED
    if isinstance(event, Status):
        return event.status in {"paused", "resumed", *TERMINAL_STATUSES}
    if isinstance(event, TextReset):
        return event.channel == "text"
    return type(event) in _PLAIN


def common_prefix(left: str, right: str) -> int:
    """Return the length of the common prefix of two texts."""
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


class _Growing:
    """A text that grows piece by piece, and is joined only when it is read."""

    __slots__ = ("_parts", "size")

    def __init__(self, text: str = "") -> None:
        self._parts, self.size = [text], len(text)

    def add(self, text: str) -> None:
        self._parts.append(text)
        self.size += len(text)

    @property
    def text(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]


class Joiner:
    """Joins the drafts and the stored events of one run.

    The two arrive independently. Drafts of a step that arrive before the commit which starts it wait for that commit,
    or they would be taken for the drafts of an earlier step.

    The text of a failed attempt is kept until the next one writes, which is soon. If the run rests instead, a reset
    removes it: drafts expire, so later readers would not have it.
    """

    def __init__(self) -> None:
        self._over = False
        self._started = 0
        self._early: list[DraftPiece] = []
        self._step = 0
        self._closed_step = 0
        self._attempt = 0
        self._shown: dict[tuple[Channel, int], _Growing] = {}
        self._written: dict[tuple[Channel, int], _Growing] = {}
        self._stored: set[Channel] = set()
        self._failed = self._void = (0, 0)
        """Step and attempt of the last failed model call; and those up to which drafts are no longer shown."""

    def draft(self, piece: DraftPiece) -> list[Event]:
        """Return the events that a draft adds to the stream."""
        if piece.step > self._started:
            self._early.append(piece)
            return []
        if self._over or piece.step <= self._closed_step or piece.step < self._step:
            return []
        if (piece.step, piece.attempt) <= self._void:
            return []
        if piece.step > self._step:
            self._begin(piece.step)
        if piece.attempt < self._attempt:
            return []
        if piece.attempt > self._attempt:
            self._attempt, self._written = piece.attempt, {}
        key = (piece.channel, piece.index)
        written = self._written.setdefault(key, _Growing())
        if piece.offset != written.size:
            return []  # an earlier piece was lost, or this is a duplicate: the stored text corrects it
        written.add(piece.text)
        if written is self._shown.get(key):
            return [_delta(key, piece.text, piece.offset, piece)] if piece.text else []
        return self._show(key, written, piece)

    def stored(self, event: Event) -> list[Event]:
        """Return a stored event as the stream shows it, with corrections of drafts before it."""
        if isinstance(event, Status) and is_terminal(event):
            self._over = True
            return [*self._discard(), event]
        if isinstance(event, Parked) or (isinstance(event, Status) and event.status == "paused"):
            return [*self._rest(), event]
        if isinstance(event, ModelFailed) and not event.phase:
            self._failed = (event.step or 0, event.attempt)
            return [event]
        if isinstance(event, Text):
            return self._stored_text("text", event)
        if isinstance(event, Reasoning):
            return self._stored_text("reasoning", event)
        if isinstance(event, Usage):
            return [*self._reply_complete(event), event]
        if isinstance(event, Step) and event.status == "started":
            return [event, *self._start(event.step or 0)]
        return [event]

    def _start(self, step: int) -> list[Event]:
        self._started = max(self._started, step)
        early, self._early = self._early, []
        return [event for piece in early for event in self.draft(piece)]

    def _begin(self, step: int) -> None:
        self._step, self._attempt = step, 0
        self._shown, self._written, self._stored = {}, {}, set()

    def _show(self, key: tuple[Channel, int], growing: _Growing, piece: DraftPiece) -> list[Event]:
        """Return the difference to what was shown; from the first new piece on, this attempt is shown."""
        shown, written = self._text(key), growing.text
        if shown.startswith(written) and (piece.text or key in self._shown):
            return []
        events: list[Event] = []
        offset = len(shown)
        if not written.startswith(shown):
            offset = common_prefix(shown, written)
            events.append(
                TextReset(step=piece.step, at=piece.at, offset=offset, channel=key[0], cause="retry")
            )
        self._shown[key] = growing
        return [*events, _delta(key, written[offset:], offset, piece)]

    def _text(self, key: tuple[Channel, int]) -> str:
        shown = self._shown.get(key)
        return shown.text if shown is not None else ""

    def _stored_text(self, channel: Channel, event: Text | Reasoning) -> list[Event]:
        step = event.step or 0
        shown = self._text((channel, 0)) if step == self._step else ""
        self._stored.add(channel)
        if step != self._step:
            self._begin(step)
            self._stored.add(channel)
        self._shown[channel, 0] = _Growing(event.text)
        if event.text.startswith(shown):
            rest = event.text[len(shown) :]
            return [msgspec.structs.replace(event, text=rest, offset=len(shown))] if rest else []
        common = common_prefix(shown, event.text)
        reset = _placed(TextReset(step=step, offset=common, channel=channel, cause="retry"), event)
        rest = event.text[common:]
        return [reset, msgspec.structs.replace(event, text=rest, offset=common)] if rest else [reset]

    def _reply_complete(self, usage: Usage) -> list[Event]:
        """Return resets for channels that were shown, but are not part of the stored reply."""
        resets: list[Event] = []
        if usage.step == self._step:
            for channel in ("text", "reasoning"):
                if self._text((channel, 0)) and channel not in self._stored:
                    reset = TextReset(step=usage.step, offset=0, channel=channel, cause="retry")
                    resets.append(_placed(reset, usage))
        self._closed_step = max(self._closed_step, usage.step or 0)
        return resets

    def _rest(self) -> list[Event]:
        """Return resets for the last failed attempt when the run rests: no retry continues its text."""
        if self._failed <= self._void:
            return []
        self._void = self._failed
        resets = self._discard() if (self._step, self._attempt) <= self._void else []
        self._shown, self._written = {}, {}
        return resets

    def _discard(self) -> list[Event]:
        if self._step <= self._closed_step:
            return []
        channels = list(dict.fromkeys(channel for (channel, _), shown in self._shown.items() if shown.size))
        return [
            TextReset(step=self._step, offset=0, channel=channel, cause="discarded") for channel in channels
        ]


def _delta(key: tuple[Channel, int], text: str, offset: int, piece: DraftPiece) -> Event:
    if key[0] == "text":
        return Text(step=piece.step, at=piece.at, text=text, offset=offset)
    if key[0] == "reasoning":
        return Reasoning(step=piece.step, at=piece.at, text=text, offset=offset)
    return ToolCallDelta(
        step=piece.step, at=piece.at, index=key[1], tool_name=piece.tool_name, arguments_delta=text
    )


def _placed(event: Event, like: Event) -> Event:
    return msgspec.structs.replace(
        event,
        run_id=like.run_id,
        root_id=like.root_id,
        agent=like.agent,
        agent_path=like.agent_path,
        at=like.at,
    )


class FamilyView:
    """The stream's view of a run and the runs below it, updated by commits and drafts."""

    def __init__(self, subject: Subject) -> None:
        self.over = False
        self.pauses = Pauses()
        self._subject = subject
        self._chain = Chain()
        self._paths = {subject.id: ""}
        self._joiners: dict[str, Joiner] = {}
        self._early: dict[str, list[DraftPiece]] = {}

    def ends(self, *, to_pause: bool) -> bool:
        """Return whether the stream is complete: the run is over, or with `to_pause` a pause waits for its end."""
        return self.over or (to_pause and self.pauses.open)

    def draft(self, piece: DraftPiece) -> list[Event]:
        """Return the events of a draft. One that arrives before the commit that submits its run waits for it."""
        path = self._paths.get(piece.run)
        if not path:
            self._early.setdefault(piece.run, []).append(piece)
            return []
        return [self._named(event, piece.run, path) for event in self._joiner(piece.run).draft(piece)]

    def verify(self, stored: Stored) -> Recorded | None:
        """Return the commit if it belongs to the watched run or one below it. Raises `LogCorrupted`."""
        recorded = self._chain.verify(stored)
        run = recorded.subject.id
        for event in recorded.commit.events:
            if isinstance(event, Submitted) and (
                run in self._paths or (event.parent and event.parent.run in self._paths)
            ):
                self._paths[run] = recorded.commit.path
        return recorded if run in self._paths else None

    def commit(self, recorded: Recorded) -> list[Event]:
        """Return the events of a commit."""
        run, path = recorded.subject.id, recorded.commit.path
        joiner, events = self._joiner(run), list[Event]()
        self.pauses.feed(run, recorded.commit.events)
        for stored in as_read(recorded):
            forwarded = stored.agent_path != path
            events += [stored] if forwarded else joiner.stored(stored)
            if run == self._subject.id and is_terminal(stored) and not forwarded:
                self.over = True
                events[-1] = msgspec.structs.replace(events[-1], is_end=True)
        for piece in self._early.pop(run, []):
            events += joiner.draft(piece)
        return [self._named(event, run, path) for event in events]

    def _joiner(self, run: str) -> Joiner:
        return self._joiners.setdefault(run, Joiner())

    def _named(self, event: Event, run: str, path: str) -> Event:
        if event.run_id:
            return event
        root = self._subject.root
        return msgspec.structs.replace(
            event, run_id=run, root_id=root, agent=path.rpartition("/")[2], agent_path=path
        )


async def stream_run(
    log: Log,
    subject: Subject,
    *,
    detailed: bool = False,
    after: str | None = None,
    family: bool = True,
    engine: bool = False,
    to_pause: bool = False,
) -> AsyncGenerator[Event]:
    """Yield the events of a run (with `family`, of all runs below it) from its beginning, or after the cursor `after`.

    `engine` adds the bookkeeping of the executors: claims, failed attempts, waits. Ends after the run's terminal
    status; with `to_pause` also once all is shown that is stored while the run, or a run below it, is in a pause that
    only another party ends. Raises `LogCorrupted`, `ConfigError` for text that is not a cursor.
    """
    try:
        seen = parse_cursor(after)
    except (ValueError, AttributeError) as error:  # or not a string
        raise ConfigError(f"{after!r} is not a cursor of this log") from error
    selector = Family(subject.shard, subject.root) if family or to_pause else subject
    async with (
        log.drafts.follow(subject.root) as drafts,
        contextlib.aclosing(_joined(log, FamilyView(subject), selector, drafts, to_pause=to_pause)) as events,
    ):
        async for run, event in events:
            new = event.cursor is None or parse_cursor(event.cursor) > seen
            own = family or run == subject.id
            if new and own and (is_shown(event, detailed=detailed) or (engine and isinstance(event, ENGINE))):
                yield event


async def _pump(
    source: AsyncIterator[Stored] | AsyncIterator[DraftPiece],
    queue: asyncio.Queue[Stored | DraftPiece | Exception],
) -> None:
    try:
        async for item in source:
            queue.put_nowait(item)
    except Exception as error:  # noqa: BLE001 - raised in the reader of the stream
        queue.put_nowait(error)


async def _joined(
    log: Log,
    view: FamilyView,
    selector: Family | Subject,
    drafts: AsyncIterator[DraftPiece],
    *,
    to_pause: bool,
) -> AsyncGenerator[tuple[str, Event]]:
    """Yield what is stored first, so that late readers see the same; then commits and drafts as they come.

    Each event comes with the run in whose log it is.
    """
    position = 0
    async for stored in log.events.read(selector):
        position = stored.position
        for event in await _shown(view, stored, log):
            yield stored.subject.id, event
    if view.ends(to_pause=to_pause):
        return
    queue: asyncio.Queue[Stored | DraftPiece | Exception] = asyncio.Queue()
    sources = (log.events.follow(selector, position), drafts)
    pumps = [asyncio.create_task(_pump(source, queue)) for source in sources]
    try:
        while not view.ends(to_pause=to_pause):
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            run = item.run if isinstance(item, DraftPiece) else item.subject.id
            for event in view.draft(item) if isinstance(item, DraftPiece) else await _shown(view, item, log):
                yield run, event
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _shown(view: FamilyView, stored: Stored, log: Log) -> list[Event]:
    recorded = view.verify(stored)
    return view.commit(await restored(recorded, log)) if recorded is not None else []
