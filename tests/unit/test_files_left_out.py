"""When a prompt is too large, its oldest files leave it first, and a note takes their place."""

from __future__ import annotations

from foldlog.eventlog import Context, FilePart, TextPart
from foldlog.projections.messages import Message
from foldlog.projections.prompt import file_sizes, files_before_the_round, without_files
from foldlog.projections.run_state import RunState
from foldlog.runtime.core import compaction
from foldlog.runtime.core.rules import FileRules, Rules
from foldlog.runtime.core.turn import Turn


def picture(name: str, size: int = 100, tokens: int | None = None) -> FilePart:
    return FilePart(media_type="image/png", name=name, artifact=name * 64, bytes=size, tokens=tokens)


def said(role: str, *parts: TextPart | FilePart) -> Message:
    return Message(role=role, content="text", parts=(TextPart(text="text"), *parts) if parts else ())  # type: ignore[arg-type]


MESSAGES = [
    said("user", picture("a")),
    said("assistant"),
    said("user", picture("b"), picture("a")),
    said("assistant"),
    said("user", picture("c")),
]


def left_out(rules: Rules, window: int | None = None) -> tuple[list[Context], RunState]:
    state = RunState(messages=list(MESSAGES))
    state.context.has_files = True
    state.context.tokens, state.context.window_tokens = 100, window
    turn = Turn(state, rules, 0.0)
    compaction._leave_files_out(turn)
    return [event for event in turn.events if isinstance(event, Context)], state


def test_files_that_fit_stay() -> None:
    assert left_out(Rules())[0] == []


def test_the_oldest_files_leave_first_and_only_as_many_as_it_takes() -> None:
    (event,), state = left_out(Rules(files=FileRules(request_bytes_max=250)))
    assert event.details == {
        "cause": "bytes",
        "files": ["a" * 64, "b" * 64, "a" * 64],
        "messages": [0, 2],
    }
    assert [message.parts for message in state.messages[:1]] == [
        (
            TextPart(text="text"),
            TextPart(text=f"[a (image/png, 100 bytes) is left out here: artifact {'a' * 64}]"),
        )
    ]
    assert state.messages[4] == MESSAGES[4]
    assert (event.before_count, event.after_count) == (5, 5)


def test_a_file_counts_once_however_often_it_is_sent() -> None:
    assert file_sizes(MESSAGES) == {"a" * 64: 100, "b" * 64: 100, "c" * 64: 100}
    assert left_out(Rules(files=FileRules(request_bytes_max=300)))[0] == []


def test_the_files_of_the_latest_round_stay() -> None:
    assert files_before_the_round(MESSAGES) == [0, 2]
    (event,), _ = left_out(Rules(files=FileRules(request_bytes_max=1)))
    assert event.details["messages"] == [0, 2]
    assert files_before_the_round(MESSAGES[:1]) == []


def test_a_full_window_leaves_files_out_too() -> None:
    (event,), _ = left_out(Rules(), window=90)
    assert (event.details["cause"], event.details["messages"]) == ("tokens", [0])


def test_a_note_names_what_is_left_out() -> None:
    link = FilePart(media_type="image/png", url="https://example.com/a.png")
    message = without_files(Message(role="user", content="", parts=(link,)))
    note = "[https://example.com/a.png (image/png) is left out here: https://example.com/a.png]"
    assert (message.content, message.parts) == (note, ())
