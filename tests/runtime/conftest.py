"""The same tests over both logs and both executors: what a caller sees does not depend on either."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from foldlog.eventlog import Event, Log, SystemClock
from foldlog.eventlog.embedded import EphemeralServer
from foldlog.eventlog.memory import MemoryLog
from foldlog.projections.outcome import Outcome, fold_stored
from foldlog.replay import check_trace, load_trace, replay
from foldlog.runtime import Registry, RunHandle, Runtime, Worker, tool
from foldlog.runtime.core.shared_budgets import check_budgets
from foldlog.runtime.driving.host import Host
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.ports.runnable import Runnable

Turn = dict[str, Any]
_NUMBERS = itertools.count(1)
SNAPSHOT_EVENTS = 5
"""So few that every test loads runs from snapshots."""
USAGE = {"input_tokens": 3, "output_tokens": 2}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[EphemeralServer]:
    """Shared by the tests of a module, each in a namespace of its own."""
    async with EphemeralServer() as server:
        yield server
        server.kill()  # a clean end takes a tenth of a second for each namespace


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """A model that answers by these turns: `script({"text": [...]}, ...)` is its name."""

    def write(*turns: Turn, scenes: Sequence[Turn] = ()) -> str:
        path = tmp_path / f"script-{len(list(tmp_path.iterdir()))}.json"
        written = {"turns": _priced(turns)}
        acts = [{**scene, "turns": _priced(scene["turns"])} for scene in scenes]
        path.write_text(json.dumps({**written, "scenes": acts}))
        return f"scripted:{path}"

    return write


def _priced(turns: Sequence[Turn]) -> list[Turn]:
    return [{"usage": USAGE, **turn} for turn in turns]


def when(text: str, *turns: Turn, system: str = "") -> Turn:
    """A scene: what is answered to runs whose input contains the text."""
    return {"input": text, "system": system, "turns": turns}


def call(name: str, call_id: str = "c1", /, **arguments: Any) -> Turn:
    """One tool call of a turn."""
    return {"id": call_id, "name": name, "arguments": arguments}


def says(*pieces: str) -> Turn:
    """A turn that is a final answer."""
    return {"text": list(pieces)}


def calls(*requests: Turn) -> Turn:
    """A turn that asks for tools."""
    return {"tool_calls": list(requests)}


class JumpingClock(SystemClock):
    """Wall time that a test advances at once; sleepers check it again."""

    def __init__(self) -> None:
        self._ahead_s, self._jumped = 0.0, asyncio.Event()

    def now(self) -> float:
        return super().now() + self._ahead_s

    async def sleep(self, delay_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._jumped.wait(), delay_s)

    def jump(self, by_s: float) -> None:
        self._ahead_s += by_s
        self._jumped.set()
        self._jumped = asyncio.Event()


class HeldClock(SystemClock):
    """The clock of a `ScriptedProvider` that answers a turn with a delay when it is let go, and not before."""

    def __init__(self) -> None:
        self.asked, self.let_go = asyncio.Event(), asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self.asked.set()
        await self.let_go.wait()


class HeldTool:
    """A tool `wait` whose calls end when they are let go, and not before."""

    def __init__(self) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()

    @property
    def wait(self) -> Any:
        @tool(effect="pure")
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.let_go.wait()
            return "waited"

        return wait


class Place:
    """A runtime, an executor by name, and as many workers as a test wants."""

    def __init__(self, log: Log, executor: str, stack: contextlib.AsyncExitStack) -> None:
        self.log, self.executor, self._stack = log, executor, stack
        self.registry = Registry()
        self.limits: dict[str, int] = {}
        self.budgets: dict[str, Any] = {}
        self.policy: dict[str, Any] | None = None
        self.runtime: Runtime
        self.workers: list[tuple[Worker, asyncio.Task[None]]] = []
        self._started: dict[str, RunHandle[Any]] = {}

    async def open(
        self, *agents: Runnable[Any], workers: int = 1, lease_s: float = 5.0, **registered: Any
    ) -> Runtime:
        """Open a runtime over these agents; for the durable executor with workers that serve them."""
        self.registry = Registry(agents=agents, **registered)
        self.runtime = await self._stack.enter_async_context(
            Runtime.open(
                log=self.log,
                registry=self.registry,
                lease_s=lease_s,
                limits=self.limits,
                budgets=self.budgets,
                policy=self.policy,
            )
        )
        for number in range(workers if self.executor == "durable" else 0):
            await self.add_worker(f"worker-{number}", lease_s=lease_s)
        return self.runtime

    async def add_worker(
        self, name: str, lease_s: float = 5.0, park_after_s: float = 5.0, concurrency: int = 100
    ) -> Worker:
        """Start one more worker in this process."""
        host = Host(
            log=self.log,
            registry=self.registry,
            worker=name,
            lease_s=lease_s,
            snapshot_events=SNAPSHOT_EVENTS,
            limits=self.limits,
            budgets=check_budgets(self.budgets, "budgets"),
        )
        worker = Worker(host, concurrency=concurrency, grace_s=10.0, park_after_s=park_after_s)
        task = asyncio.create_task(worker.serve())
        self.workers.append((worker, task))
        self._stack.push_async_callback(self._end, worker, task)
        return worker

    async def hand_over(self, run: RunHandle[Any]) -> None:
        """Have the driver leave the run, and another continue it."""
        if self.executor == "durable":
            await self.add_worker("worker-1")
            self._leave(self.workers[0][0])
        else:
            await self.runtime.aclose()
            await self.runtime.drive(run.run_id)

    async def cut_off(self, run: RunHandle[Any]) -> None:
        """Have the driver vanish at once, with its calls; another continues the run when its lease has expired."""
        if self.executor == "durable":
            await self.add_worker("worker-1")
            self.workers[0][1].cancel()
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self.runtime.aclose(), 0.01
                )  # a process that leaves does not wait for them
            await self.runtime.drive(run.run_id)

    def _leave(self, worker: Worker) -> None:
        """Stop it, and do not wait for what its runs do at the moment."""
        worker.stop()
        for driver in worker._keeper.drivers:
            driver.release_soon("its worker is shutting down")

    async def _end(self, worker: Worker, task: asyncio.Task[None]) -> None:
        self._leave(worker)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 120)

    async def start(self, agent: Runnable[Any], text: str = "question", **options: Any) -> RunHandle[Any]:
        """Start a run on this place's executor."""
        options.setdefault("executor", self.executor)
        run = await self.runtime.start(agent, text, **options)
        self._started[run.run_id] = run
        return run

    async def fork(self, run: RunHandle[Any], **options: Any) -> RunHandle[Any]:
        """Fork a run onto this place's executor."""
        options.setdefault("executor", self.executor)
        fork: RunHandle[Any] = await self.runtime.fork(run.run_id, **options)
        self._started[fork.run_id] = fork
        return fork

    async def _check_outcome(self, run: RunHandle[Any]) -> None:
        """Check that the outcome that a waiting caller folds equals that of the whole fold."""
        state, outcome = await run.state(), Outcome()
        journal = Journal(self.log, await self.runtime.locate(run.run_id))
        whole = await journal.load(short=True)
        assert journal.snapshot_rev == 0
        async for stored in self.log.events.read(await self.runtime.locate(run.run_id)):
            fold_stored(outcome, stored)
        if outcome.head.rev > state.head.rev:  # a late outcome was stored in between
            state, whole = await run.state(), await journal.load(short=True)
        assert state == whole
        assert (outcome.head, outcome.terminal, outcome.error) == (state.head, state.terminal, state.error)
        assert (state.output if outcome.aside else outcome.output, outcome.usage, outcome.cost_usd) == (
            state.output,
            state.usage,
            state.cost_usd,
        )
        assert (outcome.inner_usage, outcome.inner_cost_usd) == (state.inner_usage, state.inner_cost_usd)
        assert outcome.steps_completed == state.steps_completed

    async def check_rules(self) -> None:
        """Every trace of every test keeps the ordering rules of the contract, and the core decides it once more."""
        for run in self._started.values():
            trace = await load_trace(self.log, run.run_id)
            await self._check_outcome(run)
            assert check_trace(trace, ended=(await run.state()).over) == []
            assert replay(trace).divergence is None

    async def events(self, run: RunHandle[Any], *, detailed: bool = True) -> list[Event]:
        """All events of a run, as a late reader sees them."""
        return [event async for event in run.stream(detailed=detailed) if event.revision is not None]


