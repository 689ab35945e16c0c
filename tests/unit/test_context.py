"""Room in the window and budgets, in the core: given what the prompt holds, this is cut, told, paused or ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from foldlog.eventlog.errors import ApprovalError
from foldlog.eventlog.events import (
    Budget,
    Context,
    Prepared,
    StoredEvent,
    Submitted,
    TokenUsage,
    ToolCall,
    ToolSpec,
)
from foldlog.eventlog.ports import Subject
from foldlog.projections.fold import apply
from foldlog.projections.id_set import IdSet
from foldlog.projections.messages import CallRequest, chain, parse_messages
from foldlog.projections.run_state import RunState
from foldlog.projections.snapshot import decode_state, encode_state
from foldlog.runtime.core.budgets import check_raise
from foldlog.runtime.core.commands import (
    Claim,
    Command,
    Inject,
    ModelCallFailed,
    ModelReplied,
    Pause,
    Resolve,
    TimerDue,
    ToolReturned,
    ToolsResolved,
)
from foldlog.runtime.core.decide import decide, pending
from foldlog.runtime.core.effects import CallModel
from foldlog.runtime.core.model_request import model_request
from foldlog.runtime.core.rules import Rules, rules_of
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
LOOK = ToolSpec(name="look", description="look", parameters=PARAMETERS, effect="pure")
HISTORY = [
    {"role": "user", "content": "first question"},
    {"role": "assistant", "tool_calls": [{"id": "h1", "name": "look", "arguments": "{}"}]},
    {"role": "tool", "tool_call_id": "h1", "content": "seen"},
    {"role": "assistant", "content": "first answer"},
    {"role": "user", "content": "second question"},
    {"role": "assistant", "content": "second answer"},
]


class Story:
    """A run told by commands; each answer of its model takes so many tokens of the window."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        window: int | None = 1000,
        history: list[dict[str, Any]] | None = None,
    ) -> None:
        self.state = RunState(run="r", root="r", path="agent")
        whole = {"model": "sim:m", "instructions": "be brief", **config}
        self.rules, self.now = rules_of(whole), NOW
        self.last: tuple[StoredEvent, ...] = ()
        self.told: list[StoredEvent] = []
        submitted = Submitted(
            kind="agent",
            config=whole,
            config_digest="c",
            input="question",
            input_digest="i",
            messages=history or [],
        )
        apply(self.state, submitted, NOW)
        self.tell(Claim("w0", 10.0), ToolsResolved(tools=(LOOK,), model="sim:m", window_tokens=window))

    def tell(self, *commands: Command) -> Story:
        for command in commands:
            self.last = decide(self.state, self.rules, command, self.now)
            for event in self.last:
                before = len(self.state.messages)
                apply(self.state, event, self.now)
                if isinstance(event, Context):
                    assert (event.before_count, event.after_count) == (before, len(self.state.messages))
            self.told += self.last
        self.check()
        return self

    def check(self) -> None:
        """The digest is that of the messages, whatever was done to them."""
        digest = ""
        for message in self.state.messages:
            digest = chain(digest, message, self.state.call_places)
        assert digest == self.state.messages_digest

    def step(self, read: int = 10, result: str = "seen") -> Story:
        """A whole step with one tool call, each with other arguments, for which the model reads so many tokens."""
        number = self.state.step
        call = CallRequest(id=f"c{number}", name="look", arguments=f'{{"n":{number}}}')
        usage = TokenUsage(input_tokens=read, output_tokens=5, total_tokens=read + 5)
        self.tell(self.reply(calls=(call,), usage=usage))
        returned = ToolReturned(
            step=number,
            call_id=call.id,
            attempt=1,
            status="success",
            result=result,
            started_at=self.now,
            completed_at=self.now,
        )
        return self.tell(returned)

    def reply(self, text: str = "", **fields: Any) -> ModelReplied:
        model = self.state.model
        fields.setdefault("usage", TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15))
        return ModelReplied(
            step=self.state.step, attempt=model.attempt, text=text, model="m", phase=model.phase, **fields
        )

    def fails(self, error_type: str, **stated: int) -> Story:
        model = self.state.model
        return self.tell(
            ModelCallFailed(
                step=self.state.step,
                attempt=model.attempt,
                error_type=error_type,
                message="no",
                phase=model.phase,
                **stated,
            )
        )

    @property
    def types(self) -> list[str]:
        words = []
        for event in self.last:
            word = (
                getattr(event, "action", None)
                or getattr(event, "kind", None)
                or getattr(event, "status", None)
            )
            words.append(f"{event.type}({word})" if word else event.type)
        return words

    @property
    def phase(self) -> str:
        (effect,) = pending(self.state, self.now)
        assert isinstance(effect, CallModel)
        return effect.phase

    @property
    def contents(self) -> list[str]:
        return [message.content for message in self.state.messages]

    def found(self, kind: type[Any]) -> Any:
        return next(event for event in self.last if isinstance(event, kind))


