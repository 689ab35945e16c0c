"""The planner's part of the core: given what it said and found out, then this is asked, run, refused and kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from foldlog.eventlog.events import PlanMade, StoredEvent, Submitted, TokenUsage, ToolSpec
from foldlog.projections.fold import apply
from foldlog.projections.messages import CallRequest
from foldlog.projections.run_state import RunState
from foldlog.runtime.core.commands import (
    Claim,
    Command,
    ModelCallFailed,
    ModelReplied,
    ToolReturned,
    ToolsResolved,
)
from foldlog.runtime.core.decide import decide, pending
from foldlog.runtime.core.effects import CallModel, CallTool
from foldlog.runtime.core.model_request import PLANNER_INSTRUCTIONS, model_request
from foldlog.runtime.core.planning import ROUNDS_MAX
from foldlog.runtime.core.policy import Policy, PolicyRule
from foldlog.runtime.core.rules import RetryRules, Rules

NOW = 1_800_000_000.0
RULES = Rules(
    model="sim:m",
    planning=True,
    planning_model="sim:p",
    hitl_tools=frozenset({"asks"}),
    policy=Policy((PolicyRule("closed", action="require_approval"),)),
    retry=RetryRules(attempts=2),
)
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = tuple(
    ToolSpec(name=name, description=name, parameters=PARAMETERS, effect=effect)  # type: ignore[arg-type]
    for name, effect in (
        ("look", "pure"),
        ("save", "idempotent"),
        ("send", "unsafe"),
        ("asks", "pure"),
        ("closed", "pure"),
    )
)
SUBMITTED = Submitted(
    kind="agent",
    config={"instructions": "be brief"},
    config_digest="c",
    input="question",
    input_digest="i",
    messages=[{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}],
)


class Story:
    """A planned run told by commands."""

    def __init__(self, *commands: Command, rules: Rules = RULES) -> None:
        self.state, self.rules, self.now = RunState(run="r", root="r", path="agent"), rules, NOW
        self.last: tuple[StoredEvent, ...] = ()
        apply(self.state, SUBMITTED, NOW)
        self.tell(Claim("w0", 10.0), ToolsResolved(tools=TOOLS, model="sim:m"), *commands)

    def tell(self, *commands: Command) -> Story:
        for command in commands:
            self.last = decide(self.state, self.rules, command, self.now)
            for event in self.last:
                apply(self.state, event, self.now)
        return self

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.last]

    @property
    def asked(self) -> CallModel:
        """The one model call that is to be made."""
        (effect,) = pending(self.state, self.now)
        assert isinstance(effect, CallModel)
        return effect


def plans(*names: str, text: str = "", attempt: int = 1) -> ModelReplied:
    """The planner asks for these tools, or says something."""
    requests = tuple(
        CallRequest(id=f"{attempt}-{n}", name=name, arguments="{}") for n, name in enumerate(names)
    )
    return ModelReplied(
        step=0,
        attempt=attempt,
        text=text,
        calls=requests,
        usage=TokenUsage(input_tokens=2),
        model="p",
        cost_usd="0.25",
        phase="planner",
    )


def returns(call_id: str, result: str = "seen") -> ToolReturned:
    return ToolReturned(
        step=0, call_id=call_id, attempt=1, status="success", result=result, started_at=NOW, completed_at=NOW
    )


def test_the_planner_is_called_after_the_preparation_and_before_the_first_step() -> None:
    story = Story()
    assert story.types == ["prepared", "model_requested"]
    assert story.asked == CallModel(step=0, attempt=1, phase="planner")
    assert story.state.model.model == "sim:p"


def test_the_planner_sees_the_prepared_history_and_all_tools_under_its_own_instructions() -> None:
    request = model_request(Story().state, RULES, "p", "planner")
    system, *rest = request.messages
    assert system.content.startswith(PLANNER_INSTRUCTIONS)
    assert "be brief" in system.content
    assert [message.content for message in rest] == ["before", "yes", "question"]
    assert [tool.name for tool in request.tools] == [tool.name for tool in TOOLS]
    assert (request.history, request.phase, request.round) == (3, "planner", 1)


def test_instructions_of_the_agents_own_take_the_place_of_the_built_in_ones() -> None:
    own = Rules(model="sim:m", planning=True, planning_instructions="Plan in verse.")
    request = model_request(Story().state, own, "p", "planner")
    assert request.messages[0].content.startswith("Plan in verse.\n")


def test_a_plan_stands_in_the_prompt_and_nothing_else_of_the_planner_does() -> None:
    story = Story(plans("look"), returns("1-0"), plans(text=" 1. Look. ", attempt=2))
    assert story.types == ["planner_replied", "plan_made", "step", "model_requested"]
    assert [message.content for message in story.state.messages] == [
        "be brief\n\n<plan>\n1. Look.\n</plan>",
        "before",
        "yes",
        "question",
    ]
    assert story.asked == CallModel(step=1, attempt=1)
    assert story.state.usage.input_tokens == 4
    assert story.state.cost_usd == "0.5"


def test_the_planner_goes_on_with_what_its_tools_answered() -> None:
    story = Story(plans("look", "look", text="let me see"), returns("1-1", "b"))
    assert story.types == ["planner_tool_returned"]
    story.tell(returns("1-0", "a"))
    request = model_request(story.state, RULES, "p", "planner")
    assert [(m.role, m.content) for m in request.messages[4:]] == [
        ("assistant", "let me see"),
        ("tool", "a"),
        ("tool", "b"),
    ]
    assert (request.round, request.history) == (2, 3)


@pytest.mark.parametrize("name", ["save", "send", "asks", "closed"])
def test_a_tool_that_is_not_pure_or_needs_an_approval_is_not_available(name: str) -> None:
    story = Story(plans(name, "look"))
    assert story.types == ["planner_replied", "planner_tool_returned"]
    assert getattr(story.last[1], "error", None) == "not available while planning"
    assert pending(story.state, NOW) == (CallTool(step=0, call_id="1-1", attempt=1),)


def test_a_tool_that_nobody_knows_and_arguments_that_are_none_are_answered_at_once() -> None:
    raw = ModelReplied(
        step=0,
        attempt=1,
        text="",
        calls=(CallRequest(id="", name="look", arguments="{no"), CallRequest(id="", name="no", arguments="")),
        phase="planner",
    )
    story = Story(raw)
    assert story.types == [
        "planner_replied",
        "planner_tool_returned",
        "planner_tool_returned",
        "model_requested",
    ]
    assert [getattr(event, "tool_call_id", "") for event in story.last[1:3]] == ["plan-1-0", "plan-1-1"]


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_plan_leaves_the_prompt_as_it_is(text: str) -> None:
    plain = Story(rules=Rules(model="sim:m"))
    story = Story(plans(text=text))
    assert story.state.messages == plain.state.messages
    assert story.state.messages_digest == plain.state.messages_digest


def test_the_last_round_is_the_last_word() -> None:
    story = Story()
    for attempt in range(1, ROUNDS_MAX + 1):
        story.tell(plans("look", text=f"plan {attempt}", attempt=attempt))
        if attempt < ROUNDS_MAX:
            story.tell(returns(f"{attempt}-0"))
    assert story.types == ["planner_replied", "plan_made", "step", "model_requested"]
    assert story.state.planning.plan == f"plan {ROUNDS_MAX}"


def test_a_planner_that_fails_for_good_ends_the_run_without_a_step() -> None:
    refused = ModelCallFailed(step=0, attempt=1, error_type="auth", message="no key", phase="planner")
    story = Story(refused)
    assert story.types == ["model_failed", "error", "status"]
    error = story.state.error
    assert error is not None
    assert (error.error_type, error.step, error.recoverable) == ("planner_failed", None, False)
    assert "auth: no key" in error.error


def overflows(attempt: int) -> ModelCallFailed:
    return ModelCallFailed(
        step=0, attempt=attempt, error_type="context_overflow", message="too long", phase="planner"
    )


def summary(attempt: int) -> ModelReplied:
    return ModelReplied(step=0, attempt=attempt, text="They said yes.", phase="compaction")


def test_a_planners_request_that_does_not_fit_has_the_history_compacted_and_is_made_again() -> None:
    story = Story(plans("look"), returns("1-0"), overflows(2))
    assert story.types == ["model_failed", "cut_begun", "model_requested"]
    assert story.asked == CallModel(step=0, attempt=3, phase="compaction")
    story.tell(summary(3))
    assert story.types == ["summary_made", "context", "model_requested"]
    assert story.asked == CallModel(step=0, attempt=4, phase="planner")
    told = [(m.role, m.content) for m in model_request(story.state, RULES, "p", "planner").messages]
    assert told[1:3] == [("user", "before"), ("user", "question")]
    assert told[3][1].endswith("They said yes.")
    assert told[-1] == ("tool", "seen")  # what it has found out stays
    story.tell(plans(attempt=4, text="1. Look."))
    assert story.state.planning.plan == "1. Look."


def test_a_planners_request_that_does_not_fit_after_that_either_ends_the_run() -> None:
    story = Story(overflows(1), summary(2), overflows(3))
    assert story.types == ["model_failed", "error", "status"]
    error = story.state.error
    assert error is not None
    assert error.error_type == "planner_failed"
    assert "context_overflow: too long" in error.error


def test_a_planner_is_tried_again_like_any_model() -> None:
    cut = ModelCallFailed(step=0, attempt=1, error_type="transient", message="cut", phase="planner")
    story = Story(cut)
    assert story.types == ["model_failed"]
    story.now += 60
    story.tell(Claim("w1", 10.0))
    assert story.asked == CallModel(step=0, attempt=2, phase="planner")
    story.tell(msgspec.structs.replace(cut, attempt=2))
    assert story.types == ["model_failed", "error", "status"]


def test_a_takeover_asks_the_planner_again_and_runs_its_tools_again() -> None:
    story = Story(Claim("w1", 10.0))
    assert story.types == ["claimed", "model_requested"]
    assert story.asked.attempt == 2
    story.tell(plans("look", attempt=2), Claim("w2", 10.0))
    assert story.types == ["claimed"]
    assert pending(story.state, NOW) == (CallTool(step=0, call_id="2-0", attempt=1),)


def test_a_plan_that_is_stored_is_not_made_again() -> None:
    story = Story(plans(text="1. Look."), Claim("w1", 10.0))
    assert story.types == ["claimed", "model_requested"]
    assert story.asked == CallModel(step=1, attempt=2)


def test_an_answer_that_is_stored_already_yields_nothing() -> None:
    story = Story(plans("look"))
    assert decide(story.state, RULES, plans("look"), NOW) == ()
    story.tell(returns("1-0"))
    assert decide(story.state, RULES, returns("1-0"), NOW) == ()
    assert PlanMade() not in story.last
