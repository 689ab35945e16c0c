"""The pure core: given these facts, when this is wanted, then these facts follow; and what always holds (W21)."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from foldlog.eventlog.events import (
    ENGINE,
    OBSERVABLE,
    McpProgress,
    Step,
    StoredEvent,
    Submitted,
    TokenUsage,
    ToolCall,
    ToolResult,
    ToolSpec,
    Unknown,
)
from foldlog.projections.fold import apply, evolve
from foldlog.projections.messages import CallRequest, chain
from foldlog.projections.run_state import RunState
from foldlog.projections.snapshot import encode_state, state_in
from foldlog.runtime.core.commands import (
    Cancel,
    ChildEnded,
    ChildSpawned,
    Claim,
    Command,
    Inject,
    ModelCallFailed,
    ModelReplied,
    Pause,
    PreparationFailed,
    Release,
    Resolve,
    Resume,
    Tick,
    TimerDue,
    ToolEmitted,
    ToolReturned,
    ToolsResolved,
)
from foldlog.runtime.core.decide import advance, decide, pending, take, unsafe_starts
from foldlog.runtime.core.effects import CallModel, CallTool, Prepare, WaitUntil
from foldlog.runtime.core.rules import RetryRules, Rules
from foldlog.runtime.core.tool_calls import free_id
from foldlog.runtime.core.turn import Turn
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0
RULES = Rules(model="sim:m", max_steps=3, hitl_tools=frozenset({"deploy"}), retry=RetryRules(attempts=3))
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = tuple(
    ToolSpec(name=name, description=name, parameters=PARAMETERS, effect=effect, max_attempts=attempts)
    for name, effect, attempts in (
        ("look", "pure", 1),
        ("save", "idempotent", 2),
        ("send", "unsafe", 1),
        ("deploy", "unsafe", 1),
    )
)
CONFIG = {"model": "sim:m", "instructions": "be brief"}
SUBMITTED = Submitted(kind="agent", config=CONFIG, config_digest="c", input="question", input_digest="i")


def given_events(*events: StoredEvent) -> RunState:
    """The state after these facts."""
    state = RunState(run="r", root="r", path="agent")
    for event in (SUBMITTED, *events):
        apply(state, event, NOW)
    return state


class Story:
    """A run told by commands: each is decided, folded, and remembered."""

    def __init__(self, *commands: Command, rules: Rules = RULES) -> None:
        self.rules, self.now = rules, NOW
        self.state = given_events()
        self.told: list[StoredEvent] = []
        self.last: tuple[StoredEvent, ...] = ()
        self.tell(*commands)

    def tell(self, *commands: Command) -> Story:
        for command in commands:
            self.last = decide(self.state, self.rules, command, self.now)
            for event in self.last:
                apply(self.state, event, self.now)
            self.told.extend(self.last)
        return self

    @property
    def types(self) -> list[str]:
        """Return the events of the last command in short form."""
        words = []
        for event in self.last:
            status = getattr(event, "status", None) or getattr(event, "reason", None)
            words.append(f"{event.type}({status})" if status else event.type)
        return words


CLAIM = Claim("w0", 10.0)
PREPARED = ToolsResolved(tools=TOOLS, model="sim:m")


def replies(*names: str, text: str = "", step: int = 1, attempt: int = 1) -> ModelReplied:
    """The model asks for these tools, or says something."""
    requests = tuple(
        CallRequest(id=f"{step}-{index}-{name}", name=name, arguments="{}")
        for index, name in enumerate(names)
    )
    usage = TokenUsage(input_tokens=1)
    return ModelReplied(step=step, attempt=attempt, text=text, calls=requests, usage=usage, model="m")


def returns(call_id: str, *, status: Any = "success", attempt: int = 1, step: int = 1) -> ToolReturned:
    """A tool's outcome."""
    return ToolReturned(
        step=step,
        call_id=call_id,
        attempt=attempt,
        status=status,
        result="ok",
        error=None if status == "success" else "bad",
        started_at=NOW,
        completed_at=NOW + 1,
    )


# --- given, when, then ------------------------------------------------------------------------------------------------