# --- the window -------------------------------------------------------------------------------------------------------


def test_each_message_that_is_given_back_says_how_full_the_window_is() -> None:
    story = Story({"budget_awareness": "per-message"}).step(read=100)
    assert story.contents[2:] == [
        "[context: 105/1000 tokens, 10% used]",
        "seen\n[context: 115/1000 tokens, 11% used]",
    ]


def test_the_window_is_told_right_before_each_step() -> None:
    story = Story({"budget_awareness": "per-message"})
    assert story.types == ["prepared", "budget(advisory)", "step(started)", "model_requested"]
    story.step(read=100)
    assert story.types[-4:] == ["step(completed)", "budget(advisory)", "step(started)", "model_requested"]
    advice = story.found(Budget)
    assert (advice.used, advice.limit) == (125, 1000)
    assert advice.message == "[context: 125/1000 tokens, 12% used]"


def test_above_the_limit_one_pass_makes_room_and_then_the_run_stops() -> None:
    story = Story({"budget_awareness": "limit:50", "context": {"overflow": "truncate"}}).step(read=600)
    assert story.types[-4:] == ["step(completed)", "context(compact)", "step(started)", "model_requested"]
    assert story.contents == ["be brief", "question"]
    story.step(read=600)
    assert story.types[-4:] == ["step(completed)", "budget(limit)", "text", "status(completed)"]
    stop = "Stopped: the context budget of 50% is used up (606/1000 tokens)."
    assert (story.state.output, story.state.status, story.found(Budget).limit) == (stop, "completed", 500)
    terminal = story.state.terminal
    assert terminal is not None
    assert terminal.reason == "budget_limit"


def test_a_limit_that_no_room_can_be_made_for_stops_at_once() -> None:
    story = Story({"budget_awareness": "limit:0", "context": {"overflow": "none"}})
    assert story.types == ["prepared", "budget(limit)", "text", "status(completed)"]


def test_a_queued_message_counts_before_the_call_that_carries_it() -> None:
    config = {"budget_awareness": "limit:50", "context": {"overflow": "none"}}
    story = Story(config).tell(Inject("x" * 1600)).step(read=100)
    assert story.types[-4:] == ["step(completed)", "budget(limit)", "text", "status(completed)"]
    assert story.state.output == "Stopped: the context budget of 50% is used up (506/1000 tokens)."
    story = Story(config).tell(Inject("x" * 1576)).step(read=100)
    assert story.types[-4:] == ["step(completed)", "message_injected", "step(started)", "model_requested"]


def test_room_is_made_before_a_message_is_told_that_stands_right_before_its_step() -> None:
    config = {"budget_awareness": "limit:50", "context": {"overflow": "truncate"}}
    story = Story(config, history=HISTORY).step(read=300).tell(Inject("y" * 400)).step(read=300)
    at = story.types.index("step(completed)")
    assert story.types[at:] == ["step(completed)", "message_injected", "step(started)", "model_requested"]
    story.tell(Inject("z" * 800)).step(read=400)
    at = story.types.index("step(completed)")
    assert story.types[at:] == [
        "step(completed)",
        "context(compact)",
        "message_injected",
        "step(started)",
        "model_requested",
    ]
    assert story.contents[-2:] == ["y" * 400, "z" * 800]


