"""The targets, the measured values, and the reasons for missed targets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from .bounds import BARE, FOLDLOG, LOOP
from .figures import Series, Taken, ratios
from .parts import (
    compressed,
    large,
    loads,
    parked,
    peers,
    recovery,
    schedules,
    streaming,
    webhooks,
    workflows,
    workload_a,
)

Values = list[float]
Measured = Mapping[str, Taken]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A figure and its limit. `values` extracts its values from the results; None if it was not measured.

    `why_not` is shown while the target is missed: what the time or the space is spent on.
    """

    figure: str
    limit: float
    at_least: bool = False
    unit: str = ""
    values: Callable[[Measured], Values | None]
    peer: str = ""
    """The best peer at the time when the target was set."""
    why_not: str = ""

    def met(self, value: float) -> bool:
        """Return whether a value meets the limit."""
        return value >= self.limit if self.at_least else value <= self.limit

    @property
    def wanted(self) -> str:
        """The limit as text, such as `<= 1.2 ms`."""
        return f"{'>=' if self.at_least else '<='} {self.limit:,g} {self.unit}".rstrip()


class Verdict(NamedTuple):
    """A target with the median and spread measured, and whether it is met; `middle` and `met` None: not measured."""

    target: Target
    middle: float | None
    low: float
    high: float
    met: bool | None


def judge(measured: Measured) -> list[Verdict]:
    """Return a verdict on each target, in order. Quick measurements are ignored."""
    earnest = {name: taken for name, taken in measured.items() if not taken.quick}
    return [_judged(target, target.values(earnest)) for target in TARGETS]


def _judged(target: Target, values: Values | None) -> Verdict:
    if not values:
        return Verdict(target, None, 0, 0, None)
    middle = statistics.median(values)
    return Verdict(target, middle, min(values), max(values), target.met(middle))


def _found(part: str, measure: str, who: str, x: float | None = None) -> Callable[[Measured], Values | None]:
    """Return a function that extracts the values of a series."""

    def values(measured: Measured) -> Values | None:
        series = _series(measured, part, measure, who, x)
        return None if series is None else series.values

    return values


def _ratio(part: str, measure: str, who: str, base: str) -> Callable[[Measured], Values | None]:
    """Return a function that computes the ratios of two series of one measurement."""

    def values(measured: Measured) -> Values | None:
        mine, theirs = (_series(measured, part, measure, name) for name in (who, base))
        return None if mine is None or theirs is None else ratios(mine, theirs)

    return values


def _growth(measured: Measured) -> Values | None:
    """Return the growth of a step's bytes on disk from a run of 10 steps to one of 100; 1 is linear."""
    sizes = [_series(measured, "peers", peers.BYTES_BY_STEPS, FOLDLOG, steps) for steps in (10, 100)]
    short_run, long_run = sizes
    return None if short_run is None or long_run is None else [long_run.median / short_run.median / 10]


def _series(measured: Measured, part: str, measure: str, who: str, x: float | None = None) -> Series | None:
    taken = measured.get(part)
    return None if taken is None else taken.find(measure, who, x)


