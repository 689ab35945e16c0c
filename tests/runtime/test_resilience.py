"""Retries, fallback models, quotas and time-outs, on both executors and both logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from foldlog.adapters.models import OpenAIProvider, ScriptedProvider
from foldlog.eventlog import MemoryLog, RunFailed
from foldlog.replay import check_parity, load_trace, replay, rerun
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, ToolContext, Worker, tool
from foldlog.runtime.core.rules import rules_of
from foldlog.runtime.driving.host import Host
from foldlog.runtime.driving.model_call import Patience, first_token_timeout_s

from tests.fakes.openai_server import Fault, Reply, serve

from .conftest import HeldClock, JumpingClock, Place, Turn, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
FAST = {"attempts": 2, "base_s": 0.001}
ANSWER = {"choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]}


@tool(effect="pure")
async def search(query: str) -> str:
    """Search for something."""
    return f"found {query}"


def failing(turn: Turn, times: int = 99, error_type: str = "rate_limit") -> Turn:
    """The turn, after so many failures."""
    return {**turn, "error": {"type": error_type, "times": times}}


async def asked(place: Place, run: RunHandle[Any]) -> list[str]:
    """The models that were asked, in order."""
    trace = await load_trace(place.log, run.run_id)
    return [event.model for event in trace.events if event.type == "model_requested"]


async def test_a_fallback_answers_and_nobody_sees_a_difference(place: Place, script: Script) -> None:
    asks = calls(call("search", query="x"))
    first = script(failing(asks), says("first"))
    spare = script(asks, says("spare"))
    agent = Agent("helper", model=first, fallback_models=[spare], tools=[search], retry=FAST)
    await place.open(agent)
    run = await place.start(agent)
    result = await run.result()
    assert (result.output, result.steps) == ("first", 2)
    assert await asked(place, run) == [first, first, spare, first]
    seen = await place.events(run)
    assert names(seen) == [
        "status(starting)",
        "step(started)",
        "usage",
        "tool_call",
        "tool_result",
        "step(completed)",
        "step(started)",
        "text",
        "usage",
        "step(completed)",
        "status(completed)",
    ]
    answered = [event.model for event in seen if event.type == "usage"]
    assert answered == [spare.partition(":")[2], first.partition(":")[2]]


async def test_a_run_with_a_fallback_runs_again_from_its_recording(place: Place, script: Script) -> None:
    first, spare = script(failing(says("never"))), script(says("spare"))
    agent = Agent("helper", model=first, fallback_models=[spare], retry=FAST)
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    recorded = await load_trace(place.log, run.run_id)
    again = await rerun(recorded)
    digests = [[e.digest for e in each.events if e.type == "model_requested"] for each in (recorded, again)]
    assert digests[0] == digests[1]


async def test_a_run_may_pause_when_no_model_is_left(place: Place, script: Script) -> None:
    first = script(failing(says("at last"), times=2))
    agent = Agent("helper", model=first, retry={**FAST, "exhausted": "pause"})
    await place.open(agent)
    run = await place.start(agent)
    async for event in run.stream():
        if event.type == "status" and event.status == "paused":
            assert (event.reason, event.message.partition(":")[0]) == ("policy", "rate_limit")
            break
    assert (await run.state()).status == "paused"
    await run.resume()
    assert (await run.result()).output == "at last"
    assert names(await place.events(run))[1:] == [
        "step(started)",
        "status(paused)",
        "status(resumed)",
        "text",
        "usage",
        "step(completed)",
        "status(completed)",
    ]


async def test_with_its_quota_used_up_a_run_does_not_try_again(place: Place, script: Script) -> None:
    first = script(failing(says("never"), error_type="transient"))
    agent = Agent("helper", model=first, retry={"attempts": 9, "base_s": 0.001, "quota": {"transient": 3}})
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failure:
        await run.result()
    assert failure.value.error_type == "transient"
    assert len(await asked(place, run)) == 4


async def test_a_takeover_continues_with_the_model_that_was_being_called() -> None:
    agent = Agent("helper", model="openai:a", fallback_models=["openai:b", "openai:c"], retry=FAST)
    script = {"turns": [failing(says("done"), times=5)]}
    for operation in range(1, 13):
        report = await check_parity(agent, "question", script=script, faults=f"crash@{operation}")
        assert report.equal, report.render()
        models = [
            [event.model for event in trace.events if event.type == "usage"]
            for trace in report.traces.values()
        ]
        assert models == [["c"], ["c"]]


async def test_a_step_that_takes_too_long_ends_the_run(place: Place, script: Script) -> None:
    slow = {**says("late"), "delay_ms": 60_000}
    agent = Agent("helper", model=script(slow), step_timeout_s=0.1)
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed, match="step 1 took longer than step_timeout_s allows") as failure:
        await run.result()
    assert failure.value.error_type == "timeout"
    assert names(await place.events(run)) == ["status(starting)", "step(started)", "error", "status(error)"]


async def test_the_tools_of_a_run_that_takes_too_long_are_stopped(place: Place, script: Script) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    agent = Agent("helper", model=script(calls(call("wait"))), tools=[wait], run_timeout_s=300.0)
    clock = place.log.clock = JumpingClock()
    await place.open(agent)
    run = await place.start(agent)
    await begun.wait()
    clock.jump(300.0)
    with pytest.raises(RunFailed, match="the run took longer than run_timeout_s allows") as failure:
        await run.result()
    assert (failure.value.error_type, failure.value.steps) == ("timeout", 0)
    await asyncio.wait_for(stopped.wait(), 120)


async def test_a_worker_that_comes_after_the_end_of_a_runs_time_only_ends_it(script: Script) -> None:
    clock, begun = JumpingClock(), asyncio.Event()
    log = MemoryLog(clock=clock)

    @tool(effect="pure")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent("helper", model=script(calls(call("wait"))), tools=[wait], run_timeout_s=600.0)
    registry = Registry(agents=[agent])
    async with Runtime.open(log=log, registry=registry) as runtime:
        run = await runtime.start(agent, "question", executor="durable")
        first = Worker(Host(log=log, registry=registry, worker="first"))
        serving = asyncio.create_task(first.serve())
        await begun.wait()
        first.stop()
        for driver in first._keeper.drivers:
            driver.release_soon("its worker is shutting down")
        await serving
        assert (await run.state()).owner is None
        clock.jump(600.0)
        second = Worker(Host(log=log, registry=registry, worker="second"))
        serving = asyncio.create_task(second.serve())
        with pytest.raises(RunFailed, match="run_timeout_s"):
            await run.result()
        second.stop()
        await serving
        trace = await load_trace(log, run.run_id)
        assert [event.type for event in trace.events[-3:]] == ["claimed", "error", "status"]
        assert replay(trace).divergence is None


async def test_a_parked_run_is_woken_when_its_time_is_over(place: Place, script: Script) -> None:
    limited = {**says("never"), "error": {"type": "rate_limit", "retry_after_ms": 60_000}}
    agent = Agent("helper", model=script(limited), run_timeout_s=4.0)  # the server keeps the time
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed, match="run_timeout_s"):
        await run.result()
    trace = await load_trace(place.log, run.run_id)
    kinds = [event.type for event in trace.events]
    assert kinds.index("parked") < kinds.index("timer_fired") < kinds.index("error")


async def test_no_child_outlives_a_run_whose_time_is_over(place: Place, script: Script) -> None:
    clock = place.log.clock = JumpingClock()
    held = HeldClock()
    inner = Agent("inner", model=script({**says("late"), "delay_ms": 60_000}))

    @tool(effect="pure")
    async def delegate(ctx: ToolContext) -> str:
        """Ask another agent."""
        return await ctx.run(inner, "question")

    agent = Agent("helper", model=script(calls(call("delegate"))), tools=[delegate], step_timeout_s=300.0)
    await place.open(agent, inner, providers={"scripted": ScriptedProvider(held)})
    run = await place.start(agent)
    await held.asked.wait()
    clock.jump(300.0)
    with pytest.raises(RunFailed, match="step_timeout_s"):
        await run.result()
    trace = await load_trace(place.log, run.run_id)
    ends = [(e.agent_path, e.status) for e in trace.events if e.type == "status" and e.status != "starting"]
    assert ends == [("helper/inner", "cancelled"), ("helper", "error")]


async def test_executors_agree_on_a_run_that_paused_for_want_of_a_model() -> None:
    agent = Agent("helper", model="openai:a", retry={**FAST, "exhausted": "pause"})
    report = await check_parity(agent, "question", script={"turns": [failing(says("done"), times=3)]})
    assert report.equal, report.render()
    for trace in report.traces.values():
        shown = [e.status for e in trace.events if e.type == "status"]
        assert shown == ["starting", "paused", "resumed", "completed"]


# --- streams that break off, over HTTP --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["cut", "end", "torn", "malformed", "stall"])
async def test_a_stream_that_breaks_off_is_asked_for_again_and_corrected_for_its_readers(
    fault: Fault,
) -> None:
    broken = Reply(text=("one ", "two ", "three"), fault=fault, fault_after=3)
    idle_s = 2.0 if fault == "stall" else 60.0
    agent = Agent("helper", model="here:m", retry=FAST, model_idle_timeout_s=idle_s)
    first = Agent("first", model="here:m")  # the first call imports the SDK, and that takes its time
    async with serve(Reply(text=("hello",)), broken, Reply(text=("one ", "2"))) as server:
        here = OpenAIProvider(name="here", base_url=server.url, api_key_env=None)
        registry = Registry(agents=[first, agent], providers={"here": here})
        log = MemoryLog()
        async with Runtime.open(log=log, registry=registry) as runtime:
            assert (await runtime.run(first, "hello")).output == "hello"
            run = await runtime.start(agent, "question")
            seen = [event async for event in run.stream()]
            trace = await load_trace(log, run.run_id)
        await here.aclose()
    assert [e.error_type for e in trace.events if e.type == "model_failed"] == ["transient"]
    resets = [event for event in seen if event.type == "text_reset"]
    assert [(reset.offset, reset.channel, reset.cause) for reset in resets] == [(4, "text", "retry")]
    assert shown(seen) == "one 2"


AT_WORK = (": at work\n\n",) * 32
"""Comments of the stream: longer than a server may be silent, if each is sent 50 ms after the one before."""


@pytest.mark.parametrize(
    ("then", "told"),
    [
        (Reply(events=(*AT_WORK, ANSWER, "data: [DONE]\n\n"), pause_s=0.05), None),
        (
            Reply(events=AT_WORK, pause_s=0.05, fault="stall", fault_after=len(AT_WORK)),
            r"fell silent at work before its answer for 1 s \(model_idle_timeout_s",
        ),
    ],
    ids=["answers", "falls silent"],
)
async def test_a_server_that_says_that_it_is_at_work_is_not_silent(then: Reply, told: str | None) -> None:
    first = Agent("first", model="here:m")  # as above
    agent = Agent("patient", model="here:m", model_idle_timeout_s=1.0, retry={"attempts": 1})
    async with serve(Reply(text=("hello",)), then) as server:
        here = OpenAIProvider(name="here", base_url=server.url, api_key_env=None)
        registry = Registry(agents=[first, agent], providers={"here": here})
        async with Runtime.open(log=MemoryLog(), registry=registry) as runtime:
            await runtime.run(first, "hello")
            if told is None:
                assert (await runtime.run(agent, "question")).output == "done"
            else:
                with pytest.raises(RunFailed, match=told):
                    await runtime.run(agent, "question")
        await here.aclose()


def shown(events: list[Any]) -> str:
    """The text as a reader of the stream has it in the end."""
    text = ""
    for event in events:
        if event.type == "text_reset" and event.channel == "text":
            text = text[: event.offset]
        elif event.type == "text":
            text = text[: event.offset] + event.text
    return text


@pytest.mark.parametrize(
    ("limits", "delays", "told"),
    [
        ({"model_timeout_s": 0.1}, {"chunk_delay_ms": 30}, r"took longer than 0\.1 s \(model_timeout_s"),
        (
            {"model_idle_timeout_s": 0.1},
            {"chunk_delay_ms": 60_000},
            r"silent .* 0\.1 s \(model_idle_timeout_s",
        ),
        (
            {"model_first_token_timeout_s": 0.1},
            {"delay_ms": 60_000},
            r"nothing of its answer within 0\.1 s \(model_first_token_timeout_s",
        ),
    ],
    ids=["in all", "idle", "first"],
)
async def test_a_model_that_takes_too_long_is_a_transient_failure_that_names_the_time_out(
    script: Script, limits: dict[str, float], delays: dict[str, float], told: str
) -> None:
    slow = {**says(*(["word "] * 50)), **delays}
    agent = Agent("helper", model=script(slow), retry={"attempts": 1}, **limits)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        with pytest.raises(RunFailed, match=told) as failure:
            await runtime.run(agent, "question")
    assert failure.value.error_type == "transient"


async def test_a_model_that_reads_a_long_prompt_is_not_silent(script: Script) -> None:
    slow = {**says("a", "b"), "delay_ms": 400}
    patient = Agent("patient", model=script(slow), retry={"attempts": 1}, model_idle_timeout_s=0.1)
    hasty = Agent("hasty", model=script(slow), retry={"attempts": 1}, model_idle_timeout_s=0.1)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[patient, hasty])) as runtime:
        assert (await runtime.run(patient, "word " * 400)).output == "ab"  # 5 s by its length
        with pytest.raises(RunFailed, match="nothing of its answer within"):
            await runtime.run(hasty, "word")


def test_a_server_that_says_that_it_is_at_work_may_read_on_and_then_has_to_go_on_answering() -> None:
    at = [0.0]
    rules = rules_of({"model_idle_timeout_s": 10.0, "model_timeout_s": 100.0})
    patience = Patience(rules, 15.0, lambda: at[0])
    assert patience.over_at() == 15.0
    assert "model_first_token_timeout_s" in patience.message("m")
    at[0] = 1.0
    patience.hears(answer=False)  # the time to the first token is not cut short by a sign of life
    assert patience.over_at() == 15.0
    at[0] = 14.0
    patience.hears(answer=False)
    assert patience.over_at() == 24.0
    assert "at work before its answer for 10 s (model_idle_timeout_s" in patience.message("m")
    at[0] = 20.0
    patience.hears(answer=True)
    assert patience.over_at() == 30.0
    assert "model_idle_timeout_s" in patience.message("m")
    for at[0] in range(25, 96, 5):
        patience.hears(answer=False)
    assert patience.over_at() == 100.0
    assert "model_timeout_s" in patience.message("m")


@pytest.mark.parametrize(
    ("prompt_tokens", "configured", "allowed_s"),
    [(0, None, 120.0), (50_000, None, 620.0), (50_000, 30.0, 30.0)],
)
def test_the_time_to_the_first_token_grows_with_the_prompt(
    prompt_tokens: int, configured: float | None, allowed_s: float
) -> None:
    rules = rules_of({"model_first_token_timeout_s": configured})
    assert first_token_timeout_s(rules, prompt_tokens) == allowed_s