@pytest.mark.parametrize(("pct", "stops"), [(1, True), (2, False)])
def test_a_window_that_is_full_before_the_planner_is_asked_ends_the_run_without_asking_it(
    pct: int, stops: bool
) -> None:
    config = {"budget_awareness": f"limit:{pct}", "context": {"overflow": "none"}, "planning_enabled": True}
    story = Story({**config, "instructions": "x" * 28})
    assert story.state.context.tokens == 20
    assert (story.state.terminal is not None) is stops
    assert story.types[1:] == (
        ["budget(limit)", "text", "status(completed)"] if stops else ["model_requested"]
    )


def test_at_the_last_step_there_is_no_further_call_to_stop() -> None:
    config = {"budget_awareness": "limit:50", "context": {"overflow": "none"}, "max_steps": 1}
    story = Story(config).step(read=900)
    assert story.types[-3:] == ["step(completed)", "error", "status(error)"]
    assert story.state.error is not None
    assert story.state.error.error_type == "max_steps"


def test_a_window_may_be_overfull_and_its_share_is_rounded_down() -> None:
    config = {"budget_awareness": "per-message", "context": {"overflow": "none"}}
    story = Story(config, window=3).step(read=2_000)
    assert story.contents[2] == "[context: 2005/3 tokens, 66833% used]"
    assert story.found(Budget).limit == 3


def test_nothing_is_cut_or_told_of_a_window_that_nobody_knows() -> None:
    story = Story({"context": {}}, window=None).step(read=10**9)
    assert [event.type for event in story.told if event.type in {"context", "budget"}] == []


# --- cuts -------------------------------------------------------------------------------------------------------------


def test_too_many_messages_are_cut_before_the_first_step_and_the_own_input_stays() -> None:
    context = {"history_messages_max": 4, "summary_at_messages": 2, "overflow": "truncate"}
    story = Story({"context": context}, history=HISTORY)
    assert story.types == ["prepared", "context(window)", "step(started)", "model_requested"]
    assert story.contents == ["be brief", "second answer", "question"]
    cut = story.found(Context)
    assert (cut.before_count, cut.after_count, cut.details["cause"]) == (8, 3, "messages")
    assert story.state.history_count == 2


def test_a_summary_takes_the_place_of_what_is_cut() -> None:
    story = Story({"context": {"mode": "navigator", "history_messages_max": 4}}, history=HISTORY)
    assert (story.types, story.phase) == (["prepared", "cut_begun", "model_requested"], "summary")
    request = model_request(story.state, story.rules, "m", "summary")
    assert (request.tools, request.output_schema, request.round) == ((), None, 1)
    assert "user: first question" in request.messages[1].content
    assert "calls look {}" in request.messages[1].content
    story.tell(story.reply("They asked twice."))
    assert story.types == ["summary_made", "context(summarize)", "step(started)", "model_requested"]
    assert story.contents == [
        "be brief",
        "Summary of what was said before:\n\nThey asked twice.",
        "second answer",
        "question",
    ]
    assert story.state.history_count == 3
    assert story.state.usage.total_tokens == 15


