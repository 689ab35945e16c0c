"""Profile a worker's time and memory: the most expensive functions per run, and what was done about them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Runtime

from .. import script
from ..contestants import Contestant, Perform, Wanted, ended, many, timed, worker_process
from ..settings import Collected, Measured, Settings
from ..workload import agent_of, registry_of

RUNS, RUNS_ALLOCATING, AT_ONCE = 400, 20, 20
SAMPLES_A_SECOND = 500
SHOWN = 15
LINE_BYTES_MAX = 2**24
OWN_TIME = "CPU of a run in a function, without what it calls in Python"
ALLOCATED = "bytes allocated in a function for a run"
MISSING = "left out: it needs {}, of the extra `bench` (`pip install foldlog[bench]`)"

DONE: dict[str, str] = {
    "asyncio/runners.py Runner.run": (
        "the event loop, and its reads: what arrives goes from one buffer to its handler, past the streams, tasks and "
        "queues of nats-py"
    ),
    "asyncio/streams.py StreamWriter.write": (
        "a system call each: messages of a busy turn of the loop share one; a lone one leaves at once; "
        "acknowledgements and leases wait some milliseconds for company"
    ),
    "eventlog/commits.py encode": (
        "encoded once, from a struct in the order in which it is stored, and not from a dictionary; its size is known "
        "from that"
    ),
    "eventlog/commits.py digest_of_bytes": (
        "one for the checksum of a commit, one for the chain; a reader has both from one pass over the bytes"
    ),
    "asyncio/tasks.py create_task": "an effect is one task and nothing more, without a group or a time-out around it",
    "eventlog/jetstream/parser.py Parser._take": (
        "messages are found in the buffer by their sizes, a header is not a dictionary; bodies are copied once"
    ),
    "eventlog/jetstream/parser.py _take": "the copy that outlives the buffer",
    "runtime/driving/tool_call.py call_tool": "what only a call with secrets needs is made for no other",
    "eventlog/jetstream/wire.py _publication": "the bytes that are sent, made once for each message",
    "projections/messages.py chain": (
        "a running digest over the messages, a struct a link: its cost does not grow with the history"
    ),
}
"""What was done about expensive functions, by the function's name in the profile."""

Row = tuple[str, int, int]


async def measure(settings: Settings) -> Measured:
    """Profile twenty concurrent runs in one worker process."""
    found = Collected()
    await _sampled(found, settings)
    await _allocated(found, settings)
    return found.measured()


async def _sampled(found: Collected, settings: Settings) -> None:
    """Profile CPU time with py-spy, which samples the process from outside and so hardly slows it down."""
    spy = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if spy is None:
        found.remarks.append(f"CPU: {MISSING.format('py-spy')}")
        return
    settings.say("CPU")
    async with _runtime() as (runtime, url), worker_process(url) as worker:
        contestant = Contestant(name="", setting="", runs=many(_run(runtime)), workers=(worker.pid,))
        await contestant.runs(Wanted(runs=settings.count(AT_ONCE, 2), at_once=AT_ONCE))
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "samples"
            async with _spying(spy, worker.pid, file):
                wanted = Wanted(runs=settings.count(RUNS, 5), at_once=AT_ONCE)
                cost = await timed(contestant, wanted)
            samples = _leaves(file.read_text()) if file.exists() else Counter[str]()
    if not samples:
        found.remarks.append(
            "CPU: left out: py-spy saw nothing; it may not be allowed to look at other processes"
        )
        return
    total = samples.total()
    for function, count in samples.most_common(SHOWN):
        spent_us = cost.worker_cpu_ms * 1000 * count / total
        found.add(OWN_TIME, function, "us", spent_us, setting=f"{count / total:.1%}")
    found.remarks.append(
        f"{cost.worker_cpu_ms:.2f} ms of CPU a run, {total:,} samples, {SAMPLES_A_SECOND} a second"
    )


@contextlib.asynccontextmanager
async def _spying(spy: str, pid: int, file: Path) -> AsyncIterator[None]:
    spying = await asyncio.create_subprocess_exec(
        *(spy, "record", "--pid", str(pid), "--rate", str(SAMPLES_A_SECOND), "--function"),
        *("--format", "raw", "--output", str(file)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await asyncio.sleep(0.5)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            spying.send_signal(signal.SIGINT)
        await spying.wait()


def _leaves(samples: str) -> Counter[str]:
    """Count samples by innermost function, from lines of `outer (file:line);...;inner (file:line) COUNT`."""
    leaves = Counter[str]()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        frame = re.fullmatch(r"(.+) \((.+?)(?::\d+)?\)", stack.rpartition(";")[2])
        if frame is not None:
            leaves[f"{frame[2].removeprefix('foldlog/')} {frame[1]}"] += int(count)
    return leaves


async def _allocated(found: Collected, settings: Settings) -> None:
    if importlib.util.find_spec("memray") is None:
        found.remarks.append(f"allocations: {MISSING.format('memray')}")
        return
    settings.say("allocations")
    runs = settings.count(RUNS_ALLOCATING, 5)
    async with _runtime() as (runtime, url), _counting_worker(url) as worker:
        perform = many(_run(runtime))
        await perform(Wanted(runs=settings.count(AT_ONCE, 1), at_once=AT_ONCE))
        _tell(worker)
        await perform(Wanted(runs=runs, at_once=AT_ONCE))
        _tell(worker)
        rows = msgspec.json.decode(await _said(worker), type=list[Row])
    for function, count, size in sorted(rows, key=lambda row: -row[2])[:SHOWN]:
        found.add(ALLOCATED, function, "B", size / runs, setting=f"{count / runs:,.1f} allocations")
    found.remarks.append(
        f"{sum(count for _, count, _ in rows) / runs:,.0f} allocations of "
        f"{sum(size for _, _, size in rows) / runs:,.0f} bytes a run, freed again or not"
    )


@contextlib.asynccontextmanager
async def _runtime() -> AsyncIterator[tuple[Runtime, str]]:
    async with EphemeralServer() as server, Runtime.open(server.url, registry=registry_of()) as runtime:
        yield runtime, server.url


def _run(runtime: Runtime) -> Perform:
    async def run(steps: int) -> None:
        await runtime.run(agent_of(steps), script.QUESTION, executor="durable")

    return run


@contextlib.asynccontextmanager
async def _counting_worker(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.profiled", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LINE_BYTES_MAX,
    )
    try:
        await _said(worker)
        yield worker
    finally:
        await ended(worker)


def _tell(worker: asyncio.subprocess.Process) -> None:
    if worker.stdin is not None:
        worker.stdin.write(b"\n")


async def _said(worker: asyncio.subprocess.Process) -> bytes:
    if worker.stdout is None or not (line := await worker.stdout.readline()):
        raise RuntimeError("the profiled worker has ended")
    return line
