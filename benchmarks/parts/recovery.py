"""Measure the time from a worker's death in model call 5 of 10 until a standby worker makes that call again."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.runtime import Runtime

from .. import notes
from ..contestants import worker_process
from ..models import STALLS_AT, registry_of, stalling, talker
from ..peers.programs import NOT_INSTALLED, PEERS, killed
from ..settings import Collected, Measured, Settings

ROUNDS, PEER_ROUNDS = 5, 3
LEASE_S = 2.0
NEXT_CALL = "from SIGKILL of a worker to the next model call"
OVER_LEASE = "from SIGSTOP of a worker to the next model call, less the lease"
REGISTRY = "benchmarks.models:registry"
ACCOUNTS = """
accounts {
  SYS { users: [{user: sys, password: sys}], exports: [{stream: "$SYS.ACCOUNT.*.DISCONNECT", accounts: [A]}] }
  A { jetstream: enabled, users: [{user: a, password: a}],
      imports: [{stream: {account: SYS, subject: "$SYS.ACCOUNT.A.DISCONNECT"}}] }
}
system_account: SYS
"""


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A way in which a worker dies, and in which others notice it."""

    name: str
    end: signal.Signals
    setting: str
    config: str = ""
    credentials: str = ""


CLOSED = Death(
    name="foldlog, a server as it comes",
    end=signal.SIGKILL,
    setting="the server deletes the consumer of a connection that closed, and says so",
)
TOLD = Death(
    name="foldlog, disconnects imported",
    end=signal.SIGKILL,
    setting="the workers' account imports `$SYS.ACCOUNT.*.DISCONNECT`",
    config=ACCOUNTS,
    credentials="a:a@",
)
HUNG = Death(
    name="foldlog, SIGSTOP",
    end=signal.SIGSTOP,
    setting=f"the connection stays open; the lease is {LEASE_S:g} s",
)


async def measure(settings: Settings) -> Measured:
    """Measure every kind of death in each round."""
    found, rounds = Collected(), settings.rounds_of(ROUNDS)
    async with contextlib.AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(_stage(death)) for death in (CLOSED, TOLD, HUNG)]
        for number in range(1, rounds + 1):
            for death, url, runtime, path in stages:
                settings.say(f"round {number} of {rounds}: {death.name}")
                taken_s = await _taken_over_s(death, url, runtime, path)
                if death is HUNG:
                    found.add(OVER_LEASE, death.name, "s", taken_s - LEASE_S, setting=death.setting)
                else:
                    found.add(NEXT_CALL, death.name, "s", taken_s, setting=death.setting)
    await _peers(found, settings)
    return found.measured()


async def _peers(found: Collected, settings: Settings) -> None:
    for peer in PEERS:
        if peer.death and not peer.installed:
            found.remarks.append(f"{peer.name} was left out: {NOT_INSTALLED}")
        elif peer.death:
            settings.say(peer.name)
            try:
                for taken_s in await killed(peer, settings.rounds_of(PEER_ROUNDS)):
                    found.add(NEXT_CALL, peer.name, "s", taken_s, setting=peer.death)
            except RuntimeError as error:
                found.remarks.append(f"{peer.name}: {error}")


@contextlib.asynccontextmanager
async def _stage(death: Death) -> AsyncIterator[tuple[Death, str, Runtime, Path]]:
    with tempfile.TemporaryDirectory() as directory:
        async with EphemeralServer(extra_config=death.config) as server:
            url = f"nats://{death.credentials}{urlsplit(server.url).netloc}"
            async with Runtime.open(url, registry=registry_of()) as runtime:
                yield death, url, runtime, Path(directory) / "notes"


async def _taken_over_s(death: Death, url: str, runtime: Runtime, path: Path) -> float:
    """Return the seconds from the end of the first worker to the same model call by the second."""
    for left in path.parent.iterdir():
        left.unlink()
    options, environment = ("--lease-s", str(LEASE_S)), {notes.VARIABLE: str(path)}
    call = f"call {STALLS_AT}"
    async with worker_process(url, REGISTRY, "--concurrency", "1", *options, **environment) as first:
        run = await runtime.start(stalling, "question", executor="durable")
        await notes.noted(path, lambda note: note.what == call)
        async with worker_process(url, REGISTRY, *options, **environment) as second:
            await runtime.run(
                talker("try"), "question", executor="durable"
            )  # the second worker runs it, because the first one has no free slot
            ended = time.time_ns()
            os.kill(first.pid, death.end)
            again = await notes.noted(path, lambda note: note.pid == second.pid and note.what == call)
            await run.result()
        if death.end == signal.SIGSTOP:
            first.kill()
    return (again.at_ns - ended) / 1e9
