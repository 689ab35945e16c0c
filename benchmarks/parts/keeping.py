"""Measure a month of traffic under retention: the growth of the disk, and the effect of erasing on writers."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from foldlog.eventlog.clock import SystemClock
from foldlog.eventlog.commits import Commit, encode
from foldlog.eventlog.conformance.suite import run_in
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.events import Status, Submitted, Text
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.projections.projector import RunIndex
from foldlog.runtime.burying.retention import Retention, erase_due

from ..contestants import stored_bytes
from ..filling import fill
from ..settings import Collected, Measured, Settings

DAYS, KEPT_DAYS, RUNS_A_DAY = 30, 5, 40
SAID_CHARS = 20_000
DAY_S = 86_400.0
SYNC_S = 1
SETTLE_S = 4.0
"""How long to wait after a pass, since the server frees blocks only within its sync interval."""
SEED = 7
DISK = "bytes on disk under retention, by day"
UNDER, ALL = "runs are kept for five days", "all that was stored by then"
LATENCY = "an append: median"
TAIL = "an append: 99th percentile"
ALONE, BESIDE = "alone", "beside retention"


class Calendar(SystemClock):
    """A clock of real time that can be moved forward by days."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> float:
        """Return the time in Unix seconds."""
        return super().now() + self.ahead_s


async def measure(settings: Settings) -> Measured:
    """Store the same traffic every day, and run one pass of retention after each day."""
    found = Collected()
    template = commits_of_a_run()
    with tempfile.TemporaryDirectory() as directory:
        store = json.dumps(str(Path(directory) / "store"))
        quick = f'jetstream {{ store_dir: {store}, sync_interval: "{SYNC_S}s" }}'
        async with EphemeralServer(Path(directory), sync="default", extra_config=quick) as server:
            await _month(found, server.url, Path(directory), template, settings)
    return found.measured()


def commits_of_a_run() -> list[bytes]:
    """Return the commits of a small run: its submission, its answer and its end."""
    asked = Submitted(
        kind="agent",
        config={"name": "notes", "model": "none:1"},
        config_digest="",
        input="x" * SAID_CHARS,
        input_digest="",
        executor="durable",
    )
    events = (
        (asked, Status(status="starting")),
        (Text(step=1, text="y" * SAID_CHARS),),
        (Status(status="completed"),),
    )
    commits, rev = list[bytes](), 1
    for number, some in enumerate(events):
        commits.append(
            encode(
                Commit(
                    append=str(number),
                    at=0.0,
                    epoch=0,
                    events=some,
                    path="notes",
                    prev="",
                    rev=rev,
                    root="",
                    run="",
                )
            )
        )
        rev += len(some)
    return commits


async def _month(
    found: Collected, url: str, directory: Path, template: list[bytes], settings: Settings
) -> None:
    clock, names = Calendar(), random.Random(SEED)
    days, per_day = settings.count(DAYS, 8), settings.count(RUNS_A_DAY, 5)
    written = erased = 0
    async with JetStreamLog.open(url, shards=1, clock=clock) as log:
        index = await RunIndex.open(log)

        async def a_pass() -> int:
            return len((await erase_due(log, index, Retention(keep_s=KEPT_DAYS * DAY_S))).erased)

        for day in range(1, days + 1):
            settings.say(f"day {day} of {days}")
            runs = [(f"00-{names.getrandbits(80):020x}", template) for _ in range(per_day)]
            await fill(url, runs, settings.say, at=clock.now())
            written += len(runs)
            erased += await a_pass()
            if day in {KEPT_DAYS + 1, *range(10, days + 1, 5), days}:
                await asyncio.sleep(SETTLE_S)
                found.add(DISK, UNDER, "B", stored_bytes(directory), x=day)
                found.add(DISK, ALL, "B", written * sum(map(len, template)), x=day)
            clock.ahead_s += DAY_S
        found.remarks.append(f"{written:,} runs were stored, and {erased:,} of them erased")
        await _writers(found, log, a_pass)
        await index.aclose()


async def _writers(found: Collected, log: JetStreamLog, a_pass: Callable[[], Awaitable[int]]) -> None:
    """Measure a writer alone, and then during one more pass."""
    over, erasing = asyncio.Event(), asyncio.Event()
    over.set()
    alone = await _appends(log, over)
    beside = asyncio.create_task(_appends(log, erasing))
    await a_pass()
    erasing.set()
    for who, took_ms in ((ALONE, alone), (BESIDE, await beside)):
        found.add(LATENCY, who, "ms", statistics.median(took_ms))
        found.add(TAIL, who, "ms", statistics.quantiles(took_ms, n=100)[98])


async def _appends(log: JetStreamLog, done: asyncio.Event, fewest: int = 500) -> list[float]:
    """Append to a run until `done` is set, and at least `fewest` times; return the duration of each append in ms."""
    writer, took = run_in(log), list[float]()
    while len(took) < fewest or not done.is_set():
        begun = time.perf_counter()
        await writer.append("x" * 500)
        took.append((time.perf_counter() - begun) * 1000)
    return took
