"""One run of a parity check on one executor, with inputs at their places and faults on the worker's log.

An input for a step is given while the model call of the step before it is running: the model does not answer until the
input is stored, so that it takes effect at the same boundary on every executor. An input for the first step is given
between submission and claim. A task that follows the log answers approvals and ends pauses. All of this uses a log
without faults.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ...eventlog.commits import Chain, as_read
from ...eventlog.errors import ApprovalError, ConfigError, Conflict, LogUnavailable, RunFinished
from ...eventlog.events import OBSERVABLE, ApprovalRequested, Event, ForkTools, PlanStep, Status, WaitStarted
from ...eventlog.faults import Crash, Fault, FaultyLog, LateAppend, Outage, StaleRead
from ...eventlog.offload import outline_of
from ...eventlog.ports import Family, Lease, Log, Subject, WakeWrite
from ...projections.run_state import RunState
from ...runtime import DurableExecutor, Executor, Registry, Runtime, Worker
from ...runtime.core.approvals import APPROVAL_TIMER
from ...runtime.core.commands import AnswerCallback, TimerDue
from ...runtime.core.decide import take
from ...runtime.core.postconditions import problem
from ...runtime.core.turn import Turn
from ...runtime.core.waits import timer_of
from ...runtime.driving.host import Host
from ...runtime.executors.installed import ExecutorFactory
from ...runtime.journal.journal import Journal, following
from ...runtime.journal.timers import wakeup_for
from ...runtime.ports.files import Content
from ...runtime.ports.runnable import Runnable
from ..traces.trace import Trace, find_run, load_trace
from .casts import CountedRegistry, Starts, ToolStarts
from .inputs import ROOT, Answer, ApprovalPlace, Cancel, FamilyPlaces, Input, Inputs, Message, Pause, WaitEnd
from .live import LiveReader, Unshown
from .scripts import OnModelCall

LEASE_S = 1.0
"""The lease of these workers, in seconds."""
RELEASE_S = 0.05
"""The delay of a late append, and the age of a stale read, in seconds."""
LATE_EVENTS_S = 0.02
"""The time in which a faulty executor would still write after a cancel; the trace is read after it."""


class ForkOf(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the log to fork instead of starting a new one; the arguments of `Runtime.fork`."""

    run: str
    at: int
    tools: ForkTools = "ask"
    input: Content | None = None