def test_a_claim_prepares_and_nothing_else_until_the_tools_are_known() -> None:
    story = Story(CLAIM)
    assert (story.types, pending(story.state, NOW)) == (["claimed"], (Prepare(),))


def test_the_first_step_follows_from_the_preparation() -> None:
    story = Story(CLAIM, PREPARED)
    assert story.types == ["prepared", "step(started)", "model_requested"]
    assert pending(story.state, NOW) == (CallModel(step=1, attempt=1),)


def test_a_final_answer_closes_its_step_and_the_run() -> None:
    story = Story(CLAIM, PREPARED, replies(text="done"))
    assert story.types == ["text", "usage", "step(completed)", "status(completed)"]
    assert (story.state.output, pending(story.state, NOW)) == ("done", ())


def test_a_reply_with_calls_holds_approvals_after_all_calls_and_then_pauses() -> None:
    story = Story(CLAIM, PREPARED, replies("deploy", "look", text="so"))
    expected = ["text", "usage", "tool_call", "tool_call", "approval_requested", "status(paused)"]
    assert story.types == expected
    assert pending(story.state, NOW) == (CallTool(step=1, call_id="1-1-look", attempt=1),)


def test_a_run_parks_once_nothing_is_left_but_approvals() -> None:
    story = Story(CLAIM, PREPARED, replies("deploy", "look"), returns("1-1-look"))
    assert story.types == ["tool_result", "parked(approval)"]
    assert (story.state.owner, story.state.runnable) == (None, False)


def test_an_unsafe_call_is_started_in_the_log_before_it_is_pending() -> None:
    story = Story(CLAIM, PREPARED, replies("send"))
    assert pending(story.state, NOW) == ()
    (started,) = unsafe_starts(story.state, NOW)
    apply(story.state, started, NOW)
    assert unsafe_starts(story.state, NOW) == ()
    assert pending(story.state, NOW) == (CallTool(step=1, call_id="1-0-send", attempt=1),)


def test_a_claim_over_a_started_unsafe_call_does_nothing_but_ask() -> None:
    story = Story(CLAIM, PREPARED, replies("send", "look"))
    for event in unsafe_starts(story.state, NOW):
        apply(story.state, event, NOW)
    story.tell(Claim("w1", 10.0))
    assert story.types == ["claimed", "approval_requested", "status(paused)", "parked(unverifiable)"]
    assert pending(story.state, NOW) == ()
    story.tell(returns("1-0-send"))
    assert story.last == ()


@pytest.mark.parametrize(
    ("outcome", "status"), [("succeeded", "success"), ("failed", "error"), ("retry", None)]
)
def test_a_decision_settles_an_unverifiable_call(outcome: Any, status: str | None) -> None:
    story = Story(CLAIM, PREPARED, replies("send"))
    for event in unsafe_starts(story.state, NOW):
        apply(story.state, event, NOW)
    story.tell(Claim("w1", 10.0))
    (approval,) = story.state.pending_approvals
    story.tell(Resolve(approval_id=approval.request.approval_id, decision="approved", outcome=outcome))
    assert story.types == ["approval_resolved", "status(resumed)"]
    story.tell(Claim("w1", 10.0))
    results = [event for event in story.last if event.type == "tool_result"]
    assert [event.metadata["status"] for event in results] == ([status] if status else [])  # type: ignore[union-attr]
    assert bool(unsafe_starts(story.state, NOW)) == (status is None)


def test_a_claim_over_a_model_call_makes_the_next_attempt() -> None:
    story = Story(CLAIM, PREPARED, Claim("w1", 10.0))
    assert story.types == ["claimed", "model_requested"]
    assert pending(story.state, NOW) == (CallModel(step=1, attempt=2),)


def failed(attempt: int, error_type: str = "rate_limit", after_s: float | None = None) -> ModelCallFailed:
    return ModelCallFailed(
        step=1, attempt=attempt, error_type=error_type, message="no", retry_after_s=after_s
    )


def test_a_claim_over_a_model_call_that_is_tried_again_goes_on_trying() -> None:
    story = Story(CLAIM, PREPARED, failed(1))
    assert isinstance(pending(story.state, NOW)[0], WaitUntil)
    story.now += 60
    story.tell(Tick())
    assert story.types == ["model_requested"]
    story.tell(Claim("w1", 10.0))
    assert story.types == ["claimed", "model_requested"]