A = "workload-a"
TARGETS = (
    Target(
        figure="run alone, ratio to bare packed nats-py",
        limit=1.2,
        values=_ratio(A, workload_a.RUN_ALONE, FOLDLOG, BARE),
        why_not=(
            "a single run has nothing to do while a commit is in flight, so all of the worker's CPU time and "
            "part of the caller's are added to the waiting of the bare loop. That is some 17 million "
            "instructions, of which no function has a tenth, with cold caches: 24 times per run the worker "
            "writes, sleeps and is woken, and code right after a sleep takes twice as long (see the CPU of a "
            "run alone, below)."
        ),
        peer="Restate 3.8, LangGraph 4.6, DBOS 9, Temporal 37 to 98",
    ),
    Target(
        figure="runs a second, 50 at once, one worker process, ratio to Restate",
        limit=4,
        at_least=True,
        values=_ratio("peers", workload_a.RUNS_A_SECOND, FOLDLOG, peers.RESTATE),
        why_not=(
            "worker, caller and server share two cores, and a run takes some 12 ms of them: 5 to 8 in the "
            "worker, which is one Python thread, 5 in the server (half of it to store and sync 22 messages), "
            "1.6 in the caller. Four times Restate would leave 7 for all three. Messages are sent together, "
            "which leaves 11 writes and 5 reads per run in the worker, about a tenth of its CPU. The rest is "
            "Python: four fifths of it decide, fold, encode and call tools and models, one fifth is the "
            "client. The prototype that set the target had no budgets, policies, secrets or timeouts."
        ),
        peer="1",
    ),
    Target(
        figure="CPU of the worker for a run alone, ratio to the plain asyncio loop's",
        limit=30,
        values=_ratio(A, workload_a.CPU_ALONE, FOLDLOG, LOOP),
        why_not=(
            "the plain loop never waits, and a durable run does at least once for each of its 20 commits. Code "
            "right after a sleep finds cold caches: the same run on the memory log, with other work on the "
            "machine, took 5.3 ms of CPU with appends that answer at once, and 10.7 with ones that sleep for "
            "1.1 ms, of which the sleeping itself was 1.0. The figure of a busy worker, with fifty runs at "
            "once, is below."
        ),
        peer="pydantic-ai's loop without any durability 100, LangGraph 205",
    ),
    Target(
        figure="bytes on disk of a run, ratio to what was said",
        limit=2.5,
        values=_ratio(A, workload_a.STORED, FOLDLOG, workload_a.PAYLOAD),
        why_not=(
            "the parts are listed below. Content is stored once. An envelope has the run, the id of the append, the "
            "digest that chains it to the previous commit, and a checksum, 280 bytes; without any envelope it would "
            "still be 2.9. A tool result has the metadata that readers of the stream are promised; steps, usage and "
            "requests are events; NATS stores 190 bytes of subject and header with each message. Names are spelled "
            "out, since the format is kept for ever. NATS can compress it: see the next row."
        ),
        peer="LangGraph grows with the square of the steps",
    ),
    Target(
        figure="the same, ordinary text, FOLDLOG_COMPRESSION=s2",
        limit=1.3,
        values=_ratio("compressed", compressed.STORED, compressed.S2, workload_a.PAYLOAD),
    ),
    Target(
        figure="the same, a run of 100 steps, ratio to ten runs of 10 (linear: 1)",
        limit=1.3,
        values=_growth,
        peer="LangGraph 6.8",
    ),
    *(
        Target(
            figure=f"kill to next call, standby worker: {death.name}",
            limit=0.05,
            unit="s",
            values=_found("recovery", recovery.NEXT_CALL, death.name),
            why_not=(
                "most of it is intended: the server waits 5 ms before it counts a closed connection as gone, and "
                "processes that hear of it check again after 20 ms, so that a worker that only reconnects keeps its "
                "runs."
            ),
            peer="Restate 0.37 s, DBOS 1.05 s, Temporal 1.6 to 60 s",
        )
        for death in (recovery.CLOSED, recovery.TOLD)
    ),
    Target(
        figure="a worker that hangs to next call, less its lease",
        limit=0.1,
        unit="s",
        values=_found("recovery", recovery.OVER_LEASE, recovery.HUNG.name),
    ),
    *(
        Target(
            figure=measure,
            limit=limit_ms,
            unit="ms",
            values=_found("streaming", measure, FOLDLOG),
            why_not=(
                "pieces that come at once are joined, up to 32 per message; each group is written by the worker, "
                "forwarded by the server and shown by the reader, and waits for the groups before it."
            ),
            peer="DBOS 10 to 515 ms, Temporal 104 ms",
        )
        for mode in streaming.MODES
        for measure, limit_ms in ((streaming.middle(mode), 1), (streaming.tail(mode), 5))
    ),
    *(
        Target(
            figure=f"memory of the worker for a parked run, {runs:,} parked",
            limit=2048,
            unit="B",
            values=_found(part, parked.WORKER_RSS, f"{runs:,} runs"),
            why_not="a parked run has no object in the worker; the growth is pages that the allocator has not reused.",
        )
        for part, runs in (("parked", parked.RUNS), ("parked-most", parked.RUNS_MOST))
    ),
    Target(
        figure="load of a 200-event run from a million-commit stream, first read",
        limit=10,
        unit="ms",
        values=_found("large", large.LOAD, large.LARGE),
        why_not=(
            "the commits of a run are in one or two blocks of some megabytes; after its start the server reads a block "
            "from disk on the first request for data in it. The same run read again is below."
        ),
    ),
    *(
        Target(
            figure=f"events a second a core, load with chain check and fold, {steps:,} steps",
            limit=400_000,
            at_least=True,
            unit="/s",
            values=_found(part, loads.EVENTS_A_SECOND, FOLDLOG, steps),
            why_not=(
                "a third of the time is hashing and decoding each commit, in C. The rest is Python, some 15 "
                "function calls per event: the fold itself, event by event, takes two thirds of it, and "
                "nearly half of that are the texts of completed steps. A long run's state, 2 KB per step, "
                "does not fit into any cache."
            ),
        )
        for part, steps in (("loads", 10), ("loads", 1000), ("loads-longest", 10_000))
    ),
    Target(
        figure="CPU of a workflow's operation, ratio to an agent's tool call",
        limit=1.0,
        values=_ratio("workflows", workflows.CALL_CPU, workflows.WORKFLOW, workflows.AGENT),
    ),
    Target(
        figure="10,000 recorded operations run again",
        limit=0.3,
        unit="s",
        values=_found("workflows", workflows.AGAIN, workflows.WORKFLOW, workflows.RECORDED),
    ),
    Target(
        figure="1,000 schedules due at one moment, until the last one's run has begun",
        limit=60,
        unit="s",
        values=_found("schedules", schedules.ALL_STARTED, schedules.SCHEDULES, schedules.DUE),
    ),
    Target(
        figure="CPU of a worker beside 10,000 schedules that are not due, of a core",
        limit=1,
        unit="%",
        values=_found("schedules", schedules.WORKER_CPU, f"{schedules.IDLE:,} schedules"),
    ),
    Target(
        figure="from a webhook to the first model call, median",
        limit=15,
        unit="ms",
        values=_found("webhooks", webhooks.MIDDLE, webhooks.WEBHOOK),
    ),
)
