"""A live stream joins what is stored with what is still being written, in whatever order both arrive."""

from __future__ import annotations

from typing import Literal

import msgspec
from foldlog.eventlog.events import (
    Event,
    ModelFailed,
    Parked,
    Reasoning,
    Status,
    Step,
    Text,
    TextReset,
    TokenUsage,
    Usage,
)
from foldlog.eventlog.ports import DraftPiece
from foldlog.runtime.stream import Joiner
from hypothesis import given
from hypothesis import strategies as st


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


def test_nothing_is_shown_after_the_end_of_a_run_whose_family_continues() -> None:
    joiner = Joiner()
    shown = [
        *joiner.stored(started(1)),
        *joiner.draft(piece("one", step=1)),
        *joiner.stored(Status(status="error")),
        *joiner.draft(piece(" more", step=1, offset=3)),
    ]
    assert [event.type for event in shown] == ["step", "text", "text_reset", "status"]


def test_what_a_failed_call_has_written_is_taken_back_from_every_reader_when_the_run_comes_to_rest() -> None:
    written = [piece("half ", step=1), piece("an answer", step=1, offset=5)]
    failed = ModelFailed(step=1, attempt=1, error_type="transient", error="cut off")
    rest: list[list[Event]] = [
        [failed, Status(status="paused", reason="policy"), Parked(reason="policy")],
        [failed, Parked(reason="timer")],
    ]
    for stored in rest:
        live, late = Joiner(), Joiner()
        shown = [*live.stored(started(1)), *live.draft(written[0])]
        shown += [each for event in stored for each in live.stored(event)]
        reset = TextReset(step=1, offset=0, channel="text", cause="discarded")
        assert shown[2:] == [stored[0], reset, *stored[1:]]
        for event in [started(1), *stored]:
            late.stored(event)
        for reader in (live, late):
            assert [reader.draft(each) for each in written] == [[], []]
            (again,) = reader.draft(msgspec.structs.replace(written[0], attempt=2))
            assert (again.type, again.text, again.offset) == ("text", "half ", 0)


def test_what_a_failed_call_has_written_stays_while_another_attempt_is_about_to_write() -> None:
    joiner = Joiner()
    failed = ModelFailed(step=1, attempt=1, error_type="transient", error="cut off", retry_at=1.0)
    shown = [
        *joiner.stored(started(1)),
        *joiner.draft(piece("one", step=1)),
        *joiner.stored(failed),
        *joiner.draft(msgspec.structs.replace(piece("one", step=1), attempt=2)),
        *joiner.draft(msgspec.structs.replace(piece(" more", step=1, offset=3), attempt=2)),
    ]
    assert texts(shown) == [(1, "one"), (1, " more")]


def test_who_took_over_replaces_what_differs_and_the_writer_before_is_not_shown_again() -> None:
    def thought(text: str, *, attempt: int, offset: int = 0) -> DraftPiece:
        written = piece(text, step=1, offset=offset)
        return msgspec.structs.replace(written, channel="reasoning", attempt=attempt)

    joiner = Joiner()
    shown = [
        *joiner.stored(started(1)),
        *joiner.draft(thought("one", attempt=1)),
        *joiner.draft(thought("once", attempt=2)),
        *joiner.draft(thought(" late", attempt=1, offset=4)),
    ]
    assert shown[1:] == [
        Reasoning(step=1, text="one", offset=0),
        TextReset(step=1, offset=2, channel="reasoning", cause="retry"),
        Reasoning(step=1, text="ce", offset=2),
    ]


def test_a_reply_without_text_takes_back_what_was_shown_of_it_though_the_step_before_has_text() -> None:
    joiner = Joiner()
    shown = [
        *joiner.stored(started(1)),
        *joiner.stored(Text(step=1, text="one")),
        *joiner.stored(Usage(step=1, usage=TokenUsage(), model="m", source="provider")),
        *joiner.draft(piece("half", step=2)),
        *joiner.draft(piece(" more", step=2, offset=4)),
        *joiner.stored(started(2)),
        *joiner.stored(Usage(step=2, usage=TokenUsage(), model="m", source="provider")),
    ]
    assert texts(shown) == [(1, "one"), (2, "half"), (2, " more")]
    assert shown[-2] == TextReset(step=2, offset=0, channel="text", cause="retry")