def test_a_retry_that_is_due_already_is_still_made() -> None:
    story = Story(CLAIM, PREPARED, failed(1))
    assert [type(effect) for effect in pending(story.state, NOW + 3600)] == [WaitUntil]


def test_a_retry_that_is_far_away_parks_the_run_and_its_timer_goes_on() -> None:
    story = Story(CLAIM, PREPARED, failed(1, after_s=60.0))
    assert story.types == ["model_failed", "parked(timer)"]
    parked = story.state.parked
    assert parked is not None
    story.now += 60
    turn = Turn(story.state, RULES, story.now)
    take(turn, Claim("w1", 10.0))
    take(turn, TimerDue(parked.timer_id))
    advance(turn)
    assert [event.type for event in turn.events] == ["claimed", "timer_fired", "model_requested"]


def test_an_error_that_no_retry_mends_ends_the_run_within_its_step() -> None:
    story = Story(CLAIM, PREPARED, failed(1, "auth"))
    assert story.types == ["model_failed", "error", "status(error)"]
    assert story.last[1].step == 1


def test_max_steps_is_an_error_after_the_last_step() -> None:
    story = Story(CLAIM, PREPARED)
    for step in range(1, 4):
        story.tell(replies("look", step=step), returns(f"{step}-0-look", step=step))
    assert story.types[-3:] == ["step(completed)", "error", "status(error)"]


def test_a_message_that_comes_while_the_last_allowed_step_answers_leaves_the_answer_standing() -> None:
    story = Story(CLAIM, PREPARED)
    for step in (1, 2):
        story.tell(replies("look", step=step), returns(f"{step}-0-look", step=step))
    story.tell(Inject("and?"), replies(text="done", step=3))
    assert story.types[-2:] == ["step(completed)", "status(completed)"]


def test_a_queued_message_keeps_a_run_from_completing() -> None:
    story = Story(CLAIM, PREPARED, Inject("and?"), replies(text="done"))
    assert story.types == [
        "text",
        "usage",
        "step(completed)",
        "message_injected",
        "step(started)",
        "model_requested",
    ]


def test_a_cancel_revokes_approvals_and_ends_the_run_in_one_commit() -> None:
    story = Story(CLAIM, PREPARED, replies("deploy"), Cancel("enough"))
    assert story.types == ["approval_revoked", "cancel_requested(enough)", "status(cancelled)"]
    assert decide(story.state, RULES, Inject("hello"), NOW) == ()


def test_a_pause_takes_effect_between_two_steps() -> None:
    story = Story(CLAIM, PREPARED, replies("look"), Pause())
    assert story.types == ["pause_requested"]
    story.tell(returns("1-0-look"))
    assert story.types[-3:] == ["step(completed)", "status(paused)", "parked(manual)"]
    story.tell(Resume())
    assert story.types == ["status(resumed)"]


@pytest.mark.parametrize(
    ("given", "taken", "free"),
    [
        ("a", set(), "a"),
        ("", set(), "call-1-0"),
        ("a", {"a"}, "call-1-0"),
        ("a", {"a", "call-1-0"}, "call-1-0-"),
    ],
)
def test_a_call_gets_an_id_that_no_other_call_has(given: str, taken: set[str], free: str) -> None:
    assert free_id(given, "call-1-0", taken.__contains__) == free


def test_decide_leaves_the_state_alone() -> None:
    story = Story(CLAIM, PREPARED)
    before = copy.deepcopy(story.state)
    assert decide(story.state, RULES, replies("look", "deploy"), NOW)
    assert story.state == before


# --- what holds of every story ----------------------------------------------------------------------------------------


