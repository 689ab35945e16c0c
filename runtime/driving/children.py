"""Child runs, of a tool call or as a node: runs of their own, driven by the driver of their parent (W19)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from ...eventlog.errors import ConfigError, NotRegistered, PayloadTooLarge, RunNotFound
from ...eventlog.events import ChildReturned, StoredEvent, Submitted
from ...eventlog.names import child_run_id, run_subject
from ...eventlog.parts import Part
from ...eventlog.ports import COMMIT_BYTES_MAX
from ...projections.messages import sha256_hex
from ...projections.money import plus_cost
from ...projections.run_state import SPAWN_SELF, RunState
from ..agents.content import GivenContent, read_content
from ..agents.overrides import handed_down as handed_down_to
from ..agents.workflow.operations import Operation
from ..core.commands import ChildEnded, ChildSpawned, Command, PreparationFailed, Tick
from ..core.effects import CallTool, Effect, RunNode, RunPlace
from ..core.lineage import link_to, node_place, recorded_for
from ..core.parking import waits_for_people
from ..core.submission import CHILD, handed_down, submitted_event, with_model, with_text
from ..core.turn import Turn
from ..journal.cancel import cancel_family, see_cancel_through
from ..journal.family import until_ready
from ..journal.journal import Journal
from ..journal.open_run import open_turn
from ..journal.outages import STALE_READ_S, through_outages
from ..ports.files import Content
from ..ports.runnable import Runnable
from ..ports.tools import ChildFailed
from ..shared.run_slots import give_up, slots_of
from ..shared.spending import resume_if_left
from ..tools.context import ChildOptions
from .call_timeout import PausableTimeout
from .copies import Copies
from .host import Ending, Host, Outbox

DEPTH_MAX = 64
"""How deep runs are nested at most, the root included: code that starts itself would never end."""


class ParentDriver(Outbox, Protocol):
    """The driver of a run that has children, and of each of them. `Driver` implements it."""

    slots_below: bool
    """Set if any run below needed a slot."""

    @property
    def guard(self) -> ParentDriver:
        """The driver whose lease covers this run."""
        ...

    @property
    def children(self) -> ChildRuns:
        """The children of the run."""
        ...

    def for_child(self, host: Host, journal: Journal, *, serves_unsafe: bool) -> ParentDriver:
        """Return a driver for a child of this run, under the lease that covers this one."""
        ...

    def claim_within(self, turn: Turn, *causes: Command) -> None:
        """Add the claim, and all that follows from it, to a turn that is about to be stored."""
        ...

    async def claim(self, *causes: Command) -> bool:
        """Claim the loaded run, after the event that woke it. False: a conflict; judge the run again."""
        ...

    async def drive(self) -> Ending:
        """Advance the run until it ends, parks, or is no longer ours."""
        ...

    async def is_in_force(self) -> bool:
        """Return whether the log still shows this claim on the run."""
        ...

    def child_waits(self) -> None:
        """Note that a child waits for a person or a timer."""
        ...


class Beginning(msgspec.Struct, frozen=True):
    """The start of a child that does not exist yet."""

    runnable: Runnable
    text: str
    parts: Sequence[Part] = ()
    messages: Sequence[Mapping[str, Any]] = ()
    overrides: Mapping[str, Any] = MappingProxyType({})
    """Those of the run above, which a node is submitted with, too."""
    files: GivenContent | None = None
    """The content of a call's child, whose files are stored before its submission."""
    submitted: Submitted | None = None
    """Its submission without the link to the parent, if that was built before."""


