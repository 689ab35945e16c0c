"""Fold the events of a run into the output items of a response, and into the events of its stream.

`sequence_number` is a place in the log, not a count of events sent. So it is the same in every stream of the response,
however the text was split into deltas, and any other process can resume a stream after a number. The high bits are the
position of the commit. The low bits are the index of the event in its commit or, for text in progress, the number of
characters since the commit in which its step began.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...eventlog.commits import parse_cursor
from ...eventlog.events import (
    ApprovalRequested,
    DetailedEvent,
    Status,
    Step,
    Text,
    TextReset,
    ToolCall,
    ToolResult,
    Usage,
)
from ..protocols.asked import Asked

PLACES = 1 << 20
"""How many numbers a commit has. Up to position 2**33, a number is exact as a double."""
_EVERY = 8
"""How many numbers a stored event has: it may yield several events of the protocol."""
_TEXTS = PLACES // 2
"""The first number, within a commit, of text in progress; stored events have lower ones."""
_ANNOUNCED = 2
"""How many numbers announce a text, before those that count its characters."""

Item = dict[str, Any]
Sent = dict[str, Any]
"""An event of the protocol, with its `type` and `sequence_number`."""


class Output:
    """Folds the events of one run into output items, and yields the stream events for each."""

    def __init__(self, run_id: str) -> None:
        self.items: list[Item] = []
        self.asked = Asked()
        self.number = 0
        """The sequence number of the last stored event."""
        self._run = run_id
        self._calls: dict[str, tuple[int, Item]] = {}
        self._message: tuple[int, Item] | None = None
        self._text, self._begun_at = "", 0
        self._is_exact = True
        """False after a reset of text that was already sent: deltas stop, and only the complete text follows."""

    def feed(self, event: DetailedEvent) -> Iterator[Sent]:
        """Fold one event of the detailed stream, and yield the stream events for it."""
        if event.cursor is not None:
            position, index = parse_cursor(event.cursor)
            self.number = position * PLACES + min(index * _EVERY, _TEXTS - _EVERY)
        self.asked.feed(event)
        if isinstance(event, ApprovalRequested):
            yield from self._whole(_approval(event))
        elif event.run_id == self._run:
            yield from self._own(event)

    def _own(self, event: DetailedEvent) -> Iterator[Sent]:
        match event:
            case Step(status="started"):
                self._begun_at = self.number - self.number % PLACES + _TEXTS
            case Text():
                yield from self._write(event)
            case TextReset(channel="text"):
                self._text, self._is_exact = self._text[: event.offset], False
            case Usage():
                yield from self._end_message("completed")
            case Status() if event.status != "starting":
                yield from self._end_message("incomplete")
            case ToolCall(tool_call_id=str(call_id)):
                yield from self._begin_call(call_id, event)
            case ToolResult(tool_call_id=str(call_id)) if call_id in self._calls:
                yield from self._end_call(call_id, event)
            case _:
                pass

    def say(self, text: str) -> Iterator[Sent]:
        """Add a complete message, unless it repeats the last one: the output of a run that no event says as text."""
        if self.items and self.items[-1].get("content", [{}])[-1].get("text") == text:
            return
        yield from self._whole(_message(f"msg_{self._run}_output", text, "completed"))

    def _write(self, event: Text) -> Iterator[Sent]:
        if self._message is None:
            self._text, self._is_exact = "", True
            item = _message(f"msg_{self._run}_{event.step}", "", "in_progress")
            self._message = (len(self.items), item)
            self.items.append(item)
            yield self._added(self._begun_at, {**item, "content": []})
            yield {
                "type": "response.content_part.added",
                "sequence_number": self._begun_at + 1,
                **self._place(),
                "part": _part(""),
            }
        self._text = self._text[: event.offset] + event.text
        if self._is_exact:
            yield {
                "type": "response.output_text.delta",
                "sequence_number": self._begun_at + min(_ANNOUNCED + len(self._text), _TEXTS - 1),
                **self._place(),
                "delta": event.text,
                "logprobs": [],
            }

    def _end_message(self, status: str) -> Iterator[Sent]:
        if self._message is None:
            return
        index, item = self._message
        place = self._place()
        item.update(status=status, content=[_part(self._text)])
        self._message = None
        done = {"sequence_number": self.number, **place, "text": self._text, "logprobs": []}
        yield {"type": "response.output_text.done", **done}
        part = {"sequence_number": self.number + 1, **place, "part": _part(self._text)}
        yield {"type": "response.content_part.done", **part}
        yield {
            "type": "response.output_item.done",
            "sequence_number": self.number + 2,
            "output_index": index,
            "item": dict(item),
        }
        if not self._text:  # an abandoned attempt began it; readers that come later never see it
            self.items.remove(item)

    def _begin_call(self, call_id: str, event: ToolCall) -> Iterator[Sent]:
        arguments = event.raw_arguments
        item = {
            "type": "mcp_call",
            "id": call_id,
            "name": event.tool_name,
            "server_label": event.agent,
            "arguments": json.dumps(event.arguments) if arguments is None else arguments,
            "status": "in_progress",
            "output": None,
            "error": None,
        }
        self._calls[call_id] = (len(self.items), item)
        self.items.append(item)
        yield self._added(self.number, dict(item))
        yield {
            "type": "response.mcp_call.in_progress",
            "sequence_number": self.number + 1,
            "output_index": len(self.items) - 1,
            "item_id": call_id,
        }

    def _end_call(self, call_id: str, event: ToolResult) -> Iterator[Sent]:
        index, item = self._calls[call_id]
        told = event.result if isinstance(event.result, str) else json.dumps(event.result)
        if event.success:
            item.update(status="completed", output=told)
        else:
            item.update(status="failed", error=event.error or "the call failed")
        yield {
            "type": f"response.mcp_call.{item['status']}",
            "sequence_number": self.number,
            "output_index": index,
            "item_id": call_id,
        }
        yield {
            "type": "response.output_item.done",
            "sequence_number": self.number + 1,
            "output_index": index,
            "item": dict(item),
        }

    def _whole(self, item: Item) -> Iterator[Sent]:
        self.items.append(item)
        yield self._added(self.number, item)
        yield {
            "type": "response.output_item.done",
            "sequence_number": self.number + 1,
            "output_index": len(self.items) - 1,
            "item": item,
        }

    def _added(self, number: int, item: Item) -> Sent:
        return {
            "type": "response.output_item.added",
            "sequence_number": number,
            "output_index": len(self.items) - 1,
            "item": item,
        }

    def _place(self) -> dict[str, Any]:
        assert self._message is not None  # noqa: S101 - of the message that is being written
        index, item = self._message
        return {"item_id": item["id"], "output_index": index, "content_index": 0}


def after(sent: Sent, number: int) -> Sent | None:
    """Return the part of an event that follows `number`, for a client that resumes; None if it has all of it."""
    at: int = sent["sequence_number"]
    if at <= number:
        return None
    if sent["type"] != "response.output_text.delta":
        return sent
    return {**sent, "delta": sent["delta"][-(at - number) :]}


def _message(identity: str, text: str, status: str) -> Item:
    content = [_part(text)]
    return {"type": "message", "id": identity, "role": "assistant", "status": status, "content": content}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _approval(event: ApprovalRequested) -> Item:
    """Return the output item for an approval; its arguments are those of the call or question."""
    return {
        "type": "mcp_approval_request",
        "id": event.approval_id,
        "name": event.tool_name or event.kind,
        "server_label": event.agent,
        "arguments": json.dumps(event.arguments),
    }
