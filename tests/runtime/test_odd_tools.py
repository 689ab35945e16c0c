"""Tools and models that end in odd ways, and what they hand over: no bad call harms its siblings or its log."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from foldlog.eventlog import RunFailed, TokenUsage, ToolResult
from foldlog.eventlog.events import ToolSpec
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import check_trace, load_trace, replay
from foldlog.runtime import Agent, Registry, Retryable, Runtime, ToolContext, ToolFailed, tool
from foldlog.runtime.agents.loop import RalphLoop
from foldlog.runtime.agents.loop_config import Stop
from foldlog.runtime.ports.models import Finished, TextDelta

from tests.runtime.conftest import call, calls, says

Script = Callable[..., str]


def fails(error: BaseException) -> Callable[..., Any]:
    def act(_: ToolContext) -> None:
        raise error

    return act


async def waits_for_what_is_cancelled(_: ToolContext) -> None:
    waiting = asyncio.ensure_future(asyncio.Event().wait())
    waiting.cancel()
    await waiting


def in_groups(*errors: Exception) -> Callable[..., Any]:
    return fails(ExceptionGroup("tasks", [ExceptionGroup("more tasks", list(errors))]))


class Alarm(BaseException):
    """Raise the timeout errors of other libraries."""


class Unstorable:
    def __repr__(self) -> str:
        return "<unstorable>"


ENDS: list[tuple[Callable[[ToolContext], Any], str]] = [
    (lambda _: sys.exit(3), "SystemExit: 3"),
    (fails(Alarm("too late")), "RuntimeError: Alarm: too late"),
    (waits_for_what_is_cancelled, "the call was cancelled from within the tool"),
    (fails(Retryable("busy", after_s=math.nan)), "busy"),
    (in_groups(ToolFailed("one thing")), "one thing"),
    (in_groups(Retryable("later", after_s=0.001)), "later"),
    (
        in_groups(ToolFailed("one"), KeyError("two")),
        "ExceptionGroup: more tasks (2 sub-exceptions): ToolFailed: one; KeyError: 'two'",
    ),
    (fails(Retryable("soon", after_s="2")), "soon"),  # type: ignore[arg-type] # what it is about
    (fails(ToolFailed("odd", result=Unstorable())), "odd"),
    (lambda context: context.memo(5, dict), "the name of a memo must be text, not 5"),  # type: ignore[arg-type] # as above
    (
        lambda context: context.run("agent", "x"),
        "only agents, swarms, loops and workflows can be run, not a str",
    ),  # type: ignore[arg-type]
    (
        lambda context: context.run(Agent("child"), 5),
        "the input of a child run: content must be a text, a File, or a list of texts and Files, not 5",
    ),  # type: ignore[arg-type]
    (lambda context: context.ask(5), "a question must be text, not 5"),  # type: ignore[arg-type] # as above
    (lambda context: context.ask("?", 5), "the form of a question must be a JSON Schema, not 5"),  # type: ignore[arg-type]
    (lambda context: context.ask("?", name=5), "the name of a question must be text, not 5"),  # type: ignore[arg-type]
    (lambda context: context.artifact("text"), "an artifact must be bytes, not 'text'"),  # type: ignore[arg-type] # as above
]


@pytest.mark.parametrize(("act", "told"), ENDS)
async def test_a_call_that_ends_oddly_has_an_error_for_result(
    script: Script, act: Callable[[ToolContext], Any], told: str
) -> None:
    @tool(effect="pure")
    async def odd(context: ToolContext) -> None:
        given = act(context)
        if given is not None:
            await given

    @tool(effect="pure")
    async def even() -> str:
        return "fine"

    turn = calls(call("odd", "o"), call("even", "e"))
    agent = Agent("a", model=script(turn, says("done")), tools=[odd, even], retry={"base_s": 0.001})
    log = MemoryLog()
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        assert (await run.result()).output == "done"
        events = [event async for event in run.stream(detailed=True) if isinstance(event, ToolResult)]
    ended = {event.tool_call_id: event for event in events}
    assert (ended["o"].success, ended["o"].error, ended["e"].result) == (False, told, "fine")
    assert ended["o"].metadata["attempt"] == (3 if told in {"busy", "later", "soon"} else 1)
    trace = await load_trace(log, run.run_id)
    assert check_trace(trace, ended=True) == []
    assert replay(trace).divergence is None


async def test_an_excessive_wait_is_a_year(script: Script) -> None:
    @tool(effect="pure", max_attempts=2)
    async def busy() -> None:
        raise Retryable("busy", after_s=1e300)

    agent = Agent("a", model=script(calls(call("busy")), says("done")), tools=[busy])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        async with asyncio.timeout(120):
            journal = await run._journal()
            state = await journal.follow_until(lambda state: any(c.retry_at for c in state.calls.values()))
        (waiting,) = state.calls.values()
        assert waiting.retry_at == pytest.approx(state.updated_at + 365 * 24 * 3600)
        assert await run.cancel() == "cancelled"


async def test_a_scorer_that_leaves_is_a_system_error(script: Script) -> None:
    def leave(_: Any) -> float:
        sys.exit(3)

    loop = RalphLoop(Agent("a", model=script(says("x"))), {"quality": leave}, Stop(max_iterations=2))
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[loop])) as runtime:
        run = await runtime.start(loop, "question")
        with pytest.raises(Exception, match="scorer quality: SystemExit: 3"):
            await run.result()


async def test_a_function_that_raises_a_base_exception_has_failed(script: Script) -> None:
    def score(_: Any) -> float:
        raise Alarm("too late")

    @tool(effect="pure")
    def slow() -> None:
        raise Alarm("too late")

    writer = Agent("a", model=script(calls(call("slow")), says("x")), tools=[slow])
    loop = RalphLoop(writer, {"quality": score})
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[loop])) as runtime:
        run = await runtime.start(loop, "question")
        with pytest.raises(RunFailed, match="scorer quality: RuntimeError: Alarm: too late"):
            await run.result()
        events = [event async for event in run.stream(detailed=True) if isinstance(event, ToolResult)]
    assert [event.error for event in events] == ["RuntimeError: Alarm: too late"]


async def test_a_synchronous_tool_may_return_what_is_to_be_awaited(script: Script) -> None:
    inner = Agent("inner", model=script(says("from below")))

    @tool(effect="pure")
    def delegate(context: ToolContext) -> Any:
        return context.run(inner, "go")

    @tool(effect="pure")
    def once(context: ToolContext) -> Any:
        return context.memo("part", lambda: "made")

    turn = calls(call("delegate", "d"), call("once", "o"))
    agent = Agent("a", model=script(turn, says("done")), tools=[delegate, once])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        told = [message.content for message in await run.history() if message.role == "tool"]
    assert told == ["from below", "made"]


class Odd:
    """A provider whose end of an answer is as given."""

    def __init__(self, **finished: Any) -> None:
        self.finished = finished

    def check(self, model: str) -> None:
        """Any model will do."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        yield TextDelta("hello")
        yield Finished(reason="stop", **self.finished)

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    "finished", [{"usage": TokenUsage(input_tokens="many")}, {"usage": 5}, {"model": 5}, {"cost_usd": 0.1}]
)
async def test_a_model_that_says_what_no_log_can_hold_is_a_failed_call(finished: dict[str, Any]) -> None:
    agent = Agent("a", model="odd:x")
    registry = Registry(agents=[agent], providers={"odd": Odd(**finished)})
    async with Runtime.open(log=MemoryLog(), registry=registry) as runtime:
        run = await runtime.start(agent, "question")
        with pytest.raises(RunFailed, match="Expected") as failed:
            await run.result()
        assert failed.value.error_type == "invalid_request"