def wishes(state: RunState, dice: random.Random) -> Command:
    """Something that may be wanted now, likely or not."""
    calls = list(state.calls) or ["none"]
    call = dice.choice(calls)
    approvals = list(state.approvals) or ["none"]
    attempt = state.calls[call].failures + 1 if call in state.calls else 1
    timer = state.parked.timer_id if state.parked is not None else f"approval-{dice.choice(approvals)}"
    names = tuple(
        dice.choice(("look", "save", "send", "deploy", "nothing")) for _ in range(dice.randint(0, 3))
    )
    child = dice.choice([*state.open_children, "child-9"])
    decision: Any = dice.choice(("approved", "rejected"))
    outcome: Any = dice.choice((None, "retry", "succeeded", "failed"))
    makers: tuple[Callable[[], Command], ...] = (
        lambda: Claim("w1", 10.0),
        lambda: Release("leaving"),
        lambda: PREPARED,
        lambda: replies(*names, text="text", step=state.step, attempt=state.model.attempt),
        lambda: replies(*names, text="text", step=state.step, attempt=state.model.attempt),
        lambda: replies(*names, text="text", step=state.step, attempt=state.model.attempt),
        lambda: ModelCallFailed(
            step=state.step,
            attempt=state.model.attempt,
            error_type=dice.choice(("transient", "rate_limit", "auth")),
            message="no",
            retry_after_s=dice.choice((None, 60.0)),
        ),
        lambda: ToolEmitted(
            step=state.step,
            call_id=call,
            ordinal=dice.randint(0, 1),
            event=McpProgress(tool_name="look", progress=1),
        ),
        lambda: returns(call, status=dice.choice(("success", "error")), attempt=attempt, step=state.step),
        lambda: returns(call, status="success", attempt=attempt, step=state.step),
        lambda: ChildSpawned(
            call_id=call,
            ordinal=dice.randint(0, 1),
            child_run=f"child-{dice.randint(0, 9)}",
            name="c",
            kind="agent",
        ),
        lambda: ChildEnded(child_run=child, status="completed"),
        lambda: TimerDue(timer),
        Tick,
        lambda: Inject("hello"),
        Pause,
        Resume,
        lambda: Resolve(approval_id=dice.choice(approvals), decision=decision, outcome=outcome),
        lambda: Cancel("enough"),
        lambda: PreparationFailed(error_type="config_error", message="no"),
    )
    rare = 2
    return dice.choice(makers if dice.random() < 0.1 else makers[:-rare])()


def told_at_random(seed: int) -> Story:
    """A story of up to 25 commands, some of which come too late."""
    dice = random.Random(seed)
    story = Story(CLAIM, PREPARED)
    for _ in range(dice.randint(0, 25)):
        for started in unsafe_starts(story.state, story.now):
            apply(story.state, started, story.now)
            story.told.append(started)
        story.now += dice.choice((0.0, 1.0, 120.0))
        story.tell(wishes(story.state, dice))
    return story


@given(st.integers(0, 2**32))
def test_folding_in_place_is_what_the_pure_fold_gives(seed: int) -> None:
    story = told_at_random(seed)
    pure = RunState(run="r", root="r", path="agent")
    for event in (SUBMITTED, *story.told):
        pure = evolve(pure, event, NOW)
    in_place = given_events(*story.told)
    assert pure == in_place


@given(st.integers(0, 2**32))
def test_the_digest_of_the_messages_is_the_same_whenever_it_is_read(seed: int) -> None:
    asked, asked_late = given_events(), given_events()
    for event in told_at_random(seed).told:
        apply(asked, event, NOW)
        apply(asked_late, event, NOW)
        assert asked.messages_digest
    assert asked_late.linked_messages == 0
    assert encode_state(asked) == encode_state(copy.deepcopy(asked_late))
    assert asked == asked_late


def test_a_call_whose_id_is_used_again_keeps_its_place_in_the_digest() -> None:
    rounds: list[StoredEvent] = []
    for step in (1, 2):
        rounds += [
            Step(step=step, status="started"),
            ToolCall(step=step, tool_call_id="same", tool_name="look"),
            ToolResult(step=step, tool_call_id="same", tool_name="look", success=True, result="ok"),
            Step(step=step, status="completed"),
        ]
    state = given_events(*rounds)
    digest = ""
    for message, step in zip(state.messages, (0, 0, 1, 1, 2, 2), strict=True):
        digest = chain(digest, message, {"same": (step, 0)})
    assert state.messages_digest == digest


