"""The scripted model: deterministic answers by the place in the run, and clear words for every mistake in a script."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.models import ScriptedProvider
from foldlog.eventlog.clock import SystemClock
from foldlog.eventlog.errors import ConfigError
from foldlog.eventlog.events import TokenUsage
from foldlog.projections.messages import CallRequest, Message
from foldlog.runtime.ports.models import (
    AuthenticationFailed,
    CallDelta,
    ContextOverflow,
    Delta,
    Finished,
    InvalidRequest,
    ModelError,
    ModelRequest,
    QuotaExceeded,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    TransientModelError,
)

INPUT = Message(role="user", content="Who?")
CALLED = (
    Message(role="assistant", tool_calls=(CallRequest(id="c1", name="search", arguments="{}"),)),
    Message(role="tool", content="found", tool_call_id="c1"),
)
Write = Callable[..., None]


class NotingClock(SystemClock):
    """Sleeps at once and notes for how long."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes turns (or text) to `script.json`, which is where relative names are looked for."""
    monkeypatch.setenv("FOLDLOG_SCRIPT_DIR", str(tmp_path))

    def write_script(*turns: Any, text: str | bytes | None = None) -> None:
        content = json.dumps({"turns": turns}) if text is None else text
        (tmp_path / "script.json").write_bytes(content if isinstance(content, bytes) else content.encode())

    return write_script


async def answer(provider: ScriptedProvider, *behind: Message, **fields: Any) -> list[Delta]:
    request = ModelRequest(model="script.json", messages=(INPUT, *behind), **fields)
    return [delta async for delta in provider.stream(request)]


async def test_a_turn_streams_reasoning_text_and_calls_and_ends_with_its_usage(write: Write):
    write(
        {
            "reasoning": "Hm.",
            "text": ["Fin", "al"],
            "tool_calls": [
                {"id": "c1", "name": "search", "arguments": {"q": "ü"}},
                {"id": "c2", "name": "search", "arguments": '{"q": '},
                {"id": "c3", "name": "now"},
            ],
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "cached_input_tokens": 2,
                "reasoning_tokens": 1,
            },
        }
    )
    assert await answer(ScriptedProvider()) == [
        ReasoningDelta("Hm."),
        TextDelta("Fin"),
        TextDelta("al"),
        CallDelta(index=0, id="c1", name="search", arguments='{"q": "ü"}'),
        CallDelta(index=1, id="c2", name="search", arguments='{"q": '),
        CallDelta(index=2, id="c3", name="now", arguments="{}"),
        Finished(
            reason="tool_calls",
            usage=TokenUsage(
                input_tokens=10, output_tokens=5, total_tokens=15, cached_input_tokens=2, reasoning_tokens=1
            ),
            model="script.json",
        ),
    ]


async def test_an_empty_turn_is_an_empty_answer_that_cost_nothing(write: Write):
    write({})
    assert await answer(ScriptedProvider()) == [
        Finished(reason="stop", usage=TokenUsage(), model="script.json")
    ]


async def test_the_turn_follows_from_the_request_alone(write: Write):
    write({"text": "one"}, {"text": "two"}, {"text": "three"})
    provider = ScriptedProvider()
    for behind, text in [((*CALLED, *CALLED), "three"), ((), "one"), (CALLED, "two"), ((), "one")]:
        assert (await answer(provider, *behind))[0] == TextDelta(text)


async def test_answers_from_before_the_run_do_not_shift_its_turns(write: Write):
    write({"text": "one"}, {"text": "two"})
    earlier = (INPUT, Message(role="assistant", content="Before."), INPUT)
    for messages, text in [(earlier, "one"), ((*earlier, *CALLED), "two")]:
        request = ModelRequest(model="script.json", messages=messages, history=2)
        assert await anext(ScriptedProvider().stream(request)) == TextDelta(text)


async def test_a_run_that_asks_for_more_turns_than_there_are_is_told_so(write: Write, tmp_path: Path):
    write({"text": "one"})
    with pytest.raises(InvalidRequest) as caught:
        await answer(ScriptedProvider(), *CALLED)
    assert str(caught.value) == (
        f"scripted:script.json: {tmp_path / 'script.json'} has 1 turns, but the run needs turn 2"
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("transient", TransientModelError),
        ("rate_limit", RateLimited),
        ("context_overflow", ContextOverflow),
        ("quota", QuotaExceeded),
        ("auth", AuthenticationFailed),
        ("invalid_request", InvalidRequest),
    ],
)
async def test_a_turn_fails_as_often_as_it_says_and_then_answers(
    write: Write, kind: str, expected: type[ModelError]
):
    write({"text": "x", "error": {"type": kind, "times": 2, "retry_after_ms": 1500}})
    provider = ScriptedProvider()
    for attempt in (1, 2):
        with pytest.raises(ModelError) as caught:
            await answer(provider, attempt=attempt)
        assert type(caught.value) is expected
        assert caught.value.retry_after_s == 1.5
        assert "turn 1" in str(caught.value)
    assert (await answer(provider, attempt=3))[0] == TextDelta("x")


