"""The world of a simulation: a log in memory on virtual time, processes that crash, and operators who answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec

from ...eventlog.commits import Commit, decode, tombstone_in
from ...eventlog.errors import ApprovalError, FoldlogError, KeyErased, RunFinished, SignalError
from ...eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    Claimed,
    Event,
    PlanStep,
    SignalReceived,
    SlotsUpdated,
    Status,
    StoredEvent,
    WaitEnded,
    WaitStarted,
    is_terminal,
)
from ...eventlog.faults import Fault
from ...eventlog.memory import MemoryLog
from ...eventlog.memory.snapshots import MemorySnapshots
from ...eventlog.ports import Shard, Stored
from ...eventlog.sealing import KeyWrapper, SealedLog
from ...projections.messages import Message
from ...runtime import Agent, EventHook, Registry, Runtime
from ...runtime.core.shared_budgets import SharedBudget
from ...runtime.driving.host import Host
from ...runtime.ports.evidence import Evidence
from ...runtime.ports.files import Content, File
from ...runtime.ports.models import (
    Delta,
    ModelProvider,
    ModelRequest,
    WrappedModel,
)
from ...runtime.ports.prices import PriceBook
from ...runtime.ports.runnable import Runnable
from ...runtime.ports.tools import Tool, ToolContextPort
from ...runtime.shared.deadlocks import limit_name
from ...runtime.shared.resume_tokens import callback_place
from ...runtime.tools.verified import Verifiable, Verification
from .injected import Injected
from .loop import OWNER, SimulatedClock
from .process import LEASE_S, SNAPSHOT_EVENTS, Draw, Happened, Process

LONG_S = 7200.0
"""Longer than any scenario takes that does not wait for an expiry of days, in seconds."""
ANSWER_S = 0.5
"""The time that operators take to answer, in seconds."""


class Job(msgspec.Struct, frozen=True):
    """A run to start: its agent, its input, and the options of `start`. `at_once`: concurrently with the one before."""

    agent: Runnable[Any]
    text: str
    options: dict[str, Any] = {}
    at_once: bool = False
    files: tuple[File, ...] = ()
    """The files of the input, in addition to its text."""

    @property
    def given(self) -> Content:
        """The whole input: the text, with the files if there are any."""
        return [self.text, *self.files] if self.files else self.text

    @property
    def key(self) -> str:
        """The name of the root run, unique within its scenario."""
        return f"{self.agent.name}: {self.text}"


class Start(msgspec.Struct, frozen=True):
    """A real start of an unsafe tool. `late`: after its `tool_started` the run was claimed again, parked or ended."""

    run: str
    call: str
    by: str
    late: bool


class Asked(msgspec.Struct, frozen=True):
    """A model call for a step: the run, the step, and the messages of the request."""

    run: str
    step: int
    messages: tuple[Message, ...]


class CallerReply(msgspec.Struct, frozen=True):
    """The reply that a caller got to a command: the command's kind, the run, its content, and the answer.

    The answer is `ok` or a status if it was carried out, `no` if it was refused, empty if the outcome is unknown.
    """

    kind: Literal["inject", "cancel", "resolve", "signal", "callback"]
    run: str
    about: str
    answer: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of an operator to an approval."""

    decision: Literal["approved", "rejected"] = "approved"
    arguments: dict[str, Any] | None = None
    outcome: Literal["retry", "succeeded", "failed"] | None = None
    result: Any = None
    note: str = ""
    always: bool = False


