"""Measure a stream with a million commits: the cost of loading one of its runs, and of reading all of it."""

from __future__ import annotations

import contextlib
import random
import tempfile
from pathlib import Path

from foldlog.eventlog.commits import decode
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.projections.projector import RunIndex
from foldlog.runtime import Runtime

from .. import bounds, script
from ..contestants import stored_bytes, worker_process
from ..filling import fill
from ..settings import Collected, Measured, Settings
from ..workload import agent_of, registry_of
from .long_run import loading, timed_ms

RUNS = 50_000
LONGER_STEPS = 25
"""The number of steps of a longer run, which has about 200 events."""
LONGER = 15
STARTS = 3
SEED = 5
PATIENCE_S = 60.0
"""How long to wait for a server that is indexing ten million messages, rather than abort an hour of measuring."""
SMALL, LARGE = "a log of a hundred runs", f"a log of {RUNS:,} runs"
LOAD = "load of a run of 200 events that nobody read since the server started"
LOAD_AGAIN = "load of that run again"
WORKER = "from the start of a worker's process to the end of a run that waited for it"
REBUILD = "projections, built from nothing"
REBUILD_RATE = "projections, built from nothing: commits a second"
OPENED = "projections, opened again"
LISTED = "the newest twenty runs, listed"
SERVER = "start of the server on its store"


async def measure(settings: Settings) -> Measured:
    """Measure a small log and a large one, which are filled without fsync and measured with it."""
    found, names = Collected(), random.Random(SEED)
    settings.say("two runs to be copied")
    shorter = await bounds.commits_of_a_run()
    longer = await bounds.commits_of_a_run(LONGER_STEPS)
    many = settings.scaled(RUNS, 200)
    for who, runs in ((SMALL, 100), (LARGE if many == RUNS else f"a log of {many:,} runs", many)):
        wanted = [(f"00-{names.getrandbits(80):020x}", shorter) for _ in range(runs)]
        for place in range(LONGER):  # some longer runs, spread over the stream
            at = (2 * place + 1) * runs // (2 * LONGER)
            wanted[at] = (wanted[at][0], longer)
        with tempfile.TemporaryDirectory() as directory:
            await _measured(found, who, wanted, Path(directory), settings)
    events = sum(len(decode(data).events) for data in longer)
    found.remarks.append(
        f"the run of 200 events has {events}; the large log has {many * len(shorter):,} commits"
    )
    return found.measured()


async def _measured(
    found: Collected, who: str, wanted: list[tuple[str, list[bytes]]], directory: Path, settings: Settings
) -> None:
    store = directory / "server"
    async with EphemeralServer(store, sync="default") as server, JetStreamLog.open(server.url, shards=1):
        subjects = await fill(server.url, wanted, settings.say)
    found.remarks.append(f"{who} takes {stored_bytes(server.store) / 2**20:,.0f} MiB on disk")
    again = EphemeralServer(store)
    settings.say(f"{who}: loads")
    found.add(SERVER, who, "ms", await timed_ms(again.__aenter__))
    try:
        async with JetStreamLog.open(again.url, request_timeout_s=PATIENCE_S) as log:
            longer = [
                subject for subject, (_, commits) in zip(subjects, wanted, strict=True) if len(commits) > 30
            ]
            for subject in longer[: settings.rounds_of(LONGER)]:
                found.add(LOAD, who, "ms", await timed_ms(loading(log, subject, whole=True)))
                found.add(LOAD_AGAIN, who, "ms", await timed_ms(loading(log, subject, whole=True)))
            for _ in range(settings.rounds_of(STARTS)):
                settings.say(f"{who}: start of a worker")
                found.add(WORKER, who, "s", await _worker_s(again.url))
            settings.say(f"{who}: projections")
            await _projections(
                found, who, log, directory / "projections.sqlite", sum(len(c) for _, c in wanted)
            )
    finally:
        await again.__aexit__(None, None, None)


async def _worker_s(url: str) -> float:
    async with Runtime.open(url, registry=registry_of()) as runtime:
        run = await runtime.start(agent_of(script.STEPS), script.QUESTION, executor="durable")

        async with contextlib.AsyncExitStack() as stack:

            async def served() -> None:
                await stack.enter_async_context(worker_process(url))
                await run.result()

            return await timed_ms(served) / 1000


async def _projections(found: Collected, who: str, log: JetStreamLog, path: Path, commits: int) -> None:
    """Measure building, listing and reopening the projections in a file."""
    built = await RunIndex.open(log, path)
    took_s = await timed_ms(built.catch_up) / 1000
    found.add(REBUILD, who, "s", took_s)
    found.add(REBUILD_RATE, who, "/s", commits / took_s)
    found.add(LISTED, who, "ms", await timed_ms(lambda: built.runs(limit=20)))
    await built.aclose()

    async def opened() -> None:
        index = await RunIndex.open(log, path)
        await index.runs(limit=20)
        await index.aclose()

    found.add(OPENED, who, "ms", await timed_ms(opened))
