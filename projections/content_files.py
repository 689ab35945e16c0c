"""The files that events refer to: those of inputs, messages, results and replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..eventlog.events import (
    ApprovalRequested,
    Event,
    FileMade,
    MemoryHydrated,
    MessageInjected,
    MessageQueued,
    PlannerToolReturned,
    ResultRecorded,
    Submitted,
    ToolResult,
)
from ..eventlog.parts import FilePart, files_of
from .call_texts import made_file, parts_in


def files_in(event: Event) -> list[FilePart]:
    """Return the files that an event refers to, in order. Its large values must be restored."""
    match event:
        case Submitted():
            return [*_of_messages(event.messages), *files_of(event.parts)]
        case MemoryHydrated():
            return list(_of_messages(event.messages if isinstance(event.messages, list | tuple) else ()))
        case MessageQueued() | MessageInjected():
            return files_of(event.parts)
        case FileMade():
            return [made_file(event)]
        case ToolResult() | PlannerToolReturned() | ResultRecorded() | ApprovalRequested() if event.in_parts:
            return files_of(parts_in(event.result))
        case _:
            return []


def _of_messages(messages: Iterable[Any]) -> Iterator[FilePart]:
    for message in messages:
        parts = message.get("parts") if isinstance(message, dict) else None
        yield from files_of(parts_in(parts) if parts else ())