def test_a_long_run_is_cut_at_a_boundary_and_keeps_its_input_and_whole_rounds() -> None:
    context = {"history_messages_max": 6, "summary_at_messages": 3, "overflow": "truncate"}
    story = Story({"context": context, "max_steps": 20})
    for _ in range(8):
        story.step()
        assert len(story.state.messages) <= 8
        assert story.contents[1] == "question"
        roles = [message.role for message in story.state.messages[2:]]
        assert roles == ["assistant", "tool"] * (len(roles) // 2)
    assert [event.type for event in story.told].count("context") == 3


def test_a_full_window_is_cut_at_the_trigger_and_compacted_above() -> None:
    story = Story({"context": {"overflow": "truncate"}}, history=HISTORY).step(read=850)
    assert story.found(Context).action == "truncate"
    story = Story({"context": {"overflow": "truncate"}}, history=HISTORY).step(read=950)
    assert story.found(Context).action == "compact"
    assert story.contents == ["be brief", "first question", "second question", "question"]


def test_overflow_none_leaves_everything_to_the_provider() -> None:
    story = Story({"context": {"mode": "navigator", "overflow": "none"}}, history=HISTORY[:1] * 30)
    assert story.types == ["prepared", "step(started)", "model_requested"]
    story.fails("context_overflow")
    assert story.types == ["model_failed", "error", "status(error)"]


@pytest.mark.parametrize("window", [1000, None])
def test_a_request_that_does_not_fit_is_compacted_and_made_again_once(window: int | None) -> None:
    story = Story({}, window=window, history=HISTORY).step().fails("context_overflow")
    assert (story.types, story.phase) == (["model_failed", "cut_begun", "model_requested"], "compaction")
    story.tell(story.reply("All of it."))
    assert story.types == ["summary_made", "context(compact)", "model_requested"]
    assert story.phase == ""
    assert story.state.model.attempt == 3
    assert story.contents == [
        "be brief",
        "first question",
        "second question",
        "question",
        "Summary of what was said before:\n\nAll of it.",
    ]
    story.fails("context_overflow")
    assert story.types == ["model_failed", "error", "status(error)"]
    error = story.state.error
    assert error is not None
    assert (error.error_type, error.step) == ("context_overflow", 2)


def test_a_summary_that_fails_falls_back_to_a_cut_without_one() -> None:
    story = Story({}, history=HISTORY).fails("context_overflow").fails("auth")
    assert story.types == ["model_failed", "context(compact)", "model_requested"]
    assert story.found(Context).details["fallback"] == "the summary failed: auth: no"
    assert story.found(Context).details["unsummarized"] == 4
    assert story.phase == ""
    assert story.contents == ["be brief", "first question", "second question", "question"]


def test_an_empty_summary_is_none() -> None:
    story = Story({}, history=HISTORY).fails("context_overflow")
    story.tell(story.reply(" "))
    assert story.found(Context).details["fallback"] == "the summary is empty"


def parts(story: Story) -> list[str]:
    """Return the messages that the model got for each summary, once all are made."""
    told: list[str] = []
    while story.phase:
        request = model_request(story.state, story.rules, "m", story.phase)
        asked = request.messages[-1].content
        before = f"<summary>\nSummary {len(told)}\n</summary>\n\n" if told else ""
        assert asked.startswith(f"{before}<conversation>\n")
        told.append(asked.removeprefix(f"{before}<conversation>\n").removesuffix("\n</conversation>"))
        story.tell(story.reply(f"Summary {len(told)}"))
    return told


def test_a_summary_is_made_of_exactly_what_leaves() -> None:
    story = Story({"context": {"history_messages_max": 5, "summary_at_messages": 2}}, history=HISTORY)
    (told,) = parts(story)
    leaves = ["first question", "calls look {}", "tool: seen", "first answer", "second question"]
    assert [each for each in leaves if each not in told] == []
    assert "second answer" not in told
    assert "user: question" not in told
    assert "unsummarized" not in story.found(Context).details


LONG = [
    {"role": role, "content": f"{number}. {'word ' * size}"}
    for number, (role, size) in enumerate(
        [("user", 9), ("assistant", 900), ("user", 300), ("assistant", 2000)]
    )
]


def test_what_does_not_fit_into_one_call_is_summarised_in_several_that_become_one() -> None:
    story = Story({"context": {"keep_user_tokens": 5}}, window=1000, history=LONG)
    told = parts(story)
    assert len(told) > 3
    assert max(map(len, told)) <= 3000
    whole = "\n\n".join(f"{each['role']}: {each['content']}" for each in LONG)
    assert "".join(told).replace("\n", "") == whole.replace("\n", "")
    assert story.contents[-1].endswith(f"Summary {len(told)}")
    assert "unsummarized" not in story.found(Context).details


def test_a_summary_that_fails_in_its_middle_keeps_what_it_holds_and_tells_what_it_does_not() -> None:
    story = Story({"context": {"keep_user_tokens": 5}}, window=1000, history=LONG)
    story.tell(story.reply("One.")).fails("auth")
    details = story.found(Context).details
    assert (details["summary"], details["unsummarized"]) == ("last", 3)
    assert story.contents[-1].endswith("One.")


def test_a_part_that_does_not_fit_is_made_again_of_half_as_much() -> None:
    story = Story({"context": {"keep_user_tokens": 5}}, window=None, history=LONG).fails("context_overflow")
    sizes = list[int]()
    for _ in range(3):
        sizes.append(len(model_request(story.state, story.rules, "m", story.phase).messages[-1].content))
        story.fails("context_overflow")
        assert story.types == ["model_failed", "model_requested"]
    assert sizes[0] > sizes[1] > sizes[2]
    for _ in range(4):
        story.fails("context_overflow")
    assert story.found(Context).details["unsummarized"] == 4


def test_a_summary_that_was_cut_itself_says_so() -> None:
    story = Story({}, history=HISTORY).fails("context_overflow")
    story.tell(story.reply("All of", finish_reason="length"))
    assert story.found(Context).details["summary_truncated"] is True
    story = Story({}, history=HISTORY).fails("context_overflow")
    story.tell(story.reply("All of", finish_reason="content_filter"))
    details = story.found(Context).details
    assert details["fallback"] == "the provider's content filter stopped the summary"
    assert (details["unsummarized"], "summary" in details) == (4, False)


def test_an_overflow_teaches_the_window_for_this_compaction_and_from_then_on() -> None:
    story = Story({"max_steps": 50, "loop_threshold": 0}, window=None, history=LONG).step(read=900)
    story.fails("context_overflow", window_tokens=1000, request_tokens=1100)
    assert story.state.context.window_tokens == 1000
    assert max(map(len, parts(story))) <= 3000  # three quarters of it, at four bytes a token
    for compactions in range(2, 5):  # before the server has to refuse anything again
        assert story.phase == ""
        story.step(read=600).step(read=950, result="seen " * 300)
        assert story.types[-2:] == ["cut_begun", "model_requested"]
        parts(story)
        assert story.state.context.compactions == compactions
    assert story.state.error is None


def test_an_overflow_without_numbers_proves_that_the_window_is_smaller_than_the_request() -> None:
    story = Story({}, window=None, history=LONG).step(read=900)
    took = story.state.context.tokens
    story.fails("context_overflow")
    assert story.state.context.window_tokens == took - 1
    story = Story({}, window=None, history=LONG).step(read=900)
    story.fails("context_overflow", window_tokens=500)
    assert (story.state.context.window_tokens, story.state.context.tokens >= 501) == (500, True)


@pytest.mark.parametrize(
    ("known", "stated", "used"), [(1000, 400, 400), (1000, 4000, 1000), (None, 400, 400)]
)
def test_what_is_less_counts_of_what_is_known_and_what_is_taught(
    known: int | None, stated: int, used: int
) -> None:
    story = Story({}, window=known, history=HISTORY).step().fails("context_overflow", window_tokens=stated)
    assert story.state.context.window_tokens == used
    refreshed = Prepared(tools=[LOOK], model="sim:m", window_tokens=known)
    apply(story.state, refreshed, NOW)
    assert story.state.context.window_tokens == used


def test_an_overflow_of_a_summary_teaches_what_is_stated_and_of_a_planner_nothing() -> None:
    story = Story({}, window=None, history=LONG).fails("context_overflow")
    bound = story.state.context.window_tokens
    story.fails("context_overflow")
    assert story.state.context.window_tokens == bound
    story.fails("context_overflow", window_tokens=300)
    assert story.state.context.window_tokens == 300
    planner = Story({"planning_enabled": True}, window=None, history=LONG)
    planner.fails("context_overflow", window_tokens=300)
    assert planner.state.context.window_tokens is None


def test_a_run_is_not_compacted_again_and_again_for_nothing() -> None:
    context = {"newest_always_stays": True, "trigger_pct": 100}
    story = Story({"max_steps": 50, "loop_threshold": 0, "context": context}, window=1000)
    story.tell(Inject("word " * 800)).step(read=50)
    parts(story)
    for _ in range(3):  # what can leave is little beside what the user said last
        story.step(read=950)
        assert story.phase == ""
    assert story.state.context.compactions == 1


def test_a_takeover_in_the_middle_of_a_summary_asks_for_it_again_and_for_nothing_else() -> None:
    story = Story({}, history=HISTORY).fails("context_overflow").tell(Claim("w1", 10.0))
    assert (story.types, story.phase) == (["claimed", "model_requested"], "compaction")
    story.tell(story.reply("All of it."), Claim("w2", 10.0))
    assert (story.types, story.phase) == (["claimed", "model_requested"], "")


def test_what_is_left_of_a_conversation_is_not_summarised_for_ever() -> None:
    context = {"history_messages_max": 1, "overflow": "summarize"}
    story = Story({"context": context}, history=HISTORY)
    summaries = 0
    while story.phase:
        story.tell(story.reply("Short."))
        summaries += 1
    assert summaries == 1


def test_a_planner_sees_the_prepared_history() -> None:
    context = {"history_messages_max": 4, "summary_at_messages": 2, "overflow": "truncate"}
    story = Story({"context": context, "planning_enabled": True}, history=HISTORY)
    assert (story.types, story.phase) == (["prepared", "context(window)", "model_requested"], "planner")


# --- ceilings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "name"),
    [
        ({"max_tokens": 14}, "max_tokens"),
        ({"step": {"max_tokens": 14}}, "step.max_tokens"),
        ({"max_seconds": 0.5}, "max_seconds"),
        ({"step": {"max_seconds": 0.5}}, "step.max_seconds"),
        ({"max_cost_usd": "0.4"}, "max_cost_usd"),
        ({"step": {"max_cost_usd": "0.4"}}, "step.max_cost_usd"),
    ],
)
def test_a_ceiling_that_is_passed_pauses_until_it_is_raised(budgets: dict[str, Any], name: str) -> None:
    story = Story({"budgets": budgets})
    call = CallRequest(id="c1", name="look", arguments="{}")
    story.tell(story.reply(calls=(call,), cost_usd="0.5"))
    story.now += 1
    story.tell(
        ToolReturned(
            step=1,
            call_id="c1",
            attempt=1,
            status="success",
            started_at=story.now,
            completed_at=story.now,
        )
    )
    assert story.types[-5:] == [
        "step(completed)",
        "budget(limit)",
        "approval_requested(budget)",
        "status(paused)",
        "parked",
    ]
    (approval,) = story.state.pending_approvals
    assert approval.request.arguments["budget"] == name
    more = Resolve(approval_id=approval.request.approval_id, decision="approved", arguments={"raise": 1000})
    story.tell(more)
    assert story.types == ["approval_resolved", "status(resumed)"]
    story.tell(Claim("w1", 10.0))
    assert story.types == ["claimed", "step(started)", "model_requested"]


