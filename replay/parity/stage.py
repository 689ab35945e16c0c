"""One run of a parity check on one executor, with its inputs imposed at their places and its faults on the worker.

What is pinned to a step is said while the model call of the step before it is under way: the run can go no further
until it is said. What is pinned to the first step is said between submission and claim. Approvals are answered, and
pauses ended, by somebody who follows the log. All of that goes over a handle on the log in which nothing goes wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal, Protocol

import msgspec

from ...eventlog.commits import Chain, as_read
from ...eventlog.errors import ApprovalError, ConfigError, Conflict, LogUnavailable, RunFinished
from ...eventlog.events import OBSERVABLE, ApprovalRequested, Event, ForkTools, Status
from ...eventlog.faults import Crash, Fault, FaultyLog, LateAppend, Outage, StaleRead
from ...eventlog.offload import outline_of
from ...eventlog.ports import Family, Lease, Log, Subject, WakeWrite
from ...projections.run_state import RunState
from ...runtime import DurableExecutor, Executor, Registry, Runtime, Worker
from ...runtime.core.approvals import APPROVAL_TIMER
from ...runtime.core.commands import TimerDue
from ...runtime.core.decide import take
from ...runtime.core.postconditions import problem
from ...runtime.core.turn import Turn
from ...runtime.driving.host import Host
from ...runtime.executors.installed import ExecutorFactory
from ...runtime.journal.journal import Journal, following
from ...runtime.journal.timers import wakeup_for
from ...runtime.ports.runnable import Runnable
from ..traces.trace import Trace, find_run, load_trace
from .casts import Attended, CountedRegistry, Starts
from .inputs import ROOT, Answer, ApprovalPlace, Cancel, FamilyPlaces, Input, Inputs, Message, Pause
from .live import LiveReader, Unheard
from .scripts import Told

LEASE_S = 1.0
"""How long a claim of these workers holds without a sign of life."""
RELEASE_S = 0.05
"""How long an append is late, and a read stale."""
LATE_EVENTS_S = 0.02
"""How long an executor may take to write behind a cancel what it must not, before its trace is read."""


class ForkOf(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the log that is forked instead of starting a new one, as `Runtime.fork` takes it."""

    run: str
    at: int
    tools: ForkTools = "ask"
    input: str | None = None


