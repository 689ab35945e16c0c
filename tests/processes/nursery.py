"""Forks processes that need no time to start, since all they import is imported already.

`python -m tests.processes.nursery` takes orders from its input, a JSON object a line, and answers each with the process
id. When its input ends it kills what is left. Children are real processes with connections of their own.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from foldlog.eventlog import CommitWrite, Delivery, Log, Write
from foldlog.eventlog.commits import decode
from foldlog.eventlog.events import HookAdvanced
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.sealing import sealed_log
from foldlog.runtime import EventHook, Runtime, Worker
from foldlog.runtime.driving.host import Host
from foldlog.runtime.driving.namespace import project_budgets
from foldlog.runtime.journal.snapshots import snapshot_setting
from foldlog.runtime.opening import seal_setting

from tests.processes import workshop


class LethalEvents:
    """The log's events: keeps what was acknowledged, and may die around an append.

    Those to runs are counted, and those to schedules, keys and places of hooks that move on, over all processes.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, *writes: Write) -> tuple[int, ...]:
        commits = [write for write in writes if isinstance(write, CommitWrite)]
        kinds = {write.subject.kind for write in commits}
        if "sched" in kinds:
            place = f"time {workshop.count_up('times')}"
        elif "key" in kinds:
            place = f"key {workshop.count_up('keys')}"
        elif any(moves_on(write) for write in commits):
            place = f"place {workshop.count_up('places')}"
        elif "run" in kinds:
            place = f"append {workshop.count_up('appends')}"
        else:
            return tuple(await self._inner.append(*writes))
        workshop.die_at(f"before {place}")
        try:
            positions: tuple[int, ...] = await self._inner.append(*writes)
        finally:
            workshop.die_at(f"after {place}")
        acknowledged(writes, positions)
        return positions


def moves_on(write: CommitWrite) -> bool:
    """Return whether it stores that a hook has followed the log up to a later place."""
    events = decode(write.data).events if write.subject.kind == "hook" else ()
    return any(isinstance(event, HookAdvanced) and event.position for event in events)


def acknowledged(writes: tuple[Write, ...], positions: tuple[int, ...]) -> None:
    """Remember for the test what the log said it has."""
    lines = [
        f"{write.subject.shard} {position} {write.data.decode()}\n"
        for write, position in zip(writes, positions, strict=True)
        if isinstance(write, CommitWrite)
    ]
    with (workshop.directory() / "acknowledged").open("ab", buffering=0) as file:
        file.write("".join(lines).encode())


def lethal(log: JetStreamLog) -> Log:
    log.events = LethalEvents(log.events)  # type: ignore[assignment]
    return log


class ReadyWorker(Worker):
    """A worker that tells the test when it serves."""

    ready: str

    async def _receive(self, deliveries: AsyncIterator[Delivery]) -> None:
        (workshop.directory() / f"{self.ready}.ready").touch()
        await super()._receive(deliveries)


def opened(order: dict[str, Any]) -> AbstractAsyncContextManager[JetStreamLog]:
    """The log, with a server that may be slow to answer."""
    return JetStreamLog.open(
        order["url"], namespace=order["namespace"], ack_wait_s=order["lease_s"], request_timeout_s=60
    )


async def work(order: dict[str, Any]) -> None:
    """Be a worker of the workshop until SIGTERM."""
    lease_s = order["lease_s"]
    async with opened(order) as log:
        registry = workshop.serving(order["serves"])
        host = Host(
            log=await sealed_log(lethal(log), seal_setting()),
            registry=registry,
            worker=order["name"],
            lease_s=lease_s,
            snapshot_events=snapshot_setting(),
            budgets=project_budgets(registry, None),
        )
        hooks = [EventHook(**{**each, "of": tuple(each["of"])}) for each in order["hooks"]]
        worker = ReadyWorker(host, grace_s=order["grace_s"], hooks=hooks)
        worker.ready = order["name"]
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.serve()


async def run_locally(order: dict[str, Any]) -> None:
    """Start a run on the local executor and see it through."""
    lease_s = order["lease_s"]
    async with (
        opened(order) as log,
        Runtime.open(log=lethal(log), registry=workshop.registry, lease_s=lease_s) as runtime,
    ):
        agent = workshop.registry.agent(order["agent"])
        await runtime.run(agent, "question", run_id=order["name"])


def become(order: dict[str, Any]) -> None:
    os.environ.update(order["environment"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    name = f"{order['name']}.log"
    with (workshop.directory() / name).open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    asyncio.run(run_locally(order) if order["agent"] else work(order))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children: list[int] = []
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                become(json.loads(line))
                code = 0
            except BaseException:  # noqa: BLE001  # to its log, since nobody else is left to tell it
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
