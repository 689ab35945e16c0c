"""One simulated operating-system process: it has its own handle on the log, and its tasks freeze or die with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from anyio.lowlevel import checkpoint

from ...eventlog.clock import Clock
from ...eventlog.commits import decode
from ...eventlog.errors import AppendUnsure, FoldlogError, LogUnavailable
from ...eventlog.faults import Delay, Fault, FaultyLog, Plan, plan_of
from ...eventlog.memory import MemoryLog
from ...eventlog.parts import TextPart
from ...eventlog.ports import CommitWrite, EventLog, Log, RegisterKind, Selector, Stored, Subject, Write
from ...eventlog.sealing import KeyWrapper, SealedLog
from ...runtime import EventHook, Registry, RunHandle, Runtime, Worker
from ...runtime.core.shared_budgets import SharedBudget
from ...runtime.driving.host import Host
from ...runtime.ports.files import Content, parts_of
from ...runtime.ports.runnable import Runnable
from .injected import Injected
from .loop import OWNER, simulated_loop

LEASE_S = 10.0
SNAPSHOT_EVENTS = 5
"""Events between two snapshots: so few that every run is loaded from snapshots."""
PARK_AFTER_S = 0.2
"""Shorter than operators take to answer, so that families park and are woken again."""
CATCH_UP_S = 2.0
"""The delay of subscriptions, in seconds, after a process was disconnected; requests are answered at once."""
UNANSWERED_S = 1.0
"""How long an append waits at a closed gate before it fails, in seconds."""
GRACE_S = 2.0
"""The grace period of a worker that is stopped, in seconds."""

Draw = Callable[[str, int, int], Injected | Fault | None]
"""Returns the fault for (operation, its count, count of all operations of the process), or None."""


class Happened(msgspec.Struct, frozen=True):
    """An operation of a process: the time (s), its fault, if any, and the number of commits in the log."""

    at_s: float
    process: str
    operation: str
    call: int
    fault: Injected | Fault | None
    commits: int


class Surroundings(Protocol):
    """The surroundings of a process, which outlive it. `World` implements this."""

    @property
    def clock(self) -> Clock:
        """The time of all processes."""
        ...

    @property
    def log(self) -> MemoryLog:
        """The log that they share."""
        ...

    @property
    def snapshot_events(self) -> int:
        """The number of events between two snapshots."""
        ...

    @property
    def seal(self) -> KeyWrapper | None:
        """The wrapping keys with which all processes seal content; None: nothing is sealed."""
        ...

    @property
    def limits(self) -> dict[str, int]:
        """The limits that all processes obey."""
        ...

    @property
    def budgets(self) -> tuple[SharedBudget, ...]:
        """The budgets of the namespace that all processes obey."""
        ...

    @property
    def told_no(self) -> list[str]:
        """The refused submissions: agent and input."""
        ...

    @property
    def hooks(self) -> list[EventHook]:
        """The hooks on the ends of runs that every worker follows."""
        ...

    @property
    def behind_gate(self) -> str:
        """The only process that may write while a restore is in progress; empty: all may."""
        ...

    def note(
        self,
        process: str,
        operation: str,
        call: int,
        fault: Injected | Fault | None,
        at_hand: tuple[str, ...],
    ) -> None:
        """Record an operation of a process on its log."""
        ...

    def registry(self, process: str = "") -> Registry:
        """Return a registry for one process."""
        ...

    def outside(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine outside of all processes, so that it cannot die."""
        ...


class _ProcessLog(FaultyLog):
    """The log of one process, with its faults. `at_hand`: the types of the events that are being appended."""

    def __init__(self, process: Process, inner: Log, plan: Plan) -> None:
        super().__init__(inner, plan, on_crash=process.kill)
        self.at_hand: tuple[str, ...] = ()
        self.events: Any = _Events(process, self, self.events)