class End(Protocol):
    """Where a recording stops."""

    @property
    def reached(self) -> asyncio.Event:
        """Set once everybody has come so far."""
        ...

    def see(self, event: Event) -> None:
        """An event of the family, as it is stored."""
        ...

    def is_open(self, run: str) -> bool:
        """Return whether the run has come as far as its recording, now that it asks what nobody answers."""
        ...


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, the same for every executor.

    `cast` gives the registry of one run; its models have to say, before they answer, that they were called.
    """

    agent: Runnable[Any]
    input: str
    cast: Callable[[Told], Registry]
    log: Log
    messages: tuple[dict[str, Any], ...] = ()
    session: str | None = None
    metadata: dict[str, Any] = {}
    fork: ForkOf | None = None
    timeout_s: float = 60.0
    run_id: str | None = None
    begin: Callable[[], Awaitable[None]] | None = None
    """Stores how the run `run_id` begins, in the place of its submission."""
    end: End | None = None
    """Where a recording stops that has no end; to come so far is enough."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """How it went on one executor. `starts`: how often the tool of each call was started. `over`: within the time.

    `shown` is the detailed live stream of the family, whole if the run is `over`; `unheard` what it showed too late.
    """

    executor: str
    trace: Trace
    starts: Starts
    shown: tuple[Event, ...] = ()
    unheard: tuple[Unheard, ...] = ()
    fired: tuple[Fault, ...] = ()
    over: bool = True


async def play(
    case: Case, name: str, factory: ExecutorFactory, inputs: Inputs = (), faults: tuple[Fault, ...] = ()
) -> Played:
    """Run the case on an executor and read its trace back.

    Raises `ConfigError` for an approval without an answer, and what stops a driver.
    """
    stage = _Stage(case, name, inputs)
    return await stage.play(factory, faults)


class _Stage:
    """One run of the case."""

    def __init__(self, case: Case, name: str, inputs: Inputs) -> None:
        self._case, self._name, self._inputs, self._log = case, name, inputs, case.log
        self.cast = case.cast(self._called)
        self._attended = self.cast.attended if isinstance(self.cast, CountedRegistry) else Attended()
        self._said: dict[int, asyncio.Task[None]] = {}
        self._names: dict[str, str] = {}
        self._events: list[Event] = []
        self._runtime: Runtime
        self._run_id = ""

    async def play(self, factory: ExecutorFactory, faults: tuple[Fault, ...]) -> Played:
        host = Host(log=self._log, registry=self.cast, worker=f"parity-{self._name}", lease_s=LEASE_S)
        executor = factory(host)
        workers = _Workers(self, faults) if hands_to_workers(executor) else None
        async with contextlib.AsyncExitStack() as stack:
            executors = {self._name: executor}
            self._runtime = await stack.enter_async_context(
                Runtime.open(log=self._log, registry=self.cast, lease_s=LEASE_S, executors=executors)
            )
            await stack.enter_async_context(self._log.leases.presence(host.worker))
            stack.push_async_callback(executor.aclose)
            await self._submit(executor)
            audience = await stack.enter_async_context(self._audience(patient=not faults))
            serving = [] if workers is None else [await stack.enter_async_context(workers.serving())]
            attending = await stack.enter_async_context(_task(self._attend()))
            over = await self._until_over([*serving, attending])
            if over:
                await audience.end()
        if any(isinstance(item, Cancel) for item in self._inputs):
            await self._log.clock.sleep(LATE_EVENTS_S)
        return Played(
            executor=self._name,
            trace=await load_trace(self._log, self._run_id),
            starts=self._attended.starts,
            shown=tuple(audience.shown),
            unheard=tuple(audience.unheard),
            fired=tuple(workers.fired) if workers is not None else (),
            over=over,
        )

    @contextlib.asynccontextmanager
    async def _audience(self, *, patient: bool) -> AsyncIterator[LiveReader]:
        """Who reads the live stream until the context is left."""
        stream = self._runtime.get_run(self._run_id).stream(detailed=True)
        audience = self._attended.audience = LiveReader(self._log.clock, patient=patient)
        async with contextlib.aclosing(stream), _task(audience.read(stream)):
            yield audience

    async def wake(self) -> None:
        """Somebody has to go on with the run of a worker that is gone."""
        with contextlib.suppress(LogUnavailable):
            await self._runtime.drive(self._run_id, self._name)

    async def located(self) -> Subject:
        """The subject of the run."""
        return await self._runtime.locate(self._run_id)

    async def state(self) -> RunState:
        """What the log says of the run now."""
        return await self._runtime.get_run(self._run_id).state()

    async def _submit(self, executor: Executor) -> None:
        """Start the run; what its first step carries is said before anybody can claim it."""
        if self._case.fork is not None:
            await self._fork(self._case.fork)
            return
        case, first = self._case, self._pinned(ROOT, 1)
        early = bool(first) and not hands_to_workers(executor)
        if case.begin is not None:
            await self._begin_stored(case.begin, first)
            return
        submit_to = DurableExecutor.name if early else self._name
        run = await self._runtime.start(
            case.agent,
            case.input,
            executor=submit_to,
            messages=case.messages,
            session=case.session,
            metadata=case.metadata,
            run_id=case.run_id,
        )
        self._run_id = run.run_id
        self._names[run.run_id] = case.agent.name
        for number in first:
            await self._say_once(run.run_id, number)
        if early:
            await self._runtime.drive(run.run_id, self._name)

    async def _fork(self, wish: ForkOf) -> None:
        run = await self._runtime.fork(
            wish.run,
            at=wish.at,
            tools=wish.tools,
            input=wish.input,
            executor=self._name,
            agent=self._case.agent,
        )
        self._run_id = run.run_id
        self._names[run.run_id] = self._case.agent.name

    async def _begin_stored(self, begin: Callable[[], Awaitable[None]], first: list[int]) -> None:
        await begin()
        self._run_id = self._case.run_id or ""
        self._names[self._run_id] = self._case.agent.name
        for number in first:
            await self._say_once(self._run_id, number)
        await self._runtime.drive(self._run_id, self._name)

    async def _until_over(self, helpers: list[asyncio.Task[None]]) -> bool:
        """Wait for the end; whether it came in time. A helper that fails ends the wait with its error."""
        ending = asyncio.create_task(self._ended())
        enough = asyncio.create_task(self._enough())
        try:
            async with asyncio.timeout(self._case.timeout_s):
                await asyncio.wait({ending, enough, *helpers}, return_when=asyncio.FIRST_COMPLETED)
            if enough.done() and not ending.done():
                return False
            for helper in helpers:
                if helper.done() and not ending.done():
                    helper.result()
            await ending
        except TimeoutError:
            return False
        finally:
            ending.cancel()
            enough.cancel()
            await asyncio.gather(ending, enough, return_exceptions=True)
        return True

    async def _enough(self) -> None:
        """Until a recording that has no end goes no further."""
        if self._case.end is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._case.end.reached.wait()

    async def _ended(self) -> None:
        journal = Journal(self._log, await self._runtime.locate(self._run_id), wait_for_log=True)
        await journal.load()
        await self._runtime.watch(self._run_id, journal.follow_until(lambda state: state.over))

    # --- what is said from outside ------------------------------------------------------------------------------------

    def _pinned(self, run: str, step: int) -> list[int]:
        """The numbers of the messages and pauses that are pinned to a step of a run."""
        return [
            number
            for number, item in enumerate(self._inputs)
            if isinstance(item, Message | Pause) and (item.run, item.step) == (run, step)
        ]

    async def _called(self, run_id: str, step: int) -> str:
        """A model is called for this step: say what the next step carries; the name of the agent that asks."""
        if any(isinstance(item, Message | Pause) for item in self._inputs):
            for number in self._pinned(await self._place(run_id), step + 1):
                await self._say_once(run_id, number)
        if run_id not in self._names:
            subject = await find_run(self._log, run_id)
            head = await self._log.events.head(subject)
            path = msgspec.json.decode(head.data)["path"] if head is not None else ""
            self._names[run_id] = str(path).rpartition("/")[2]
        return self._names[run_id]

    async def _place(self, run_id: str) -> str:
        if run_id == self._run_id:
            return ROOT
        return FamilyPlaces((await load_trace(self._log, run_id)).events).place_of(run_id)

    async def _say_once(self, run_id: str, number: int) -> None:
        """Say it, also if the worker that waits for it dies meanwhile, and never twice."""
        if number not in self._said:
            self._said[number] = asyncio.create_task(self._say(run_id, self._inputs[number]))
        await asyncio.shield(self._said[number])

    async def _say(self, run_id: str, item: Input) -> None:
        run = self._runtime.get_run(run_id)
        with contextlib.suppress(RunFinished):
            match item:
                case Message(content=content):
                    await run.inject(content)
                case Pause():
                    await run.pause()
                case _:
                    pass

    # --- what is answered -------------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        """Follow the family and answer what it asks, until the context is left."""
        subject = await self._runtime.locate(self._run_id)
        chain, seen = Chain(), 0
        async with following(self._log, Family(subject.shard, subject.root), 0) as commits:
            async for stored in commits:
                for event in map(outline_of, as_read(chain.verify(stored))):
                    self._events.append(event)
                    if self._case.end is not None:
                        self._case.end.see(event)
                    seen += isinstance(event, OBSERVABLE)
                    await self._react(event)
                await self._cancel_when_due(seen)

    async def _cancel_when_due(self, seen: int) -> None:
        for number, item in enumerate(self._inputs):
            if isinstance(item, Cancel) and item.after <= seen and number not in self._said:
                self._said[number] = asyncio.create_task(self._cancel(item.reason))
                await self._said[number]

    async def _cancel(self, reason: str) -> None:
        await self._runtime.get_run(self._run_id).cancel(reason)

    async def _react(self, event: Event) -> None:
        match event:
            case Status(status="paused", reason="manual" | "policy"):
                with contextlib.suppress(RunFinished):
                    await self._runtime.get_run(event.run_id).resume()
            case ApprovalRequested():
                where = FamilyPlaces(self._events).approval(event.run_id, event.approval_id)
                if where is not None:
                    await self._answer(event, where)
            case _:
                pass

    async def _answer(self, asked: ApprovalRequested, where: ApprovalPlace) -> None:
        answer = where.answer_in(self._inputs)
        if answer is None and self._case.end is not None and self._case.end.is_open(asked.run_id):
            return
        if answer is None and not await self._is_pending(asked):  # part of the history of a fork
            return
        if answer is None and asked.kind != "unverifiable":
            run = f", run={where.run!r}" if where.run else ""
            raise ConfigError(
                f"{where}, tool {asked.tool_name!r}, has no answer: add Answer(call={where.call!r}{run}) to the inputs"
            )
        answer = answer or _recovery(asked, where)
        try:
            if answer.decision == "timed_out":
                await self._expire(asked)
            else:
                await self._resolve(asked, answer)
        except ApprovalError as error:
            if await self._is_pending(asked):
                raise ConfigError(f"{where}: the answer of the inputs is refused: {error}") from error

    async def _is_pending(self, asked: ApprovalRequested) -> bool:
        state = await self._runtime.get_run(asked.run_id).state()
        return not state.over and state.approvals[asked.approval_id].pending

    async def _resolve(self, asked: ApprovalRequested, answer: Answer) -> None:
        decision = answer.decision
        if decision == "timed_out":
            return
        await self._runtime.get_run(asked.run_id).resolve(
            asked.approval_id,
            decision,
            note=answer.note,
            arguments=answer.arguments,
            outcome=answer.outcome,
            result=answer.result,
        )

    async def _expire(self, asked: ApprovalRequested) -> None:
        """Let the approval's time be over now, as its timer would."""
        journal = Journal(self._log, await find_run(self._log, asked.run_id), wait_for_log=True)
        await journal.load()
        while not journal.state.over:
            turn = Turn(journal.state, journal.rules, self._log.clock.now())
            take(turn, TimerDue(APPROVAL_TIMER + asked.approval_id))
            if not turn.events:
                return
            cause = journal.state.head.rev + len(turn.events)
            wakes = [WakeWrite(wakeup_for(journal, cause=cause))] if journal.state.runnable else []
            if await journal.store(turn.events, epoch=0, extra=wakes):
                return


