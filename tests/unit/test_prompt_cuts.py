"""Cuts of a prompt: nothing that belongs together is separated, and what is kept is the newest."""

from __future__ import annotations

import itertools

from foldlog.projections.messages import CallRequest, Message
from foldlog.projections.prompt import (
    as_ranges,
    is_summary,
    kept_indices,
    newest_of_users,
    rounds,
    summary_message,
    tail_start,
)
from foldlog.projections.tokens import messages_tokens
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Generate messages of users, models and tools, each call with its result."""
    messages: list[Message] = []
    for kind in draw(st.lists(st.sampled_from(["user", "assistant", "calls", "summary"]), max_size=12)):
        text = draw(st.text(max_size=20))
        if kind == "summary":
            messages.append(summary_message(text))
        elif kind == "user":
            messages.append(Message(role="user", content=text))
        elif kind == "assistant":
            messages.append(Message(role="assistant", content=text))
        else:
            ids = [f"c{len(messages)}-{n}" for n in range(draw(st.integers(1, 3)))]
            calls = tuple(CallRequest(id=each, name="look", arguments="{}") for each in ids)
            messages.append(Message(role="assistant", content=text, tool_calls=calls))
            messages += [Message(role="tool", tool_call_id=each, content=text) for each in ids]
    return messages


def is_whole(messages: list[Message]) -> bool:
    """Return whether every result follows its call, and every call has a result."""
    asked = {call.id for message in messages for call in message.tool_calls}
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    return asked == answered


limits = st.none() | st.integers(0, 12)


@given(conversations(), limits, limits)
def test_a_tail_separates_no_call_from_its_result(
    messages: list[Message], count: int | None, tokens: int | None
) -> None:
    assert is_whole(messages[tail_start(messages, count, tokens) :])


@given(conversations(), limits, limits)
def test_a_tail_is_as_small_as_was_asked_for_or_one_round(
    messages: list[Message], count: int | None, tokens: int | None
) -> None:
    tail = messages[tail_start(messages, count, tokens) :]
    if messages:
        assert tail
    if len(rounds(tail)) > 1:
        assert count is None or len(tail) <= count
        assert tokens is None or messages_tokens(tail) <= tokens


@given(conversations(), limits, limits)
def test_a_tail_leaves_nothing_out_that_would_fit(
    messages: list[Message], count: int | None, tokens: int | None
) -> None:
    start = tail_start(messages, count, tokens)
    if start == 0:
        return
    first = next(a for a, b in rounds(messages) if b == start)
    more = messages[first:]
    over = (count is not None and len(more) > count) or (
        tokens is not None and messages_tokens(more) > tokens
    )
    assert over


@given(conversations(), st.integers(0, 30))
def test_the_newest_messages_of_users_are_not_summaries_and_fit(messages: list[Message], tokens: int) -> None:
    kept = [messages[index] for index in newest_of_users(messages, tokens)]
    assert all(message.role == "user" and not is_summary(message) for message in kept)
    assert len(kept) <= 1 or messages_tokens(kept) <= tokens
    assert bool(kept) == any(message.role == "user" and not is_summary(message) for message in messages)


@given(st.sets(st.integers(0, 20)))
def test_ranges_keep_what_they_were_made_of(indices: set[int]) -> None:
    ranges = as_ranges(sorted(indices))
    stored = [list(each) for each in ranges]
    assert list(kept_indices(stored, 21)) == sorted(indices)
    assert all(after[0] > before[1] for before, after in itertools.pairwise(ranges))


def test_what_is_not_a_range_keeps_nothing() -> None:
    assert list(kept_indices([[0, 1], "x", [2], [3, "4"], [-2, 1], [5, 99]], 7)) == [0, 0, 5, 6]
    assert list(kept_indices(None, 7)) == []