class _Events:
    """The `EventLog` of a process: knows which events are appended, and can freeze the process right after."""

    def __init__(self, process: Process, log: _ProcessLog, inner: EventLog) -> None:
        self._process, self._log, self._inner = process, log, inner
        self.shards = inner.shards

    async def append(self, *writes: Write) -> tuple[int, ...]:
        """Append, and freeze right after it if that is planned."""
        if self._process.world.behind_gate not in {"", self._process.name}:
            await self._process.world.clock.sleep(UNANSWERED_S)
            raise LogUnavailable("the namespace is being restored")
        commits = [write for write in writes if isinstance(write, CommitWrite)]
        self._log.at_hand = tuple(event.type for write in commits for event in decode(write.data).events)
        self._process.frozen_behind, self._process.patience_s = None, 0.0
        try:
            positions = await self._inner.append(*writes)
        except AppendUnsure:  # a writer without a reply waits until its timeout
            await self._process.world.clock.sleep(self._process.patience_s)
            raise
        if self._process.freeze_behind():
            await checkpoint()
        return positions

    async def read(self, selector: Selector, after: int = 0) -> AsyncIterator[Stored]:
        """Read, and freeze right after it if that is planned, so that the result is stale when it is used."""
        found = [stored async for stored in self._inner.read(selector, after)]
        if self._process.freeze_behind():
            await checkpoint()
        for stored in found:
            yield stored

    async def head(self, subject: Subject) -> Stored | None:
        """Return the last commit of a subject."""
        return await self._inner.head(subject)

    async def count(self, selector: Selector, after: int = 0) -> int:
        """Return the number of commits after a position."""
        return await self._inner.count(selector, after)

    async def last_position(self, selector: Selector) -> int:
        """Return the position of the last commit that is selected, and freeze right after it if that is planned."""
        position = await self._inner.last_position(selector)
        if self._process.freeze_behind():
            await checkpoint()
        return position

    def heads(self, shard: int, kind: RegisterKind) -> AsyncIterator[Stored]:
        """Return the last commits of the registers of a kind."""
        return self._inner.heads(shard, kind)

    async def purge(self, below: Mapping[Subject, int]) -> None:
        """Remove the commits of subjects below a position."""
        await self._inner.purge(below)

    async def sweep(self) -> int:
        """Remove the old values of registers."""
        return await self._inner.sweep()

    async def find(self, shard: int, run: str) -> Subject | None:
        """Return the subject of a run in a shard."""
        return await self._inner.find(shard, run)

    def follow(self, selector: Selector, after: int = 0, *, to_end: bool = False) -> AsyncIterator[Stored]:
        """Follow the commits of a selector."""
        return self._inner.follow(selector, after, to_end=to_end)


