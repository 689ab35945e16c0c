"""Measure workload A on the alternatives to foldlog, each of them durable for every call, in the same rounds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable

from .. import bounds, script
from ..contestants import Contestant, Wanted, timed
from ..peers.programs import NOT_INSTALLED, PEERS, Peer, running
from ..settings import Collected, Measured, Settings
from . import workload_a

ROUNDS = 3
WARM_UP, ALONE, CROWD, AT_ONCE = 3, 20, 150, 50
WITHIN_S, CROWD_WITHIN_S = 2.0, 3.0
SLOW_S = 25.0
LENGTHS = (10, 40, 100)
LANGGRAPH, LANGGRAPH_DELTA, RESTATE = PEERS[0].name, PEERS[1].name, PEERS[3].name
BYTES_BY_STEPS = "bytes on disk of a run, by its steps"

Opened = Callable[[], contextlib.AbstractAsyncContextManager[Contestant]]


async def measure(settings: Settings) -> Measured:
    """Measure one contestant at a time, because their servers would disturb each other."""
    found = Collected()
    contestants = await _contestants(found)
    rounds, slow = settings.rounds_of(ROUNDS), set[str]()
    for number in range(1, rounds + 1):
        for name, opened in contestants:
            if name in slow:
                continue
            settings.say(f"round {number} of {rounds}: {name}")
            begun = time.monotonic()
            try:
                async with opened() as contestant:
                    await _round(found, contestant, settings, first=number == 1)
            except RuntimeError as error:
                found.remarks.append(f"{name}: {error}")
            if time.monotonic() - begun > SLOW_S and number < rounds:
                slow.add(name)
                found.remarks.append(
                    f"{name} was measured in one round only: one takes more than {SLOW_S:g} s"
                )
        for steps in LENGTHS if number == 1 else ():
            found.add(BYTES_BY_STEPS, workload_a.PAYLOAD, "B", script.payload_bytes(steps), x=steps)
    return found.measured()


async def _contestants(found: Collected) -> list[tuple[str, Opened]]:
    commits = await bounds.commits_of_a_run()
    contestants: list[tuple[str, Opened]] = [
        (bounds.FOLDLOG, bounds.foldlog),
        (bounds.BARE, lambda: bounds.bare(commits)),
        (bounds.LOOP, bounds.plain_loop),
    ]
    for peer in PEERS:
        if peer.installed:
            contestants.append((peer.name, _opening(peer)))
        else:
            found.remarks.append(f"{peer.name} was left out: {NOT_INSTALLED}")
    return contestants


def _opening(peer: Peer) -> Opened:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Contestant]:
        async with running(peer) as contestant:
            yield contestant

    return opened


async def _round(found: Collected, contestant: Contestant, settings: Settings, *, first: bool) -> None:
    """Measure one round of a contestant; its time is limited, so slow contestants complete fewer runs."""
    who, how = contestant.name, contestant.setting
    more = 20 if contestant.store is None else 1
    await contestant.runs(Wanted(runs=WARM_UP))
    wanted = Wanted(runs=settings.count(ALONE, 1) * more, within_s=WITHIN_S)
    alone = await timed(contestant, wanted)
    wanted = Wanted(
        runs=settings.count(CROWD, 2) * more, at_once=settings.count(AT_ONCE, 2), within_s=CROWD_WITHIN_S
    )
    crowd = await timed(contestant, wanted)
    found.add(workload_a.RUN_ALONE, who, "ms", alone.wall_ms, setting=how)
    found.add(workload_a.RUNS_A_SECOND, who, "/s", crowd.runs_s, setting=how)
    found.add(workload_a.CPU_ALONE, who, "ms", alone.worker_cpu_ms, setting=how)
    if contestant.servers:
        found.add(workload_a.SERVER_CPU, who, "ms", alone.server_cpu_ms, setting=how)
    if first and who in {bounds.FOLDLOG, LANGGRAPH, LANGGRAPH_DELTA}:
        for steps in LENGTHS:
            stored = (await timed(contestant, Wanted(runs=settings.count(3, 1), steps=steps))).stored
            found.add(BYTES_BY_STEPS, who, "B", stored, x=steps)