class RecordingEnd(Protocol):
    """The end of an unfinished recording."""

    @property
    def reached(self) -> asyncio.Event:
        """Set once every run has come to its end of the recording."""
        ...

    def see(self, event: Event) -> None:
        """Take note of an event that the family has stored."""
        ...

    def is_open(self, run: str) -> bool:
        """Return whether the run's recording is unfinished; called when the recording has no answer for it."""
        ...


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The run to execute, the same for every executor.

    `registry` makes the registry of one execution; its models must announce each call before they answer.
    """

    agent: Runnable[Any]
    input: Content
    registry: Callable[[OnModelCall], Registry]
    log: Log
    messages: tuple[dict[str, Any], ...] = ()
    session: str | None = None
    user: str | None = None
    metadata: dict[str, Any] = {}
    policy: dict[str, Any] | None = None
    """The policy of the namespace, as stored; None for that of the project's configuration."""
    plans: Mapping[str, Sequence[PlanStep]] = {}
    """The standing plans as the run finds them, by their names."""
    fork: ForkOf | None = None
    rollback: str | None = None
    """The id of an ended run in the log that is rolled back, instead of starting a new run."""
    timeout_s: float = 60.0
    run_id: str | None = None
    begin: Callable[[], Awaitable[None]] | None = None
    """Stores the beginning of the run `run_id`, instead of a submission."""
    end: RecordingEnd | None = None
    """The end of an unfinished recording, at which the run stops."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """The result on one executor. `starts`: how often the tool of each call was started. `over`: it ended in time.

    `shown` is the detailed live stream of the family, complete if the run is `over`; `unshown` are the calls whose
    events were shown too late.
    """

    executor: str
    trace: Trace
    starts: Starts
    shown: tuple[Event, ...] = ()
    unshown: tuple[Unshown, ...] = ()
    fired: tuple[Fault, ...] = ()
    over: bool = True


async def play(
    case: Case, name: str, factory: ExecutorFactory, inputs: Inputs = (), faults: tuple[Fault, ...] = ()
) -> Played:
    """Run the case on an executor and read its trace.

    Raises `ConfigError` for an approval without an answer, and any error that stops a driver.
    """
    stage = _Stage(case, name, inputs)
    return await stage.play(factory, faults)


class _Stage:
    """One execution of the case."""

    def __init__(self, case: Case, name: str, inputs: Inputs) -> None:
        self._case, self._name, self._inputs, self._log = case, name, inputs, case.log
        self.registry = case.registry(self._called)
        self._tool_starts = (
            self.registry.tool_starts if isinstance(self.registry, CountedRegistry) else ToolStarts()
        )
        self._said: dict[int, asyncio.Task[None]] = {}
        self._names: dict[str, str] = {}
        self._events: list[Event] = []
        self._runtime: Runtime
        self._run_id = ""

    async def play(self, factory: ExecutorFactory, faults: tuple[Fault, ...]) -> Played:
        host = Host(log=self._log, registry=self.registry, worker=f"parity-{self._name}", lease_s=LEASE_S)
        executor = factory(host)
        workers = _Workers(self, faults) if hands_to_workers(executor) else None
        async with contextlib.AsyncExitStack() as stack:
            executors = {self._name: executor}
            self._runtime = await stack.enter_async_context(
                Runtime.open(
                    log=self._log,
                    registry=self.registry,
                    lease_s=LEASE_S,
                    executors=executors,
                    policy=self._case.policy,
                )
            )
            await stack.enter_async_context(self._log.leases.presence(host.presence()))
            stack.push_async_callback(executor.aclose)
            for plan, steps in self._case.plans.items():
                await self._runtime.plans.save(plan, steps)
            await self._submit(executor)
            reader = await stack.enter_async_context(self._reading(patient=not faults))
            serving = [] if workers is None else [await stack.enter_async_context(workers.serving())]
            attending = await stack.enter_async_context(_task(self._attend()))
            over = await self._until_over([*serving, attending])
            if over:
                await reader.end()
        if any(isinstance(item, Cancel) for item in self._inputs):
            await self._log.clock.sleep(LATE_EVENTS_S)
        return Played(
            executor=self._name,
            trace=await load_trace(self._log, self._run_id),
            starts=self._tool_starts.starts,
            shown=tuple(reader.shown),
            unshown=tuple(reader.unshown),
            fired=tuple(workers.fired) if workers is not None else (),
            over=over,
        )

    @contextlib.asynccontextmanager
    async def _reading(self, *, patient: bool) -> AsyncIterator[LiveReader]:
        """Read the live stream until the context is left."""
        stream = self._runtime.get_run(self._run_id).stream(detailed=True)
        reader = self._tool_starts.reader = LiveReader(self._log.clock, patient=patient)
        async with contextlib.aclosing(stream), _task(reader.read(stream)):
            yield reader

    async def wake(self) -> None:
        """Have the executor continue the run of a worker that died."""
        with contextlib.suppress(LogUnavailable):
            await self._runtime.drive(self._run_id, self._name)

    async def located(self) -> Subject:
        """Return the subject of the run."""
        return await self._runtime.locate(self._run_id)

    async def state(self) -> RunState:
        """Return the state of the run according to the log."""
        return await self._runtime.get_run(self._run_id).state()

    async def _submit(self, executor: Executor) -> None:
        """Start the run; the inputs of its first step are given before it can be claimed."""
        if self._case.fork is not None:
            await self._fork(self._case.fork)
            return
        if self._case.rollback is not None:
            undoing = await self._runtime.rollback(self._case.rollback, executor=self._name)
            self._run_id = undoing.run_id
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
            user=case.user,
            metadata=case.metadata,
            run_id=case.run_id,
        )
        self._run_id = run.run_id
        self._names[run.run_id] = case.agent.name
        for number in first:
            await self._say_once(run.run_id, number)
        if early:
            await self._runtime.drive(run.run_id, self._name)

    async def _fork(self, fork: ForkOf) -> None:
        run = await self._runtime.fork(
            fork.run,
            at=fork.at,
            tools=fork.tools,
            input=fork.input,
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
        """Wait for the end, and return whether it came in time. A helper that fails ends the wait with its error."""
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
        """Wait until all runs have come to the end of an unfinished recording."""
        if self._case.end is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._case.end.reached.wait()

    async def _ended(self) -> None:
        journal = Journal(self._log, await self._runtime.locate(self._run_id), wait_for_log=True)
        await journal.load()
        await self._runtime.watch(self._run_id, journal.follow_until(lambda state: state.over))

    # --- inputs from outside ------------------------------------------------------------------------------------------

    def _pinned(self, run: str, step: int) -> list[int]:
        """Return the numbers of the messages and pauses that belong to a step of a run."""
        return [
            number
            for number, item in enumerate(self._inputs)
            if isinstance(item, Message | Pause) and (item.run, item.step) == (run, step)
        ]

    async def _called(self, run_id: str, step: int) -> str:
        """Give the inputs of the next step while a model is called for this one; return the name of the agent."""
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
        """Give an input exactly once, even if the worker that waits for it dies meanwhile."""
        if number not in self._said:
            self._said[number] = asyncio.create_task(self._say(run_id, self._inputs[number]))
        await asyncio.shield(self._said[number])

    async def _say(self, run_id: str, item: Input) -> None:
        run = self._runtime.get_run(run_id)
        with contextlib.suppress(RunFinished):
            match item:
                case Message():
                    await run.inject(item.parts or item.content)
                case Pause():
                    await run.pause()
                case _:
                    pass

    # --- reactions --------------------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        """Follow the family, and answer its approvals, until cancelled."""
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
            case WaitStarted():
                await self._end_wait(event)
            case _:
                pass

    async def _answer(self, asked: ApprovalRequested, where: ApprovalPlace) -> None:
        answer = where.answer_in(self._inputs)
        if answer is None and self._case.end is not None and self._case.end.is_open(asked.run_id):
            return
        if answer is None and not await self._is_pending(asked):  # in the shared history of a fork
            return
        if answer is None and asked.kind != "unverifiable":
            run = f", run={where.run!r}" if where.run else ""
            raise ConfigError(
                f"{where}, tool {asked.tool_name!r}, has no answer: add Answer(call={where.call!r}{run}) to the inputs"
            )
        answer = answer or _recovery(asked, where)
        try:
            if answer.decision == "timed_out":
                await self._fire(asked.run_id, APPROVAL_TIMER + asked.approval_id)
            else:
                await self._resolve(asked, answer)
        except ApprovalError as error:
            if await self._is_pending(asked):
                raise ConfigError(f"{where}: the answer of the inputs is refused: {error}") from error

    async def _is_pending(self, asked: ApprovalRequested) -> bool:
        state = await self._runtime.get_run(asked.run_id).state()
        return not state.over and state.approvals[asked.approval_id].pending

    async def _end_wait(self, wait: WaitStarted) -> None:
        """End a wait as the inputs say.

        The sleep of a call is over at once. A workflow's own wait is left to the clock if the inputs do not have it,
        since it may be one that loses a race.
        """
        place, label = await self._place(wait.run_id), FamilyPlaces(self._events).call(wait)
        found = [item for item in self._inputs if isinstance(item, WaitEnd)]
        given = next(
            (each for each in found if (each.run, each.call, each.wait) == (place, label, wait.wait_id)), None
        )
        if given is None and wait.place:
            return
        run = self._runtime.get_run(wait.run_id)
        state = await self._with_token(wait) if wait.kind == "callback" else await run.state()
        call = state.calls.get(wait.tool_call_id or wait.place)
        if state.over or call is None or call.open_wait is None or call.open_wait.wait_id != wait.wait_id:
            return  # a signal was there already, or it is part of the history of a fork
        timer_id = timer_of(state, call, call.open_wait)
        if wait.kind == "sleep":
            await self._fire(wait.run_id, timer_id)
            return
        if given is None and self._case.end is not None and self._case.end.is_open(wait.run_id):
            return
        if given is None:
            at = f", run={place!r}" if place else ""
            raise ConfigError(
                f"the wait {wait.wait_id} of call {label} has no end: "
                f"add WaitEnd(call={label!r}, wait={wait.wait_id!r}{at}) to the inputs"
            )
        if given.timed_out:
            await self._fire(wait.run_id, timer_id)
        elif wait.kind == "callback":
            await self._answer_callback(wait, call.callbacks[wait.wait_id].tokens[-1], given.data)
        else:
            with contextlib.suppress(RunFinished):
                await run.signal(wait.name, given.data, key=given.key)

    async def _with_token(self, wait: WaitStarted) -> RunState:
        """Return the state once the callback has a token, which a workflow creates only after the wait has begun."""
        journal = Journal(self._log, await find_run(self._log, wait.run_id), wait_for_log=True)
        await journal.load()

        def has_token(state: RunState) -> bool:
            call = state.calls.get(wait.tool_call_id or wait.place)
            return state.over or call is None or call.open_wait is None or wait.wait_id in call.callbacks

        return await journal.follow_until(has_token)

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
            always=answer.always,
            result=answer.result,
        )

    async def _fire(self, run_id: str, timer_id: str) -> None:
        """Have the timer of an approval or a wait fire now."""
        await self._store(run_id, TimerDue(timer_id))

    async def _answer_callback(self, wait: WaitStarted, sha256: str, data: object) -> None:
        """Answer a callback without its token, which only the call knows."""
        await self._store(wait.run_id, AnswerCallback(sha256=sha256, data=data))

    async def _store(self, run_id: str, command: TimerDue | AnswerCallback) -> None:
        journal = Journal(self._log, await find_run(self._log, run_id), wait_for_log=True)
        await journal.load()
        while not journal.state.over:
            turn = Turn(journal.state, journal.rules, self._log.clock.now())
            take(turn, command)
            if not turn.events:
                return
            cause = journal.state.head.rev + len(turn.events)
            wakes = [WakeWrite(wakeup_for(journal, cause=cause))] if journal.state.runnable else []
            if await journal.store(turn.events, epoch=0, extra=wakes):
                return


def _recovery(asked: ApprovalRequested, where: ApprovalPlace) -> Answer:
    """Return the answer about a call of unknown outcome for which the inputs have none.

    A call that a dead worker left is repeated. A call that ended in doubt by itself would do so again, and counts as
    failed; it is recognised by a reason other than that of its postcondition.
    """
    by_itself = asked.reason not in ("", problem(asked.postcondition))
    outcome: Literal["retry", "failed"] = "failed" if by_itself else "retry"
    return Answer(call=where.call, kind=asked.kind, outcome=outcome, note=asked.reason if by_itself else "")


def hands_to_workers(executor: Executor) -> bool:
    """Return whether workers drive the executor's runs; the stage then provides them."""
    return executor.runs_in == "workers"