class Process:
    """A simulated process. `faults` is a list, or a function that draws them one by one."""

    def __init__(self, world: Surroundings, name: str, faults: Iterable[Fault] | Draw = ()) -> None:
        self.world, self.name = world, name
        self._draw: Draw = faults if callable(faults) else plan_of(faults)
        self._stalled_until_s = 0.0
        self._deaf_until_s = 0.0
        self.frozen_behind: Injected | None = None
        self.patience_s = 0.0
        self.handle = _ProcessLog(self, world.log, self._plan)
        self.log: Log = self.handle if world.seal is None else SealedLog(self.handle, world.seal)
        self.silent = False
        """If true, its death is not announced: other workers must wait until its lease expires."""
        self.dead = asyncio.Event()
        self.worker: Worker | None = None

    def __repr__(self) -> str:
        return f"Process({self.name!r})"

    # --- faults -------------------------------------------------------------------------------------------------------

    def _plan(self, operation: str, call: int, number: int) -> Fault | None:
        now_s = self.world.clock.monotonic()
        drawn = None if now_s < self._stalled_until_s else self._draw(operation, call, number)
        self.world.note(self.name, operation, call, drawn, self.handle.at_hand)
        if now_s < self._stalled_until_s:
            return Delay(call, operation, self._stalled_until_s - now_s)
        if drawn is None and operation == "events.follow" and now_s < self._deaf_until_s:
            return Delay(call, operation, self._deaf_until_s - now_s)
        return self._befall(drawn) if isinstance(drawn, Injected) else drawn

    def _befall(self, drawn: Injected) -> Fault | None:
        match drawn.kind:
            case "stall":
                self._stalled_until_s = self.world.clock.monotonic() + drawn.amount
                return Delay(drawn.call, drawn.operation, drawn.amount)
            case "freeze":
                self.freeze(drawn.amount, cut_off=drawn.cut_off)
                return None
            case "freeze-after":
                self.frozen_behind = drawn
                return None
            case _:
                self.patience_s = drawn.amount
                return drawn.fault()

    def freeze(self, for_s: float, *, cut_off: bool = False) -> None:
        """Send SIGSTOP, and SIGCONT `for_s` seconds later; the process does not notice that time has passed.

        `cut_off`: the server considers its connection dead meanwhile, if the freeze is longer than its lease. After a
        shorter one the process could not notice, and could start a tool that another worker has taken over.
        """
        loop = simulated_loop()
        loop.stop_process(self.name)
        cut_off = cut_off and for_s > LEASE_S
        if cut_off:
            self.world.log.disconnect(self.name)
        self.world.outside(self._thaw(for_s, cut_off=cut_off))

    def freeze_behind(self) -> bool:
        """Freeze now, if that was planned for the moment after this operation; return whether it was."""
        behind, self.frozen_behind = self.frozen_behind, None
        if behind is not None:
            self.freeze(behind.amount, cut_off=behind.cut_off)
        return behind is not None

    async def _thaw(self, after_s: float, *, cut_off: bool) -> None:
        await asyncio.sleep(after_s)
        if cut_off:
            self._deaf_until_s = self.world.clock.monotonic() + CATCH_UP_S
        if not self.dead.is_set():
            simulated_loop().resume_process(self.name)

    def kill(self) -> None:
        """Send SIGKILL: the process does nothing any more."""
        if self.dead.is_set():
            return
        self.dead.set()
        self.handle.crash()
        simulated_loop().stop_process(self.name)
        if not self.silent:
            self.world.log.disconnect(self.name)

    @property
    def operations(self) -> Counter[str]:
        """The number of calls of each operation of its log; `*` counts all."""
        return self.handle.operations

    # --- work ---------------------------------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        """A new host of this process."""
        return Host(
            log=self.log,
            registry=self.world.registry(self.name),
            worker=self.name,
            lease_s=LEASE_S,
            snapshot_events=self.world.snapshot_events,
            limits=self.world.limits,
            budgets=self.world.budgets,
        )

    def runtime(self) -> Runtime:
        """Return a new runtime of this process."""
        host = self.host
        return Runtime(self.log, host.registry, host)

    def serve(self) -> None:
        """Serve as a worker of the agents that exist when its task first runs."""

        async def serve() -> None:
            self.worker = Worker(
                self.host, grace_s=GRACE_S, park_after_s=PARK_AFTER_S, hooks=self.world.hooks
            )
            await self.worker.serve()

        self.spawn(serve())

    def spawn(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine as a task of this process; so are all tasks that it creates."""
        token = OWNER.set(self.name)
        try:
            return asyncio.get_running_loop().create_task(main)
        finally:
            OWNER.reset(token)

    async def does(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in this process, and return its result; None if the process dies meanwhile."""
        task, death = self.spawn(main), asyncio.ensure_future(self.dead.wait())
        await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        return None if self.dead.is_set() else task.result()

    async def start(
        self, agent: Runnable[Any], text: Content = "question", **options: Any
    ) -> RunHandle[Any] | None:
        """Start a run from this process; None if the process dies meanwhile or the submission is refused."""
        try:
            handle: RunHandle[Any] | None = await self.does(self.runtime().start(agent, text, **options))
        except FoldlogError:
            (asked, *_) = parts_of(text)
            self.world.told_no.append(f"{agent.name}: {asked.text if isinstance(asked, TextPart) else asked}")
            return None
        return handle