@given(st.integers(0, 2**32))
def test_a_state_goes_through_a_snapshot_unchanged_at_every_revision(seed: int) -> None:
    story = told_at_random(seed)
    state = cached = given_events()
    for event in story.told:
        state, restored = evolve(state, event, NOW), state_in(encode_state(cached))
        assert restored is not None
        cached = evolve(restored, event, NOW)
        assert cached == state


@given(st.integers(0, 2**32))
def test_a_command_that_is_taken_again_yields_nothing(seed: int) -> None:
    story = told_at_random(seed)
    dice = random.Random(seed + 1)
    for _ in range(10):
        command = wishes(story.state, dice)
        if isinstance(command, Claim | Inject):  # a new epoch, a new message: their append ids make them one
            continue
        story.tell(command)
        assert decide(story.state, RULES, command, story.now) == ()


@given(st.integers(0, 2**32))
def test_a_run_that_is_over_wants_nothing_and_takes_nothing(seed: int) -> None:
    story = told_at_random(seed).tell(Cancel("enough"))
    dice = random.Random(seed)
    assert pending(story.state, story.now) == ()
    assert unsafe_starts(story.state, story.now) == ()
    for _ in range(10):
        assert decide(story.state, RULES, wishes(story.state, dice), story.now) == ()


@given(st.integers(0, 2**32))
def test_a_run_with_an_owner_always_has_something_to_wait_for(seed: int) -> None:
    """Runnable and owned, it has an effect, an unsafe start, or an approval or a child that others decide on."""
    state = told_at_random(seed).state
    if not state.runnable or state.owner is None:
        return
    waits = [call for call in state.calls.values() if call.result is None and call.approval_id]
    assert pending(state, NOW) or unsafe_starts(state, NOW) or waits


# --- the fold is total ------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "", "1-0-look"])


def built(cls: type[StoredEvent]) -> st.SearchStrategy[StoredEvent]:
    """Any event of a kind, by decoding what its schema allows."""
    fields = {
        field.encode_name: _of(msgspec.inspect.type_info(field.type)) for field in msgspec.structs.fields(cls)
    }
    envelope = {"run_id", "root_id", "agent", "revision", "cursor", "at"}
    kept = {name: value for name, value in fields.items() if name not in envelope}
    return st.fixed_dictionaries(kept).map(lambda data: msgspec.convert(data, cls, strict=False))


def _of(info: Any) -> st.SearchStrategy[Any]:  # noqa: C901, PLR0912 - one line each
    match info:
        case msgspec.inspect.StrType():
            return IDS
        case msgspec.inspect.IntType():
            return st.integers(0, 3)
        case msgspec.inspect.FloatType():
            return st.floats(0, 4e9)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType():
            return st.sampled_from(info.values)
        case msgspec.inspect.UnionType():
            return st.one_of([_of(each) for each in info.types])
        case msgspec.inspect.ListType():
            return st.lists(_of(info.item_type), max_size=2)
        case msgspec.inspect.TupleType():
            return st.tuples(*(_of(each) for each in info.item_types))
        case msgspec.inspect.DictType():
            return st.dictionaries(_of(info.key_type), _of(info.value_type), max_size=2)
        case msgspec.inspect.StructType():
            fields = {field.encode_name: _of(field.type) for field in info.fields}
            if info.tag_field is not None:
                fields[info.tag_field] = st.just(info.tag)
            return st.fixed_dictionaries(fields)
        case _:
            return st.sampled_from(["x", 1, None, {"k": [1]}])


def event_strategies() -> st.SearchStrategy[StoredEvent]:
    kinds = [cls for cls in (*OBSERVABLE, *ENGINE) if cls is not Submitted]
    return st.one_of([built(cls) for cls in kinds])  # type: ignore[arg-type]


@given(st.lists(event_strategies(), max_size=12))
def test_the_fold_takes_any_event_in_any_state(events: list[StoredEvent]) -> None:
    state = given_events()
    for event in [*events, Unknown(original_type="newer", data={})]:
        before = copy.deepcopy(state)
        after = evolve(state, event, NOW)
        assert state == before
        apply(state, event, NOW)
        assert state == after
        assert state_in(encode_state(state)) == state
