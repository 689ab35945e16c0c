"""Workflows: async functions whose operations are in the log, on both logs and both executors (R28, R29)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from foldlog.eventlog import AgentConfigError, ConfigError, OperationFailed, RunFailed, SignalMisfit
from foldlog.runtime import Agent, Callback, ToolFailed, WorkflowRun, tool, workflow

from tests.runtime.conftest import Place, says

DONE: list[str] = []
DEPTHS: list[int] = []


@tool(effect="pure")
def find_order(order_id: str) -> dict[str, Any]:
    """Find an order."""
    DONE.append(f"find {order_id}")
    return {"id": order_id, "days": 15}


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    DONE.append(f"pay {amount}")
    return f"paid {amount}"


@tool(effect="pure")
def refuse() -> str:
    """Refuse."""
    raise ToolFailed("no")


@workflow(version="1")
async def settle(run: WorkflowRun, order: str) -> str:
    found = await run.call(find_order, order_id=order)
    paid = await run.gather(lambda r: r.call(pay, amount=1), lambda r: r.call(pay, amount=2))
    which, signal = await run.first(lambda r: r.wait_for("paid"), lambda r: r.sleep(days=14))
    value = await run.memo("value", lambda: 7)
    return f"{found['id']} {paid} {which} {signal.data} {value}"


async def test_a_workflow_goes_from_operation_to_operation_and_nothing_unsafe_runs_twice(
    place: Place,
) -> None:
    DONE.clear()
    await place.open(settle)
    run = await place.start(settle, "17")
    await run.signal("paid", {"eur": 3})
    result = await run.result()
    assert result.output == "17 ['paid 1', 'paid 2'] 0 {'eur': 3} 7"
    assert sorted(DONE) == ["find 17", "pay 1", "pay 2"]


async def test_the_code_begins_again_after_every_commit_and_does_nothing_twice(
    cheap: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDLOG_ALWAYS_REPLAY", "1")
    DONE.clear()
    await cheap.open(settle)
    run = await cheap.start(settle, "17")
    await run.signal("paid", {"eur": 3})
    assert (await run.result()).output == "17 ['paid 1', 'paid 2'] 0 {'eur': 3} 7"
    assert sorted(DONE) == ["find 17", "pay 1", "pay 2"]


async def test_a_workflow_that_starts_itself_ends_at_a_depth_of_64_runs(cheap: Place) -> None:
    @workflow(name="deep")
    async def deep(run: WorkflowRun, level: int) -> str:
        DEPTHS.append(level)
        return str(await run.agent(deep, {"level": level + 1}))

    DEPTHS.clear()
    await cheap.open(deep)
    with pytest.raises(RunFailed, match="'deep' would run at a depth of more than 64 runs"):
        await (await cheap.start(deep, '{"level": 1}')).result()
    assert list(range(1, 65)) == DEPTHS


@pytest.mark.parametrize("part", ["output", "error"])
async def test_text_of_a_workflow_that_is_not_valid_unicode_ends_its_run(cheap: Place, part: str) -> None:
    @workflow(name="half")
    async def half(run: WorkflowRun) -> str:
        if part == "error":
            raise ValueError("half a character: \ud83d")
        return "half a character: \ud83d"

    await cheap.open(half)
    expected = {"output": "text that is not valid Unicode", "error": r"half a character: \?"}
    with pytest.raises(RunFailed, match=expected[part]) as failed:
        await (await cheap.start(half, "")).result()
    assert failed.value.error_type == "workflow_failed"


async def test_a_callback_is_told_once_and_its_answer_goes_on(place: Place) -> None:
    told: list[str] = []

    @workflow
    async def scan(run: WorkflowRun, name: str) -> str:
        answer = await run.callback("scan", lambda callback: told.append(callback.token), timeout_s=3600)
        again = await run.callback("scan", lambda _: None, timeout_s=0)
        return f"{name}: {answer.data if answer else None} {again}"

    await place.open(scan)
    run = await place.start(scan, "letter")
    await run_is_parked(run)
    (token,) = told
    await place.runtime.answer_callback(token, {"pages": 3}, by="scanner")
    assert (await run.result()).output == "letter: {'pages': 3} None"
    assert len(told) == 1
    assert token not in repr([event async for event in run.stream(detailed=True)])


async def test_an_answer_that_does_not_fit_its_callback_is_refused_and_its_token_still_good(
    place: Place,
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    @workflow
    async def scan(run: WorkflowRun, name: str) -> str:
        form = {"type": "object", "required": ["pages"]}
        answer = await run.callback("scan", lambda callback: told.put(callback.token), schema=form)
        return f"{name}: {answer.data if answer else None}"

    await place.open(scan)
    run = await place.start(scan, "letter")
    token = await told.get()
    with pytest.raises(SignalMisfit, match="schema of callback 'scan'"):
        await place.runtime.answer_callback(token, {"sheets": 3})
    assert (await place.runtime.answer_callback(token, {"pages": 3})).is_new
    assert (await run.result()).output == "letter: {'pages': 3}"
    assert "signal_dropped" not in [event.type async for event in run.stream(detailed=True)]


async def test_a_callback_that_cannot_be_told_fails(cheap: Place) -> None:
    def refuse_it(callback: Callback) -> None:
        raise OSError("no route")

    @workflow(name="untold")
    async def untold(run: WorkflowRun) -> str:
        try:
            await run.callback("scan", refuse_it)
        except OperationFailed as error:
            return f"{error.place} {error.status} {error.reason}"
        return ""

    await cheap.open(untold)
    assert (await (await cheap.start(untold, "")).result()).output == ("scan#0 error OSError: no route")


async def test_a_run_of_an_agent_is_a_child_and_its_output_goes_on(place: Place, script: Any) -> None:
    writer = Agent("writer", model=script(says("a text")))

    @workflow
    async def write(run: WorkflowRun, topic: str) -> str:
        return "wrote: " + await run.agent(writer, f"Write about {topic}")

    await place.open(write)
    run = await place.start(write, "tea")
    assert (await run.result()).output == "wrote: a text"


async def test_an_operation_that_fails_is_an_error_that_the_code_may_catch(cheap: Place) -> None:
    @workflow(name="caught")
    async def caught(run: WorkflowRun) -> str:
        try:
            await run.call(refuse)
        except OperationFailed as error:
            return f"{error.place} {error.status}"
        return ""

    @workflow(name="uncaught")
    async def uncaught(run: WorkflowRun) -> str:
        return str(await run.call(refuse))

    await cheap.open(caught, uncaught)
    assert (await (await cheap.start(caught, "")).result()).output == "refuse#0 error"
    with pytest.raises(RunFailed, match="refuse#0 failed: no") as failed:
        await (await cheap.start(uncaught, "")).result()
    assert failed.value.error_type == "workflow_failed"


async def test_code_that_no_longer_fits_the_log_parks_the_run_and_code_that_fits_goes_on(
    cheap: Place,
) -> None:
    asked = {"name": "first"}

    @workflow(name="changing")
    async def changing(run: WorkflowRun) -> str:
        await run.memo(asked["name"], lambda: 1)
        await run.wait_for("go")
        return "done"

    await cheap.open(changing)
    run = await cheap.start(changing, "")
    await run_is(run, "wait")
    asked["name"] = "second"
    await run.signal("go")
    await run_is(run, "takeover")
    state = await run.state()
    assert state.flow is not None
    assert state.flow.diverged is not None
    assert (state.flow.diverged.place, state.flow.diverged.recorded) == ("first#0", "memo first")
    why = (await run.pending()).why
    assert why is not None
    assert (why.kind, why.sentence.partition(":")[0]) == (
        "takeover",
        "The code no longer fits what the log has",
    )
    listed = await cheap.runtime.operations.why(await cheap.runtime.list_runs())
    assert listed[run.run_id] == why
    asked["name"] = "first"
    await run.resume()
    assert (await run.result()).output == "done"


async def test_a_pause_while_the_code_asks_for_more_holds_it_back_until_the_run_is_resumed(
    cheap: Place,
) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def slow() -> str:
        """Work until told."""
        at_work.set()
        await go_on.wait()
        return "slow"

    @workflow(name="held")
    async def held(run: WorkflowRun) -> list[Any]:
        async def quick(r: WorkflowRun) -> Any:
            return await r.memo("value", lambda: 7), await r.call(find_order, order_id="after")

        return await run.gather(lambda r: r.call(slow), quick)

    DONE.clear()
    await cheap.open(held)
    run = await cheap.start(held, "")
    await at_work.wait()
    await run.pause()
    go_on.set()
    await run_is(run, "manual")
    await run.resume()
    assert (await run.result()).output == ["slow", [7, {"id": "after", "days": 15}]]
    assert DONE == ["find after"]


async def test_a_signal_that_comes_while_a_value_is_computed_does_not_have_it_computed_again(
    cheap: Place,
) -> None:
    at_work, go_on, computed = asyncio.Event(), asyncio.Event(), list[str]()

    async def compute() -> int:
        computed.append("begun")
        at_work.set()
        await go_on.wait()
        computed.append("done")
        return 7

    @workflow(name="computing")
    async def computing(run: WorkflowRun) -> list[Any]:
        value, signal = await run.gather(lambda r: r.memo("value", compute), lambda r: r.wait_for("paid"))
        return [value, signal.data]

    await cheap.open(computing)
    run = await cheap.start(computing, "")
    await at_work.wait()
    await run.signal("paid", 3)
    await run.signal("paid", 4)
    go_on.set()
    assert (await run.result()).output == [7, 3]
    assert computed == ["begun", "done"]


async def run_is(run: Any, reason: str) -> None:
    """Wait until the run is paused for this reason and parked."""
    async for event in run.stream(detailed=True):
        if event.type == "status" and (event.status, event.reason) == ("paused", reason):
            break
    await run_is_parked(run)


async def run_is_parked(run: Any) -> None:
    """Wait until the run is parked."""
    async with asyncio.timeout(120):
        while (await run.state()).parked is None:  # noqa: ASYNC110 - others park it
            await asyncio.sleep(0.01)


async def test_what_a_function_does_not_take_is_refused_before_the_first_event(cheap: Place) -> None:
    @workflow(name="typed")
    async def typed(run: WorkflowRun, order: int, urgent: bool = False) -> int:
        return order + await run.memo("one", lambda: int(urgent))

    await cheap.open(typed)
    with pytest.raises(ConfigError, match="order: is missing"):
        await cheap.start(typed, "{}")
    with pytest.raises(ConfigError, match="as a JSON object with order, urgent"):
        await cheap.start(typed, "17")
    run = await cheap.start(typed, '{"order": 17, "urgent": true}')
    assert (await run.result()).output == 18


def test_a_function_that_cannot_be_a_workflow_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="must be an async function"):
        workflow(name="plain")(len)  # type: ignore[arg-type]

    async def no_run() -> str:
        return ""

    with pytest.raises(AgentConfigError, match="its first parameter must be the WorkflowRun"):
        workflow(no_run)  # type: ignore[arg-type]


async def test_an_operation_that_is_never_awaited_and_a_foreign_await_end_the_run(cheap: Place) -> None:
    @workflow(name="forgetful")
    async def forgetful(run: WorkflowRun) -> str:
        run.call(pay, amount=9)
        return "done"

    @workflow(name="foreign")
    async def foreign(run: WorkflowRun) -> str:
        import asyncio

        await asyncio.sleep(1)
        return "done"

    await cheap.open(forgetful, foreign)
    with pytest.raises(RunFailed, match="never awaited: pay#0"):
        await (await cheap.start(forgetful, "")).result()
    with pytest.raises(RunFailed, match="a workflow awaits only what its run gives"):
        await (await cheap.start(foreign, "")).result()


async def test_an_operation_may_be_awaited_in_several_branches_at_once(cheap: Place) -> None:
    @workflow(name="shared")
    async def shared(run: WorkflowRun) -> list[Any]:
        found = run.call(find_order, order_id="1")

        async def again(r: WorkflowRun) -> Any:
            return (await found)["id"], await r.memo("value", lambda: 7)

        both = await run.gather(found, found, again, again)
        late = run.call(find_order, order_id="2")
        won, order = await run.first(late, lambda r: r.sleep(days=1))
        return [[each["id"] for each in both[:2]], both[2:], won, order["id"], (await late)["id"]]

    DONE.clear()
    await cheap.open(shared)
    run = await cheap.start(shared, "")
    assert (await run.result()).output == [["1", "1"], [["1", 7], ["1", 7]], 0, "2", "2"]
    assert DONE == ["find 1", "find 2"]


async def test_an_operation_that_lost_its_race_ends_for_all_that_await_it(cheap: Place) -> None:
    @workflow(name="loser")
    async def loser(run: WorkflowRun) -> list[Any]:
        wait = run.wait_for("never")

        async def other(r: WorkflowRun) -> Any:
            return await wait

        return await run.gather(other, lambda r: r.first(wait, r.sleep()))

    await cheap.open(loser)
    assert (await (await cheap.start(loser, "")).result()).output == [None, [1, None]]


async def test_a_timeout_of_the_loop_is_refused_in_a_workflow(cheap: Place) -> None:
    @workflow(name="hurried")
    async def hurried(run: WorkflowRun) -> str:
        async with asyncio.timeout(0.01):
            await run.sleep(days=1)
        return ""

    await cheap.open(hurried)
    with pytest.raises(RunFailed, match="RuntimeError: Timeout should be used inside a task"):
        await (await cheap.start(hurried, "")).result()
