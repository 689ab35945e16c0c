"""Events in a few words, as they are: those who show them escape what models, tools and strangers wrote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...eventlog.events import (
    Evaluated,
    Event,
    FinishReason,
    KnowledgeFound,
    LeftToOthers,
    Memoized,
    MemoryHydrated,
    OutputMade,
    OutputRejected,
    PlanMade,
    PlannerReplied,
    PlannerToolReturned,
    Restored,
    SummaryMade,
    TokenUsage,
    ToolResult,
    ToolsRefreshFailed,
    ToolsRefreshRequested,
    ToolsRemoved,
)
from ...eventlog.parts import FilePart
from ..call_texts import result_text
from ..content_files import files_in


def engine_words(event: Event) -> tuple[str, str] | None:  # noqa: C901, PLR0912 - one case for each event
    """Describe an engine event in a word and a line; None if it is not shown.

    Claims, attempts and waits are described by their callers, which know the events before them.
    """
    match event:
        case SummaryMade():
            return "summary", f"{event.model}: {token_words(event.usage)}: {event.text}"
        case PlannerReplied():
            calls = ", ".join(call.tool_name for call in event.calls)
            asked = f", calls {calls}" if calls else ""
            return "planner", f"round {event.round}, {event.model}: {token_words(event.usage)}{asked}"
        case PlannerToolReturned():
            told = value_words(event.result) if event.success else event.error or "failed"
            return "planner tool", f"{event.tool_name}: {told}"
        case PlanMade():
            return "plan", event.plan or "no plan needed"
        case MemoryHydrated():
            count = len(event.messages) if isinstance(event.messages, list) else 0
            return "memory", f"{count} messages of earlier runs ({event.scope})"
        case KnowledgeFound():
            count = len(event.items) if isinstance(event.items, list) else 0
            return "knowledge", f"{count} pieces match the input"
        case Memoized():
            told = f"failed: {event.error}" if event.error else "is stored"
            return "memo", f"{event.name} {told}"
        case Evaluated():
            told = value_words(event.value) if event.error is None else event.error
            return "evaluated", f"{event.name}: {told}"
        case OutputMade():
            return "output", event.output
        case OutputRejected():
            return "rejected", event.message
        case ToolsRefreshRequested():
            return "tools", _requested(event)
        case ToolsRemoved():
            return "tools", f"removed: {', '.join(event.tools)}"
        case ToolsRefreshFailed():
            return "tools", f"listing failed: {event.error_type}: {event.error}"
        case LeftToOthers():
            return "left", f"to a worker other than {event.worker}: {event.reason}"
        case Restored():
            return "restored", "from a backup: held until it is resumed"
        case _:
            return None


def _requested(event: ToolsRefreshRequested) -> str:
    gone = f"the removal of {', '.join(event.remove)}" if event.remove else ""
    servers = f" with the servers {', '.join(event.mcp_servers)}" if event.mcp_servers else ""
    if gone and not servers:
        return f"{gone} was requested"
    return f"a new listing{servers}{' and ' if gone else ''}{gone} was requested"


def value_words(value: Any) -> str:
    """Return a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


CUT_OFF = "timed out; so far: "
"""The words before a partial result that is the result of a call that timed out."""


def result_words(event: ToolResult) -> Any:
    """Return a result for display: the text of its content, and its files by name."""
    if not event.in_parts:
        return event.result
    return (result_text(event.result, in_parts=True) + file_words(files_in(event))).strip()


def file_words(files: Iterable[FilePart]) -> str:
    """Return each file in brackets, after a space; empty for none."""
    return "".join(f" [{file}]" for file in files)


def token_words(usage: TokenUsage) -> str:
    """Format token counts."""
    return f"{usage.total_tokens:,} tokens ({usage.input_tokens:,} in, {usage.output_tokens:,} out)"


def cut_words(reason: FinishReason) -> str:
    """Return why an answer is incomplete, as the end of a line; empty if it is complete."""
    return {
        "length": ", cut at the length limit",
        "content_filter": ", stopped by the content filter",
        "malformed_call": ", wrote a tool call that the provider could not read",
    }.get(reason, "")
