"""Questions of operators about a namespace: workers, lanes, slots, breakers, queues and costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from foldlog.eventlog import MemoryLog, TokenUsage
from foldlog.replay import export, import_archive, read_archive
from foldlog.runtime import Agent, Registry, Runtime

from tests.runtime.conftest import HeldTool, Place, call, calls, says, when
from tests.runtime.test_resilience import failing

Script = Callable[..., str]
V1 = Path(__file__).parents[1] / "histories" / "v1"


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
        await run.result()
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
        await (await cheap.start(agent, user=user, session=user)).result()
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


async def test_a_worker_that_is_gone_is_told_with_the_runs_that_were_taken_over_and_those_that_are_left() -> (
    None
):
    log = MemoryLog()
    lines = (V1 / "takeover.jsonl").read_bytes().splitlines(keepends=True)
    await import_archive(read_archive(b"".join(lines)), log)
    (run,) = read_archive(b"".join(lines)).traces
    async with Runtime.open(log=log) as runtime:
        assert await runtime.operations.lost_workers() == []  # it was long ago
        found = {each.worker: each for each in await runtime.operations.lost_workers(within_s=1e12)}
    (lost,) = (each for each in found.values() if each.taken)
    (taken,) = lost.taken
    assert (taken.run_id, taken.takeover.worker) == (run, lost.worker)
    assert taken.takeover.by != lost.worker
    assert lost.since == taken.takeover.at - taken.takeover.silent_s


async def test_a_run_whose_program_has_ended_is_left_by_it(script: Script) -> None:
    log, held = MemoryLog(), HeldTool()
    agent = Agent("helper", model=script(calls(call("wait"))), tools=[held.wait])
    async with Runtime.open(log=log, registry=Registry(agents=[agent])) as runtime:
        run = await runtime.start(agent, "first")
        await held.entered.wait()
        assert await runtime.operations.lost_workers() == []
        cut = b"".join([line async for line in export(log, run.run_id)])
        held.let_go.set()
    elsewhere = MemoryLog()
    await import_archive(read_archive(cut), elsewhere)
    async with Runtime.open(log=elsewhere) as other:
        (lost,) = await other.operations.lost_workers()
    assert (lost.left, lost.taken) == ((run.run_id,), ())
