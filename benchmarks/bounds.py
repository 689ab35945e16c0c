"""The contestants that are not peers: foldlog, a bare loop that publishes its commits, and a plain asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence

import nats
from foldlog.eventlog.embedded import EphemeralServer, Sync
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Agent, Runtime

from . import script
from .contestants import Contestant, many, worker_process
from .workload import LENGTHS, agent_of, registry_of

WARM_UP_RUNS = 5
WAKEUP_BYTES = 130
SETTINGS: dict[Sync, str] = {
    "always": "each message fsynced: a power failure loses nothing that was acknowledged",
    "default": "fsync within two minutes: a power failure loses what came since, a process' death nothing",
}
FOLDLOG, BARE, LOOP = "foldlog", "bare nats-py", "plain asyncio loop"


def called(name: str, sync: Sync) -> str:
    """Return a contestant's name, with the sync setting if it is not `always`."""
    return name if sync == "always" else f"{name}, sync default"


@contextlib.asynccontextmanager
async def foldlog(sync: Sync = "always") -> AsyncIterator[Contestant]:
    """Yield foldlog with durable runs: this process is the caller, worker and server are other processes."""
    agents: dict[int, Agent[str]] = {steps: agent_of(steps) for steps in LENGTHS}
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(EphemeralServer(sync=sync))
        log = await stack.enter_async_context(JetStreamLog.open(server.url))
        runtime = await stack.enter_async_context(Runtime.open(log=log, registry=registry_of()))
        worker = await stack.enter_async_context(worker_process(server.url))

        async def run(steps: int) -> None:
            await runtime.run(agents[steps], script.QUESTION, executor="durable")

        for _ in range(WARM_UP_RUNS):
            await run(script.STEPS)
        yield Contestant(
            name=called(FOLDLOG, sync),
            setting=SETTINGS[sync],
            runs=many(run),
            workers=(worker.pid,),
            servers=(server.pid,),
            store=server.store,
        )


async def commits_of_a_run(steps: int = script.STEPS) -> list[bytes]:
    """Run workload A once durably, and return its commits as stored."""
    async with (
        EphemeralServer() as server,
        JetStreamLog.open(server.url) as log,
        Runtime.open(log=log, registry=registry_of()) as runtime,
        worker_process(server.url),
    ):
        handle = await runtime.start(agent_of(steps), script.QUESTION, executor="durable")
        await handle.result()
        subject = await runtime.locate(handle.run_id)
        return [stored.data async for stored in log.events.read(subject)]


@contextlib.asynccontextmanager
async def bare(commits: list[bytes], sync: Sync = "always") -> AsyncIterator[Contestant]:
    """Yield a loop in this process that publishes a wake-up and these commits with nats-py, awaiting each one."""
    async with EphemeralServer(sync=sync) as server, bare_on([server], commits, sync) as contestant:
        contestant.store = server.store
        yield contestant


@contextlib.asynccontextmanager
async def bare_on(
    servers: Sequence[EphemeralServer], commits: list[bytes], sync: Sync, name: str = BARE
) -> AsyncIterator[Contestant]:
    """Yield the same loop as `bare`, on running servers, with a replica of the stream on each."""
    connection = await nats.connect([server.url for server in servers])
    stream = connection.jetstream()
    await stream.add_stream(name="BARE", subjects=["bare.>"], num_replicas=len(servers))

    async def run(_steps: int) -> None:
        await stream.publish("bare.wake", b"w" * WAKEUP_BYTES)
        for commit in commits:
            await stream.publish("bare.run", commit)

    for _ in range(WARM_UP_RUNS):
        await run(script.STEPS)
    yield Contestant(
        name=called(name, sync),
        setting=SETTINGS[sync],
        runs=many(run),
        workers=(os.getpid(),),
        servers=tuple(server.pid for server in servers),
    )
    await connection.close()


@contextlib.asynccontextmanager
async def plain_loop() -> AsyncIterator[Contestant]:
    """Yield an agent loop that stores nothing: a list of messages, a model, two tools at a time."""

    async def run(steps: int) -> None:
        messages: list[dict[str, object]] = [{"role": "user", "content": script.QUESTION}]
        for step in range(1, steps + 1):
            text, calls = await _model(step, steps)
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            results = await asyncio.gather(*(_tool(written) for _, written in calls))
            messages += [
                {"role": "tool", "tool_call_id": call, "content": result}
                for (call, _), result in zip(calls, results, strict=True)
            ]

    await run(script.STEPS)
    yield Contestant(name=LOOP, setting="keeps nothing", runs=many(run), workers=(os.getpid(),))


async def _model(step: int, steps: int) -> tuple[str, list[tuple[str, str]]]:
    if step == steps:
        return script.answer(), []
    return "", [(call, script.arguments(call)) for call in script.call_ids(step)]


async def _tool(written: str) -> str:
    return script.found(json.loads(written)["q"])