@pytest.mark.parametrize(("said", "counts"), [("0.250", "0.25"), ("free", None), ("-1", None), ("inf", None)])
async def test_what_a_model_says_that_it_cost_counts_if_it_is_an_amount(
    said: str, counts: str | None
) -> None:
    agent = Agent("a", model="odd:x")
    registry = Registry(agents=[agent], providers={"odd": Odd(cost_usd=said)})
    async with Runtime.open(log=MemoryLog(), registry=registry) as runtime:
        assert (await runtime.run(agent, "question")).cost_usd == counts


class Given:
    """A tool that is not a function."""

    def __init__(self, result: Any) -> None:
        parameters = {"type": "object", "properties": {}}
        self.spec = ToolSpec(name="given", description="", parameters=parameters, effect="pure")
        self._result = result

    async def call(self, arguments: Mapping[str, Any], context: Any) -> Any:
        return self._result


@pytest.mark.parametrize("result", [Unstorable(), math.nan, "\ud800", 10**30], ids=repr)
async def test_a_tool_that_is_not_a_function_and_returns_no_json_has_failed(
    script: Script, result: Any
) -> None:
    agent = Agent("a", model=script(calls(call("given")), says("done")), tools=[Given(result)])
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "question")
        await run.result()
        assert "a value that JSON cannot hold" in (await run.history())[-2].content