class ChildRuns:
    """The children of one driver's run."""

    def __init__(self, driver: ParentDriver) -> None:
        self._driver = driver
        self._unsure: list[str | None] = []
        """The call of each command about children that may not be stored yet."""
        self._running: dict[str, list[asyncio.Future[str]]] = {}
        """The tasks that drive the children of each call."""
        self._resting: set[str] = set()
        """Children that wait for a person or a timer."""
        self.times: dict[str, PausableTimeout] = {}
        """The timeout of each running call."""
        self._above: Callable[[bool], None] | None = None
        """Tells the driver above that a run below waits for a person, or no longer does."""
        self.copies = Copies(driver.journal)
        """Counts the copies of the run; in a copy, those of the original."""

    def of_call(self, call_id: str) -> CallChildren:
        """Return the children of one attempt at a call."""
        return CallChildren(self, call_id)

    def start(self, call_id: str, running: asyncio.Future[str]) -> None:
        """Note the task that drives a child of a call."""
        self._running.setdefault(call_id, []).append(running)

    async def run_node(self, effect: RunNode) -> None:
        """Run a member as a node of this run, from its start or from where it is, to its end.

        If it cannot be started, this run ends with an error.
        """
        try:
            await self._run_node(effect, self._member(effect.name))
        except (ConfigError, PayloadTooLarge) as error:
            kind = "payload_too_large" if isinstance(error, PayloadTooLarge) else "config_error"
            self._driver.post(PreparationFailed(kind, f"node {effect.name!r} cannot be started: {error}"))

    def _member(self, name: str) -> Runnable:
        runnable = self._driver.host.agent(self._driver.state.agent)
        if name not in runnable.members:
            raise NotRegistered(f"{runnable.kind} {runnable.name!r} has no {name!r} in this process")
        return runnable.members[name]

    async def _run_node(self, effect: RunNode, runnable: Runnable) -> None:
        state = self._driver.state
        known = state.node(effect.name, effect.ordinal)
        spawned = ChildSpawned(
            call_id=None,
            ordinal=effect.ordinal,
            child_run=known.child_run
            if known is not None
            else child_run_id(state.run, f"node {effect.name}", effect.ordinal),
            name=runnable.name,
            kind=runnable.kind,
        )
        own = state.submitted
        messages = own.messages if effect.first and own is not None else ()
        parts = with_text(own, effect.input) if effect.files and own is not None else ()
        overrides = own.overrides if own is not None else {}
        start = Beginning(runnable, effect.input, parts, messages, overrides)
        await self._run(spawned, start, lambda: None, exists=known is not None)

    async def run_place(self, operation: Operation[Any]) -> None:
        """Run the child that the code of a workflow asks for, from its start or from where it is, to its end.

        If it cannot be started, this run ends with an error.
        """
        place, wanted = operation.place, operation.wanted
        runnable, flow = wanted.runnable, self._driver.state.flow
        assert runnable is not None  # noqa: S101 - what makes it a child
        assert flow is not None  # noqa: S101 - only a workflow has places
        known = next((run for run, at in flow.children.items() if at == place), None)
        run = self._driver.state.run
        spawned = ChildSpawned(
            call_id=None,
            ordinal=0,
            child_run=known or child_run_id(run, f"place {place}", 0),
            name=runnable.name,
            kind=runnable.kind,
            place=place,
            asked=operation.asked.request,
        )
        options = wanted.options or ChildOptions()
        try:
            start = Beginning(runnable, wanted.text)
            if not known:
                self._check_depth(runnable)
                submitted = _submission(self._driver.state.submitted, start, options)
                start = msgspec.structs.replace(start, submitted=submitted)
            await self._run(spawned, start, lambda: None, exists=known is not None)
        except (ConfigError, PayloadTooLarge) as error:
            kind = "payload_too_large" if isinstance(error, PayloadTooLarge) else "config_error"
            self._driver.post(PreparationFailed(kind, f"{place} cannot be started: {error}"))

    async def cancel(self, child_run: str) -> None:
        """Cancel a child of a branch that lost its race; who drives it records its end."""
        log, root = self._driver.host.log, self._driver.state.root
        subject = run_subject(self._driver.journal.subject.shard, root, child_run)
        while True:
            with contextlib.suppress(RunNotFound):  # it exists: the read was stale
                await through_outages(
                    self._driver.clock, cancel_family, log, subject, "its branch lost the race"
                )
                return
            await self._driver.clock.sleep(STALE_READ_S)

    def leave(self, call_id: str) -> None:
        """Stop waiting for the children of a call that is over, or no longer ours."""
        self.times.pop(call_id, None)
        for running in self._running.pop(call_id, ()):
            if not running.done():
                running.cancel()
            elif not running.cancelled():
                running.exception()  # the tool may never have awaited it

    async def settle(self, call_id: str) -> None:
        """Cancel the children that are still open, and record their ends: no child outlives its call (R7)."""
        if call_id in self._unsure:  # commands under way are stored first
            await self._store(Tick(), None)
            self._unsure = [call for call in self._unsure if call != call_id]
        state = self._driver.state
        for child in [c for c, call in state.open_children.items() if call == call_id]:
            subject = run_subject(self._driver.journal.subject.shard, state.root, child)
            log = self._driver.host.log
            journal = Journal(log, subject, wait_for_log=True)
            while True:
                with contextlib.suppress(RunNotFound):  # it exists: the read was stale
                    await through_outages(self._driver.clock, cancel_family, log, subject, "its call is over")
                    break
                await self._driver.clock.sleep(STALE_READ_S)
            await journal.follow_until(lambda state: state.over)
            await self._give_up(journal, below=self._driver.guard.slots_below)
            await self._store(_ended(journal), None)

    def beginning(
        self, call_id: str, ordinal: int, runnable: Runnable, content: Content, options: ChildOptions
    ) -> Beginning:
        """Return the start of a call's `ordinal`-th child. Raises `ConfigError`, `PayloadTooLarge`.

        A child that cannot start is not counted: those after it would wait for it for ever.
        """
        call = self._driver.state.calls.get(call_id)
        if call is not None and ordinal < len(call.children):
            return Beginning(runnable, "")
        self._check_depth(runnable)
        given = read_content(self._driver.host.registry, runnable, content)
        start = Beginning(runnable, given.text, given.parts, files=given if given.parts else None)
        submitted = _submission(self._driver.state.submitted, start, options)
        return msgspec.structs.replace(start, submitted=submitted)

    def _check_depth(self, runnable: Runnable) -> None:
        """Raise `ConfigError` if a new child would be too deep. Nodes need no check: their number is configured."""
        if self._driver.state.path.count("/") + 2 > DEPTH_MAX:
            raise ConfigError(
                f"{runnable.kind} {runnable.name!r} would run at a depth of more than {DEPTH_MAX} runs: "
                "let what starts itself end earlier"
            )

    async def run_in_call(
        self, call_id: str, ordinal: int, start: Beginning, announced: Callable[[], None]
    ) -> Journal:
        """Run the `ordinal`-th child of a call to its end. `announced` is called once the child is submitted."""
        state = self._driver.state
        known = state.calls[call_id].children[ordinal:]
        if not known and state.calls[call_id].name == SPAWN_SELF:
            await self.copies.add(state)
        spawned = ChildSpawned(
            call_id=call_id,
            ordinal=ordinal,
            child_run=known[0] if known else child_run_id(state.run, call_id, ordinal),
            name=start.runnable.name,
            kind=start.runnable.kind,
        )
        return await self._run(spawned, start, announced, exists=bool(known))

    async def _run(
        self, spawned: ChildSpawned, start: Beginning, announced: Callable[[], None], *, exists: bool
    ) -> Journal:
        state, runnable = self._driver.state, start.runnable
        subject = run_subject(self._driver.journal.subject.shard, state.root, spawned.child_run)
        journal = Journal(self._driver.host.log, subject, wait_for_log=True)
        agents = {**self._driver.host.agents, runnable.name: runnable}
        host = msgspec.structs.replace(self._driver.host, agents=agents)
        driver = self._new_driver(host, journal, spawned.call_id)
        if exists:
            announced()
            await journal.load()
            await through_outages(self._driver.clock, resume_if_left, host, journal)
        else:
            await self._start(driver, spawned, start, announced)
        await self._drive_to_end(driver, spawned.call_id)
        await self._store(_ended(journal), spawned.call_id)
        return journal

    async def _start(
        self, child: ParentDriver, spawned: ChildSpawned, start: Beginning, announced: Callable[[], None]
    ) -> None:
        """Announce the child and create it, claimed, in one batch (W5)."""
        state, runnable = self._driver.state, start.runnable
        assert state.submitted is not None  # noqa: S101 - a driven run was submitted
        parent = link_to(state.submitted, state.run, spawned.call_id, spawned.ordinal)
        if start.files is not None:
            await through_outages(self._driver.clock, start.files.store, self._driver.host.log, state.root)
        submitted = start.submitted or _submission(state.submitted, start, ChildOptions())
        submitted = msgspec.structs.replace(submitted, parent=parent)
        if parent.fork_model is not None:
            submitted = with_model(submitted, parent.fork_model)
        turn = open_turn(child.journal, submitted, f"{state.path}/{runnable.name}")
        recorded = await self._recorded(child, spawned)
        turn.add(*recorded)
        if slots_of(child.host, child.journal) is None:
            child.claim_within(turn)
        writing = await child.journal.write_in_one(turn.events, epoch=child.epoch, at=turn.now)
        stored = self._driver.submit(spawned, writing.write)
        announced()
        await self._until_stored(stored, spawned.call_id)
        await child.journal.load(short=True)
        await child.journal.follow_until(lambda state: state.exists)  # the read may have been stale

    async def _recorded(self, child: ParentDriver, spawned: ChildSpawned) -> Sequence[StoredEvent]:
        """Return the recorded results that a fork has for a node, as far as they fit into its first commit."""
        kept = self._driver.state.recorded_below
        if spawned.call_id is not None or not kept:
            return ()
        place = node_place(spawned.name, spawned.ordinal, spawned.place)
        fitting, room = list[StoredEvent](), COMMIT_BYTES_MAX // 2
        for event in await child.journal.spilled(list(recorded_for(place, kept))):
            room -= len(msgspec.json.encode(event))
            if room > 0:
                fitting.append(event)
        return fitting

    async def _drive_to_end(self, driver: ParentDriver, call_id: str | None) -> None:
        """Drive the child, wait until it can go on, claim and drive it again, until it is over."""
        journal, mine = driver.journal, driver.epoch > 0
        while not journal.state.over:
            if mine:
                mine = False
                await driver.drive()
                if journal.state.parked is not None:
                    await self._give_up(journal)
                continue
            if journal.state.cancelling:
                await see_cancel_through(journal)
                continue
            cause = None if journal.state.runnable else await self._until_ready(journal, call_id)
            if (journal.state.runnable or cause is not None) and await self._has_slot(journal):
                await self._must_own_parent()
                driver = self._new_driver(driver.host, journal, call_id)
                mine = await driver.claim(*([cause] if cause is not None else []))
        await self._give_up(journal)

    async def _has_slot(self, journal: Journal) -> bool:
        """Wait until the child may be driven; false if it was closed or claimed meanwhile."""
        slots = slots_of(self._driver.host, journal)
        if slots is None:
            return True
        self._driver.guard.slots_below = True
        return journal.state.owner is not None or await through_outages(self._driver.clock, slots.until_taken)

    async def _give_up(self, journal: Journal, *, below: bool = False) -> None:
        giving = functools.partial(give_up, self._driver.host, journal, below=below)
        await through_outages(self._driver.clock, giving)

    @property
    def rest(self) -> bool:
        """Return whether any children wait themselves."""
        return bool(self._resting)

    async def _until_ready(self, journal: Journal, call_id: str | None) -> Command | None:
        run, people = journal.subject.id, waits_for_people(journal.state)
        self._resting.add(run)
        self._driver.child_waits()
        self._driver.guard.wake()
        try:
            if people:
                self._set_waiting(call_id, waits=True)
            return await until_ready(journal)
        finally:
            self._resting.discard(run)
            if people:
                self._set_waiting(call_id, waits=False)

    def _set_waiting(self, call_id: str | None, *, waits: bool) -> None:
        """Stop or continue the timeouts of the call, and of all calls above it."""
        time = self.times.get(call_id or "")
        if time is not None:
            time.wait() if waits else time.go_on()
        if self._above is not None:
            self._above(waits)

    def waits(self, effect: Effect) -> bool:
        """Return whether the effect does nothing but wait for children that wait themselves."""
        state = self._driver.state
        if isinstance(effect, RunPlace):
            flow = state.flow
            return flow is not None and any(flow.children.get(run) == effect.place for run in self._resting)
        if isinstance(effect, RunNode):
            node = state.node(effect.name, effect.ordinal)
            return node is not None and node.child_run in self._resting
        if not isinstance(effect, CallTool) or effect.call_id not in state.calls:
            return False
        going_on = sum(1 for running in self._running.get(effect.call_id, ()) if not running.done())
        children = [run for run in state.calls[effect.call_id].children if run in self._resting]
        return 0 < going_on == len(children)

    def _new_driver(self, host: Host, journal: Journal, call_id: str | None) -> ParentDriver:
        unsafe = self._is_of_unsafe_call(call_id)
        driver = self._driver.for_child(host, journal, serves_unsafe=unsafe)
        driver.children._above = lambda waits: self._set_waiting(call_id, waits=waits)  # noqa: SLF001 - its own kind
        call = self._driver.state.calls.get(call_id or "")
        if call is not None and call.name == SPAWN_SELF:
            driver.children.copies = self.copies
        return driver

    def _is_of_unsafe_call(self, call_id: str | None) -> bool:
        call = self._driver.state.calls.get(call_id or "")
        return call is not None and call.started > 0

    async def _must_own_parent(self) -> None:
        """Block for ever unless we own the parent: its owner drives its children (W19), a fenced driver claims none.

        So two drivers of a parent, one of them back from a stall, do not take a child from each other for ever.
        """
        if not await self._driver.is_in_force():
            await asyncio.get_running_loop().create_future()

    async def _store(self, command: Command, call_id: str | None) -> None:
        await self._until_stored(self._driver.submit(command), call_id)

    async def _until_stored(self, stored: asyncio.Future[None], call_id: str | None) -> None:
        """Wait until it is stored. A call that times out meanwhile does not know whether it was (`settle`)."""
        self._unsure.append(call_id)
        await stored
        self._unsure.remove(call_id)