class _AllSnapshots(MemorySnapshots):
    """A snapshot store that keeps every snapshot ever stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[bytes] = []

    async def put(self, run: str, data: bytes) -> None:
        await super().put(run, data)
        self.stored.append(data)


class World:
    """Everything that outlives a process."""

    plans: Mapping[str, Sequence[PlanStep]] = MappingProxyType({})
    """The standing plans that people have written before anything runs."""
    settled_after_s = 1200.0
    """The time, in seconds, after which a run that is not over is lost."""
    budgets: tuple[SharedBudget, ...] = ()
    """The budgets of the namespace that all processes obey."""
    key_erased = False
    """True once an erasure of the user's key has been acknowledged to a caller."""

    def __init__(
        self, *, ack_wait_s: float = LEASE_S, snapshot_events: int = SNAPSHOT_EVENTS, seed: int = 0
    ) -> None:
        WORLD.set(self)
        self.rng = random.Random(f"stage/{seed}")  # noqa: S311 - not for secrets
        """Draws what a scenario's agents do, where it is drawn: the same for a seed, whatever happens to them."""
        self.clock = SimulatedClock()
        self.log = MemoryLog(clock=self.clock, ack_wait_s=ack_wait_s)
        self.snapshot_events = snapshot_events
        self.snapshots = self.log.snapshots = _AllSnapshots()
        self.agents: list[Runnable[Any]] = []
        self.providers: dict[str, ModelProvider] = {}
        self.make_registry: Callable[[], Registry] = self._registry_of_agents
        self.hooks: list[EventHook] = []
        """The hooks on the ends of runs that every worker follows."""
        self.outdated: dict[str, Runnable[Any]] = {}
        """Agents by name, as the workers of an earlier deployment have them: all workers except the first."""
        self.starts: list[Start] = []
        self.asked: list[Asked] = []
        self.unslotted: list[tuple[str, str]] = []
        """The runs whose owners, also given, sent a model call without a slot of its provider."""
        self.effects: list[tuple[str, str]] = []
        self.state: dict[str, Any] = {}
        """The state of the outside world that tools change, by any key."""
        self.said: dict[str, asyncio.Task[Any]] = {}
        self.replies: list[CallerReply] = []
        self.processes: dict[str, Process] = {}
        self.outcome: Literal["retry", "succeeded"] = "retry"
        """The operators' outcome for calls of unknown outcome."""
        self.seal: KeyWrapper | None = None
        """The wrapping keys with which all processes seal content; None: nothing is sealed."""
        self.opened: Callable[[Commit], Commit] = lambda commit: commit
        """Returns a commit with its content decrypted."""
        self.limits: dict[str, int] = {}
        """The limits that all processes obey."""
        self.decide: Callable[[str, ApprovalRequested], Decision] = lambda _run, _asked: Decision()
        """The operators' decisions on approvals."""
        self.person_faults: Callable[[str], Iterable[Fault] | Draw] = lambda _name: ()
        """The faults of callers' processes; none by default."""
        self.attend: Callable[[Process], None] = lambda _process: None
        """Called with each caller's process, to release its delayed operations."""
        self.behind_gate = ""
        """The only process that may write while a restore is in progress; empty: all may."""
        self.people_twice = False
        """True if two operators answer each approval at once."""
        self.answers: list[str] = []
        self.told_no: list[str] = []
        """The refused submissions: agent and input."""
        self.happened: list[Happened] = []
        self.coverage: Counter[tuple[str, str]] = Counter()
        """Counts of (event type, kind of fault): the types being appended, otherwise those of the newest commit."""
        self._decoded: list[tuple[Stored, Commit]] = []
        self._people = 0

    def note(
        self,
        process: str,
        operation: str,
        call: int,
        fault: Injected | Fault | None,
        at_hand: tuple[str, ...],
    ) -> None:
        """Record an operation of a process on its log."""
        stored = self.log.events.stored
        now_s = self.clock.monotonic()
        self.happened.append(Happened(now_s, process, operation, call, fault, len(stored)))
        if isinstance(fault, Injected):
            newest = decode(stored[-1].data).events if stored else ()
            types = at_hand if operation == "events.append" else tuple(event.type for event in newest)
            self.coverage.update((each, fault.kind) for each in dict.fromkeys(types))

    # --- agents -------------------------------------------------------------------------------------------------------

    def registry(self, process: str = "") -> Registry:
        """Return a registry for one process; it records model calls and starts of tools."""
        if self.outdated and self.is_outdated(process):
            agents = [self.outdated.get(agent.name, agent) for agent in self.agents]
            return _Watched(self, Registry(agents=agents, providers=self.providers))
        return _Watched(self, self.make_registry())

    def _registry_of_agents(self) -> Registry:
        return Registry(agents=self.agents, providers=self.providers)

    def is_outdated(self, process: str) -> bool:
        """Return whether the process is a worker of an earlier deployment, in a scenario that has one."""
        return process.startswith("w") and not process.startswith("w0")

    def tools_of(self, process: str, agent: str) -> frozenset[str] | None:
        """Return the tools that the process has for an agent; None if all processes have the same."""
        found = self.outdated.get(agent) if self.is_outdated(process) else None
        return frozenset(found.tools) if isinstance(found, Agent) else None

    def record_start(self, run: str, call: str) -> None:
        """Record that an unsafe tool starts now."""
        late = True
        for event in self.events_of(run):
            if event.type == "tool_started" and event.tool_call_id == call:
                late = False
            elif event.type in {"claimed", "parked"} or _ended_by_itself(event):
                late = True
        self.starts.append(Start(run, call, OWNER.get(), late))

    def record_request(self, run: str, provider: str) -> None:
        """Record a model call that the run's owner sends now, if the log shows no slot of its provider for it."""
        limit, owner, holds = limit_name(f"provider:{provider}"), "", False
        for _, commit in self.commits():
            for event in commit.events:
                if isinstance(event, SlotsUpdated) and event.name == limit:
                    holds = any(each.run == run for each in event.holders)
                elif commit.run == run and isinstance(event, Claimed):
                    owner = event.worker
                elif commit.run == run and event.type in {"parked", "released"}:
                    owner = ""
        if not holds and owner == OWNER.get() and f"provider:{provider}" in self.limits:
            self.unslotted.append((run, owner))

    # --- processes ----------------------------------------------------------------------------------------------------

    def process(self, name: str, faults: Iterable[Fault] | Draw = ()) -> Process:
        """Create a process of this name that does nothing yet."""
        self.processes[name] = Process(self, name, faults)
        return self.processes[name]

    def worker(self, name: str, faults: Iterable[Fault] | Draw = ()) -> Process:
        """Create a process that serves as a worker from now on."""
        process = self.process(name, faults)
        process.serve()
        return process

    def people(self) -> Runtime:
        """Return a runtime in a process without faults."""
        registry = self.registry()
        log = self.log if self.seal is None else SealedLog(self.log, self.seal)
        return Runtime(log, registry, Host(log=log, registry=registry, worker="people"))

    def person(self) -> Process:
        """Create a caller's process, which sends one command."""
        self._people += 1
        name = f"person-{self._people}"
        person = self.process(name, self.person_faults(name))
        self.attend(person)
        return person

    def outside(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine outside of all processes, so that it cannot die."""
        token = OWNER.set("")
        try:
            return asyncio.get_running_loop().create_task(main)
        finally:
            OWNER.reset(token)

    def say_once(self, what: str, saying: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
        """Run `saying` outside of all processes, once for each `what`, however often this is called."""
        if what not in self.said:
            self.said[what] = self.outside(saying())
        return self.said[what]

    async def inject(self, run: str, text: str, person: Process | None = None) -> None:
        """Send a message to a run as a caller."""
        runtime = self.people() if person is None else person.runtime()
        saying = runtime.get_run(run).inject(text)
        answer = ""
        try:
            if person is None:
                await saying
                answer = "ok"
            else:
                await person.does(saying)
                answer = "" if person.dead.is_set() else "ok"
        except RunFinished:
            answer = "no"
        except FoldlogError:  # the log was unavailable: the outcome is unknown
            if person is None:
                raise
        self.replies.append(CallerReply("inject", run, text, answer))

    async def signal(self, run: str, name: str, key: str) -> None:
        """Send a signal with this key, from one process after another, until one is answered."""
        answer = await self._sent(lambda runtime: runtime.get_run(run).signal(name, name, key=key))
        self.replies.append(CallerReply("signal", run, f"{name} {key}", answer))

    async def answer_callback(self, run: str, call: str, token: str) -> None:
        """Answer the callback of a call, from one process after another, until one is answered."""
        await self.clock.sleep(ANSWER_S)
        answer = await self._sent(lambda runtime: runtime.answer_callback(token, "scanned"))
        self.replies.append(CallerReply("callback", run, f"{call} {callback_place(token).sha256}", answer))

    async def _sent(self, send: Callable[[Runtime], Coroutine[Any, Any, Any]]) -> str:
        """Send from one process after another until one gets a reply; return "ok", or "no" if it was refused."""
        while True:
            sender = self.person()
            try:
                await sender.does(send(sender.runtime()))
                if not sender.dead.is_set():
                    return "ok"
            except (RunFinished, SignalError):
                return "no"
            except FoldlogError:
                pass  # the log was unavailable
            await self.clock.sleep(ANSWER_S)

    async def _end_wait(self, run: str, wait: WaitStarted) -> None:
        """Send the signal that a call waits for, unless one is there that ends the wait."""
        await asyncio.sleep(ANSWER_S)
        events = self.events_of(run)
        sent = sum(isinstance(event, SignalReceived) and event.name == wait.name for event in events)
        waits = [e for e in events if isinstance(e, WaitStarted) and e.name == wait.name]
        received = sum(
            isinstance(e, WaitEnded) and e.outcome == "received" and _is_end_of(e, waits) for e in events
        )
        if sent == received and not any(isinstance(e, WaitEnded) and _is_end_of(e, [wait]) for e in events):
            await self.signal(run, wait.name, f"{wait.tool_call_id} {wait.wait_id}")

    async def cancel(self, run: str, reason: str, person: Process) -> None:
        """Cancel a run and its descendants as a caller."""
        answer = ""
        with contextlib.suppress(FoldlogError):
            answer = await person.does(person.runtime().get_run(run).cancel(reason)) or ""
        self.replies.append(CallerReply("cancel", run, reason, answer))

    async def pause(self, run: str, for_s: float = ANSWER_S) -> None:
        """Pause a run as a caller, and resume it `for_s` seconds after it has paused, or cancel it if it is erased."""
        handle = self.people().get_run(run)
        with contextlib.suppress(RunFinished):
            await handle.pause()
            self.outside(self._resume(run, for_s))

    async def _resume(self, run: str, after_s: float) -> None:
        await self.until(lambda: self._is_paused(run) or self.is_over(run))
        await asyncio.sleep(after_s)
        handle = self.people().get_run(run)
        with contextlib.suppress(RunFinished):
            try:
                await handle.resume()
            except KeyErased:  # it cannot go on, and no worker looks at a paused run
                await handle.cancel("its content is erased")

    def _is_paused(self, run: str) -> bool:
        paused = [event for event in self.events_of(run) if isinstance(event, Status)]
        return bool(paused) and (paused[-1].status, paused[-1].reason) == ("paused", "manual")

    async def answer_approvals(self) -> None:
        """Answer every approval as operators do, and send what calls wait for, `ANSWER_S` after it was requested."""
        asked: set[str] = set()
        async for stored in self.log.events.follow(Shard(0)):
            for event in decode(stored.data).events:
                if isinstance(event, ApprovalRequested) and event.approval_id not in asked:
                    asked.add(event.approval_id)
                    for _ in range(1 + self.people_twice):
                        self.outside(self._answer(stored.subject.id, event))
                if isinstance(event, WaitStarted) and event.kind == "signal":
                    self.outside(self._end_wait(stored.subject.id, event))

    async def _answer(self, run: str, request: ApprovalRequested) -> None:
        """Answer an approval; repeat it from a new process if the first dies or gets no reply."""
        unverifiable = request.kind == "unverifiable"
        result = "sent" if self.outcome == "succeeded" else None
        decision = (
            Decision(outcome=self.outcome, result=result) if unverifiable else self.decide(run, request)
        )
        await asyncio.sleep(ANSWER_S)
        while not await self._resolve(run, request, decision):
            await self.clock.sleep(ANSWER_S)
        if unverifiable:
            self.answers.append(f"{run} {request.tool_call_id} {decision.outcome}")

    async def _resolve(self, run: str, request: ApprovalRequested, decision: Decision) -> bool:
        """Send the answer from a new process, and return whether the approval is known to be answered."""
        person = self.person()
        answering = (
            person.runtime()
            .get_run(run)
            .resolve(
                request.approval_id,
                decision.decision,
                note=decision.note,
                arguments=decision.arguments,
                outcome=decision.outcome,
                always=decision.always,
                result=decision.result,
            )
        )
        try:
            await person.does(answering)
        except ApprovalError:  # answered, void, or (in a stale read) not there yet
            return self.is_over(run) or any(
                isinstance(event, ApprovalResolved) and event.approval_id == request.approval_id
                for event in self.events_of(run)
            )
        except FoldlogError:
            return False
        if person.dead.is_set():
            return False
        self.replies.append(CallerReply("resolve", run, request.approval_id, decision.decision))
        return True

    # --- the log ------------------------------------------------------------------------------------------------------

    def commits(self) -> list[tuple[Stored, Commit]]:
        """Return every commit of every subject, in log order, not verified."""
        stored = self.log.events.stored
        self._decoded += [(each, self.opened(decode(each.data))) for each in stored[len(self._decoded) :]]
        return self._decoded

    def events_of(self, run: str) -> list[StoredEvent]:
        """Return the events of a run, as stored."""
        return [event for _, commit in self.commits() if commit.run == run for event in commit.events]  # type: ignore[misc] # none is of an unknown type

    def runs(self) -> list[str]:
        """Return all runs in the log, in the order of their first commits."""
        return list(dict.fromkeys(s.subject.id for s, _ in self.commits() if s.subject.kind == "run"))

    def roots(self) -> list[str]:
        """Return the root runs."""
        return list(dict.fromkeys(s.subject.root for s, _ in self.commits() if s.subject.kind == "run"))

    def family(self, root: str) -> list[Stored]:
        """Return the commits of a root run and its descendants, as they were stored; without a tombstone."""
        return [
            s
            for s, commit in self.commits()
            if s.subject.kind == "run" and s.subject.root == root and tombstone_in(commit) is None
        ]

    def is_over(self, run: str) -> bool:
        """Return whether the run has a terminal status."""
        return any(is_terminal(event) for event in self.events_of(run))

    def open_runs(self) -> list[str]:
        """Return the runs without a terminal status."""
        over = {commit.run for _, commit in self.commits() if any(map(is_terminal, commit.events))}
        return [run for run in self.runs() if run not in over]

    async def settle(self, at_most_s: float = LONG_S) -> None:
        """Wait until every stored run is over, or `at_most_s` have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self.until(lambda: not self.open_runs())

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is checked after each commit."""
        position = max((stored.position for stored, _ in self.commits()), default=0)
        if holds():
            return
        async for _ in self.log.events.follow(Shard(0), position):
            if holds():
                return

    async def until_stored(self, event_type: str, count: int = 1) -> None:
        """Wait until the log has `count` events of a type."""

        def holds() -> bool:
            return sum(e.type == event_type for _, c in self.commits() for e in c.events) >= count

        await self.until(holds)


WORLD: ContextVar[World] = ContextVar("WORLD")
"""The world of the running simulation; tools need it, because they are created once for all simulations."""


def _ended_by_itself(event: Event) -> bool:
    """Return whether the event ends a run by itself; a cancel does not count, because it may overtake a start."""
    return isinstance(event, Status) and event.status in {"completed", "error"}


# --- recording of model calls and tool starts -------------------------------------------------------------------------


class _Watched(Registry):
    """A process's registry, with models and unsafe tools that record their calls."""

    def __init__(self, world: World, inner: Registry) -> None:
        self.__dict__.update(inner.__dict__)
        self._world, self._inner = world, inner

    def resolve(self, agent: Runnable[Any]) -> dict[str, Tool]:
        """Return the agent's tools, with unsafe ones recorded."""
        found = self._inner.resolve(agent)
        return {
            name: _WatchedTool(self._world, tool) if tool.spec.effect == "unsafe" else tool
            for name, tool in found.items()
        }

    def provider(self, model: str) -> tuple[ModelProvider, str]:
        """Return the provider with its calls recorded."""
        provider, name = self._inner.provider(model)
        return _WatchedModel(self._world, provider, model.partition(":")[0]), name

    def price_book(self) -> PriceBook:
        """Return one price book for all worlds."""
        return _prices()


@functools.cache
def _prices() -> PriceBook:
    return Registry().price_book()


class _WatchedTool:
    def __init__(self, world: World, inner: Tool) -> None:
        self._world, self._inner = world, inner
        self.spec = inner.spec
        self.once = getattr(inner, "once", None)

    async def call(self, arguments: Mapping[str, Any], context: ToolContextPort) -> Any:
        self._world.record_start(context.idempotency_key.rsplit(":", 2)[0], context.tool_call_id)
        return await self._inner.call(arguments, context)

    async def verify(
        self, arguments: Mapping[str, Any], context: ToolContextPort, own: Evidence | None
    ) -> Verification:
        return await cast("Verifiable", self._inner).verify(arguments, context, own)


class _WatchedModel(WrappedModel):
    def __init__(self, world: World, inner: ModelProvider, provider: str) -> None:
        super().__init__(inner)
        self._world, self._provider = world, provider

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        run, step, *phase = request.idempotency_key.split(":")
        self._world.record_request(run, self._provider)
        if step.isdecimal() and not phase:
            self._world.asked.append(Asked(run, int(step), request.messages))
        async for delta in super().stream(request):
            yield delta


def _is_end_of(end: WaitEnded, waits: Sequence[WaitStarted]) -> bool:
    return any((end.tool_call_id, end.wait_id) == (each.tool_call_id, each.wait_id) for each in waits)
