"""A small world to break: a log in memory on virtual time, processes that crash, people who answer, tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import Any

import msgspec
from foldlog.eventlog.commits import Commit, decode
from foldlog.eventlog.errors import ApprovalError, FoldlogError, RunFinished
from foldlog.eventlog.events import ApprovalRequested, Status, StoredEvent, TokenUsage, is_terminal
from foldlog.eventlog.faults import Delay, Fault, FaultyLog, Plan, plan_of
from foldlog.eventlog.memory import MemoryLog
from foldlog.eventlog.ports import Shard, Stored, Subject
from foldlog.runtime import Agent, Registry, RunHandle, Runtime, ToolContext, Worker, tool
from foldlog.runtime.drive import Host
from foldlog.runtime.models import (
    CallDelta,
    Delta,
    Finished,
    ModelRequest,
    RateLimited,
    TextDelta,
    TransientModelError,
)

from tests.protocol.loop import OWNER, SimulatedClock, SimulatedLoop

LEASE_S = 10.0
LONG_S = 7200.0
"""Longer than any scenario needs without an expiry of days."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says at one step. `fails`: that many attempts fail first, `retry_after_s` given."""

    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    fails: int = 0
    retry_after_s: float | None = None


class Model:
    """Answers the k-th call of a run with the k-th reply of its script, whoever asks."""

    def __init__(self) -> None:
        self.scripts: dict[str, tuple[Reply, ...]] = {}

    def check(self, model: str) -> None:
        pass

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        step = sum(message.role == "assistant" for message in request.messages)
        reply = self.scripts[request.model][step]
        await asyncio.sleep(0.1)
        if request.attempt <= reply.fails:
            if reply.retry_after_s is not None:
                raise RateLimited("slow down", retry_after_s=reply.retry_after_s)
            raise TransientModelError("cut off")
        for piece in reply.text:
            yield TextDelta(piece)
        for index, (name, arguments) in enumerate(reply.calls):
            written = msgspec.json.encode(arguments).decode()
            yield CallDelta(index=index, id=f"call-{step}-{index}", name=name, arguments=written)
        yield Finished(reason="stop", usage=TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5))

    async def aclose(self) -> None:
        pass


class Start(msgspec.Struct, frozen=True):
    """An unsafe tool was started, physically. `late`: its start was settled, or its run claimed or over, before."""

    run: str
    call: str
    by: str
    late: bool