def _submission(above: Submitted | None, start: Beginning, options: ChildOptions) -> Submitted:
    """Return the first event of a child, with the user and the metadata of the run above unless others are given."""
    user, metadata, policy = (
        (above.user, above.metadata, above.policy) if above is not None else (None, {}, {})
    )
    return submitted_event(
        handed_down_to(start.runnable, start.overrides) if start.overrides else start.runnable,
        start.text,
        executor=CHILD,
        parts=start.parts,
        messages=start.messages,
        user=user if options.user is None else options.user,
        metadata=metadata if options.metadata is None else options.metadata,
        policy=policy,
        overrides=start.overrides,
        trigger=handed_down(above),
        priority=above.priority if above is not None else None,
    )


class CallChildren:
    """The children of one attempt at a call, numbered so that a repeated attempt finds the ones it had.

    They are numbered in the order of their calls, and announced in that order, however their tasks interleave.
    """

    def __init__(self, runs: ChildRuns, call_id: str) -> None:
        self._runs, self._call_id = runs, call_id
        self._turns: list[asyncio.Event] = []

    def run(self, runnable: Runnable, content: Content, options: ChildOptions) -> Awaitable[str]:
        """Start the next child, or find it; return its output."""
        ordinal = len(self._turns)
        try:
            start = self._runs.beginning(self._call_id, ordinal, runnable, content, options)
        except (ConfigError, PayloadTooLarge) as error:
            running = asyncio.ensure_future(_fail(error))
        else:
            self._turns.append(asyncio.Event())
            running = asyncio.ensure_future(self._in_turn(ordinal, start))
        self._runs.start(self._call_id, running)
        return running

    def skip(self, count: int) -> None:
        """Skip the first `count`, which belong to memoized parts."""
        while len(self._turns) < count:
            turn = asyncio.Event()
            turn.set()
            self._turns.append(turn)

    async def _in_turn(self, ordinal: int, start: Beginning) -> str:
        turns = self._turns
        try:
            if ordinal:
                await turns[ordinal - 1].wait()
            journal = await self._runs.run_in_call(self._call_id, ordinal, start, turns[ordinal].set)
            return _output(journal)
        finally:
            turns[ordinal].set()


async def _fail(error: Exception) -> str:
    raise error


def _ended(journal: Journal) -> ChildEnded:
    terminal = journal.state.terminal
    status = terminal.status if terminal is not None else ""
    return ChildEnded(
        child_run=journal.subject.id,
        status="completed" if status == "completed" else "cancelled" if status == "cancelled" else "error",
        output_digest=sha256_hex(journal.state.output.encode()) if status == "completed" else "",
        returned=_returned(journal.state),
    )


def _returned(state: RunState) -> ChildReturned:
    return ChildReturned(
        child_run=state.run,
        output=state.output,
        error_type=state.error.error_type if state.error is not None else "",
        error=state.error.error if state.error is not None else "",
        usage=state.usage + state.inner_usage,
        cost_usd=plus_cost(state.cost_usd, state.inner_cost_usd),
    )


def _output(journal: Journal) -> str:
    state = journal.state
    if state.terminal is not None and state.terminal.status == "completed":
        return state.output
    if state.terminal is not None and state.terminal.status == "cancelled":
        raise ChildFailed("child cancelled", status="cancelled", run_id=state.run)
    problem = state.error.error if state.error else "unknown error"
    raise ChildFailed(f"the child run failed: {problem}", status="error", run_id=state.run)
