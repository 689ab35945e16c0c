"""Measure workload A, one run at a time and fifty at once, against the least that the log and Python would take."""

from __future__ import annotations

import contextlib
import json
from collections import Counter

from .. import bounds, script
from ..contestants import Contestant, Wanted, timed
from ..settings import Collected, Measured, Settings

ROUNDS = 7
ALONE, CROWD, AT_ONCE = 20, 150, 50
RUN_ALONE = "a run alone, wall time"
RUNS_A_SECOND = "runs a second, 50 at once"
CPU_ALONE = "CPU of the worker for a run alone"
CPU_AT_ONCE = "CPU of the worker for a run, 50 at once"
SERVER_CPU = "CPU of the server for a run alone"
STORED = "bytes on disk of a run"
PAYLOAD = "what was said"
COMPOSITION = "bytes of the commits of a run, by what they hold"


async def measure(settings: Settings) -> Measured:
    """Measure every contestant once per round, so that all of them meet the same conditions."""
    found = Collected()
    settings.say("the commits of a run")
    commits = await bounds.commits_of_a_run()
    async with contextlib.AsyncExitStack() as stack:
        contestants = [
            await stack.enter_async_context(opened)
            for opened in (
                bounds.foldlog(),
                bounds.bare(commits),
                bounds.foldlog("default"),
                bounds.bare(commits, "default"),
                bounds.plain_loop(),
            )
        ]
        rounds = settings.rounds_of(ROUNDS)
        for number in range(1, rounds + 1):
            for contestant in contestants:
                settings.say(f"round {number} of {rounds}: {contestant.name}")
                await _round(found, contestant, settings)
            found.add(STORED, PAYLOAD, "B", script.payload_bytes())
    for what, size in _composition(commits).most_common():
        found.add(COMPOSITION, what, "B", size)
    found.remarks.append(f"a run is {len(commits)} commits of {sum(map(len, commits)):,} bytes together")
    return found.measured()


def _composition(commits: list[bytes]) -> Counter[str]:
    """Return the bytes per event type. `envelopes` is everything in the commits around the events."""
    sizes = Counter[str]()
    for data in commits:
        events = json.loads(data)["events"]
        sizes["envelopes"] += len(data)
        for event in events:
            size = len(json.dumps(event, separators=(",", ":")))
            sizes["envelopes"] -= size
            if "metadata" in event:
                metadata = len(json.dumps(event["metadata"], separators=(",", ":")))
                sizes[f"{event['type']}, its metadata"] += metadata
                size -= metadata
            sizes[event["type"]] += size
    return sizes


async def _round(found: Collected, contestant: Contestant, settings: Settings) -> None:
    """Measure one round of a contestant. One without a store is so fast that it performs ten times the runs."""
    more = 1 if contestant.store else 10
    who, how = contestant.name, contestant.setting
    alone = await timed(contestant, Wanted(runs=settings.count(ALONE, 2) * more))
    crowd = await timed(contestant, Wanted(runs=settings.count(CROWD, 4) * more, at_once=AT_ONCE))
    found.add(RUN_ALONE, who, "ms", alone.wall_ms, setting=how)
    found.add(RUNS_A_SECOND, who, "/s", crowd.runs_s, setting=how)
    found.add(CPU_ALONE, who, "ms", alone.worker_cpu_ms, setting=how)
    found.add(CPU_AT_ONCE, who, "ms", crowd.worker_cpu_ms, setting=how)
    if contestant.store is not None:
        found.add(SERVER_CPU, who, "ms", alone.server_cpu_ms, setting=how)
        found.add(STORED, who, "B", crowd.stored, setting=how)