def _recovery(asked: ApprovalRequested, where: ApprovalPlace) -> Answer:
    """What is said of a call of unknown outcome that the inputs say nothing of.

    One that a dead worker left is run again; one that ended in doubt by itself would do so again, and counts as failed.
    The reason of the second says more than what its postcondition, if it has one, came to.
    """
    by_itself = asked.reason not in ("", problem(asked.postcondition))
    outcome: Literal["retry", "failed"] = "failed" if by_itself else "retry"
    return Answer(call=where.call, kind=asked.kind, outcome=outcome, note=asked.reason if by_itself else "")


def hands_to_workers(executor: Executor) -> bool:
    """Return whether its runs are driven by workers, which the stage then provides."""
    return executor.runs_in == "workers"


@contextlib.asynccontextmanager
async def _task(main: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends with the context."""
    task = asyncio.create_task(main)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _IgnoreCrashes:
    """An exception handler of a loop to which a task that died with its worker is not news.

    It stays: such tasks are reported when they are collected, which may be long after the check.
    """

    def __init__(self, before: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Pass on all but crashes."""
        if isinstance(context.get("exception"), Crash):
            return
        if self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)


def _mourn_nobody() -> None:
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    if not isinstance(before, _IgnoreCrashes):
        loop.set_exception_handler(_IgnoreCrashes(before))