@pytest.mark.parametrize(("after", "came"), [(0, []), (1, ["a"]), (2, ["a", "b"]), (9, ["a", "b"])])
async def test_an_error_may_come_in_the_middle_of_the_answer(write: Write, after: int, came: list[str]):
    write({"text": ["a", "b"], "error": {"type": "transient", "after_chunks": after}})
    seen: list[Delta] = []

    async def read() -> None:
        async for delta in ScriptedProvider().stream(ModelRequest(model="script.json", messages=(INPUT,))):
            seen.append(delta)  # noqa: PERF401 - what came before the error counts.

    with pytest.raises(TransientModelError):
        await read()
    assert seen == [TextDelta(text) for text in came]


async def test_a_retried_turn_may_answer_with_another_text(write: Write):
    write({"text": ["a", "b"], "retry_text": ["a", "c"], "error": {"type": "transient", "after_chunks": 2}})
    assert (await answer(ScriptedProvider(), attempt=2))[:-1] == [TextDelta("a"), TextDelta("c")]


async def test_all_waiting_goes_through_the_clock(write: Write):
    write({"text": ["a", "b", "c"], "delay_ms": 40, "chunk_delay_ms": 5})
    clock = NotingClock()
    await answer(ScriptedProvider(clock))
    assert clock.slept_s == [0.04, 0.005, 0.005]


async def test_a_turn_without_delays_does_not_wait_at_all(write: Write):
    write({"text": ["a", "b"]})
    clock = NotingClock()
    await answer(ScriptedProvider(clock))
    assert clock.slept_s == []


async def test_a_changed_file_is_read_again(write: Write, tmp_path: Path):
    provider = ScriptedProvider()
    write({"text": "old"})
    assert (await answer(provider))[0] == TextDelta("old")
    write({"text": "new"})
    os.utime(tmp_path / "script.json", ns=(1, 1))
    assert (await answer(provider))[0] == TextDelta("new")


async def test_relative_names_start_at_the_working_directory_without_a_script_directory(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write({"text": "here"})
    monkeypatch.delenv("FOLDLOG_SCRIPT_DIR")
    monkeypatch.chdir(tmp_path)
    assert (await answer(ScriptedProvider()))[0] == TextDelta("here")
    ScriptedProvider().check(str(tmp_path / "script.json"))


# --- mistakes ---------------------------------------------------------------------------------------------------------


async def refusal(model: str = "script.json") -> str:
    """Return the error of `check`; a call raises the same."""
    provider = ScriptedProvider()
    with pytest.raises(ConfigError) as checked:
        provider.check(model)
    with pytest.raises(InvalidRequest) as called:
        await anext(provider.stream(ModelRequest(model=model, messages=(INPUT,))))
    assert str(called.value) == str(checked.value)
    return str(checked.value)


async def test_a_file_that_is_not_there_is_named_with_the_place_it_was_looked_for(
    write: Write, tmp_path: Path
):
    told = await refusal("none.json")
    assert str(tmp_path / "none.json") in told
    assert "FOLDLOG_SCRIPT_DIR" in told
    assert "No such file" in told
    assert "Is a directory" in await refusal(".")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"turns": [\n  {"text": ["a"} ]}', "line 2, column 16: Expecting ',' delimiter"),
        ("", "line 1, column 1: Expecting value"),
        (b'{"turns": ["\xff"]}', "is not UTF-8 text"),
        ("[]", "Input should be"),
        ("{}", "turns: Field required"),
        ('{"turn": []}', "unknown key 'turn'; did you mean 'turns'?"),
        ('{"turns": {}}', "turns: Input should be a valid list"),
    ],
)
async def test_a_file_that_is_not_a_script_is_refused_with_its_name_and_the_place(
    write: Write, tmp_path: Path, text: str | bytes, told: str
):
    write(text=text)
    message = await refusal()
    assert message.startswith(str(tmp_path / "script.json"))
    assert told in message


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ({"txt": []}, "unknown key 'txt'; did you mean 'text'?"),
        ({"{type}": []}, "unknown key '{type}'; known are 'text'"),
        ({"tool_calls": [{"id": "c", "nam": "f"}]}, "tool_calls[0]: unknown key 'nam'; did you mean 'name'?"),
        ({"tool_calls": [{"name": "f"}]}, "tool_calls[0].id: Field required"),
        (
            {"tool_calls": [{"id": "c", "name": "f", "arguments": 5}]},
            "tool_calls[0].arguments: Input should be",
        ),
        ({"usage": {"input_token": 5}}, "usage: unknown key 'input_token'; did you mean 'input_tokens'?"),
        ({"usage": {"input_tokens": -1}}, "usage.input_tokens: Input should be greater than"),
        ({"usage": {"input_tokens": "5"}}, "usage.input_tokens: Input should be a valid integer"),
        ({"error": {"type": "transiet"}}, "error.type: Input should be 'transient', 'rate_limit'"),
        ({"error": {"type": "auth", "time": 2}}, "error: unknown key 'time'; did you mean 'times'?"),
        ({"delay_ms": -1}, "delay_ms: Input should be greater than"),
        ({"text": [5]}, "text[0]: Input should be a valid string"),
        ("text", "Input should be"),
    ],
)
async def test_a_mistake_in_a_turn_is_told_with_file_turn_and_key(
    write: Write, tmp_path: Path, turn: Any, told: str
):
    write({"text": "fine"}, turn)
    message = await refusal()
    assert message.startswith(f"{tmp_path / 'script.json'}: turn 2: ")
    assert told in message
