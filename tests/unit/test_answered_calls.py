"""The effect of operators' answers on a call: its arguments, its order, and its record."""

from __future__ import annotations

from typing import Any

import msgspec
from foldlog.eventlog.events import ApprovalRequested, ToolResult
from foldlog.projections.fold import apply
from foldlog.projections.run_state import ApprovalState
from foldlog.runtime.core.approvals import answers_to, effective_arguments
from foldlog.runtime.core.commands import Claim, Resolve, ToolAsked
from foldlog.runtime.core.decide import unsafe_starts
from foldlog.runtime.core.policy import Policy, PolicyRule

from .test_core import CLAIM, NOW, PREPARED, RULES, Story, replies, returns

FORM = {"type": "object", "properties": {"word": {"type": "string"}}}
FROZEN = Policy((PolicyRule("deploy", {"to": "prod"}, action="deny", reason="frozen"),))


def waiting(told: Story) -> ApprovalState:
    (approval,) = told.state.pending_approvals
    return approval


def answered(told: Story, **answer: Any) -> Story:
    return told.tell(
        Resolve(approval_id=waiting(told).request.approval_id, **{"decision": "approved", **answer})
    )


def test_arguments_that_a_rule_denies_cannot_be_approved_and_the_call_keeps_waiting() -> None:
    told = Story(CLAIM, PREPARED, replies("deploy"), rules=msgspec.structs.replace(RULES, policy=FROZEN))
    answered(told, arguments={"to": "prod"})
    assert told.last == ()
    answered(told, arguments={"to": "test"}).tell(Claim("w1", 10.0))
    (start,) = unsafe_starts(told.state, NOW)
    assert effective_arguments(told.state, told.state.calls[start.tool_call_id or ""]) == {"to": "test"}


def test_the_record_of_an_edited_call_says_what_it_ran_with() -> None:
    told = Story(CLAIM, PREPARED, replies("deploy"))
    answered(told, arguments={"to": "b"}).tell(Claim("w1", 10.0), returns("1-0-deploy"))
    (result,) = [event for event in told.told if isinstance(event, ToolResult)]
    assert result.metadata["edited_arguments"] == {"to": "b"}
    plain = answered(Story(CLAIM, PREPARED, replies("deploy"))).tell(Claim("w1", 10.0), returns("1-0-deploy"))
    (result,) = [event for event in plain.told if isinstance(event, ToolResult)]
    assert "edited_arguments" not in result.metadata


def test_who_says_what_became_of_an_edited_call_is_shown_what_it_ran_with() -> None:
    told = answered(Story(CLAIM, PREPARED, replies("deploy")), arguments={"to": "b"}).tell(Claim("w1", 10.0))
    (start,) = unsafe_starts(told.state, NOW)
    apply(told.state, start, NOW)
    told.tell(Claim("w2", 10.0))
    (asked,) = [event for event in told.last if isinstance(event, ApprovalRequested)]
    assert (asked.kind, asked.arguments) == ("unverifiable", {"to": "b"})


def test_answers_to_questions_are_found_by_name_and_are_not_arguments_of_the_call() -> None:
    told = Story(CLAIM, PREPARED, replies("look"))
    for name, word in (("one", "a"), ("two", "b")):
        told.tell(
            ToolAsked(
                step=1,
                call_id="1-0-look",
                attempt=told.state.calls["1-0-look"].attempt,
                name=name,
                message="?",
                form=FORM,
            )
        )
        answered(told, arguments={"word": word}, by="ann").tell(Claim("w1", 10.0))
    call = told.state.calls["1-0-look"]
    answers = answers_to(told.state, call)
    assert {name: (answer.action, answer.content) for name, answer in answers.items()} == {
        "one": ("accept", {"word": "a"}),
        "two": ("accept", {"word": "b"}),
    }
    assert effective_arguments(told.state, call) == {}


def test_a_call_that_was_approved_comes_after_those_that_could_run_before() -> None:
    told = Story(CLAIM, PREPARED, replies("deploy", "look", "save"))
    answered(told)
    turns = {call.name: call.turn for call in told.state.calls.values()}
    assert turns["deploy"] > max(turns["look"], turns["save"])