def test_a_limit_that_is_reached_is_not_passed() -> None:
    assert Story({"budgets": {"max_tokens": 15}}).step().types[-2:] == ["step(started)", "model_requested"]


def test_too_little_raised_asks_again() -> None:
    story = Story({"budgets": {"max_tokens": 5}}).step()
    for number in range(2):
        (approval,) = story.state.pending_approvals
        answer = Resolve(
            approval_id=approval.request.approval_id, decision="approved", arguments={"raise": 5}
        )
        story.tell(answer, Claim("w1", 10.0))
        assert bool(story.state.pending_approvals) == (number == 0)


def test_a_raise_by_what_is_used_lets_the_run_go_on() -> None:
    story = Story({"budgets": {"max_tokens": 2}}).step()
    (approval,) = story.state.pending_approvals
    raised = {"raise": approval.request.arguments["used"]}
    story.tell(Resolve(approval_id=approval.request.approval_id, decision="approved", arguments=raised))
    story.tell(Claim("w1", 10.0))
    assert story.types == ["claimed", "step(started)", "model_requested"]


def test_raising_a_ceiling_whose_use_is_unknown_lets_the_run_continue_without_it() -> None:
    story = Story({"budgets": {"max_cost_usd": "1"}}).step()
    (approval,) = story.state.pending_approvals
    assert approval.request.arguments == {"budget": "max_cost_usd", "limit": "1", "used": None}
    story.tell(Resolve(approval_id=approval.request.approval_id, decision="approved", arguments={"raise": 1}))
    story.tell(Claim("w1", 10.0))
    assert story.types == ["claimed", "step(started)", "model_requested"]


