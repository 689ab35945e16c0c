"""Values from callers, tools and models that no log can hold are refused or repaired, and never stored."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, McpProgress, MemoryLog
from foldlog.replay import check_trace, load_trace
from foldlog.runtime import Agent, Custom, Registry, RunHandle, Runtime, ToolContext, tool

from .conftest import call, calls, says

pytestmark = pytest.mark.anyio

Script = Callable[..., str]
HALF = "a\ud800b"
"""Half of a character: Python holds it, UTF-8 does not."""


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"input": HALF}, "the input of a run is not valid Unicode at character 2"),
        ({"session": HALF}, "the session is not valid Unicode"),
        ({"session": 3}, "the session must be text, not int"),
        ({"idempotency_key": 3}, "the idempotency key must be text, not int"),
        ({"run_id": 3}, "the run id 3"),
        ({"messages": [{"role": "user", "content": HALF}]}, "messages"),
        ({"messages": [3]}, "messages"),
        ({"metadata": {"a": HALF}}, "metadata"),
        ({"metadata": [1]}, "metadata must be a JSON object, not list"),
    ],
)
async def test_a_submission_that_no_log_can_hold_is_refused(
    script: Script, options: dict[str, Any], what: str
) -> None:
    agent = Agent("helper", model=script(says("x")))
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        with pytest.raises(ConfigError, match=what):
            await runtime.start(agent, **{"input": "question", **options})


@pytest.mark.parametrize(
    ("tell", "what"),
    [
        (lambda run: run.cancel(reason=3), "the reason of a cancel must be text, not int"),
        (lambda run: run.cancel(by=HALF), r"the name of the actor \(by\) is not valid Unicode"),
        (lambda run: run.inject(HALF), "inject: text that is not valid Unicode"),
        (lambda run: run.pause(by=3), r"the name of the actor \(by\) must be text, not int"),
        (lambda run: run.refresh_tools({"search": 3}), "search"),
        (lambda run: run.refresh_tools({"search": {"command": HALF}}), "refreshtools: text"),
    ],
)
async def test_a_command_that_no_log_can_hold_is_refused_and_the_run_stays_readable(
    script: Script, tell: Callable[[RunHandle[str]], Awaitable[object]], what: str
) -> None:
    agent = Agent("helper", model=script(says("x")))
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
        before = (await run.state()).head
        with pytest.raises(ConfigError, match=what):
            await tell(run)
        assert (await run.state()).head == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda runtime, _: runtime.get_run(3).state(),
        lambda runtime, _: runtime.get_run(HALF).state(),
        lambda runtime, _: runtime.history(HALF),
        lambda runtime, _: runtime.drop_last_user_turns(HALF, 1),
        lambda runtime, _: runtime.drop_last_user_turns("s", "1"),
        lambda runtime, run: runtime.plan_fork(run.run_id, at="1"),
        lambda runtime, run: runtime.plan_fork(run.run_id, at=1, input=HALF),
    ],
    ids=[
        "id of another type",
        "half an id",
        "history",
        "drop",
        "drop of text",
        "fork at text",
        "fork with half",
    ],
)
async def test_a_question_that_makes_no_sense_is_one_clear_error(
    script: Script, ask: Callable[[Runtime, RunHandle[str]], Awaitable[object]]
) -> None:
    agent = Agent("helper", model=script(says("x")))
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        with pytest.raises(ConfigError):
            await ask(runtime, run)


@pytest.mark.parametrize(
    "act",
    [
        lambda context: context.progress(1, 2, HALF),
        lambda context: context.progress("half", 2),
        lambda context: context.emit(Custom(name="note", data={"a": HALF})),
        lambda context: context.emit(Custom(name="note", data={"a": object()})),
        lambda context: context.emit(McpProgress(tool_name="x", progress=1, total=1, message=3)),  # type: ignore[arg-type]
        lambda context: context.emit("no event"),
    ],
    ids=[
        "progress",
        "progress in words",
        "event",
        "event with an object",
        "event of another type",
        "no event",
    ],
)
async def test_a_tool_that_shows_what_no_log_can_hold_fails_alone(
    script: Script, act: Callable[[ToolContext], None]
) -> None:
    @tool(effect="pure")
    def shows(context: ToolContext) -> str:
        """Show something."""
        act(context)
        return "shown"

    agent = Agent("helper", model=script(calls(call("shows")), says("done")), tools=[shows])
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        assert (await run.result()).output == "done"
        [result] = [event async for event in run.stream(detailed=True) if event.type == "tool_result"]
        assert not result.success


async def test_a_tool_may_fail_with_any_message(script: Script) -> None:
    @tool(effect="pure")
    def fails() -> str:
        """Fail."""
        raise ValueError(HALF)

    agent = Agent("helper", model=script(calls(call("fails")), says("done")), tools=[fails])
    async with Runtime.open("memory://", registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        assert (await run.result()).output == "done"
        [result] = [event async for event in run.stream(detailed=True) if event.type == "tool_result"]
        assert result.error == "ValueError: a?b"


async def test_a_model_may_cut_a_character_in_two_or_write_half_of_one(tmp_path: Path) -> None:
    @tool(effect="pure")
    def echo(text: str) -> str:
        """Say it again."""
        return text

    turns = [
        {"tool_calls": [{"id": "1", "name": "echo", "arguments": {"text": HALF}}]},
        {"text": ["sun \ud83c", "\udf1e and ", HALF]},
    ]
    (tmp_path / "halves.json").write_text(json.dumps({"turns": turns}))
    agent = Agent("helper", model=f"scripted:{tmp_path / 'halves.json'}", tools=[echo])
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        drafts = [event.text async for event in run.stream() if event.type == "text"]
        assert (await run.result()).output == "".join(drafts) == "sun \U0001f31e and a\ufffdb"
        assert check_trace(await load_trace(log, run.run_id)) == []


async def test_what_is_nested_too_deeply_is_refused_or_told_to_the_model(script: Script) -> None:
    @tool(effect="pure")
    async def take(x: Any) -> str:
        """Take something."""
        return "taken"

    deep = '{"x":' * 2_000 + "1" + "}" * 2_000
    asks = {"tool_calls": [{"id": "c", "name": "take", "arguments": deep}]}
    agent = Agent("helper", model=script(asks, {"text": ["done"]}), tools=[take])
    async with Runtime.open("memory://") as runtime:
        with pytest.raises(ConfigError, match="metadata must be a JSON object"):
            await runtime.start(agent, "question", metadata={"deep": _nested(2_000)})
        run = await runtime.start(agent, "question")
        assert (await run.result()).output == "done"
        (result,) = [event async for event in run.stream(detailed=True) if event.type == "tool_result"]
    assert (result.success, result.error) == (False, "the arguments are not a JSON object")


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value
