"""The messages of a conversation, the allowed cuts, and the token count."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from foldlog.eventlog.commits import Recorded
from foldlog.eventlog.events import OutputMade, Status, Submitted, ToolCall
from foldlog.projections.fold import fold_commit
from foldlog.projections.history import (
    History,
    PastTurn,
    TurnState,
    distinct_calls,
    fold_turn,
    newest,
)
from foldlog.projections.messages import CallRequest, Message, parse_messages
from foldlog.projections.run_state import RunState
from foldlog.projections.tokens import TokenCount, context_tokens, estimate_tokens, messages_tokens
from foldlog.replay import trace_of

from .traces import LEGAL, Family, canonical_trace, step_started, tool_call, tool_result, usage


def own(family: Family) -> list[Recorded]:
    return [recorded for recorded in trace_of(family.stored).commits if recorded.commit.run == family.root]


def turn_of(family: Family) -> PastTurn | None:
    state = TurnState()
    for recorded in own(family):
        fold_turn(state, recorded)
    return state.turn()


def open_run(*calls: str) -> Family:
    """A run in its first step, with these calls."""
    family = Family()
    family.commit(
        Submitted(kind="agent", config={}, config_digest="c", input="look it up", input_digest="i"),
        Status(status="starting"),
        *step_started(1),
    )
    family.commit(usage(1), *[tool_call(1, call) for call in calls])
    return family


def a_call(call: str, content: str = "found") -> tuple[Message, Message]:
    request = CallRequest(id=call, name="search", arguments="{}")
    return (
        Message(role="assistant", tool_calls=(request,)),
        Message(role="tool", tool_call_id=call, content=content),
    )


def turn(run: str, *messages: Message) -> PastTurn:
    return PastTurn(
        run=run,
        agent="a",
        session="s",
        status="completed",
        submitted_at=1.0,
        ended_at=2.0,
        steps=1,
        messages=(Message(role="user", content="q"), *messages),
        output="o",
    )


def is_whole(messages: tuple[Message, ...]) -> bool:
    """Return whether a provider would accept it: every call has its result, and ids are distinct."""
    parse_messages([msgspec.to_builtins(message) for message in messages])
    calls = [call.id for message in messages for call in message.tool_calls]
    return len(calls) == len(set(calls))


@pytest.mark.parametrize("name", LEGAL)
def test_a_completed_run_as_a_turn_has_the_messages_that_its_run_state_has(name: str):
    family, state = LEGAL[name](), RunState()
    for recorded in own(family):
        fold_commit(state, recorded)
    found = turn_of(family)
    if state.terminal is None or not state.step:
        assert found is None
    else:
        assert found is not None
        own_messages = state.messages[state.history_count :]
        assert list(found.messages)[: len(own_messages)] == own_messages
        assert (found.output, found.steps) == (state.output, state.step)
        if state.terminal.status == "completed":
            assert len(found.messages) == len(own_messages)


def test_a_run_that_ended_within_a_round_has_aborted_where_a_result_is_missing():
    family = open_run("c1", "c2")
    family.commit(tool_result(1, "c2"))
    assert turn_of(family) is None
    family.commit(Status(status="cancelled"))
    found = turn_of(family)
    assert found is not None
    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "tool"]
    assert found.messages[2] == Message(role="tool", tool_call_id="c1", content="aborted")
    assert found.output == ""
    assert is_whole(found.messages)


def test_events_after_the_end_and_events_of_inner_agents_are_not_part_of_a_turn():
    family = canonical_trace()
    before = turn_of(family)
    family.commit(
        ToolCall(step=9, tool_call_id="c9", tool_name="x", agent_path="agent/inner"), tool_call(9, "late")
    )
    assert turn_of(family) == before


def test_a_run_that_coordinates_others_is_a_turn_of_its_input_and_output():
    family = Family()
    family.commit(
        Submitted(kind="swarm", config={}, config_digest="c", input="look it up", input_digest="i"),
        Status(status="starting"),
    )
    family.commit(OutputMade(output="found"), Status(status="completed"))
    found = turn_of(family)
    assert found is not None
    assert [(m.role, m.content) for m in found.messages] == [("user", "look it up"), ("assistant", "found")]
    assert (found.output, found.exchange) == ("found", found.messages)


@pytest.mark.parametrize("limit", range(9))
def test_a_cut_never_separates_a_call_from_its_result(limit: int):
    messages = (
        Message(role="user", content="q"),
        *a_call("c1"),
        *a_call("c2"),
        Message(role="assistant", content="a"),
    )
    cut = newest(messages, limit)
    assert len(cut) <= limit
    assert cut == messages[len(messages) - len(cut) :]
    assert is_whole(cut)
    whole = [m for m in messages[max(0, len(messages) - limit) :] if m.role != "tool"]
    assert [m for m in cut if m.role != "tool"] == whole


def test_ids_that_turns_share_are_told_apart_the_same_way_whatever_stands_before():
    history = History(tuple(turn(run, *a_call("c1")) for run in ("r1", "r2", "r3")))
    assert is_whole(history.for_prompt())
    assert history.for_prompt()[:3] == history.turns[0].messages
    later = History((history.turns[0], history.turns[2]))
    assert later.for_prompt()[3:] == history.for_prompt()[6:]
    assert distinct_calls([("r1", history.turns[0].messages)]) == [history.turns[0].messages]


def test_a_history_counts_its_turns_and_tokens_and_keeps_the_raw_messages():
    history = History((turn("r1", *a_call("c1", "x" * 400)), turn("r2", *a_call("c1"))))
    assert history.turn_count() == 2
    assert history.raw_items() == history.turns[0].messages + history.turns[1].messages
    assert history.estimate_tokens() == messages_tokens(history.for_prompt()) > 100
    assert History().for_prompt() == ()


def test_four_bytes_are_a_token_rounded_up():
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde", "ääää", "\ud800")] == [
        0,
        1,
        1,
        2,
        2,
        1,
    ]


def test_the_providers_number_goes_as_far_as_it_goes_and_the_source_is_that_of_the_rest():
    messages = [Message(role="user", content="abcd"), Message(role="user", content="abcd" * 5)]
    assert context_tokens(messages) == TokenCount(6, "estimate")
    assert context_tokens(messages, reported=50, covered=2) == TokenCount(50, "provider")
    assert context_tokens(messages, reported=50, covered=1) == TokenCount(55, "estimate")
    counted = context_tokens(messages, reported=50, covered=1, count=len, source="tiktoken")
    assert counted == TokenCount(70, "tiktoken")


CALL = {"id": "c1", "name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"role": "system", "content": "x"}], "message 1: the role is user, assistant or tool"),
        ([{"role": "usr", "content": "x"}], "message 1: Invalid enum value 'usr'"),
        ([{"content": "x"}], "message 1: Object missing required field `role`"),
        ([{"role": "user", "content": 3}], "message 1: Expected `str`, got `int`"),
        ([{"role": "user", "contents": "x"}], "message 1: unknown field 'contents'; known are role, content"),
        (
            [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c1"}],
            "message 2: a result for 'c1', which no message before it calls",
        ),
        (
            [{"role": "tool", "content": "x"}],
            "message 1: a result for None, which no message before it calls",
        ),
        ([{"role": "assistant", "tool_calls": [CALL]}], "message 1: no result for the tool call 'c1'"),
        (
            [{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "x"}],
            "message 2: no result for the tool call 'c1' before it",
        ),
        ([{"role": "assistant", "tool_calls": [CALL, CALL]}], "message 1: two tool calls have the id 'c1'"),
    ],
)
def test_messages_whose_pairs_are_not_whole_are_refused_with_their_number(
    messages: list[dict[str, Any]], told: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_messages(messages)


def test_messages_may_be_empty_and_use_an_id_again_in_a_later_round() -> None:
    round_ = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1"}]
    assert parse_messages([]) == ()
    parsed = parse_messages([{"role": "user"}, *round_, *round_, {"role": "assistant", "content": "🐟"}])
    assert [message.content for message in parsed] == ["", "", "", "", "", "🐟"]
