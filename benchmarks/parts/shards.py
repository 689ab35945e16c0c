"""Measure the throughput of a namespace by its number of shards on a slow disk, for which strace delays fsync."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
from foldlog.eventlog.embedded import find_binary
from foldlog.eventlog.embedded.config import server_config
from foldlog.eventlog.embedded.process import choose_port
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.runtime import Runtime

from .. import script
from ..contestants import Contestant, Wanted, ended, many, timed, worker_process
from ..settings import Collected, Measured, Settings
from ..workload import agent_of, registry_of

ROUNDS = 3
SHARDS = (1, 4, 8, 16)
SLOWER_MS = (0, 2)
AT_ONCE, CROWD = 50, 100
READY_S = 30.0
RUNS_A_SECOND = "runs a second, 50 at once"


def named(slower_ms: int) -> str:
    """Return the name of a disk whose fsync takes this much longer."""
    return f"fsync slowed by {slower_ms} ms" if slower_ms else "fsync as it is"


async def measure(settings: Settings) -> Measured:
    """Measure every number of shards in each round, each on a new server; fast and slow disks both run under strace."""
    found, rounds = Collected(), settings.rounds_of(ROUNDS)
    if shutil.which("strace") is None:
        found.remarks.append("left out: fsync is slowed by strace, which is not on the PATH")
        return found.measured()
    for number in range(1, rounds + 1):
        for shards in SHARDS if not settings.quick else (1, 4):
            for slower_ms in SLOWER_MS:
                settings.say(f"round {number} of {rounds}: {shards} shards, {named(slower_ms)}")
                async with _stage(shards, slower_ms) as contestant:
                    await contestant.runs(Wanted(runs=settings.count(20, 2), at_once=10))
                    wanted = Wanted(runs=settings.count(CROWD, 4), at_once=settings.count(AT_ONCE, 2))
                    found.add(
                        RUNS_A_SECOND,
                        named(slower_ms),
                        "/s",
                        (await timed(contestant, wanted)).runs_s,
                        x=shards,
                        setting="strace --seccomp-bpf -e inject=fsync,fdatasync:delay_exit",
                    )
    return found.measured()


@contextlib.asynccontextmanager
async def _stage(shards: int, slower_ms: int) -> AsyncIterator[Contestant]:
    async with (
        _slowed_server(slower_ms) as (url, server),
        JetStreamLog.open(url, shards=shards) as log,
        Runtime.open(log=log, registry=registry_of()) as runtime,
        worker_process(url) as worker,
    ):

        async def run(steps: int) -> None:
            await runtime.run(agent_of(steps), script.QUESTION, executor="durable")

        await run(script.STEPS)
        yield Contestant(name="", setting="", runs=many(run), workers=(worker.pid,), servers=(server,))


@contextlib.asynccontextmanager
async def _slowed_server(slower_ms: int) -> AsyncIterator[tuple[str, int]]:
    """Run a server that syncs every message under strace; yield its URL and strace's process id."""
    port = choose_port()
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "nats.conf"
        store, ports = Path(directory) / "store", Path(directory) / "ports"
        store.mkdir()
        ports.mkdir()
        config.write_text(
            server_config(store=store, ports=ports, name="slow", port=port, token=None, sync="always")
        )
        server = await asyncio.create_subprocess_exec(
            *("strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"),
            *("-e", f"inject=fsync,fdatasync:delay_exit={max(1, slower_ms * 1000)}"),
            *(str(find_binary()), "-c", str(config)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            url = f"nats://127.0.0.1:{port}"
            async with asyncio.timeout(READY_S):
                await _answers(port)
            yield url, server.pid
        finally:
            with contextlib.suppress(psutil.Error):
                for traced in psutil.Process(
                    server.pid
                ).children():  # strace ends when the server does, but not the other way round
                    traced.terminate()
            await ended(server)


async def _answers(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.readline()
            writer.close()
            return
        await asyncio.sleep(0.05)