@contextlib.asynccontextmanager
async def _task(main: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run a task that is cancelled at the end of the context."""
    task = asyncio.create_task(main)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _IgnoreCrashes:
    """An exception handler of a loop that ignores tasks which died in a simulated crash.

    It stays installed, because such tasks are reported when they are collected, which may be long after the check.
    """

    def __init__(self, before: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Pass on everything except simulated crashes."""
        if isinstance(context.get("exception"), Crash):
            return
        if self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)


def _ignore_crashes() -> None:
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    if not isinstance(before, _IgnoreCrashes):
        loop.set_exception_handler(_IgnoreCrashes(before))


class _Workers:
    """A worker whose log has the faults, and the one that takes over when it dies."""

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
        """Serve in a task until the context is left."""
        _ignore_crashes()
        async with _task(self._serve(self._worker("parity-worker-1", self._faulty))) as task:
            yield task

    def _worker(self, name: str, log: Log) -> Worker:
        host = Host(log=log, registry=self._stage.registry, worker=name, lease_s=LEASE_S)
        return Worker(host, grace_s=LEASE_S)

    async def _serve(self, worker: Worker) -> None:
        """Serve with the first worker until it dies, then with the second."""
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
        await self._end_lease("parity-worker-1")
        await self._serve_successor()

    async def _end_lease(self, name: str) -> None:
        """End the dead worker's lease at once, as a server does that sees the connection close."""
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

    async def _serve_successor(self) -> None:
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
    """Stop a worker; one that is alive may finish its work first."""
    worker.stop()
    await asyncio.wait({serving}, timeout=2 * LEASE_S)
    await _kill(serving)


async def _kill(serving: asyncio.Task[None]) -> None:
    """Cancel a worker's task repeatedly until it ends; a dead one must not clean up for long."""
    while not serving.done():
        serving.cancel()
        await asyncio.wait({serving}, timeout=RELEASE_S)
    with contextlib.suppress(asyncio.CancelledError, Exception, Crash):
        serving.result()
