"""The content of events: the fields with the words of people, models and tools, which a seal hides.

Types, names, states, times, numbers and usage are no content: they stay readable for subscribers, lists and operators.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ..events import (
    ApprovalRequested,
    ApprovalResolved,
    ChildReturned,
    Context,
    Custom,
    Diverged,
    Error,
    Evaluated,
    EventFields,
    FileMade,
    KnowledgeFound,
    LateOutcome,
    Marked,
    McpProgress,
    Memoized,
    MemoryHydrated,
    MessageInjected,
    MessageQueued,
    ModelFailed,
    OperationSkipped,
    OutputMade,
    OutputRejected,
    PlanMade,
    PlannerReplied,
    PlannerToolReturned,
    Prepared,
    Reasoning,
    ReplyState,
    ResultRecorded,
    SignalDropped,
    SignalReceived,
    Status,
    Submitted,
    SummaryMade,
    Text,
    ToolAttemptFailed,
    ToolCall,
    ToolPartial,
    ToolResult,
    WaitEnded,
)

E = TypeVar("E", bound=EventFields)

CONTENT: dict[type[EventFields], dict[str, Any]] = {
    Submitted: {"input": "", "parts": [], "messages": []},
    Status: {"message": ""},
    Text: {"text": ""},
    Reasoning: {"text": ""},
    FileMade: {"name": ""},
    ToolCall: {"arguments": {}, "raw_arguments": None, "injected_args": {}},
    McpProgress: {"message": ""},
    ToolPartial: {"value": None},
    ToolResult: {"result": None, "error": None, "metadata": {}},
    ApprovalRequested: {"arguments": {}, "injected_args": {}, "result": None, "postcondition": []},
    ApprovalResolved: {"arguments": None, "result": None, "note": ""},
    WaitEnded: {"data": None},
    Context: {"details": {}},
    MessageInjected: {"content": "", "parts": []},
    Error: {"error": ""},
    Custom: {"data": None},
    Prepared: {"instructions": "", "standing_plan": ""},
    MemoryHydrated: {"messages": []},
    KnowledgeFound: {"items": []},
    ModelFailed: {"error": ""},
    ReplyState: {"items": []},
    PlannerReplied: {"text": "", "calls": []},
    PlannerToolReturned: {"result": None, "error": None},
    PlanMade: {"plan": ""},
    SummaryMade: {"text": ""},
    ToolAttemptFailed: {"error": ""},
    ResultRecorded: {"arguments": {}, "result": None, "error": None},
    Memoized: {"value": None, "error": ""},
    Marked: {"value": None},
    OperationSkipped: {"why": ""},
    Diverged: {"recorded": "", "asked": ""},
    OutputRejected: {"message": ""},
    ChildReturned: {"output": "", "error": ""},
    Evaluated: {"value": None, "error": None},
    OutputMade: {"output": ""},
    MessageQueued: {"content": "", "parts": []},
    SignalReceived: {"data": None},
    SignalDropped: {"problem": ""},
    LateOutcome: {"result": None, "error": None},
}
"""The content of each event type, with the values that the outside of a sealed event has in its place."""

_ENCODER = msgspec.json.Encoder(order="deterministic")


def taken_out(event: E) -> tuple[E, bytes] | None:
    """Return the event without its content, and the content as JSON; null if there is none to hide."""
    blank = CONTENT.get(type(event))
    if blank is None:
        return None
    content = {name: getattr(event, name) for name, value in blank.items() if getattr(event, name) != value}
    if not content:
        return None
    return msgspec.structs.replace(event, **{name: blank[name] for name in content}), _ENCODER.encode(content)


def put_back(event: E, content: bytes) -> E:
    """Return the event with its content, and without its seal. Raises `msgspec.MsgspecError` for other bytes."""
    fields = {name: msgspec.to_builtins(getattr(event, name)) for name in event.__struct_fields__}
    whole = {**fields, **msgspec.json.decode(content), "sealed": None}
    return msgspec.convert({"type": event.__struct_config__.tag, **whole}, type(event))
