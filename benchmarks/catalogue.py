"""The parts by name: what each measures, how long it takes, and how its figures are shown."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import msgspec

from . import bounds
from .parts import cancelling, long_run, peers, recovery, streaming, workload_a
from .settings import Measured, Settings


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """`bases` names, for each measure that has one, the contestant against which the others are shown as ratios.

    Measures in `plots` are drawn. `minutes` is how long the part takes on two quiet cores; those with `by_default` are
    measured when nobody says which.
    """

    name: str
    title: str
    says: str
    minutes: float
    by_default: bool = True
    measure: Callable[[Settings], Coroutine[None, None, Measured]]
    bases: dict[str, str] = {}
    plots: tuple[str, ...] = ()
    x_unit: str = ""


LONG_RUN_BASES = {
    long_run.STEP: long_run.FIRST,
    long_run.STEP_CPU: long_run.FIRST,
    long_run.LOAD: long_run.WHOLE,
}
PARTS = (
    Part(
        name="workload-a",
        title="A run of ten steps and 28 calls",
        says=(
            "Ten model calls and eighteen tool calls in pairs, some 200 bytes of arguments and 300 bytes of result "
            "each, 500 bytes of answer; the model and the tools take no time. One worker process; the caller is "
            "another one. The bare loop publishes the same commits with nats-py, each awaited, and neither reads "
            "nor decides anything. The plain loop keeps nothing. With `sync default` a power failure loses up to two "
            "minutes of acknowledged events; the death of any process loses nothing."
        ),
        minutes=2,
        measure=workload_a.measure,
        bases={
            workload_a.RUN_ALONE: bounds.BARE,
            workload_a.RUNS_A_SECOND: bounds.BARE,
            workload_a.CPU_ALONE: bounds.LOOP,
            workload_a.CPU_AT_ONCE: bounds.LOOP,
            workload_a.SERVER_CPU: bounds.BARE,
            workload_a.STORED: workload_a.PAYLOAD,
        },
        plots=(workload_a.RUN_ALONE, workload_a.RUNS_A_SECOND, workload_a.CPU_ALONE),
    ),
    Part(
        name="peers",
        title="The same with what users would pick instead",
        says=(
            "Each peer is durable for every call, at the setting that it recommends or comes with, with the same calls "
            "and the same bytes; one contestant at a time. CPU is that of the process that runs the agent, which for "
            "libraries is the database's, too; servers are counted apart. A peer that is not installed is left out: "
            "`make bench ARGS=--install` installs them."
        ),
        minutes=5,
        measure=peers.measure,
        bases={
            workload_a.RUN_ALONE: bounds.BARE,
            workload_a.RUNS_A_SECOND: peers.RESTATE,
            workload_a.CPU_ALONE: bounds.LOOP,
        },
        plots=(workload_a.RUN_ALONE, workload_a.RUNS_A_SECOND, workload_a.CPU_ALONE, peers.BYTES_BY_STEPS),
        x_unit="steps",
    ),
    Part(
        name="streaming",
        title="Text on its way to a reader",
        says=(
            "From the moment at which the model hands a piece over, on a worker, to the moment at which a reader in a "
            "third process has it. Bare: the same pieces published and subscribed to with nats-py. Then a worker that "
            "streams is killed (SIGKILL) while another one stands by, and the reader stays."
        ),
        minutes=1.5,
        measure=streaming.measure,
        bases={
            measure: bounds.BARE
            for mode in streaming.MODES
            for measure in (streaming.middle(mode), streaming.tail(mode))
        },
        plots=tuple(streaming.tail(mode) for mode in streaming.MODES),
    ),
    Part(
        name="recovery",
        title="A worker dies",
        says=(
            "In model call 5 of 10 of a run; another worker stands by. From the signal to the same model call made by "
            "the other one. A worker whose connection closes is missed at once; one that hangs (SIGSTOP) is missed "
            "when its lease ends, which it renews three times as often as needed, so that the figure may be negative."
        ),
        minutes=1,
        measure=recovery.measure,
        plots=(recovery.NEXT_CALL,),
    ),
    Part(
        name="cancelling",
        title="A cancel on its way",
        says="A run waits for a tool that blocks; the caller, who waits for the result, cancels it.",
        minutes=0.2,
        measure=cancelling.measure,
    ),
    Part(
        name="long-run",
        title="A run of two thousand steps",
        says=(
            "On the local executor with snapshots, its prompt kept within 20 messages, an instant model, a pure tool a "
            "step: does a step cost more, the longer the run is?"
        ),
        minutes=0.3,
        measure=long_run.measure,
        bases=LONG_RUN_BASES,
    ),
    Part(
        name="longest-run",
        title="A run of ten thousand steps",
        says="As the one of two thousand.",
        minutes=1,
        by_default=False,
        measure=long_run.measure_longest,
        bases=LONG_RUN_BASES,
    ),
)
BY_NAME = {part.name: part for part in PARTS}