class World:
    """Everything that outlives a process."""

    def __init__(self, *, ack_wait_s: float = LEASE_S) -> None:
        WORLD.set(self)
        self.clock = SimulatedClock()
        self.log = MemoryLog(clock=self.clock, ack_wait_s=ack_wait_s)
        self.model = Model()
        self.agents: list[Agent[Any]] = []
        self.starts: list[Start] = []
        self.effects: list[tuple[str, str]] = []
        self.said: dict[str, asyncio.Task[Any]] = {}
        self.processes: dict[str, Process] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.entered: dict[str, asyncio.Event] = {}
        self.outcome = "retry"
        """How people settle what is unverifiable."""
        self.answers: list[str] = []
        self.told_no: list[str] = []
        """Submissions that were refused: agent and input."""
        self.operations: list[str] = []

    # --- what can be run ----------------------------------------------------------------------------------------------

    def agent(self, name: str, *replies: Reply, **fields: Any) -> Agent[Any]:
        """An agent whose model says this."""
        self.model.scripts[name] = replies
        agent: Agent[Any] = Agent(name, model=f"sim:{name}", tools=TOOLS, **fields)
        self.agents.append(agent)
        return agent

    def registry(self) -> Registry:
        """A registry of all agents, as each process has its own."""
        return Registry(agents=self.agents, providers={"sim": self.model})

    def gate(self, name: str) -> asyncio.Event:
        """What a `wait` of this name waits for."""
        return self.gates.setdefault(name, asyncio.Event())

    def arrival(self, name: str) -> asyncio.Event:
        """Set as soon as a `wait` of this name was entered."""
        return self.entered.setdefault(name, asyncio.Event())

    def record_start(self, ctx: ToolContext) -> None:
        """Write down that an unsafe tool starts now."""
        late = True
        for event in self.events_of(ctx.run_id):
            if event.type == "tool_started" and event.tool_call_id == ctx.tool_call_id:
                late = False
            elif event.type in {"claimed", "parked"} or _ended_by_itself(event):
                late = True
        self.starts.append(Start(ctx.run_id, ctx.tool_call_id, OWNER.get(), late))

    # --- who is there -------------------------------------------------------------------------------------------------

    def process(self, name: str, faults: Iterable[Fault] | Plan = ()) -> Process:
        """A process of this name that has not begun anything."""
        self.processes[name] = Process(self, name, faults)
        return self.processes[name]

    def worker(self, name: str, faults: Iterable[Fault] | Plan = ()) -> Process:
        """A process that serves as a worker from now on."""
        process = self.process(name, faults)
        process.serve()
        return process

    def people(self) -> Runtime:
        """A runtime in a process in which nothing ever goes wrong."""
        return Runtime(
            self.log, self.registry(), Host(log=self.log, registry=self.registry(), worker="people")
        )

    def outside(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let something happen in no process that could die."""
        token = OWNER.set("")
        try:
            return asyncio.get_running_loop().create_task(main)
        finally:
            OWNER.reset(token)

    async def inject(self, run: str, text: str) -> None:
        """Somebody says something."""
        with contextlib.suppress(RunFinished):
            await self.people().get_run(run).inject(text)

    async def answer_approvals(self) -> None:
        """Be the people who answer what is asked, half a second later."""
        asked: set[str] = set()
        async for stored in self.log.events.follow(Shard(0)):
            for event in decode(stored.data).events:
                if isinstance(event, ApprovalRequested) and event.approval_id not in asked:
                    asked.add(event.approval_id)
                    await asyncio.sleep(0.5)
                    await self._answer(stored.subject.id, event)

    async def _answer(self, run: str, request: ApprovalRequested) -> None:
        unverifiable = request.kind == "unverifiable"
        outcome: Any = self.outcome if unverifiable else None
        result = "sent" if outcome == "succeeded" else None
        with contextlib.suppress(ApprovalError):
            handle = self.people().get_run(run)
            await handle.resolve(request.approval_id, "approved", outcome=outcome, result=result)
            if unverifiable:
                self.answers.append(f"{run} {request.tool_call_id} {outcome}")

    # --- what is in the log -------------------------------------------------------------------------------------------

    def commits(self) -> list[tuple[Stored, Commit]]:
        """Every commit of every subject, in log order, not verified."""
        kept = self.log.events._commits
        stored = [s for selector, commits in kept.items() if isinstance(selector, Subject) for s in commits]
        return [(s, decode(s.data)) for s in sorted(stored, key=lambda s: s.position)]

    def events_of(self, run: str) -> list[StoredEvent]:
        """The events of a run, as stored."""
        return [event for _, commit in self.commits() if commit.run == run for event in commit.events]  # type: ignore[misc]

    def runs(self) -> list[str]:
        """All runs that the log has, in the order of their first commit."""
        return list(dict.fromkeys(s.subject.id for s, _ in self.commits() if s.subject.kind == "run"))

    def roots(self) -> list[str]:
        """The runs that no other run started."""
        return list(dict.fromkeys(s.subject.root for s, _ in self.commits() if s.subject.kind == "run"))

    def open_runs(self) -> list[str]:
        """Runs without a terminal status."""
        return [run for run in self.runs() if not any(map(is_terminal, self.events_of(run)))]

    async def settle(self, at_most_s: float = LONG_S) -> None:
        """Wait until every stored run is over, or the time is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self.until(lambda: not self.open_runs())

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the log is such that it holds; asked after each commit."""
        position = max((stored.position for stored, _ in self.commits()), default=0)
        if holds():
            return
        async for _ in self.log.events.follow(Shard(0), position):
            if holds():
                return

    async def until_stored(self, event_type: str, count: int = 1) -> None:
        """Wait until the log holds so many events of a type."""

        def holds() -> bool:
            return sum(e.type == event_type for _, c in self.commits() for e in c.events) >= count

        await self.until(holds)


WORLD: ContextVar[World] = ContextVar("WORLD")
"""The world of the running simulation, for tools, which are made once."""


@tool(effect="pure")
async def look(at: str, ctx: ToolContext) -> str:
    """Look."""
    ctx.progress(1, 2)
    await asyncio.sleep(0.2)
    ctx.progress(2, 2)
    return f"saw {at}"


@tool(effect="idempotent")
async def save(what: str, ctx: ToolContext) -> str:
    """Save."""
    WORLD.get().effects.append(("save", ctx.idempotency_key))
    await asyncio.sleep(0.1)
    return f"saved {what}"


@tool(effect="unsafe")
async def send(to: str, ctx: ToolContext) -> str:
    """Send, once."""
    WORLD.get().record_start(ctx)
    await asyncio.sleep(0.3)
    WORLD.get().effects.append(("send", ctx.idempotency_key))
    return "sent"


@tool(effect="unsafe")
async def deploy(to: str, ctx: ToolContext) -> str:
    """Deploy, if somebody approves."""
    WORLD.get().record_start(ctx)
    await asyncio.sleep(0.1)
    WORLD.get().effects.append(("deploy", ctx.idempotency_key))
    return "sent"


@tool(effect="pure")
async def wait(for_: str) -> str:
    """Wait for the gate."""
    WORLD.get().arrival(for_).set()
    await WORLD.get().gate(for_).wait()
    return "waited"


@tool(effect="pure", timeout_s=None)
async def delegate(to: str, ctx: ToolContext) -> str:
    """Ask another agent."""
    inner = next(agent for agent in WORLD.get().agents if agent.config.name == to)
    return await ctx.run(inner, "sub question")


@tool(effect="pure")
async def poke(text: str, ctx: ToolContext) -> str:
    """Somebody says something while this runs, whoever runs it."""
    if text not in WORLD.get().said:
        WORLD.get().said[text] = WORLD.get().outside(WORLD.get().inject(ctx.run_id, text))
    await asyncio.wait({WORLD.get().said[text]})
    return "poked"


TOOLS = [look, save, send, deploy, wait, delegate, poke]


def _ended_by_itself(event: StoredEvent) -> bool:
    """A cancel settles nothing: it may overtake a start."""
    return isinstance(event, Status) and event.status in {"completed", "error"}


class Process:
    """One operating-system process: its own handle on the log, and tasks that all die with it."""

    def __init__(self, world: World, name: str, faults: Iterable[Fault] | Plan = ()) -> None:
        self.world, self.name = world, name
        self._plan = faults if callable(faults) else plan_of(faults)
        self.handle = FaultyLog(world.log, self._planned)
        self.silent = False
        """Its death is no news to others: they have to wait until its lease is over."""
        self.dead = asyncio.Event()
        self.worker: Worker | None = None
        core: Any = self.handle._core
        die = core.die

        def died() -> Any:
            asyncio.get_running_loop().call_soon(self.kill)
            return die()

        core.die = died

    def _planned(self, operation: str, call: int, number: int) -> Fault | None:
        fault = self._plan(operation, call, number)
        now_s = self.world.clock.monotonic()
        self.world.operations.append(f"{now_s:9.3f} {self.name} {number}: {operation} {call}  {fault or ''}")
        return fault

    @property
    def host(self) -> Host:
        """What drives here."""
        return Host(log=self.handle, registry=self.world.registry(), worker=self.name, lease_s=LEASE_S)

    def runtime(self) -> Runtime:
        """A runtime of this process."""
        host = self.host
        return Runtime(self.handle, host.registry, host)

    def serve(self) -> None:
        """Be a worker, of the agents that there are when it gets to run."""

        async def serve() -> None:
            self.worker = Worker(self.host, grace_s=2.0)
            await self.worker.serve()

        self.spawn(serve())

    def spawn(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let a coroutine, and all tasks it makes, be part of this process."""
        token = OWNER.set(self.name)
        try:
            return asyncio.get_running_loop().create_task(main)
        finally:
            OWNER.reset(token)

    async def does(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Do something in this process; None if it dies over it."""
        task = self.spawn(main)
        await asyncio.wait({task})
        if task.cancelled() or self.handle.crashed:
            return None
        return task.result()

    def kill(self) -> None:
        """SIGKILL: nothing of it says anything more."""
        if self.dead.is_set():
            return
        self.handle.crash()
        loop: Any = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        for task in loop.tasks_of(self.name):
            task.cancel()
        if not self.silent:
            self.world.log.disconnect(self.name)
        self.dead.set()

    async def start(self, agent: Agent[Any], text: str = "question", **options: Any) -> RunHandle[Any] | None:
        """Start a run from this process; None if it dies over it or is told no."""
        try:
            handle: RunHandle[Any] | None = await self.does(self.runtime().start(agent, text, **options))
        except FoldlogError:
            self.world.told_no.append(f"{agent.config.name}: {text}")
            return None
        return handle


class Steer:
    """A plan that a test changes while it is in force: faults of named calls, and stalls of the whole process."""

    def __init__(self, *faults: Fault) -> None:
        self.once: dict[str, Fault] = {}
        """What happens to the next call of an operation."""
        self.stalls: dict[tuple[str, int], float] = {}
        """At this call the process stands still for so many seconds: just behind its effect."""
        self._until_s = 0.0
        self._plan = plan_of(faults)

    def stall(self, for_s: float) -> None:
        """Stand still from now on, as a stopped process does: nothing reaches the log, and nothing comes from it."""
        self._until_s = asyncio.get_running_loop().time() + for_s

    def __call__(self, operation: str, call: int, number: int) -> Fault | None:
        """The plan."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._until_s:
            return Delay(call, operation, self._until_s - now_s)
        if (operation, call) in self.stalls:
            self.stall(self.stalls[operation, call])
            return Delay(call, operation, self.stalls[operation, call], after=True)
        return self.once.pop(operation, None) or self._plan(operation, call, number)
