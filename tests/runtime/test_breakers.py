"""Circuit breakers, on both executors and both logs: shared by all runs, and no part of a replay."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from foldlog.eventlog import RunFailed
from foldlog.eventlog.events import ModelFailed
from foldlog.replay import check_parity, load_trace
from foldlog.runtime import Agent, RunHandle, ToolFailed, tool
from foldlog.runtime.ports.models import Delta, Finished, ModelRequest, RateLimited, TextDelta

from .conftest import Place, call, calls, says

pytestmark = pytest.mark.anyio
FAST = {"attempts": 2, "base_s": 0.001}


class Busy:
    """A provider that refuses so many calls, and then answers."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.asked = refusals, 0

    def check(self, model: str) -> None:
        """Every model can be called."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        if self.asked <= self.refusals:
            raise RateLimited("too many requests")
        yield TextDelta(request.model)
        yield Finished(reason="stop", model=request.model)

    async def aclose(self) -> None:
        """Nothing is held open."""


async def failures(place: Place, run: RunHandle[Any]) -> list[ModelFailed]:
    """The failed attempts of a run."""
    trace = await load_trace(place.log, run.run_id)
    return [event for event in trace.events if isinstance(event, ModelFailed)]


async def test_an_open_breaker_sends_every_run_to_the_fallback_at_once(place: Place) -> None:
    busy, spare = Busy(99), Busy(0)
    agent = Agent(
        "helper",
        model="busy:m",
        fallback_models=["spare:s"],
        retry=FAST,
        breaker={"failures": 2, "open_s": 60.0},
    )
    await place.open(agent, workers=2, providers={"busy": busy, "spare": spare})
    for _ in range(3):
        run = await place.start(agent)
        assert (await run.result()).output == "s"
    assert (busy.asked, spare.asked) == (2, 3)
    (refused,) = await failures(place, run)
    assert (refused.error_type, refused.next_model, refused.retry_at) == ("circuit_open", "spare:s", None)
    assert refused.error == "the circuit breaker model:busy is open after 2 failures in a row"


async def test_without_a_fallback_a_run_waits_until_a_call_is_let_through(place: Place) -> None:
    busy = Busy(2)
    agent = Agent(
        "helper", model="busy:m", retry={**FAST, "attempts": 4}, breaker={"failures": 2, "open_s": 3.0}
    )
    await place.open(agent, providers={"busy": busy})
    run = await place.start(agent)
    assert (await run.result()).output == "m"
    kinds = [failure.error_type for failure in await failures(place, run)]
    assert kinds[:3] == ["rate_limit", "rate_limit", "circuit_open"]
    again = await place.start(agent)
    await again.result()
    assert await failures(place, again) == []


async def test_a_tool_that_keeps_failing_is_not_called_for_a_while(place: Place, script: Any) -> None:
    made: list[str] = []

    @tool(effect="unsafe")
    async def send(to: str) -> str:
        """Send something."""
        made.append(to)
        raise ToolFailed("the server is down")

    wrong = {"id": "w", "name": "send", "arguments": {"whom": "ann"}}
    rounds = [calls(call("send", f"c{number}", to=str(number))) for number in range(3)]
    model = script(calls(wrong), *rounds, says("done"))
    agent = Agent("helper", model=model, tools=[send], breaker={"failures": 2, "open_s": 60.0})
    await place.open(agent)
    run = await place.start(agent)
    await run.result()
    assert made == ["0", "1"]
    results = {event.tool_call_id: event for event in await place.events(run) if event.type == "tool_result"}
    assert "invalid arguments" in results["w"].error
    last = results["c2"]
    assert last.error.startswith(
        "not called: the circuit breaker tool:helper/send is open after 2 failures in a row"
    )
    assert (last.success, last.metadata["breaker"]) == (False, "tool:helper/send")


async def test_what_is_wrong_with_a_request_is_not_the_providers_fault(place: Place, script: Any) -> None:
    refused = {"error": {"type": "invalid_request", "times": 9}}
    agent = Agent("helper", model=script(refused), breaker={"failures": 1, "open_s": 60.0})
    await place.open(agent)
    for _ in range(2):
        run = await place.start(agent)
        with pytest.raises(RunFailed) as failure:
            await run.result()
        assert failure.value.error_type == "invalid_request"


async def test_a_takeover_meets_the_breaker_that_the_dead_worker_left() -> None:
    agent = Agent(
        "helper",
        model="busy:a",
        fallback_models=["spare:b"],
        retry={"attempts": 3, "base_s": 0.001},
        breaker={"failures": 1, "open_s": 60.0},
    )
    # Only the first attempt fails, so that the spare never does, also when it is asked again after a crash.
    script = {"turns": [{**says("done"), "error": {"type": "transient", "times": 1}}]}
    for operation in range(1, 20, 2):
        report = await check_parity(agent, "question", script=script, faults=f"crash@{operation}")
        assert report.equal, report.render()
        answered = {
            event.model for trace in report.traces.values() for event in trace.events if event.type == "usage"
        }
        assert answered == {"b"}
