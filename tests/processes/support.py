"""Support for tests of whole processes: workers in a nursery, and waiting by following the log."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil
from foldlog.eventlog import Chain, Claimed, Event, Log, RunNotFound, as_read
from foldlog.eventlog.memory import MemoryLog
from foldlog.replay import Canonical, Trace, canonical, check_trace, load_trace
from foldlog.runtime import Agent, RunHandle, Runtime

from tests.processes import workshop

HERE = Path(__file__).parent
PATIENCE_S = 180.0
"""A machine that does much else is slow; what hangs, hangs for longer."""
LEASE_S = 600.0
"""So long that nothing in a test can be due to its end."""
E = TypeVar("E", bound=Event)


class Process:
    """A process of the nursery."""

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def is_alive(self) -> bool:
        return is_alive(self.pid)

    async def gone(self) -> None:
        await until(lambda: not self.is_alive())


async def until(condition: Callable[[], object]) -> None:
    """Wait for what other processes do and no event tells of."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # see above
            await asyncio.sleep(0.005)


async def one_is_gone(processes: Sequence[Process]) -> None:
    """Wait until exactly one of them has ended."""
    await until(lambda: not all(process.is_alive() for process in processes))
    assert sum(not process.is_alive() for process in processes) == 1


def is_alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Nursery:
    """Makes processes in a few milliseconds; see `nursery.py`."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.processes.nursery", cwd=HERE.parents[1], stdin=pipe, stdout=pipe
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE_S)

    async def make(self, order: dict[str, Any]) -> Process:
        """Fork a process that does as ordered."""
        self._count += 1
        order["name"] = order["name"] or f"worker-{self._count}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._lock:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            pid = int(await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S))
        return Process(order["name"], pid)


class Place:
    """A namespace of a server, with a directory, a runtime of this process, and the workers that a test starts."""

    def __init__(self, url: str, namespace: str, directory: Path, nursery: Nursery) -> None:
        self.url, self.namespace, self.directory, self._nursery = url, namespace, directory, nursery
        self.runtime: Runtime
        self.processes: dict[str, Process] = {}

    @property
    def log(self) -> Log:
        return self.runtime.log

    @asynccontextmanager
    async def opened(self, lease_s: float = LEASE_S) -> AsyncIterator[Self]:
        """Open the runtime; in the end kill the processes."""
        opening = Runtime.open(
            self.url, namespace=self.namespace, registry=workshop.registry, lease_s=lease_s
        )
        try:
            async with opening as self.runtime:
                yield self
        finally:
            for process in self.processes.values():
                with suppress(ProcessLookupError):
                    process.kill()

    async def worker(
        self,
        name: str = "",
        *,
        serves: Sequence[str] = (),
        lease_s: float = LEASE_S,
        grace_s: float = 5.0,
        hooks: Sequence[dict[str, Any]] = (),
        **environment: str,
    ) -> Process:
        """Start a worker that serves; `hooks` are the fields of its hooks on the ends of runs."""
        order = {"agent": "", "serves": serves, "lease_s": lease_s, "grace_s": grace_s, "hooks": hooks}
        worker = await self._make(name, order, environment)
        ready = self.directory / f"{worker.name}.ready"
        await until(lambda: ready.exists() or not worker.is_alive())
        assert worker.is_alive(), (self.directory / f"{worker.name}.log").read_text()
        return worker

    async def local_process(
        self, agent: str, run_id: str, *, lease_s: float = LEASE_S, **environment: str
    ) -> Process:
        """Start a process that runs an agent by the local executor."""
        return await self._make(run_id, {"agent": agent, "lease_s": lease_s}, environment)

    async def _make(self, name: str, order: dict[str, Any], environment: dict[str, str]) -> Process:
        process = await self._nursery.make(
            {
                "url": self.url,
                "namespace": self.namespace,
                "name": name,
                "environment": {
                    "WORKSHOP": str(self.directory),
                    "FOLDLOG_SNAPSHOT_EVENTS": "5",  # so few that runs are taken over from snapshots
                    **environment,
                },
                **order,
            }
        )
        self.processes[process.name] = process
        return process

    async def owner(self, run: RunHandle[Any]) -> Process:
        """The process that holds the run; waits for a claim."""
        claimed = await stored(run, Claimed)
        return self.processes[claimed.worker]

    async def trace(self, run: RunHandle[Any] | str) -> Trace:
        return await load_trace(self.log, run if isinstance(run, str) else run.run_id)

    async def form(self, run: RunHandle[Any] | str) -> Canonical:
        """The canonical form of a run that is over, which keeps all rules."""
        trace = await self.trace(run)
        assert check_trace(trace) == []
        return canonical(trace)


async def stored(
    run: RunHandle[Any], kind: type[E], where: Callable[[E], bool] = lambda _: True, *, count: int = 1
) -> E:
    """Follow the log until the run holds this event for the `count`-th time; engine events too."""
    async with asyncio.timeout(PATIENCE_S):
        subject, chain = await run._located(), Chain()
        async with aclosing(run._runtime.log.events.follow(subject)) as commits:
            async for commit in commits:
                for event in as_read(chain.verify(commit)):
                    if isinstance(event, kind) and where(event):
                        count -= 1
                        if count == 0:
                            return event
    raise AssertionError("a log does not end")


async def command(place: Place, *arguments: str) -> str:
    """Return the output of a command, which must succeed."""
    foldlog = Path(sys.executable).with_name("foldlog")
    process = await asyncio.create_subprocess_exec(
        foldlog,
        *("--server", place.url, "--namespace", place.namespace),
        *arguments,
        cwd=HERE.parents[1],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def submitted(place: Place, run_id: str) -> RunHandle[str]:
    """A run that another process is about to start."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await place.runtime.locate(run_id)
            except RunNotFound:
                await asyncio.sleep(0.005)
            else:
                return place.runtime.get_run(run_id)


async def undisturbed(agent: Agent[Any], text: str = "question") -> Trace:
    """The trace of the agent where nothing happens, by the local executor in memory."""
    log = MemoryLog()
    async with Runtime.open(log=log, registry=workshop.registry) as runtime:
        run = await runtime.start(agent, text)
        await run.result(timeout_s=PATIENCE_S)
        return await load_trace(runtime.log, run.run_id)


async def observed(run: RunHandle[Any], **options: Any) -> list[Event]:
    """All events of a run's stream, drafts among them."""
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in run.stream(**options)]


def kinds(events: list[Event]) -> list[str]:
    """The events in short."""
    short = []
    for event in events:
        status = getattr(event, "status", None)
        short.append(f"{event.type}({status})" if status and event.type in {"status", "step"} else event.type)
    return short