def test_what_is_stored_of_a_step_stays_when_the_run_fails_after_it() -> None:
    joiner = Joiner()
    shown = [
        *joiner.stored(started(1)),
        *joiner.draft(piece("one", step=1)),
        *joiner.stored(Text(step=1, text="one")),
        *joiner.stored(Usage(step=1, usage=TokenUsage(), model="m", source="provider")),
        *joiner.stored(Status(status="error")),
    ]
    assert [event.type for event in shown] == ["step", "text", "usage", "status"]


CHANNELS: tuple[Literal["text", "reasoning"], ...] = ("text", "reasoning")


# --- what a reader has on the screen, whatever is lost, late or written again -----------------------------------------


class Screen:
    """A reader who does what the stream says: adds deltas where they belong, and cuts at resets."""

    def __init__(self) -> None:
        self.shown: dict[tuple[int | None, str], str] = {}
        self.resets: list[TextReset] = []

    def see(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TextReset):
                key = (event.step, event.channel)
                assert event.offset < len(self.shown.get(key, "")), "nothing is cut"
                self.shown[key] = self.shown[key][: event.offset]
                self.resets.append(event)
            elif isinstance(event, Text | Reasoning):
                key = (event.step, event.type)
                assert event.offset == len(self.shown.get(key, "")), "a gap, or a repetition"
                self.shown[key] = self.shown.get(key, "") + event.text

    def check_last(self, step: int, pieces: list[DraftPiece]) -> None:
        """All of these have come, so what the last attempt wrote is on the screen."""
        newest = max((each.attempt for each in pieces), default=0)
        for channel in CHANNELS:
            last = "".join(p.text for p in pieces if (p.attempt, p.channel) == (newest, channel))
            assert self.shown.get((step, channel), "").startswith(last), "a piece is lost"


ANSWER = st.fixed_dictionaries(
    dict.fromkeys(CHANNELS, st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3))
)


def pieces_of(
    answer: dict[Literal["text", "reasoning"], list[str]], *, step: int, attempt: int
) -> list[DraftPiece]:
    found = []
    for channel in CHANNELS:
        offset = 0
        for text in answer[channel]:
            found.append(
                DraftPiece(
                    run="r",
                    step=step,
                    attempt=attempt,
                    epoch=attempt,
                    channel=channel,
                    offset=offset,
                    text=text,
                )
            )
            offset += len(text)
    return found


@given(st.data())
def test_a_reader_has_one_attempt_and_then_what_is_stored_whatever_is_lost_late_or_taken_over(
    data: st.DataObject,
) -> None:
    joiner, screen = Joiner(), Screen()
    for step in (1, 2):
        attempts = data.draw(st.lists(ANSWER, min_size=1, max_size=3))
        every = [
            piece
            for number, each in enumerate(attempts, 1)
            for piece in pieces_of(each, step=step, attempt=number)
        ]
        order = data.draw(st.lists(st.sampled_from(every), max_size=12)) if every else []
        if data.draw(st.booleans()):
            order = every  # nothing is lost
        before_start = data.draw(st.integers(0, len(order)))
        for each in order[:before_start]:
            assert joiner.draft(each) == [], "a piece is shown before the start of its step is"
        screen.see(joiner.stored(started(step)))
        newest = max((each.attempt for each in order[:before_start]), default=0)
        for each in order[before_start:]:
            events = joiner.draft(each)
            assert not (events and each.attempt < newest), "a writer that was replaced is shown again"
            newest = max(newest, each.attempt)
            screen.see(events)
            for channel in CHANNELS:
                shown = screen.shown.get((step, channel), "")
                assert any("".join(attempt[channel]).startswith(shown) for attempt in attempts[:newest]), (
                    "a mixture"
                )
        if order == every:
            screen.check_last(step, every)
        if step == 2 and data.draw(st.booleans()):
            screen.see(joiner.stored(Status(status="error")))
            assert not any(screen.shown.get((step, channel)) for channel in CHANNELS)
            return
        said = {channel: "".join(attempts[-1][channel]) for channel in CHANNELS}
        if said["reasoning"]:
            screen.see(joiner.stored(Reasoning(step=step, text=said["reasoning"])))
        if said["text"]:
            screen.see(joiner.stored(Text(step=step, text=said["text"])))
        screen.see(joiner.stored(Usage(step=step, usage=TokenUsage(), model="m", source="provider")))
        stored = {(step, channel): said[channel] for channel in CHANNELS}
        assert {key: screen.shown.get(key, "") for key in stored} == stored
    before = dict(screen.shown)
    screen.see(joiner.stored(Status(status="completed")))
    assert screen.shown == before, "what is stored stays on the screen"