@pytest.fixture(params=["memory", "jetstream"])
async def log(request: pytest.FixtureRequest, server: EphemeralServer) -> AsyncIterator[Log]:
    """A log of either kind."""
    if request.param == "memory":
        yield MemoryLog()
        return
    from foldlog.eventlog.jetstream import JetStreamLog

    async with JetStreamLog.open(
        server.url, namespace=f"test-{next(_NUMBERS)}", request_timeout_s=30
    ) as opened:
        yield opened


@pytest.fixture(params=["local", "durable"])
async def place(
    request: pytest.FixtureRequest, log: Log, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    """A log and an executor on which runs are driven."""
    monkeypatch.setenv("FOLDLOG_SNAPSHOT_EVENTS", str(SNAPSHOT_EVENTS))
    async with contextlib.AsyncExitStack() as stack:
        place = Place(log, request.param, stack)
        yield place
        await place.check_rules()


@pytest.fixture(params=["local", "durable"])
async def cheap(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place in memory."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(MemoryLog(ack_wait_s=5.0), request.param, stack)
        yield place
        await place.check_rules()


def names(events: list[Event]) -> list[str]:
    """The events in short: the type, with what tells its kinds apart."""
    short = []
    for event in events:
        status = getattr(event, "status", None)
        short.append(f"{event.type}({status})" if status and event.type in {"status", "step"} else event.type)
    return short
