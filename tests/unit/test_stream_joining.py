"""A live stream joins what is stored with what is still being written, in whatever order both arrive."""

from __future__ import annotations

from foldlog.eventlog.events import Event, Status, Step, Text, TokenUsage, Usage
from foldlog.eventlog.ports import DraftPiece
from foldlog.runtime.stream import Joiner


def piece(text: str, *, step: int, offset: int = 0) -> DraftPiece:
    return DraftPiece(run="r", step=step, attempt=1, epoch=1, channel="text", offset=offset, text=text)


def started(step: int) -> Step:
    return Step(step=step, status="started")


def texts(events: list[Event]) -> list[tuple[int | None, str]]:
    return [(event.step, event.text) for event in events if isinstance(event, Text)]


def test_what_was_shown_of_a_step_is_not_shown_again_though_the_next_one_is_written_already() -> None:
    joiner = Joiner()
    shown = [
        *joiner.stored(started(1)),
        *joiner.draft(piece("one", step=1)),
        *joiner.draft(piece("two", step=2)),
        *joiner.stored(Text(step=1, text="one")),
        *joiner.stored(Usage(step=1, usage=TokenUsage(), model="m", source="provider")),
        *joiner.stored(started(2)),
        *joiner.draft(piece(" more", step=2, offset=3)),
    ]
    assert texts(shown) == [(1, "one"), (2, "two"), (2, " more")]
    assert [event.type for event in shown] == ["step", "text", "usage", "step", "text", "text"]


def test_nothing_is_shown_behind_the_end_of_a_run_whose_family_goes_on() -> None:
    joiner = Joiner()
    shown = [
        *joiner.stored(started(1)),
        *joiner.draft(piece("one", step=1)),
        *joiner.stored(Status(status="error")),
        *joiner.draft(piece(" more", step=1, offset=3)),
    ]
    assert [event.type for event in shown] == ["step", "text", "text_reset", "status"]