class _Workers:
    """A worker whose log has the faults, and the one that stands by for its death."""

    def __init__(self, stage: _Stage, faults: tuple[Fault, ...]) -> None:
        self._stage, self._log = stage, stage._log  # noqa: SLF001 - two halves of one thing
        self._faulty = FaultyLog(self._log, faults)
        self._releases = any(_waits_for_release(fault) for fault in faults)

    @property
    def fired(self) -> list[Fault]:
        """The faults that happened, in order."""
        return self._faulty.fired

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[asyncio.Task[None]]:
        """A task that serves until the context is left."""
        _mourn_nobody()
        async with _task(self._serve(self._worker("parity-worker-1", self._faulty))) as task:
            yield task

    def _worker(self, name: str, log: Log) -> Worker:
        host = Host(log=log, registry=self._stage.cast, worker=name, lease_s=LEASE_S)
        return Worker(host, grace_s=LEASE_S)

    async def _serve(self, worker: Worker) -> None:
        """The first worker until it dies, then the one that stands by."""
        serving = asyncio.create_task(worker.serve())
        crash = asyncio.create_task(self._faulty.wait_until_crashed())
        releasing = asyncio.create_task(self._release())
        try:
            await asyncio.wait({serving, crash}, return_when=asyncio.FIRST_COMPLETED)
            if not self._faulty.crashed:
                serving.result()
            await _kill(serving)
        finally:
            for task in (crash, releasing):
                task.cancel()
            await _stop(worker, serving)
        await self._bury("parity-worker-1")
        await self._stand_by()

    async def _bury(self, name: str) -> None:
        """Make the death known at once, as a server does that sees a connection end: the dead vouches no more."""
        state = await self._stage.state()
        if state.owner != name:
            return
        subject = await self._stage.located()
        lease = Lease(
            shard=subject.shard,
            agent=state.agent,
            root=state.root,
            run=state.run,
            epoch=state.epoch,
            worker=name,
            revision=state.head.rev,
        )
        await self._log.leases.end(lease)

    async def _stand_by(self) -> None:
        worker = self._worker("parity-worker-2", self._log)
        serving = asyncio.create_task(worker.serve())
        try:
            await self._stage.wake()
            await asyncio.shield(serving)
        finally:
            await _stop(worker, serving)

    async def _release(self) -> None:
        while self._releases:
            await self._log.clock.sleep(RELEASE_S)
            with contextlib.suppress(Conflict):
                await self._faulty.release()


def _waits_for_release(fault: Fault) -> bool:
    return isinstance(fault, LateAppend | StaleRead) or (
        isinstance(fault, Outage) and fault.duration_s is None
    )


async def _stop(worker: Worker, serving: asyncio.Task[None]) -> None:
    """Let a worker that is alive drain."""
    worker.stop()
    await asyncio.wait({serving}, timeout=2 * LEASE_S)
    await _kill(serving)


async def _kill(serving: asyncio.Task[None]) -> None:
    """End a worker's tasks, however often they have to be told: one that is dead has nothing to say goodbye to."""
    while not serving.done():
        serving.cancel()
        await asyncio.wait({serving}, timeout=RELEASE_S)
    with contextlib.suppress(asyncio.CancelledError, Exception, Crash):
        serving.result()
