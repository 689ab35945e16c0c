"""An executor of one's own, as a plugin would bring it, and the ways in which it can be broken.

`OwnExecutor` drives in this process with the runtime's driver; `broken` gives one in which a defect is built in where a
real one would be: in what is decided and folded, in how tools are called, in what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from foldlog.eventlog import FoldlogError
from foldlog.eventlog.events import McpProgress, Step, StoredEvent, Submitted, Text, Usage
from foldlog.eventlog.ports import Subject
from foldlog.projections.run_state import RunState
from foldlog.runtime import CAPABILITIES, Agent
from foldlog.runtime.core.commands import Command, ToolEmitted, ToolReturned
from foldlog.runtime.core.effects import CallTool
from foldlog.runtime.core.tool_calls import idempotency_key
from foldlog.runtime.core.turn import Turn
from foldlog.runtime.driving.driver import Driver
from foldlog.runtime.driving.heartbeat import LeaseKeeper
from foldlog.runtime.driving.host import Host
from foldlog.runtime.journal.journal import Journal
from foldlog.runtime.journal.open_run import open_turn
from foldlog.runtime.ports.executor import RunsIn


class OwnExecutor:
    """Drives in this process: claim, drive, wait while the run waits, claim again."""

    name = "own"
    capabilities = CAPABILITIES
    runs_in: RunsIn = "process"
    driver: type[Driver] = Driver

    def __init__(self, host: Host) -> None:
        self._host, self._keeper = host, LeaseKeeper(host)
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, subject: Subject, submitted: Submitted, agent: Agent[Any]) -> bool:
        journal = Journal(self._host.log, subject)
        turn = open_turn(journal, self.as_submitted(submitted), agent.name)
        stored = await journal.store(turn.events, epoch=0)
        if stored:
            await self.drive(subject)
        return stored

    def as_submitted(self, submitted: Submitted) -> Submitted:
        return submitted

    async def drive(self, subject: Subject, agent: Agent[Any] | None = None) -> None:
        self._tasks.add(asyncio.create_task(self._drive(Journal(self._host.log, subject, wait_for_log=True))))

    async def _drive(self, journal: Journal) -> None:
        await journal.load()
        while not journal.state.over:
            if not journal.state.runnable:
                await journal.wait_for_news()
                continue
            driver = self.driver(self._host, journal)
            if await driver.claim():
                async with self._keeper.beat_for(driver):
                    await driver.drive()
        await self.ended(journal)

    async def ended(self, journal: Journal) -> None:
        """The run is over."""

    async def failure(self, run_id: str) -> FoldlogError | None:
        return None

    async def aclose(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keeper.aclose()


Tamper = Callable[[RunState, StoredEvent], StoredEvent | None]


def deciding(tamper: Tamper, settled: Callable[[RunState, StoredEvent], None] | None = None) -> type[Driver]:
    """A driver that changes, or leaves out, events as they are decided; `settled` changes the state behind them."""

    class BrokenTurn(Turn):
        def add(self, *events: StoredEvent) -> None:
            for event in events:
                kept = tamper(self.state, event)
                if kept is not None:
                    super().add(kept)
                    if settled is not None:
                        settled(self.state, kept)

    class BrokenDriver(Driver):
        def turn(self) -> Turn:
            return BrokenTurn(self.state, self.journal.rules, self.clock.now())

    return BrokenDriver


def as_it_is(state: RunState, event: StoredEvent) -> StoredEvent | None:
    return event


class DropsProgress(OwnExecutor):
    """Progress is only shown, not stored."""

    driver = deciding(lambda _, event: None if isinstance(event, McpProgress) else event)


def _reverse_results(state: RunState, event: StoredEvent) -> None:
    if not (isinstance(event, Step) and event.status == "completed" and len(state.calls) > 1):
        return
    results = [message for message in state.messages if message.role == "tool"][-len(state.calls) :]
    state.messages[-len(state.calls) :] = reversed(results)
    state.linked_messages, state.linked_digest = 0, ""


class ReordersResults(OwnExecutor):
    """The model reads the results in the order in which the calls ended, not in which it asked."""

    driver = deciding(as_it_is, _reverse_results)


class HoldsProgressBack(OwnExecutor):
    """A call's progress is stored behind its result."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.driver = self._late_progress()

    def _late_progress(self) -> type[Driver]:
        held: list[StoredEvent] = []

        class BrokenTurn(Turn):
            def add(self, *events: StoredEvent) -> None:
                for event in events:
                    if isinstance(event, McpProgress):
                        held.append(event)
                        continue
                    super().add(event)
                    if event.type == "tool_result":
                        super().add(*[each for each in held if each.tool_call_id == event.tool_call_id])
                        held[:] = [each for each in held if each.tool_call_id != event.tool_call_id]

        class BrokenDriver(Driver):
            def turn(self) -> Turn:
                return BrokenTurn(self.state, self.journal.rules, self.clock.now())

        return BrokenDriver


class ShowsProgressLate(OwnExecutor):
    """A call's progress is stored in its place, but not before the call has ended: nobody sees it go on."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)

        class HoldingDriver(Driver):
            held: ClassVar[list[ToolEmitted]] = []

            def post(self, command: Command) -> None:
                if isinstance(command, ToolEmitted):
                    self.held.append(command)
                    return
                if isinstance(command, ToolReturned):
                    for each in self.held:
                        super().post(each)
                    self.held.clear()
                super().post(command)

        self.driver = HoldingDriver


class EmitsAfterCancel(OwnExecutor):
    """Effects in progress at the cancel are stored nevertheless."""

    async def ended(self, journal: Journal) -> None:
        if journal.state.terminal is not None and journal.state.terminal.status == "cancelled":
            await journal.store([Text(step=journal.state.step, text="too late")], epoch=journal.state.epoch)


def _without_usage(state: RunState, event: StoredEvent) -> StoredEvent | None:
    if not isinstance(event, Usage):
        return event
    state.model.replied, state.model.requested = True, False
    return None


class SwallowsUsage(OwnExecutor):
    """Tokens are counted for the result, and not stored as the model reported them."""

    driver = deciding(_without_usage)


class RepeatsATool(OwnExecutor):
    """Each tool is called once for the result and once more."""

    class driver(Driver):  # noqa: N801 - it stands for the attribute
        async def _call_tool(self, effect: CallTool) -> None:
            call = self.state.calls[effect.call_id]
            tool = (await self.tools())[call.name]
            await tool.call(call.arguments, _Silent(idempotency_key(self.state, call)))
            await super()._call_tool(effect)


class _Silent:
    """A context that nothing comes out of."""

    tool_call_id = ""

    def __init__(self, idempotency_key: str) -> None:
        self.idempotency_key = idempotency_key

    def emit(self, event: Any) -> None:
        pass

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        pass


class ForgetsMessages(OwnExecutor):
    """The messages that the run was started with do not reach it."""

    def as_submitted(self, submitted: Submitted) -> Submitted:
        return msgspec.structs.replace(submitted, messages=[])


class NeverEnds(OwnExecutor):
    """The run is stored, and nobody drives it."""

    async def drive(self, subject: Subject, agent: Agent[Any] | None = None) -> None:
        pass
