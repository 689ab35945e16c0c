"""Child runs of a tool call: runs of their own in the family, driven by who drives the parent (protocol rule 19)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from ..eventlog.events import ParentLink
from ..eventlog.names import child_run_id, run_subject
from ..eventlog.ports import Write
from ..projections.messages import sha256_hex
from .commands import ChildEnded, ChildSpawned, Command
from .family import cancel_family
from .journal import Journal, through_outages
from .owed import news_or_timer
from .submission import CHILD, open_turn, submitted_event
from .toolport import ToolFailed

if TYPE_CHECKING:
    from .agent import Agent
    from .drive import Driver, Host


class ChildRuns:
    """The children of one driver's run."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def starter(self, call_id: str) -> Callable[[Agent, str], Awaitable[str]]:
        """What a call's context runs children with; it counts them, so that a re-run finds the ones it had."""
        ordinal = 0

        async def run_child(agent: Agent, text: str) -> str:
            nonlocal ordinal
            mine, ordinal = ordinal, ordinal + 1
            return await self._run(call_id, mine, agent, text)

        return run_child

    async def settle(self, call_id: str) -> None:
        """No child outlives its call (R7): end those that are still open, and say so."""
        state = self._driver.state
        for child in [c for c, call in state.open_children.items() if call == call_id]:
            subject = run_subject(self._driver.journal.subject.shard, state.root, child)
            log = self._driver.host.log
            await through_outages(self._driver.clock, cancel_family, log, subject, "its call is over")
            journal = Journal(log, subject, wait_for_log=True)
            await journal.follow_until(lambda state: state.over)
            await self._say(_ended(journal))

    async def _run(self, call_id: str, ordinal: int, agent: Agent, text: str) -> str:
        state = self._driver.state
        known = state.calls[call_id].children
        child = known[ordinal] if ordinal < len(known) else child_run_id(state.run, call_id, ordinal)
        subject = run_subject(self._driver.journal.subject.shard, state.root, child)
        journal = Journal(self._driver.host.log, subject, wait_for_log=True)
        agents = {**self._driver.host.agents, agent.name: agent}
        host = msgspec.structs.replace(self._driver.host, agents=agents)
        driver = self._new_driver(host, journal)
        if ordinal < len(known):
            await journal.load()
            await self._drive_to_end(driver, claimed=False)
        else:
            await self._start(driver, call_id, ordinal, agent, text)
            await self._drive_to_end(driver, claimed=True)
        await self._say(_ended(journal))
        return _output(journal)

    async def _start(self, child: Driver, call_id: str, ordinal: int, agent: Agent, text: str) -> None:
        """Announce the child and create it, claimed, in one batch (protocol rule 5)."""
        state = self._driver.state
        parent = ParentLink(run=state.run, tool_call_id=call_id, ordinal=ordinal)
        turn = open_turn(
            child.journal,
            submitted_event(agent, text, executor=CHILD, parent=parent),
            f"{state.path}/{agent.name}",
        )
        child.claim_within(turn)
        write, _commit = child.journal.write(turn.events, epoch=child.epoch)
        spawned = ChildSpawned(
            call_id=call_id,
            ordinal=ordinal,
            child_run=child.journal.subject.id,
            name=agent.name,
            kind="agent",
        )
        await self._say(spawned, write)
        await child.journal.load()
        await child.journal.follow_until(lambda state: state.exists)  # the read may have been stale

    async def _drive_to_end(self, driver: Driver, *, claimed: bool) -> None:
        """Drive, wait out what it waits for, claim and drive again, until the child is over."""
        journal, mine = driver.journal, claimed
        while not journal.state.over:
            if mine:
                mine = False
                await driver.drive()
                continue
            due = None if journal.state.runnable else await news_or_timer(journal)
            if journal.state.runnable or due is not None:
                await self._must_own_parent()
                driver = self._new_driver(driver.host, journal)
                mine = await driver.claim(*([due] if due is not None else []))

    def _new_driver(self, host: Host, journal: Journal) -> Driver:
        driver = type(self._driver)(host, journal)
        driver.guard = self._driver.guard
        return driver

    async def _must_own_parent(self) -> None:
        """Who owns the parent drives its children (rule 19): a fenced driver takes no child, and waits for its end.

        So two drivers of a parent, one of them back from a stall, do not take a child from each other for ever.
        """
        if not await self._driver.is_in_force():
            await asyncio.get_running_loop().create_future()

    async def _say(self, command: Command, *writes: Write) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._driver.post(command, writes, stored)
        await stored


def _ended(journal: Journal) -> ChildEnded:
    terminal = journal.state.terminal
    status = terminal.status if terminal is not None else ""
    return ChildEnded(
        child_run=journal.subject.id,
        status="completed" if status == "completed" else "cancelled" if status == "cancelled" else "error",
        output_digest=sha256_hex(journal.state.output.encode()) if status == "completed" else "",
    )


def _output(journal: Journal) -> str:
    state = journal.state
    if state.terminal is not None and state.terminal.status == "completed":
        return state.output
    if state.terminal is not None and state.terminal.status == "cancelled":
        raise ToolFailed("child cancelled")
    raise ToolFailed(f"the child run failed: {state.error.error if state.error else 'unknown error'}")
