"""Windows, summaries and budgets, on both executors and both logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import ApprovalError, ConfigError, LateOutcome, Log, ModelFailed, RunFailed
from foldlog.replay import load_trace, rerun
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, tool

from .conftest import USAGE, Place, Turn, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]


@tool(effect="pure")
async def search(query: str) -> str:
    """Search for something."""
    return f"found {query}"


@pytest.fixture
def summing(tmp_path: Path) -> Callable[..., str]:
    """A model that answers by turns, and puts into few words what it is given."""

    def write(*turns: Turn, summary: str = "They look for x.") -> str:
        path = tmp_path / "summing.json"
        told = [{"usage": USAGE, **turn} for turn in turns]
        path.write_text(json.dumps({"turns": told, "summaries": [{"usage": USAGE, **says(summary)}]}))
        return f"scripted:{path}"

    return write


def looks(count: int) -> list[Turn]:
    return [calls(call("search", f"c{n}", query=str(n))) for n in range(count)]


async def paused(run: RunHandle[Any]) -> None:
    async for event in run.stream():
        if event.type == "status" and event.status == "paused":
            return


async def test_a_history_that_is_too_long_is_summarised_and_the_run_replays_without_a_model(
    place: Place, summing: Callable[..., str]
) -> None:
    context = {"history_messages_max": 5, "summary_at_messages": 2}
    agent = Agent("helper", model=summing(*looks(3), says("done")), tools=[search], context=context)
    await place.open(agent)
    run = await place.start(agent)
    result = await run.result()
    assert (result.output, result.steps, result.usage.total_tokens) == ("done", 4, 25)
    events = await place.events(run)
    at = names(events).index("context")
    assert names(events)[at - 1 : at + 2] == ["step(completed)", "context", "step(started)"]
    assert (events[at].action, events[at].before_count, events[at].after_count) == ("summarize", 7, 4)  # type: ignore[union-attr]
    history = await run.history()
    assert [message.role for message in history] == ["user", "user", "assistant", "tool", "assistant"]
    assert history[0].content.endswith("\n\nThey look for x.")
    recorded = await load_trace(place.log, run.run_id)
    again = await rerun(recorded)
    assert [e.digest for e in again.events if e.type == "model_requested"] == [
        e.digest for e in recorded.events if e.type == "model_requested"
    ]


async def test_an_overflow_that_the_provider_reports_is_compacted_within_the_step(
    place: Place, summing: Callable[..., str]
) -> None:
    full = {"error": {"type": "context_overflow"}, **says("done")}
    agent = Agent("helper", model=summing(*looks(1), full), tools=[search])
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    assert names(await place.events(run))[6:] == [
        "step(started)",
        "context",
        "text",
        "usage",
        "step(completed)",
        "status(completed)",
    ]


async def test_a_second_overflow_ends_the_run(place: Place, summing: Callable[..., str]) -> None:
    full = {"error": {"type": "context_overflow", "times": 2}, **says("done")}
    agent = Agent("helper", model=summing(*looks(1), full), tools=[search], context={"overflow": "truncate"})
    await place.open(agent)
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failure:
        await run.result()
    assert failure.value.error_type == "context_overflow"


async def test_each_message_says_how_full_the_window_is(place: Place, script: Script) -> None:
    agent = Agent(
        "helper",
        model=script(*looks(1), says("done")),
        tools=[search],
        budget_awareness="per-message",
        context={"window_tokens": 1000},
    )
    await place.open(agent)
    run = await place.start(agent)
    assert (await run.result()).output == "done"
    found = names(await place.events(run))
    assert found[1:3] == ["budget", "step(started)"]
    assert found.count("budget") == 2
    answer = next(message for message in await run.history() if message.role == "tool")
    assert answer.content.startswith("found 0\n[context: ")
    assert answer.content.endswith("/1000 tokens, 1% used]")


async def test_a_full_window_ends_the_run_without_another_call(place: Place, script: Script) -> None:
    usage = {"input_tokens": 800, "output_tokens": 5}
    turns = [{**turn, "usage": usage} for turn in looks(3)]
    agent = Agent(
        "helper",
        model=script(*turns),
        tools=[search],
        budget_awareness="limit:70",
        context={"window_tokens": 1000, "overflow": "truncate"},
        output_type=int,
    )
    await place.open(agent)
    run = await place.start(agent)
    result = await run.result()
    assert result.reason == "budget_limit"
    assert result.output == "Stopped: the context budget of 70% is used up (807/1000 tokens)."
    found = names(await place.events(run))
    assert found[-4:] == ["step(completed)", "budget", "text", "status(completed)"]
    assert found.count("context") == 1


@pytest.mark.parametrize("overflow", ["summarize", "truncate", "none"])
async def test_what_the_user_asks_is_never_cut_away_and_stops_the_run_if_it_is_too_much(
    log: Log, script: Script, overflow: str
) -> None:
    """No model is asked: neither for a summary of the one thing that has to stay, nor without it."""
    limits = {"window_tokens": 1000, "overflow": overflow}
    agent = Agent("helper", model=script(says("x")), budget_awareness="limit:50", context=limits)
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "word " * 500)
        result = await run.result()
        found = names([event async for event in run.stream(detailed=True)])
        assert [message.role for message in await run.history()] == ["user"]
    assert result.reason == "budget_limit"
    assert found == ["status(starting)", "budget", "text", "status(completed)"]


@pytest.mark.parametrize("keep_user_tokens", [0, 20])
async def test_the_newest_message_of_the_user_outlasts_a_compaction_however_long_it_is(
    cheap: Place, script: Script, keep_user_tokens: int
) -> None:
    full = {"error": {"type": "context_overflow"}, **says("done")}
    limits = {"overflow": "truncate", "keep_user_tokens": keep_user_tokens}
    agent = Agent("helper", model=script(full), context=limits)
    await cheap.open(agent)
    before = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "said"}]
    run = await cheap.start(agent, "word " * 500, messages=before)
    assert (await run.result()).output == "done"
    assert [message.content for message in await run.history()] == ["word " * 500, "done"]


async def test_an_unknown_window_is_refused_with_its_remedy(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("x")), budget_awareness="limit:70")
    runtime = await place.open(agent)
    with pytest.raises(ConfigError, match=r"set context\.window_tokens"):
        await place.start(agent)
    assert await runtime.list_runs() == []


async def test_a_ceiling_of_cost_with_an_unknown_price_is_refused(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("x")), budgets={"max_cost_usd": "1"})
    runtime = await place.open(agent)
    with pytest.raises(ConfigError, match="price"):
        await place.start(agent)
    assert await runtime.list_runs() == []


async def test_a_budget_that_is_passed_pauses_the_run_until_it_is_raised(
    place: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(*looks(2), says("done")), tools=[search], budgets={"max_tokens": 4})
    await place.open(agent)
    run = await place.start(agent)
    await paused(run)
    (approval,) = (await run.state()).pending_approvals
    assert (approval.request.kind, approval.request.arguments) == (
        "budget",
        {"budget": "max_tokens", "limit": "4", "used": "5"},
    )
    with pytest.raises(ApprovalError, match="raise"):
        await run.resolve(approval.request.approval_id, "approved")
    await run.resolve(approval.request.approval_id, "approved", arguments={"raise": 100}, by="ann")
    assert (await run.result()).output == "done"
    at = names(await place.events(run)).index("budget")
    assert names(await place.events(run))[at : at + 6] == [
        "budget",
        "approval_requested",
        "status(paused)",
        "approval_resolved",
        "status(resumed)",
        "step(started)",
    ]


async def test_an_answer_that_breaks_off_counts_by_estimate_and_budgets_see_it(
    place: Place, script: Script
) -> None:
    broken = {"type": "transient", "times": 2, "after_chunks": 1}
    long = "word " * 400
    turn = {**calls(call("search", query="x")), "text": [long, "more"], "error": broken}
    agent = Agent(
        "helper",
        model=script(turn, says("done")),
        tools=[search],
        budgets={"step": {"max_tokens": 900}},
        retry={"base_s": 0.01},
    )
    await place.open(agent)
    run = await place.start(agent)
    await paused(run)
    trace = await load_trace(place.log, run.run_id)
    failed = [e for e in trace.events if isinstance(e, ModelFailed)]
    assert [(e.source, e.usage.output_tokens if e.usage else 0) for e in failed] == [("estimate", 500)] * 2
    state = await run.state()
    assert state.usage.output_tokens == 2 * 500 + 2
    (approval,) = state.pending_approvals
    used = int(approval.request.arguments["used"])
    assert (approval.request.arguments["budget"], used > 1000) == ("step.max_tokens", True)
    await run.resolve(approval.request.approval_id, "approved", arguments={"raise": used}, by="ann")
    result = await run.result()
    assert (result.output, result.usage) == ("done", (await run.state()).usage)


async def test_an_answer_that_is_cancelled_counts_by_estimate(cheap: Place, script: Script) -> None:
    agent = Agent("helper", model=script({"text": ["word " * 400, "more"], "chunk_delay_ms": 60_000}))
    await cheap.open(agent)
    run = await cheap.start(agent)
    async with asyncio.timeout(120):
        async for event in run.stream():
            if event.type == "text":
                await run.cancel()
    journal = await run._journal()
    async with asyncio.timeout(120):
        await journal.follow_until(lambda state: state.usage.output_tokens > 0)
    assert journal.state.usage.output_tokens == 500
    (late,) = [
        e for e in (await load_trace(cheap.log, run.run_id)).events if isinstance(e, LateOutcome) and e.usage
    ]
    assert (late.kind, late.outcome, late.source) == ("model", "cancelled", "estimate")


async def test_a_request_that_nothing_came_back_of_counts_nothing(cheap: Place, script: Script) -> None:
    refused = {**says("done"), "error": {"type": "rate_limit", "times": 1}}
    agent = Agent("helper", model=script(refused), retry={"base_s": 0.01})
    await cheap.open(agent)
    run = await cheap.start(agent)
    assert (await run.result()).usage.total_tokens == 5


async def test_a_budget_that_is_not_raised_ends_the_run(place: Place, script: Script) -> None:
    agent = Agent(
        "helper", model=script(*looks(1), says("done")), tools=[search], budgets={"step": {"max_tokens": 1}}
    )
    await place.open(agent)
    run = await place.start(agent)
    await paused(run)
    (approval,) = (await run.state()).pending_approvals
    await run.resolve(approval.request.approval_id, "rejected", note="too dear")
    with pytest.raises(RunFailed, match="too dear") as failure:
        await run.result()
    assert failure.value.error_type == "budget_exceeded"
