"""A run of two thousand steps: its last steps beside its first, and loads of it with its snapshot and without."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import AsyncGenerator

import msgspec
from foldlog.eventlog import TokenUsage
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Registry, Runtime, tool
from foldlog.runtime.journal import Journal
from foldlog.runtime.models import CallDelta, Delta, Finished, ModelRequest, TextDelta

STEPS = 2000
EDGE_STEPS = 200
LOADS = 9


class Figures(msgspec.Struct, frozen=True):
    """Milliseconds: wall and this process' CPU of each step, and of loads of the whole run."""

    step_ms: list[float]
    step_cpu_ms: list[float]
    load_ms: list[float]
    whole_load_ms: list[float]

    @property
    def wall_ratio(self) -> float:
        """Steps at the end to steps at the start."""
        return _last_to_first(self.step_ms)

    @property
    def cpu_ratio(self) -> float:
        """The same of CPU time."""
        return _last_to_first(self.step_cpu_ms)

    @property
    def load_ratio(self) -> float:
        """A load with the snapshot to one without, medians."""
        return statistics.median(self.load_ms) / statistics.median(self.whole_load_ms)


def _last_to_first(steps: list[float]) -> float:
    return sum(steps[-EDGE_STEPS:]) / sum(steps[:EDGE_STEPS])


@tool(effect="pure")
async def lookup(n: int) -> str:
    """Look something up."""
    return f"{n} " + "r" * 300


class Instant:
    """A model that asks for a tool at every step but the last, and notes when it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    def check(self, model: str) -> None:
        """Any name will do."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """The next call, or the end."""
        self.asked.append((time.perf_counter(), time.process_time()))
        if request.round < STEPS:
            call = CallDelta(
                index=0, id=f"c{request.round}", name="lookup", arguments=f'{{"n": {request.round}}}'
            )
            yield call
        else:
            yield TextDelta("done")
        yield Finished(reason="stop", usage=TokenUsage(input_tokens=100, output_tokens=20))

    async def aclose(self) -> None:
        """Nothing is held open."""


async def measure() -> Figures:
    """One run, kept within twenty messages, on a server that syncs everything."""
    model = Instant()
    agent: Agent[str] = Agent(
        "long",
        model="instant:any",
        tools=[lookup],
        max_steps=STEPS,
        context={"mode": "copilot", "overflow": "truncate"},
    )
    registry = Registry(agents=[agent], providers={"instant": model})
    async with (
        EphemeralServer() as server,
        JetStreamLog.open(server.url) as log,
        Runtime.open(log=log, registry=registry) as runtime,
    ):
        run = await runtime.start(agent, "question")
        await run.result()
        subject = await runtime.locate(run.run_id)

        async def load_ms(*, short: bool) -> float:
            begun = time.perf_counter()
            await Journal(log, subject).load(short=short)
            return (time.perf_counter() - begun) * 1000

        loads = [(await load_ms(short=False), await load_ms(short=True)) for _ in range(LOADS)]
    walls, cpus = zip(*model.asked, strict=True)
    return Figures(
        step_ms=[(after - before) * 1000 for before, after in itertools.pairwise(walls)],
        step_cpu_ms=[(after - before) * 1000 for before, after in itertools.pairwise(cpus)],
        load_ms=[with_it for with_it, _ in loads],
        whole_load_ms=[without for _, without in loads],
    )
