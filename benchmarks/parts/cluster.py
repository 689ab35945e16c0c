"""Compare three servers that replicate every stream with a single server, on one machine with one disk."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from foldlog.eventlog.embedded import EphemeralServer, Sync
from foldlog.eventlog.embedded.process import choose_port
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Runtime

from .. import bounds, script
from ..contestants import Contestant, Wanted, many, timed, worker_process
from ..settings import Collected, Measured, Settings
from ..workload import agent_of, registry_of
from .workload_a import CPU_ALONE, RUN_ALONE, RUNS_A_SECOND, SERVER_CPU

ROUNDS = 3
ALONE, CROWD, AT_ONCE = 20, 100, 50
READY_S = 60.0
ONE, BARE = "one server", "bare nats-py, three replicas"


def named(sync: Sync) -> str:
    """Return the cluster's name as a contestant."""
    return bounds.called("three servers, three replicas", sync)


async def measure(settings: Settings) -> Measured:
    """Measure the contestants one after the other, because seven servers at once would share two cores."""
    found, rounds = Collected(), settings.rounds_of(ROUNDS)
    commits = await bounds.commits_of_a_run()
    for number in range(1, rounds + 1):
        settings.say(f"round {number} of {rounds}: {ONE}")
        async with bounds.foldlog() as contestant:
            contestant.name = ONE
            await _round(found, contestant, settings)
        for sync in bounds.SETTINGS:
            settings.say(f"round {number} of {rounds}: {named(sync)}")
            async with _cluster(sync) as contestant:
                await _round(found, contestant, settings)
            settings.say(f"round {number} of {rounds}: {bounds.called(BARE, sync)}")
            async with _bare(sync, commits) as contestant:
                await _round(found, contestant, settings)
    return found.measured()


async def _round(found: Collected, contestant: Contestant, settings: Settings) -> None:
    alone = await timed(contestant, Wanted(runs=settings.count(ALONE, 2)))
    crowd = await timed(contestant, Wanted(runs=settings.count(CROWD, 4), at_once=settings.count(AT_ONCE, 2)))
    who, how = contestant.name, contestant.setting
    found.add(RUN_ALONE, who, "ms", alone.wall_ms, setting=how)
    found.add(RUNS_A_SECOND, who, "/s", crowd.runs_s, setting=how)
    found.add(CPU_ALONE, who, "ms", alone.worker_cpu_ms, setting=how)
    found.add(SERVER_CPU, who, "ms", alone.server_cpu_ms, setting=how)


@contextlib.asynccontextmanager
async def _cluster(sync: Sync) -> AsyncIterator[Contestant]:
    async with contextlib.AsyncExitStack() as stack:
        servers = await _servers(stack, sync)
        url = ",".join(server.url for server in servers)
        log = await stack.enter_async_context(JetStreamLog.open(url, connect_timeout_s=READY_S))
        runtime = await stack.enter_async_context(Runtime.open(log=log, registry=registry_of()))
        worker = await stack.enter_async_context(worker_process(url))

        async def run(steps: int) -> None:
            await runtime.run(agent_of(steps), script.QUESTION, executor="durable")

        for _ in range(bounds.WARM_UP_RUNS):
            await run(script.STEPS)
        yield Contestant(
            name=named(sync),
            setting=bounds.SETTINGS[sync],
            runs=many(run),
            workers=(worker.pid,),
            servers=tuple(server.pid for server in servers),
        )


@contextlib.asynccontextmanager
async def _bare(sync: Sync, commits: list[bytes]) -> AsyncIterator[Contestant]:
    """Yield a loop that publishes the same commits to three servers: the difference to it is foldlog's own cost."""
    async with contextlib.AsyncExitStack() as stack:
        servers = await _servers(stack, sync)
        url = ",".join(server.url for server in servers)
        async with JetStreamLog.open(url, connect_timeout_s=READY_S):
            pass  # now the servers have found each other
        yield await stack.enter_async_context(bounds.bare_on(servers, commits, sync, BARE))


async def _servers(stack: contextlib.AsyncExitStack, sync: Sync) -> list[EphemeralServer]:
    routes = list[int]()
    while len(routes) < 3:
        routes = list({*routes, choose_port()})
    known = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    servers = [
        EphemeralServer(
            directory / f"n{number}",
            sync=sync,
            name=f"n{number}",
            extra_config=f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{known}] }}',
        )
        for number, port in enumerate(routes)
    ]
    return list(await asyncio.gather(*map(stack.enter_async_context, servers)))