@pytest.mark.parametrize("timed_out", [False, True])
def test_a_ceiling_that_nobody_raises_ends_the_run(timed_out: bool) -> None:
    story = Story({"budgets": {"max_tokens": 5}}).step()
    (approval,) = story.state.pending_approvals
    name = approval.request.approval_id
    story.tell(TimerDue(f"approval-{name}") if timed_out else Resolve(approval_id=name, decision="rejected"))
    story.tell(Claim("w1", 10.0))
    assert story.types == ["claimed", "error", "status(error)"]
    error = story.state.error
    assert error is not None
    assert error.error_type == "budget_exceeded"


def test_the_time_of_a_pause_counts_for_nothing() -> None:
    story = Story({"budgets": {"max_seconds": 5.0}, "hitl_tools": ["look"]})
    story.tell(story.reply(calls=(CallRequest(id="c1", name="look", arguments="{}"),)))
    (approval,) = story.state.pending_approvals
    story.now += 3600
    story.tell(Resolve(approval_id=approval.request.approval_id, decision="approved"), Claim("w1", 10.0))
    story.now += 2
    returned = ToolReturned(
        step=1, call_id="c1", attempt=1, status="success", started_at=story.now, completed_at=story.now
    )
    story.tell(returned)
    assert story.types[-2:] == ["step(started)", "model_requested"]
    assert story.state.spent.seconds == 2.0


