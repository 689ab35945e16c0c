"""The parts by name: what each measures, how long it takes, and how its figures are shown."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import msgspec

from . import bounds
from .parts import (
    appends,
    cancelling,
    cluster,
    compressed,
    followers,
    keeping,
    large,
    loads,
    long_run,
    parked,
    peers,
    profile,
    recovery,
    schedules,
    shards,
    streaming,
    webhooks,
    workflows,
    workload_a,
)
from .settings import Measured, Settings


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the benchmarks.

    `bases` maps a measure to the contestant that the others are compared with as ratios. Measures in `plots` are drawn.
    `minutes` is how long the part takes on two idle cores. If no parts are named, those with `by_default` are measured.
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
    notes: dict[str, str] = {}
    """Notes on contestants beyond the measurements, shown in a column of their own."""


LONG_RUN_BASES = {
    long_run.STEP: long_run.FIRST,
    long_run.STEP_CPU: long_run.FIRST,
    long_run.LOAD: long_run.WHOLE,
}
PARKED_SAYS = (
    "Each round starts a new server and worker, parks 200 runs before it measures, and then so many more. Memory is "
    "what the process' resident memory grew by, a run; the caller waits for all of the results at once."
)
PARTS = (
    Part(
        name="workload-a",
        title="A run of ten steps and 28 calls",
        says=(
            "Ten model calls and eighteen tool calls in pairs, some 200 bytes of arguments and 300 bytes of result "
            "each, 500 bytes of answer; the model and the tools take no time. One worker process; the caller is "
            "another one. The bare loop publishes the same commits with nats-py, each awaited, and neither reads "
            "nor decides anything. The plain loop keeps nothing. All of them run on uvloop."
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
            "when its lease ends, which it renews three times as often as needed, so that the figure may be negative. "
            "Peers run the same calls, and are killed in the same one."
        ),
        minutes=1,
        measure=recovery.measure,
        plots=(recovery.NEXT_CALL,),
    ),
    Part(
        name="appends",
        title="Appends, with and without seals",
        says=(
            f"The commits of workload A, appended by one process to one shard, {appends.POSITIONS['always']:,} with "
            f"fsync and {appends.POSITIONS['default']:,} without. Seals are written every {appends.SEAL_EVERY:,} "
            "positions and at the end, and read back what they are about; that at the end counts."
        ),
        minutes=2,
        by_default=False,
        measure=appends.measure,
        bases=appends.BASES,
    ),
    Part(
        name="cancelling",
        title="A cancel on its way",
        says="A run waits for a tool that blocks; the caller, who waits for the result, cancels it.",
        minutes=0.2,
        measure=cancelling.measure,
    ),
    Part(
        name="loads",
        title="A run's state, folded from its commits",
        says=(
            "Runs of workload A in the memory log: each commit is decoded, checked against the hash chain and folded. "
            "CPU time of one process."
        ),
        minutes=0.5,
        measure=loads.measure,
        bases={loads.EVENTS_A_SECOND: loads.DECODED},
        plots=(loads.EVENTS_A_SECOND,),
        x_unit="steps",
    ),
    Part(
        name="loads-longest",
        title="The state of a run of ten thousand steps",
        says="The same; its state holds some 28,000 messages.",
        minutes=1,
        by_default=False,
        measure=loads.measure_longest,
        bases={loads.EVENTS_A_SECOND: loads.DECODED},
        x_unit="steps",
    ),
    Part(
        name="workflows",
        title="A workflow's operations",
        says=(
            f"{workflows.STEPS} times {workflows.CALLS} calls at once of a tool that does nothing, on a log in memory: "
            "asked for by code, and by a model that answers at once. Then the code of a run with "
            f"{workflows.RECORDED:,} recorded operations goes over its log, as when a worker takes the run over."
        ),
        minutes=1,
        measure=workflows.measure,
        bases={workflows.CALL_CPU: workflows.AGENT},
        x_unit="operations",
    ),
    Part(
        name="schedules",
        title="Schedules, all due at once and none due",
        says=(
            f"{schedules.DUE:,} schedules whose next time is the same moment, of an agent whose model answers at once, "
            "with one worker process; before that as many runs by hand. Then all are deleted, "
            f"{schedules.IDLE:,} others are applied that are due in some days, and nothing else happens."
        ),
        minutes=6,
        by_default=False,
        measure=schedules.measure,
        bases={
            schedules.ALL_STARTED: schedules.BY_HAND,
            schedules.WORKER_CPU: schedules.NONE,
            schedules.SERVER_CPU: schedules.NONE,
        },
        x_unit="runs",
    ),
    Part(
        name="webhooks",
        title="A webhook",
        says=(
            "A signed request to `foldlog serve --hooks`, one after the other, until the model of the run that it "
            "starts is called: sender, door, worker and server are four processes. In turns with a run that the "
            "sender starts itself."
        ),
        minutes=0.5,
        measure=webhooks.measure,
        bases={webhooks.MIDDLE: webhooks.BY_HAND, webhooks.TAIL: webhooks.BY_HAND},
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
    Part(
        name="parked",
        title="A thousand runs that wait for a person",
        says=PARKED_SAYS,
        minutes=1.5,
        by_default=False,
        measure=parked.measure,
    ),
    Part(
        name="parked-most",
        title="Ten thousand runs that wait for a person",
        says=PARKED_SAYS,
        minutes=5,
        by_default=False,
        measure=parked.measure_most,
    ),
    Part(
        name="followers",
        title="A thousand readers at once",
        says=(
            "All in one process. They read one run that says ten pieces a second, each of which a thousand readers "
            "get: ten thousand a second in that process. Then they follow a run that waits for a person, while "
            "others run. `--times 10` is ten thousand of them."
        ),
        minutes=2,
        by_default=False,
        measure=followers.measure,
        bases={followers.RUN_ALONE: followers.NOBODY},
        plots=(followers.TAIL,),
    ),
    Part(
        name="large",
        title="A stream with a million commits",
        says=(
            "50,000 runs of 21 commits in one stream, beside a stream with a hundred of them. Filled without fsync and "
            "measured with it, after a restart of the server. Loads are of the whole run, without snapshots. "
            "`--times 10` is ten million commits."
        ),
        minutes=3,
        by_default=False,
        measure=large.measure,
        bases=dict.fromkeys(
            (
                large.SERVER,
                large.LOAD,
                large.LOAD_AGAIN,
                large.WORKER,
                large.REBUILD,
                large.OPENED,
                large.LISTED,
            ),
            large.SMALL,
        ),
    ),
    Part(
        name="retention",
        title="A month under retention",
        says=(
            "Forty runs a day of three commits and 40 KB, in one stream, kept for five days; days pass by the clock. "
            "After each day one pass of retention erases what is due; at the end a writer appends beside one. The "
            "server syncs every second, so that it gives freed blocks of 8 MB back at once."
        ),
        minutes=3,
        by_default=False,
        measure=keeping.measure,
        bases={keeping.DISK: keeping.ALL, keeping.LATENCY: keeping.ALONE, keeping.TAIL: keeping.ALONE},
        plots=(keeping.DISK,),
        x_unit="days",
    ),
    Part(
        name="compressed",
        title="Streams that NATS compresses",
        says=(
            "1,500 runs of workload A in one stream, without compression and with `FOLDLOG_COMPRESSION=s2`. Arguments, "
            "results and answers are random English words, for one letter again and again would compress to nothing; "
            "and again with random letters and digits, which hardly compress at all. "
            "NATS compresses blocks of 8 MB once they are full; the last one never is. Then, after a restart of the "
            "server, the load of a whole run from a block that nobody read, for which all of the block is unpacked, "
            "and of the same run again."
        ),
        minutes=1.5,
        measure=compressed.measure,
        bases={
            compressed.STORED: workload_a.PAYLOAD,
            compressed.STORED_RANDOM: workload_a.PAYLOAD,
            compressed.SERVER_CPU: compressed.PLAIN,
            compressed.SERVER_CPU_RANDOM: compressed.PLAIN,
            compressed.LOAD: compressed.PLAIN,
            compressed.LOAD_AGAIN: compressed.PLAIN,
        },
    ),
    Part(
        name="shards",
        title="Shards on a slow disk",
        says=(
            "Workload A, 50 runs at once, on one server with one worker; strace makes each fsync of the server take "
            "2 ms longer, or nothing longer but what strace itself takes."
        ),
        minutes=3,
        by_default=False,
        measure=shards.measure,
        plots=(shards.RUNS_A_SECOND,),
        x_unit="shards",
    ),
    Part(
        name="profile",
        title="Where a worker's time and memory go",
        says=(
            "Workload A, 20 runs at once, in one worker process: py-spy samples where it is, and memray counts what it "
            "allocates. What a function calls of C counts as its own."
        ),
        minutes=1,
        by_default=False,
        measure=profile.measure,
        notes=profile.DONE,
    ),
    Part(
        name="cluster",
        title="A cluster of three servers",
        says=(
            "Workload A on three servers of loopback that keep three replicas of each stream. They share two cores and "
            "a disk with caller and worker: what is shown is the protocol's price, and no gain of a cluster."
        ),
        minutes=1.5,
        by_default=False,
        measure=cluster.measure,
        bases=dict.fromkeys(
            (workload_a.RUN_ALONE, workload_a.RUNS_A_SECOND, workload_a.SERVER_CPU, workload_a.CPU_ALONE),
            cluster.ONE,
        ),
    ),
)
BY_NAME = {part.name: part for part in PARTS}
