"""Retries of runs that have ended: a new run of the same job, once for each number, or a fork before the failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from foldlog.adapters.models.scripted import ScriptedProvider
from foldlog.eventlog import ConfigError, NotRegistered, RunFailed, RunGone, RunNotFound
from foldlog.runtime import Agent, Runtime, Trigger, tool
from foldlog.runtime.ports.models import AuthenticationFailed, Delta, ModelRequest

from tests.runtime.conftest import HeldTool, Place, call, calls, says

Script = Callable[..., str]


class Flaky(ScriptedProvider):
    """Answers `works` requests by the script, then refuses `fails`, then goes on answering."""

    def __init__(self, fails: int = 1, *, works: int = 0) -> None:
        super().__init__()
        self._fails, self._works = fails, works

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Answer, or fail."""
        self._works -= 1
        if self._works < 0 < self._fails:
            self._fails -= 1
            raise AuthenticationFailed("no key")
        async for delta in super().stream(request):
            yield delta


async def failed(place: Place, agent: Agent, **options: Any) -> str:
    run = await place.start(agent, "pay", **options)
    with pytest.raises(RunFailed):
        await run.result()
    return run.run_id


async def test_a_retry_is_a_new_run_with_what_the_first_was_submitted_with(
    place: Place, script: Script
) -> None:
    agent = Agent("payer", model=script(says("paid")))
    runtime = await place.open(agent, providers={"scripted": Flaky()})
    trigger = Trigger(kind="hook", name="shop", request_id="r-1")
    first = await failed(place, agent, user="ada", metadata={"a": 1}, session="s", trigger=trigger)
    retry = await runtime.retry(first)
    assert (await retry.result()).output == "paid"
    assert retry.is_new
    rows = {row.run_id: row for row in await runtime.list_runs()}
    row = rows[retry.run_id]
    assert (row.user, row.metadata, row.session, row.executor) == ("ada", {"a": 1}, "s", place.executor)
    assert row.trigger == Trigger(kind="retry", name="shop", key=first, request_id="r-1")
    assert {each.job_id for each in rows.values()} == {first}


async def test_an_erased_retry_counts_as_it_ended(place: Place, script: Script) -> None:
    agent = Agent("payer", model=script(says("paid")))
    runtime = await place.open(agent, providers={"scripted": Flaky(2)})
    first = await failed(place, agent)
    second = await runtime.retry(first)
    with pytest.raises(RunFailed):
        await second.result()
    await runtime.delete(second.run_id)
    third = await runtime.retry(first)
    assert third.run_id != second.run_id
    assert (await third.result()).output == "paid"
    await runtime.delete(third.run_id)
    with pytest.raises(RunGone, match=f"run {third.run_id} was deleted"):
        await runtime.retry(first)


async def test_a_retry_that_is_repeated_is_the_same_run_and_the_next_one_once_it_failed(
    place: Place, script: Script
) -> None:
    agent = Agent("payer", model=script(says("paid")))
    runtime = await place.open(agent, providers={"scripted": Flaky(2)})
    first = await failed(place, agent)
    second = await runtime.retry(first)
    with pytest.raises(RunFailed):
        await second.result()
    assert (await runtime.retry(first, number=1)).run_id == second.run_id
    third = await runtime.retry(first)
    assert (await third.result()).output == "paid"
    again = await runtime.retry(first)
    assert (again.run_id, again.is_new) == (third.run_id, False)
    assert {row.job_id for row in await runtime.list_runs()} == {first}
    of_a_retry = await runtime.retry(second.run_id)
    await of_a_retry.result()
    assert {row.job_id for row in await runtime.list_runs()} == {first}


async def test_from_its_failure_a_run_goes_on_with_what_it_had_done(place: Place, script: Script) -> None:
    made: list[str] = []

    @tool(effect="unsafe")
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        made.append(invoice)
        return f"paid {invoice}"

    agent = Agent("payer", model=script(calls(call("pay", invoice="7")), says("done")), tools=[pay])
    runtime = await place.open(agent, providers={"scripted": Flaky(works=1)})
    first = await failed(place, agent)
    retry = await runtime.retry(first, from_failure=True)
    assert (await retry.result()).output == "done"
    assert made == ["7"]
    state = await retry.state()
    assert state.submitted is not None
    assert state.submitted.fork is not None
    assert state.submitted.trigger == Trigger(kind="retry", key=first)
    again = await runtime.retry(first, from_failure=True)
    assert (again.run_id, again.is_new) == (retry.run_id, False)


async def test_runs_with_long_ids_that_begin_alike_each_go_on_from_their_own_failure(
    cheap: Place, script: Script
) -> None:
    agent = Agent("payer", model=script(says("paid")))
    runtime = await cheap.open(agent, providers={"scripted": Flaky(2)})
    runs = [await failed(cheap, agent, run_id=f"{'x' * 63}{end}") for end in "ab"]
    retries = [await runtime.retry(run, from_failure=True, number=1000) for run in runs]
    assert [(await each.result()).output for each in retries] == ["paid", "paid"]
    origins = [(await each.state()).submitted.fork.run for each in retries]  # type: ignore[union-attr] # forks
    assert origins == runs


async def test_what_cannot_be_retried_is_refused_and_starts_nothing(place: Place, script: Script) -> None:
    held = HeldTool()
    agent = Agent("payer", model=script(calls(call("wait")), says("done"), says("done")), tools=[held.wait])
    runtime = await place.open(agent)
    run = await place.start(agent, "pay")
    with pytest.raises(ConfigError, match="is not over: cancel it before"):
        await runtime.retry(run.run_id)
    held.let_go.set()
    await run.result()
    with pytest.raises(ConfigError, match="the run has not failed"):
        await runtime.retry(run.run_id, from_failure=True)
    with pytest.raises(RunNotFound):
        await runtime.retry("00-nosuchrun")
    for number in (0, 1001, True, "1"):
        with pytest.raises(ConfigError, match="a number from 1 to 1000"):
            await runtime.retry(run.run_id, number=number)  # type: ignore[arg-type] # on purpose
    fork = await place.fork(run, at=1)
    await fork.result()
    with pytest.raises(ConfigError, match="is a fork"):
        await runtime.retry(fork.run_id)
    assert len(await runtime.list_runs()) == 2


async def test_a_process_without_the_agent_leaves_a_retry_to_workers(place: Place, script: Script) -> None:
    agent = Agent("payer", model=script(says("paid")))
    await place.open(agent, providers={"scripted": Flaky()})
    first = await failed(place, agent)
    async with Runtime.open(log=place.log) as elsewhere:
        with pytest.raises(NotRegistered):
            await elsewhere.retry(first, executor="local")
        retry = await elsewhere.retry(first, executor="durable")
        if place.executor != "durable":
            await place.add_worker("late")
        assert (await retry.result()).output == "paid"
