"""Budgets of a namespace hold for all runs, on both executors and both logs, and count what is stored once (W65)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from foldlog.eventlog import ConfigError, RunFailed
from foldlog.eventlog.events import TokenUsage
from foldlog.eventlog.faults import FaultyLog
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import compare, export, import_archive, load_trace, read_archive, replay
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, tool
from foldlog.runtime.core.model_calls import BUDGET_TIMER
from foldlog.runtime.core.shared_budgets import Purse, Spent, check_budgets
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.shared.spending import spent_of

from .conftest import JumpingClock, Place, call, calls, names, says

pytestmark = pytest.mark.anyio
Script = Callable[..., str]
HOUR_S = 3600.0
PER_CALL = 5
"""The tokens of a scripted answer."""


@tool(effect="pure")
def look() -> str:
    """Look."""
    return "seen"


class OnePrice:
    """Every call of one model costs ten cents; no other has a price."""

    def __init__(self, model: str) -> None:
        self._model = model

    def price(self, model: str, usage: TokenUsage, api_url: str | None) -> Decimal | None:
        return Decimal("0.10") if model == self._model else None

    def window_tokens(self, model: str, api_url: str | None) -> int | None:
        return None


@pytest.fixture(params=["local", "durable"])
async def timed(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place in memory, on a clock that jumps."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(clock=JumpingClock(), ack_wait_s=5.0), request.param, stack)
        yield place
        await place.check_rules()


async def jump(place: Place, run: RunHandle[Any], by_s: float) -> None:
    """Let so much time pass while the run waits."""
    assert isinstance(place.log.clock, JumpingClock)
    place.log.clock.jump(by_s)
    if place.executor == "local":  # it waits by its event loop, which does not jump
        await place.hand_over(run)


async def until(place: Place, run: RunHandle[Any], status: str) -> Any:
    """Return the pending work of a run once it has this status."""
    async with asyncio.timeout(120):
        journal = Journal(place.log, await place.runtime.locate(run.run_id))
        await journal.load()
        await journal.follow_until(lambda state: state.status == status)
    return await run.pending()


async def spent(place: Place, owner: str) -> Spent:
    """Return what was spent of the only budget by its owner."""
    (budget,) = check_budgets(place.budgets, "budgets")
    return await spent_of(place.log, Purse(budget, owner), place.log.clock.now())


async def end_of(run: RunHandle[Any]) -> str:
    """Return the output of a run, or the type of the error that ended it."""
    try:
        return (await run.result(timeout_s=120)).output
    except RunFailed as failed:
        return failed.error_type


async def test_a_run_fails_once_the_budget_of_its_model_is_used_up(place: Place, script: Script) -> None:
    model = script(says("done"))
    place.budgets = {f"model:{model}": {"tokens": 2 * PER_CALL, "per": "month", "when_spent": "fail"}}
    agent = Agent("helper", model=model)
    await place.open(agent)
    for _ in range(2):
        assert await end_of(await place.start(agent)) == "done"
    run = await place.start(agent)
    with pytest.raises(RunFailed) as failed:
        await run.result(timeout_s=120)
    assert failed.value.error_type == "budget_spent"
    assert f"the budget model:{model}: 10 tokens a month is used up (10 tokens spent)" in str(failed.value)
    assert await spent(place, f"model:{model}") == Spent(calls=2, unpriced=2, tokens=10)
    assert replay(await load_trace(place.log, run.run_id)).agrees


async def test_a_run_waits_for_the_next_period_and_goes_on_by_itself(timed: Place, script: Script) -> None:
    model = script(calls(call("look")), says("done"))
    timed.budgets = {"agent:helper": {"tokens": PER_CALL, "per": "hour"}}
    agent = Agent("helper", model=model, tools=[look], budgets={"max_seconds": 60.0}, run_timeout_s=60.0)
    runtime = await timed.open(agent)
    run = await timed.start(agent)
    pending = await until(timed, run, "paused")
    assert (await run.state()).paused == "budget"
    assert pending.why.kind == "shared_budget"
    assert pending.why.sentence.startswith("Budget of agent:helper: 5 tokens an hour is used up until ")
    (row,) = await runtime.list_runs()
    assert row.waiting_for == "budget"
    assert (await runtime.operations.why([row]))[run.run_id] == pending.why
    await jump(timed, run, HOUR_S)
    assert (await run.result(timeout_s=120)).output == "done"
    told = names(await timed.events(run))
    assert told.count("status(paused)") == told.count("status(resumed)") == 1
    assert await spent(timed, "agent:helper") == Spent(calls=1, unpriced=1, tokens=5)


async def test_a_spent_budget_of_a_model_sends_runs_to_the_next_model_and_they_wait_for_the_last(
    timed: Place, script: Script
) -> None:
    first, second = script(says("first")), script(says("second"))
    timed.budgets = {
        f"model:{first}": {"tokens": PER_CALL, "per": "hour"},
        f"model:{second}": {"tokens": PER_CALL, "per": "hour"},
    }
    agent = Agent("helper", model=first, fallback_models=[second])
    await timed.open(agent)
    assert [await end_of(await timed.start(agent)) for _ in range(2)] == ["first", "second"]
    third = await timed.start(agent)
    await until(timed, third, "paused")
    await jump(timed, third, HOUR_S)
    assert await end_of(third) == "first"


async def test_each_user_has_a_budget_and_one_has_its_own(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    place.budgets = {
        "user:*": {"tokens": PER_CALL, "per": "month", "when_spent": "fail"},
        "user:ada": {"tokens": 2 * PER_CALL, "per": "total"},
    }
    await place.open(agent, workers=2)
    users = ["bob", "bob", "eve", "ada", "ada", "ada", None, None]
    ends = [await end_of(await place.start(agent, user=user)) for user in users]
    spent = "budget_spent"
    assert ends == ["done", spent, "done", "done", "done", spent, "done", "done"]


async def test_runs_below_spend_of_the_budget_of_their_user(cheap: Place, script: Script) -> None:
    inner = Agent("inner", model=script(says("inner answer")))
    outer = Agent(
        "outer", model=script(calls(call("inner", input="x")), says("done")), tools=[inner.as_tool()]
    )
    cheap.budgets = {"user:*": {"tokens": 100, "per": "day"}}
    await cheap.open(outer, inner)
    assert await end_of(await cheap.start(outer, user="ada")) == "done"
    assert (await spent(cheap, "user:ada")).tokens == 3 * PER_CALL


async def test_whoever_has_raised_a_budget_lets_waiting_runs_go_on(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(calls(call("look")), says("done")), tools=[look])
    place.budgets = {"namespace": {"tokens": PER_CALL, "per": "month", "time_zone": "Asia/Tokyo"}}
    await place.open(agent)
    run = await place.start(agent)
    await until(place, run, "paused")
    await run.resume(by="ada")
    await until(place, run, "paused")
    assert (await spent(place, "namespace")).calls == 1
    raised = {"namespace": {**place.budgets["namespace"], "tokens": 2 * PER_CALL}}
    if place.executor == "local":
        await place.runtime.aclose()
    drives = place.workers[0][0] if place.workers else place.runtime.executor("local")
    drives._host.budgets = check_budgets(raised, "budgets")  # type: ignore[attr-defined]
    if place.executor == "local":
        await place.runtime.drive(run.run_id)
    await run.resume(by="ada")
    assert await end_of(run) == "done"
    assert (await spent(place, "namespace")).calls == 2


async def timed_for_budget(place: Place) -> None:
    """Wait until the timer of a run that waits for a budget is set."""
    async with asyncio.timeout(60):
        while True:
            if [each async for each in place.log.timers.named(BUDGET_TIMER)]:
                return
            await asyncio.sleep(0.01)


async def raise_budget(place: Place, run: RunHandle[Any], tokens: int | None, *, parked: bool = True) -> None:
    """Restart what drives the runs with another amount, or another budget, once a parked run has its timer."""
    (name,) = place.budgets
    other = {"user:nobody": {"tokens": 1, "per": "total"}}
    place.budgets = other if tokens is None else {name: {**place.budgets[name], "tokens": tokens}}
    if place.executor == "durable":
        if parked:
            await timed_for_budget(place)
        await place.hand_over(run)
        return
    await place.runtime.aclose()
    drives = place.runtime.executor("local")
    drives._host.budgets = check_budgets(place.budgets, "budgets")  # type: ignore[attr-defined]
    await place.runtime.drive(run.run_id)


@pytest.mark.parametrize("tokens", [3 * PER_CALL, None])
async def test_after_a_restart_with_a_larger_budget_or_another_waiting_runs_go_on_by_themselves(
    place: Place, script: Script, tokens: int | None
) -> None:
    agent = Agent("helper", model=script(calls(call("look")), says("done")), tools=[look])
    place.budgets = {"namespace": {"tokens": PER_CALL, "per": "month"}}
    await place.open(agent)
    run = await place.start(agent)
    await until(place, run, "paused")
    await raise_budget(place, run, tokens)
    assert await end_of(run) == "done"
    told = names(await place.events(run))
    assert told.count("status(paused)") == told.count("status(resumed)") == 1


@pytest.mark.parametrize("park_after_s", [0.0, 3600.0])
async def test_after_a_restart_with_a_larger_budget_runs_below_go_on_by_themselves(
    place: Place, script: Script, park_after_s: float
) -> None:
    inner = Agent("inner", model=script(calls(call("look")), says("inner answer")), tools=[look])
    outer = Agent(
        "outer", model=script(calls(call("inner", input="x")), says("done")), tools=[inner.as_tool()]
    )
    place.budgets = {"agent:inner": {"tokens": PER_CALL, "per": "month"}}
    await place.open(outer, inner, workers=0)
    if place.executor == "durable":
        await place.add_worker("worker-0", park_after_s=park_after_s)
    run = await place.start(outer)
    journal = Journal(place.log, await place.runtime.locate(run.run_id))
    await journal.load()
    async with asyncio.timeout(60):
        await journal.follow_until(lambda state: bool(state.open_children))
    (child,) = (await run.state()).open_children
    await until(place, place.runtime.get_run(child), "paused")
    await raise_budget(place, run, 3 * PER_CALL, parked=not park_after_s)
    assert await end_of(run) == "done"


async def test_a_restart_with_the_same_budget_leaves_waiting_runs_alone(place: Place, script: Script) -> None:
    agent = Agent("helper", model=script(calls(call("look")), says("done")), tools=[look])
    place.budgets = {"namespace": {"tokens": PER_CALL, "per": "month"}}
    await place.open(agent)
    run = await place.start(agent)
    await until(place, run, "paused")
    before = await run.state()
    await raise_budget(place, run, PER_CALL)
    other = await place.start(agent)
    await until(place, other, "paused")
    assert (await run.state()).head == before.head


async def test_dollars_are_counted_and_a_model_without_a_price_is_not_called(
    cheap: Place, script: Script
) -> None:
    priced, free = script(says("done")), script(says("free"))
    agents = [Agent("helper", model=priced), Agent("other", model=free)]
    cheap.budgets = {"user:*": {"cost_usd": 0.15, "per": "day", "when_spent": "fail"}}
    await cheap.open(*agents, prices=OnePrice(priced))
    ends = [await end_of(await cheap.start(agents[0], user="ada")) for _ in range(3)]
    assert ends == ["done", "done", "budget_spent"]
    assert (await spent(cheap, "user:ada")).cost_usd == "0.2"
    run = await cheap.start(agents[1], user="bob")
    with pytest.raises(RunFailed) as failed:
        await run.result(timeout_s=120)
    assert f"needs the price of {free!r}, which is unknown: configure it, or count tokens" in str(
        failed.value
    )


async def test_every_reply_of_many_runs_at_once_is_counted_once(place: Place, script: Script) -> None:
    agent = Agent(
        "helper", model=script(calls(call("look")), calls(call("look")), says("done")), tools=[look]
    )
    place.budgets = {"user:*": {"tokens": 10**6, "per": "total"}}
    await place.open(agent, workers=2)
    runs = [await place.start(agent, user="ada") for _ in range(8)]
    assert [await end_of(run) for run in runs] == ["done"] * 8
    assert await spent(place, "user:ada") == Spent(calls=24, unpriced=24, tokens=24 * PER_CALL)


async def test_a_fork_counts_only_what_it_asks_itself_and_a_replay_counts_nothing(
    cheap: Place, script: Script
) -> None:
    agent = Agent("helper", model=script(calls(call("look")), says("done")), tools=[look])
    cheap.budgets = {"user:*": {"tokens": 100, "per": "total"}}
    await cheap.open(agent)
    run = await cheap.start(agent, user="ada")
    assert await end_of(run) == "done"
    assert replay(await load_trace(cheap.log, run.run_id)).agrees
    assert (await spent(cheap, "user:ada")).calls == 2
    fork = await cheap.fork(run, at=(await run.state()).head.rev - 4)
    assert await end_of(fork) == "done"
    assert (await spent(cheap, "user:ada")).calls == 3


async def test_a_run_that_is_under_no_budget_makes_not_one_operation_more(script: Script) -> None:
    agent = Agent("helper", model=script(calls(call("look")), says("done")), tools=[look])

    async def counted(budgets: dict[str, Any]) -> Counter[str]:
        log = FaultyLog(MemoryLog())
        async with Runtime.open(log=log, registry=Registry(agents=[agent]), budgets=budgets) as runtime:
            assert (await runtime.run(agent, "question", user="ada")).output == "done"
        return Counter({name: n for name, n in log.operations.items() if name.startswith("events.")})

    none = await counted({})
    assert none["events.append"] > 0
    assert await counted({"user:bob": {"tokens": 100, "per": "day"}}) == none
    under = await counted({"user:ada": {"tokens": 100, "per": "day"}})
    assert under - none  # what is counted does see the reads of a register
    assert not none - under


async def test_an_imported_run_counts_nothing(cheap: Place, script: Script) -> None:
    agent = Agent("helper", model=script(calls(call("look")), says("done")), tools=[look])
    cheap.budgets = {"user:*": {"tokens": 100, "per": "total"}}
    await cheap.open(agent)
    run = await cheap.start(agent, user="ada")
    assert await end_of(run) == "done"
    archive = read_archive(b"".join([line async for line in export(cheap.log, run.run_id)]))
    elsewhere = MemoryLog()
    async with Runtime.open(
        log=elsewhere, registry=Registry(agents=[agent]), budgets=cheap.budgets
    ) as runtime:
        assert (await import_archive(archive, elsewhere)).runs == (run.run_id,)
        assert (await runtime.get_run(run.run_id).result()).output == "done"
        assert (await runtime.operations.budgets(runtime.budgets)).page() == []
        assert (await runtime.operations.budgets(())).page() == []
        await runtime.run(agent, "question", user="ada")
        (row,) = (await runtime.operations.budgets(runtime.budgets)).page()
    assert (row.owner, row.calls, row.left_tokens) == ("user:ada", 2, 100 - 2 * PER_CALL)


async def test_without_budgets_no_register_is_read_or_written(cheap: Place, script: Script) -> None:
    agent = Agent("helper", model=script(says("done")))
    await cheap.open(agent)
    assert await end_of(await cheap.start(agent, user="ada")) == "done"
    assert [stored async for stored in cheap.log.events.heads(0, "budget")] == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"users": {"tokens": 1, "per": "day"}}, "'users' has no budget; write"),
    ({"model:gpt": {"tokens": 1, "per": "day"}}, "'model:gpt' has no budget; write"),
    ({"namespace": 5}, 'must be a table, such as { cost_usd = 2, per = "day" }, not 5'),
    ({"namespace": {"per": "day"}}, "needs an amount: cost_usd, tokens, or both"),
    ({"namespace": {"tokens": -1, "per": "day"}}, "tokens must be a whole number above 0"),
    ({"namespace": {"tokens": 1.5, "per": "day"}}, "tokens must be a whole number above 0"),
    ({"namespace": {"cost_usd": "-2", "per": "day"}}, "cost_usd must be a number above 0"),
    ({"namespace": {"cost_usd": "two", "per": "day"}}, "cost_usd must be a number above 0"),
    ({"namespace": {"cost_usd": float("inf"), "per": "day"}}, "cost_usd must be a number above 0"),
    ({"namespace": {"cost_usd": True, "per": "day"}}, "cost_usd must be a number above 0"),
    ({"namespace": {"tokens": 1}}, "per must be hour or day or month or total, not None"),
    ({"namespace": {"tokens": 1, "per": "week"}}, "per must be hour or day or month or total, not 'week'"),
    ({"namespace": {"tokens": 1, "per": "day", "time_zone": "Oslo"}}, "'Oslo' is not a time zone"),
    ({"namespace": {"tokens": 1, "per": "day", "time_zone": 1}}, "1 is not a time zone"),
    ({"namespace": {"tokens": 1, "per": "day", "when_spent": "stop"}}, "when_spent must be wait or fail"),
    ({"namespace": {"tokens": 1, "per": "total", "when_spent": "wait"}}, "a total has no next period"),
    ({"namespace": {"tokens": 1, "per": "day", "limit": 1}}, "has no 'limit'; it has cost_usd, tokens"),
    ({"model:nobody:m": {"tokens": 1, "per": "day"}}, "the model 'nobody:m'"),
    ({"model:scripted:x": {"cost_usd": 1, "per": "day"}}, "the price of 'scripted:x' is unknown"),
]


@pytest.mark.parametrize(("table", "told"), WRONG)
async def test_a_wrong_budget_is_refused_before_anything_is_driven(table: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        async with Runtime.open("memory://", budgets=table):
            pass
    assert str(refused.value).startswith("budgets: ")
    assert told in str(refused.value)


PERIODS = [
    ("hour", "UTC", "2026-03-29T01:59:59+00:00", "2026-03-29T01:00:00+00:00", "2026-03-29T02:00:00+00:00"),
    ("day", "UTC", "2026-12-31T23:59:59+00:00", "2026-12-31T00:00:00+00:00", "2027-01-01T00:00:00+00:00"),
    ("month", "UTC", "2026-12-31T23:59:59+00:00", "2026-12-01T00:00:00+00:00", "2027-01-01T00:00:00+00:00"),
    # The day on which clocks go forward has 23 hours, the one on which they go back 25.
    (
        "day",
        "Europe/Oslo",
        "2026-03-29T12:00:00+02:00",
        "2026-03-29T00:00:00+01:00",
        "2026-03-30T00:00:00+02:00",
    ),
    (
        "day",
        "Europe/Oslo",
        "2026-10-25T12:00:00+01:00",
        "2026-10-25T00:00:00+02:00",
        "2026-10-26T00:00:00+01:00",
    ),
    (
        "month",
        "Asia/Tokyo",
        "2026-01-31T20:00:00+00:00",
        "2026-02-01T00:00:00+09:00",
        "2026-03-01T00:00:00+09:00",
    ),
    # At midnight the clocks go back to eleven in the evening before, so that day begins twice.
    (
        "day",
        "America/Havana",
        "2026-11-01T00:30:00-05:00",
        "2026-11-01T00:00:00-04:00",
        "2026-11-02T00:00:00-05:00",
    ),
    # There is no midnight on this day.
    (
        "day",
        "Africa/Cairo",
        "2026-04-24T12:00:00+03:00",
        "2026-04-24T01:00:00+03:00",
        "2026-04-25T00:00:00+03:00",
    ),
]


@pytest.mark.parametrize(("per", "zone", "at", "began", "until"), PERIODS)
async def test_a_period_begins_and_ends_as_the_people_of_its_zone_count(
    per: str, zone: str, at: str, began: str, until: str
) -> None:
    (budget,) = check_budgets({"namespace": {"tokens": 1, "per": per, "time_zone": zone}}, "budgets")
    given, first, after = (datetime.fromisoformat(each).timestamp() for each in (at, began, until))
    assert budget.period(given) == (first, after)
    assert budget.period(first) == (first, after)
    assert budget.period(after)[0] == after


async def test_a_spent_budget_is_the_same_on_both_executors(script: Script) -> None:
    agent = Agent("helper", model=script(calls(call("look")), says("done")), tools=[look])
    traces = []
    for executor in ("local", "durable"):
        async with contextlib.AsyncExitStack() as stack:
            place = Place(MemoryLog(ack_wait_s=5.0), executor, stack)
            place.budgets = {"user:*": {"tokens": PER_CALL, "per": "total"}}
            await place.open(agent)
            run = await place.start(agent, user="ada")
            assert await end_of(run) == "budget_spent"
            traces.append(await load_trace(place.log, run.run_id))
    assert compare(*traces).equal