def test_an_unknown_cost_passes_every_ceiling_of_cost() -> None:
    story = Story({"budgets": {"max_cost_usd": "100"}}).step()
    assert story.found(Budget).message.endswith("an unknown amount used")


def test_a_pause_goes_before_everything_else_at_a_boundary() -> None:
    story = Story({"budgets": {"max_tokens": 5}})
    story.tell(Pause()).step()
    assert story.types[-3:] == ["step(completed)", "status(paused)", "parked"]
    assert story.state.paused == "manual"


@pytest.mark.parametrize(
    "arguments", [None, {}, {"raise": 0}, {"raise": -1}, {"raise": True}, {"raise": "x"}, {"raise": "1e400"}]
)
def test_a_budget_is_raised_by_an_amount_and_nothing_else(arguments: dict[str, object] | None) -> None:
    with pytest.raises(ApprovalError, match="raise"):
        check_raise(arguments)


def test_a_mode_stands_for_three_numbers_and_given_ones_go_before_it() -> None:
    rules: Rules = rules_of({"context": {"mode": "copilot", "summary_at_messages": 8}})
    context = rules.context
    assert (context.history_messages_max, context.summary_at_messages, context.offload_at_messages) == (
        20,
        8,
        50,
    )
    assert (context.windows, rules_of({}).context.windows) == (True, False)


COUNTS = st.none() | st.integers(1, 12)
ANY_CONTEXT = st.fixed_dictionaries(
    {
        "history_messages_max": COUNTS,
        "summary_at_messages": COUNTS,
        "overflow": st.sampled_from(["summarize", "truncate", "none"]),
        "trigger_pct": st.integers(0, 100),
        "compact_pct": st.integers(0, 100),
        "keep_user_tokens": st.sampled_from([0, 5, 20_000]),
        "mode": st.sampled_from([None, "pilot", "copilot", "navigator"]),
    }
).map(lambda table: {key: value for key, value in table.items() if value is not None})


