"""The live stream of a run, read from the beginning and compared with its log.

A stream has deltas where the log has a text; `as_stored` joins them, so that both can be compared. To check that events
which a call emits are shown while it is running, the first call that emits any waits at its end for its reader.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator

import msgspec

from ...eventlog.clock import Clock
from ...eventlog.events import (
    Custom,
    Event,
    McpProgress,
    Reasoning,
    Text,
    TextReset,
    ToolCallDelta,
    ToolPartial,
    Usage,
    is_terminal,
)
from ...runtime.ports.tools import ToolContextPort

SHOWN_S = 5.0
"""The longest time, in seconds, that a call waits until its events are shown; normally it takes milliseconds."""

_CHANNELS = ("reasoning", "text")


class Unshown(msgspec.Struct, frozen=True, kw_only=True):
    """A running call that had emitted `emitted` events, of which only `shown` were shown in time."""

    run: str
    tool_call_id: str
    emitted: int
    shown: int


class LiveReader:
    """Reads a stream to its end. `shown` are its events, `unshown` the calls whose events it did not show in time."""

    def __init__(self, clock: Clock, *, patient: bool) -> None:
        self.shown: list[Event] = []
        self.unshown: list[Unshown] = []
        self._clock, self._asked = clock, not patient
        self._emitted: Counter[tuple[str, str]] = Counter()
        self._paths: dict[str, str] = {}
        self._news = asyncio.Event()
        self._at_end = asyncio.Event()

    async def end(self) -> None:
        """Wait until the stream has ended, if it does so in time."""
        await self._until(self._at_end)

    async def read(self, stream: AsyncGenerator[Event]) -> None:
        """Read the stream until it ends."""
        async for event in stream:
            self.shown.append(event)
            path = self._paths.setdefault(event.run_id, event.agent_path)
            if isinstance(event, McpProgress | Custom | ToolPartial) or len(event.agent_path) > len(path):
                self._emitted[event.run_id, event.tool_call_id or ""] += 1
                self._news.set()
        self._at_end.set()

    async def ended(self, context: ToolContextPort) -> None:
        """Wait, before the end of the first call that emitted events is reported, until all of them are shown."""
        run, _, call = context.idempotency_key.partition(":")
        emitted = getattr(context, "emitted", 0)
        if self._asked or not emitted or call.startswith("0:"):  # events of a planner's calls are not shown
            return
        self._asked = True
        place = run, context.tool_call_id
        over_at = self._clock.monotonic() + SHOWN_S
        while self._emitted[place] < emitted and self._clock.monotonic() < over_at:
            self._news.clear()
            await self._until(self._news)
        if (shown := self._emitted[place]) < emitted:
            self.unshown.append(
                Unshown(run=run, tool_call_id=context.tool_call_id, emitted=emitted, shown=shown)
            )

    async def _until(self, event: asyncio.Event) -> None:
        waiting = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._clock.sleep(SHOWN_S))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


def as_stored(shown: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of a detailed stream as they would be stored: with drafts joined, corrected, and in their place.

    A text that was shown, but neither stored nor reset, comes last.
    """
    paths: dict[str, str] = {}
    written: dict[tuple[str, str], Text | Reasoning] = {}
    for event in shown:
        own = event.agent_path == paths.setdefault(event.run_id, event.agent_path)
        match event:
            case ToolCallDelta():
                continue
            case TextReset(channel=channel):
                _cut(written, (event.run_id, channel), event.offset)
                continue
            case Text() | Reasoning() if own and event.step is not None:
                _write(written, event)
                continue
            case Usage() if own:
                yield from _texts(written, event.run_id)
            case _ if own and is_terminal(event):
                yield from _texts(written, event.run_id)
            case _:
                pass
        yield event
    for run in paths:
        yield from _texts(written, run)


def _write(written: dict[tuple[str, str], Text | Reasoning], event: Text | Reasoning) -> None:
    before = written.get((event.run_id, event.type))
    kept = before.text[: event.offset] if before is not None and before.step == event.step else ""
    written[event.run_id, event.type] = msgspec.structs.replace(event, text=kept + event.text, offset=0)


def _cut(written: dict[tuple[str, str], Text | Reasoning], key: tuple[str, str], offset: int) -> None:
    before = written.get(key)
    if before is not None:
        written[key] = msgspec.structs.replace(before, text=before.text[:offset])


def _texts(written: dict[tuple[str, str], Text | Reasoning], run: str) -> Iterator[Event]:
    for channel in _CHANNELS:
        text = written.pop((run, channel), None)
        if text is not None and text.text:
            yield text
