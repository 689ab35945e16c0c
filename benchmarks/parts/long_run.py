"""Measure long runs: their last steps compared with their first, and loading them with and without a snapshot."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from foldlog.eventlog import TokenUsage
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.ports import Log, Subject
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.ports.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

from ..settings import Collected, Measured, Settings

STEPS, STEPS_MOST = 2000, 10_000
LOADS = 9
EDGE = 0.1
"""The first and the last tenth of the steps are compared."""
STEP = "a step of a long run, wall time"
STEP_CPU = "a step of a long run, CPU"
LOAD = "load of the run"
FIRST, LAST = "the first tenth of its steps", "the last tenth of its steps"
SNAPSHOT, WHOLE = "from its snapshot", "from its whole log"


@tool(effect="pure")
async def lookup(n: int) -> str:
    """Look something up."""
    return f"{n} " + "r" * 300


class Asking:
    """The model `asking:STEPS`: calls a tool in every step but the last, and records when it is called."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    def check(self, model: str) -> None:
        """Accept any number."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the next call, or the answer."""
        self.asked.append((time.perf_counter(), time.process_time()))
        number = request.round
        if number < int(request.model):
            yield CallDelta(index=0, id=f"c{number}", name="lookup", arguments=f'{{"n": {number}}}')
        else:
            yield TextDelta("done")
        yield Finished(reason="stop", usage=TokenUsage(input_tokens=100, output_tokens=20))

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


async def measure(settings: Settings) -> Measured:
    """Measure a run of two thousand steps."""
    return await _measured(settings, settings.count(STEPS, 20))


async def measure_longest(settings: Settings) -> Measured:
    """Measure a run of ten thousand steps."""
    return await _measured(settings, settings.count(STEPS_MOST, 40))


async def _measured(settings: Settings, steps: int) -> Measured:
    """Measure one run, whose prompt is truncated to twenty messages, on a server that syncs every message."""
    found, model = Collected(), Asking()
    agent: Agent[str] = Agent(
        "long",
        model=f"asking:{steps}",
        tools=[lookup],
        max_steps=steps,
        context={"mode": "copilot", "overflow": "truncate"},
    )
    registry = Registry(agents=[agent], providers={"asking": model})
    async with (
        EphemeralServer() as server,
        JetStreamLog.open(server.url) as log,
        Runtime.open(log=log, registry=registry) as runtime,
    ):
        run = await runtime.start(agent, "question")
        watching = asyncio.create_task(_watch(settings, model, steps))
        await run.result()
        watching.cancel()
        subject = await runtime.locate(run.run_id)
        settings.say("loads")
        events = (await Journal(log, subject).load()).head.rev
        for _ in range(settings.rounds_of(LOADS)):
            found.add(LOAD, WHOLE, "ms", await timed_ms(loading(log, subject, whole=True)))
            found.add(LOAD, SNAPSHOT, "ms", await timed_ms(loading(log, subject, whole=False)))
    walls, cpus = zip(*model.asked, strict=True)
    for measure_, times in ((STEP, walls), (STEP_CPU, cpus)):
        _edges(found, measure_, [(after - before) * 1000 for before, after in itertools.pairwise(times)])
    found.remarks.append(f"the run has {steps:,} steps and {events:,} events")
    return found.measured()


def _edges(found: Collected, measure_: str, steps: list[float]) -> None:
    """Add the averages of batches of steps, so that each value is a stable figure rather than a single sample."""
    edge = max(1, int(len(steps) * EDGE))
    batch = max(1, edge // 10)
    for who, part in ((FIRST, steps[:edge]), (LAST, steps[-edge:])):
        for at in range(0, len(part) - batch + 1, batch):
            found.add(measure_, who, "ms", statistics.fmean(part[at : at + batch]))


async def _watch(settings: Settings, model: Asking, steps: int) -> None:
    while True:
        settings.say(f"step {len(model.asked):,} of {steps:,}")
        await asyncio.sleep(10)


def loading(log: Log, subject: Subject, *, whole: bool) -> Callable[[], Awaitable[object]]:
    """Return a function that loads a run's state, from its beginning (`whole`) or from its snapshot."""
    return lambda: Journal(log, subject).load(short=whole)


async def timed_ms(action: Callable[[], Awaitable[object]]) -> float:
    """Run the action once, and return how long it takes, in milliseconds."""
    begun = time.perf_counter()
    await action()
    return (time.perf_counter() - begun) * 1000