@given(
    ANY_CONTEXT,
    st.sampled_from([None, 1, 30, 1000]),
    st.sampled_from([None, "per-message", "limit:0", "limit:60", "limit:100"]),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 3)), min_size=1, max_size=8),
)
def test_whatever_the_bounds_a_run_goes_on_or_stops_and_no_pair_is_ever_cut(
    context: dict[str, Any],
    window: int | None,
    awareness: str | None,
    steps: list[tuple[int, int]],
) -> None:
    config = {"context": context, "budget_awareness": awareness, "max_steps": 50, "loop_threshold": 0}
    story = Story(
        {key: value for key, value in config.items() if value is not None}, window=window, history=HISTORY
    )
    for read, told in steps:
        for _ in range(told):
            story.tell(Inject("and then " * 20))
        for _ in range(3):  # a compaction and a cut at most, each with its summary
            if story.state.over or not story.phase:
                break
            story.tell(story.reply("Short."))
        if story.state.over:
            break
        assert story.phase == ""
        story.step(read=read, result="seen " * 30)
        messages = [m for m in story.state.messages if m.role != "system"]
        parse_messages([msgspec.to_builtins(message) for message in messages])
    if story.state.over:
        terminal = story.state.terminal
        assert terminal is not None
        assert (terminal.status, terminal.reason) == ("completed", "budget_limit")
        assert awareness is not None
        assert awareness.startswith("limit")
    events = [event for event in story.told if isinstance(event, Context)]
    assert all(event.after_count <= event.before_count for event in events)
    assert [event.action for event in events].count("compact") <= story.state.step + 1
    if context["overflow"] == "none":
        assert events == []


GIVEN = st.sampled_from(["", "a", "b", "c0", "call-2-0", "h1"])
ROUNDS = st.lists(st.lists(GIVEN, min_size=1, max_size=3), max_size=12)


def asked(rounds: list[list[str]], limit: int) -> Iterator[Story]:
    """A run whose model gives its calls these ids, and whose prompt holds so many messages; after each step."""
    config = {"context": {"history_messages_max": limit, "overflow": "truncate"}, "max_steps": 100}
    story = Story(config, history=HISTORY)
    for number, ids in enumerate(rounds):
        calls = tuple(
            CallRequest(id=each, name="look", arguments=f'{{"n":{number},"at":{at}}}')
            for at, each in enumerate(ids)
        )
        story.tell(story.reply(calls=calls))
        for call in [*story.state.calls.values()]:
            story.tell(
                ToolReturned(
                    step=story.state.step,
                    call_id=call.id,
                    attempt=1,
                    status="success",
                    result="seen",
                    started_at=NOW,
                    completed_at=NOW,
                )
            )
        yield story


@given(ROUNDS, st.integers(2, 9))
def test_calls_that_were_cut_are_forgotten_and_nothing_is_decided_otherwise(
    rounds: list[list[str]], limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "forget_calls", lambda _: None)
        kept = [(list(each.told), each.state.messages_digest) for each in asked(rounds, limit)]
    for story, (told, digest) in zip(asked(rounds, limit), kept, strict=True):
        assert (story.told, story.state.messages_digest) == (told, digest)
        subject = Subject(0, "run", "r", "r")
        assert decode_state(encode_state(story.state), subject) == story.state
        spoken = {call.id for message in story.state.messages for call in message.tool_calls}
        ids = [event.tool_call_id for event in told if isinstance(event, ToolCall)]
        assert all(story.state.knows_call(str(each)) for each in ids)
        assert len(set(ids)) == len(ids)
        if any(isinstance(event, Context) for event in story.told[-3:]):
            assert story.state.call_places.keys() <= spoken | story.state.calls.keys()


@given(st.lists(st.text(max_size=4)), st.lists(st.text(max_size=4)))
def test_a_set_of_ids_knows_those_that_were_added(added: list[str], others: list[str]) -> None:
    ids, known = IdSet(), set[str]()
    for each in added:
        ids.add(each)
        known.add(each)
        assert len(ids) == len(known)
    assert all(each in ids for each in added)
    assert [each in ids for each in others] == [each in known for each in others]
    assert len(ids.data) == 8 * len(known)
