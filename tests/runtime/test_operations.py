"""What operators ask of a namespace: workers, lanes, slots, breakers, queues and costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from foldlog.eventlog import MemoryLog, TokenUsage
from foldlog.runtime import Agent, Registry, Runtime

from tests.runtime.conftest import HeldTool, Place, call, calls, says, when
from tests.runtime.test_resilience import failing

Script = Callable[..., str]


class OnePrice:
    """A price book that knows one model."""

    def __init__(self, known: str) -> None:
        self._known = known

    def price(self, model: str, _usage: TokenUsage, _api_url: str | None) -> Decimal | None:
        return Decimal("0.25") if model.endswith(self._known) else None

    def window_tokens(self, _model: str, _api_url: str | None) -> int | None:
        return None


async def test_workers_lanes_slots_and_queues_are_told_as_they_are(place: Place, script: Script) -> None:
    held = HeldTool()
    scenes = [when("first", calls(call("wait")), says("done")), when("next", says("done"))]
    model = script(scenes=scenes)
    agent = Agent("refunds", model=model, tools=[held.wait], concurrency={"runs_max": 1})
    runtime = await place.open(agent)
    first = await place.start(agent, "first", session="ada")
    await held.entered.wait()
    second, other = await place.start(agent, "next", session="ada"), await place.start(agent, "next")
    operations = runtime.operations
    (lane,) = await operations.lanes()
    assert lane.lane == "session:ada"
    assert [each.run_id for each in lane.runs] == [first.run_id, second.run_id]
    assert [each.status for each in lane.runs] == ["running", "queued"]
    slots = await operations.slots()
    while not slots[0].waiting:
        slots = await operations.slots()
    (slot,) = slots
    assert (slot.name, slot.places) == ("agent:refunds", 1)
    assert ([h.run_id for h in slot.holders], [w.run_id for w in slot.waiting]) == (
        [first.run_id],
        [other.run_id],
    )
    assert all(each.since > 0 for each in (*slot.holders, *slot.waiting))
    workers = [row for row in await operations.workers() if row.drives]
    assert [drive.run_id for row in workers for drive in row.drives] == [first.run_id]
    assert 0 <= workers[0].silent_s < 60
    (queue,) = await operations.agents()
    assert (queue.agent, queue.driven, queue.queued) == ("refunds", 1, 2)
    assert len(queue.workers) == len(place.workers)
    held.let_go.set()
    for run in (first, second, other):
        await run.result(timeout_s=30)
    assert await operations.lanes() == []


async def test_wake_ups_that_no_worker_takes_are_counted(place: Place, script: Script) -> None:
    agent = Agent("refunds", model=script(says("done")))
    runtime = await place.open(agent, workers=0)
    for _ in range(3):
        await runtime.start(agent, "pay", executor="durable")
    (queue,) = await runtime.operations.agents()
    assert (queue.agent, queue.queued, queue.wakeups, queue.workers) == ("refunds", 3, 3, ())


async def test_a_breaker_that_counts_failures_is_told(script: Script) -> None:
    breaker = {"failures": 1, "open_s": 60.0}
    agent = Agent("helper", model=script(failing(says("never"))), retry={"attempts": 1}, breaker=breaker)
    async with Runtime.open(log=MemoryLog(), registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "pay")
        async for _ in run.stream():
            pass
        (row,) = await runtime.operations.breakers()
    assert (row.name, row.state, row.failures, row.run_id) == ("model:scripted", "open", 1, run.run_id)


async def test_costs_are_summed_and_unknown_prices_counted_apart(cheap: Place, script: Script) -> None:
    turn = {**says("done"), "usage": {"input_tokens": 10, "output_tokens": 2}}
    models = [script(turn), script(turn)]
    agents = [Agent(f"agent-{n}", model=model) for n, model in enumerate(models)]
    runtime = await cheap.open(*agents, prices=OnePrice(models[0].partition(":")[2]))
    for agent, user in ((agents[0], "ada"), (agents[0], "bo"), (agents[1], "ada")):
        await (await cheap.start(agent, user=user, session=user)).result(timeout_s=30)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    operations = runtime.operations
    by_agent = await operations.costs("agent")
    assert [(row.key, row.runs, row.calls, row.unpriced) for row in by_agent] == [
        ("agent-0", 2, 2, 0),
        ("agent-1", 1, 1, 1),
    ]
    assert [row.cost_usd for row in by_agent] == ["0.5", "0"]
    assert [(row.key, row.runs) for row in await operations.costs("model")] == sorted(
        [(models[0], 2), (models[1], 1)]
    )
    assert [(row.key, row.usage.input_tokens) for row in await operations.costs("user")] == [
        ("ada", 20),
        ("bo", 10),
    ]
    assert [row.key for row in await operations.costs("session")] == ["ada", "bo"]
    assert [row.key for row in await operations.costs("day")] == [today]
    assert await operations.costs("day", "2100-01-01") == []
    assert await operations.costs("day", until="2000-01-01") == []
