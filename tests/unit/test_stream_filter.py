"""The events that a stream yields, by the lists of the contract (R18)."""

from __future__ import annotations

import msgspec
import pytest
from foldlog.eventlog import (
    DRAFTS,
    ENGINE,
    OBSERVABLE,
    DetailedEvent,
    Status,
    StreamEvent,
    TextReset,
)
from foldlog.eventlog.events import Event
from foldlog.runtime.stream import is_shown

PLAIN = {
    "text",
    "file",
    "tool_call",
    "mcp_progress",
    "tool_partial",
    "context",
    "message_injected",
    "approval_requested",
    "approval_resolved",
    "wait_started",
    "wait_ended",
    "budget",
    "error",
    "ralph_iteration",
    "ralph_stop",
    "custom",
}
DETAILED = {"step", "usage", "reasoning", "tool_call_delta", "tool_result", "child_started", "child_finished"}


def made(kind: type[Event]) -> Event:
    """An event of this kind, whatever it says: the filter looks at nothing else."""
    return kind(**{field.name: None for field in msgspec.structs.fields(kind) if field.required})


def kinds(events: tuple[type[Event], ...], *, detailed: bool) -> set[str]:
    others = [kind for kind in events if kind not in {Status, TextReset}]
    return {kind.__struct_config__.tag for kind in others if is_shown(made(kind), detailed=detailed)}


def test_a_stream_yields_the_families_of_the_contract_and_more_if_it_is_detailed() -> None:
    assert kinds(OBSERVABLE + DRAFTS, detailed=False) == PLAIN
    assert kinds(OBSERVABLE + DRAFTS, detailed=True) == PLAIN | DETAILED
    assert kinds(ENGINE, detailed=True) == set()


def test_the_types_of_streams_name_what_they_yield() -> None:
    assert {kind.type for kind in StreamEvent.__args__} == PLAIN | {"status", "text_reset"}
    assert {kind.type for kind in DetailedEvent.__args__} == PLAIN | DETAILED | {"status", "text_reset"}


@pytest.mark.parametrize("status", ["paused", "resumed", "completed", "error", "cancelled"])
def test_pauses_and_ends_are_in_every_stream(status: str) -> None:
    assert is_shown(Status(status=status), detailed=False)  # type: ignore[arg-type] # one of them


@pytest.mark.parametrize("status", ["starting", "running", "waiting_for_tool"])
def test_beginnings_and_what_other_producers_say_are_details(status: str) -> None:
    event = Status(status=status)  # type: ignore[arg-type] # one of them
    assert (is_shown(event, detailed=False), is_shown(event, detailed=True)) == (False, True)


def test_a_reset_is_shown_where_its_channel_is() -> None:
    resets = [
        TextReset(offset=0, channel=channel, cause="retry") for channel in ("text", "reasoning", "tool_calls")
    ]
    assert [is_shown(reset, detailed=False) for reset in resets] == [True, False, False]
    assert all(is_shown(reset, detailed=True) for reset in resets)
