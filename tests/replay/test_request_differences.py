"""Differences of model requests in diffs and golden traces: the message, tool or parameter."""

from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog.events import ToolSchema
from foldlog.projections.messages import CallRequest, Message
from foldlog.replay import Trace, check_parity, compare, diff, is_prefix
from foldlog.replay.ordering.golden import GoldenMismatch, hold_golden
from foldlog.replay.ordering.rule_texts import CONTRACT, PROTOCOL, RULES, explain, link
from foldlog.replay.traces.requests import PARTS_MAX, SAME, Request, differing_parts, in_words
from foldlog.runtime import Agent, tool

from tests.docs.markdown import ROOT, anchors
from tests.replay.scenes import says


@tool(effect="pure")
async def look(at: str) -> str:
    """Look at something."""
    return at


@tool(effect="pure")
async def find(what: str) -> str:
    """Find something."""
    return what


def another_look(description: str = "Look at something.", **parameters: type) -> Any:
    async def look(at: str) -> str:
        return at

    look.__doc__ = description
    look.__annotations__ |= parameters
    return tool(effect="pure")(look)


async def asked(
    question: str = "question", role: str = "user", model: str = "openai:gpt-4o", **config: Any
) -> Trace:
    config.setdefault("tools", [look])
    agent = Agent("helper", model=model, **config)
    report = await check_parity(
        agent,
        question,
        script=[says("done")],
        messages=[{"role": role, "content": "before"}],
    )
    return report.traces["local"]


CHANGES = {
    "a message's text": (
        {"question": "question!"},
        'message 2 (user) is "question" on the left and "question!" on the right',
    ),
    "a message's role": (
        {"role": "assistant"},
        'message 1, role is "user" on the left and "assistant" on the right',
    ),
    "a message more": (
        {"instructions": "Be kind."},
        'message 1 (system) is "Be kind." on the right and missing on the left',
    ),
    "a tool more": (
        {"tools": [look, find]},
        "tool 'find' is \"Find something.\" on the right and missing on the left",
    ),
    "a tool's description": (
        {"tools": [another_look("Look again.")]},
        'tool \'look\', description is "Look at something." on the left and "Look again." on the right',
    ),
    "a tool's schema": ({"tools": [another_look(at=int)]}, "tool 'look', parameters is "),
    "a parameter": (
        {"settings": {"temperature": 0.5}},
        "temperature is 0.5 on the right and missing on the left",
    ),
    "the model": (
        {"model": "openai:gpt-5"},
        'model is "openai:gpt-4o" on the left and "openai:gpt-5" on the right',
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_of_a_request_differs_is_said_by_diff_and_by_goldens(change: str, tmp_path: Path) -> None:
    fields, told = CHANGES[change]
    left, right = await asked(), await asked(**fields)
    for found in (compare(left, right), diff(left.events, right.events).comparison):
        first = found.first_difference
        assert first is not None
        assert first.rule == "R12"
        assert first.why.startswith("step 1 of helper sent the model a different request: ")
        assert told in first.why
        assert len(first.request) == 1
        assert first.request[0].left != first.request[0].right
    hold_golden(left, tmp_path, "kept", update=True)
    with pytest.raises(GoldenMismatch) as mismatch:
        hold_golden(right, tmp_path, "kept")
    assert told in str(mismatch.value)
    assert explain("R12") in str(mismatch.value)


async def test_a_prefix_of_another_request_says_what_differs() -> None:
    found = is_prefix(await asked("other"), await asked()).first_difference
    assert found is not None
    assert 'message 2 (user) is "other" on the left and "question" on the right' in found.why


def request(*messages: Message, tools: tuple[ToolSchema, ...] = ()) -> Request:
    return Request(messages=messages, tools=tools, parameters={"model": "m"})


def said(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(role="user", content=text) for text in texts)


def test_a_message_between_others_is_the_only_one_that_differs() -> None:
    parts = differing_parts(request(*said("a", "c", "d")), request(*said("a", "b", "c", "d")))
    assert [(part.name, part.left, part.right) for part in parts] == [("message 2 (user)", None, "b")]


def test_calls_of_a_message_that_differ_are_named_with_their_arguments() -> None:
    a, b = (
        Message(role="assistant", tool_calls=(CallRequest(id="1", name="look", arguments=text),))
        for text in ("{}", '{"at":1}')
    )
    (part,) = differing_parts(request(a), request(b))
    assert part.name == "message 1 (assistant), tool calls"
    assert (part.left, part.right) == ([["look", "{}"]], [["look", '{"at":1}']])


def test_tools_in_another_order_are_named() -> None:
    a, b = (ToolSchema(name=name, description="", parameters={}) for name in "ab")
    (part,) = differing_parts(request(tools=(a, b)), request(tools=(b, a)))
    assert (part.name, part.left, part.right) == ("the order of the tools", ["a", "b"], ["b", "a"])


def test_of_long_texts_the_place_where_they_part_is_shown() -> None:
    (part,) = differing_parts(request(*said("x" * 5000 + "A")), request(*said("x" * 5000 + "B")))
    assert [shown[-3:] for shown in part.shown] == ['xA"', 'xB"']
    assert all(len(shown) < 300 for shown in part.shown)


def test_many_differences_are_counted_and_none_is_said_so() -> None:
    many = differing_parts(request(*said(*"abcdefgh")), request(*said(*"ABCDEFGH")))
    assert in_words(many, "here", "there").endswith(f"; and {8 - PARTS_MAX} more")
    assert in_words((), "here", "there") == SAME


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_that_is_named_has_its_heading_in_the_page_of_the_rules(rule: str) -> None:
    page, _, anchor = link(rule).partition("#")
    assert page == (CONTRACT if rule.startswith("R") else PROTOCOL)
    assert anchor in anchors(ROOT / page)
    assert explain(rule) == f"rule {rule}: {RULES[rule]} ({link(rule)})"


def test_every_rule_that_the_code_names_is_explained() -> None:
    import re

    named = {
        name
        for path in (ROOT / "replay").rglob("*.py")
        if "simulation" not in path.parts  # its properties are the protocol's
        for name in re.findall(r'"(R\d+|P\d+|section \d+)"', path.read_text())
    }
    assert named == set(RULES)
