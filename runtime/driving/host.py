"""What drives a run, as those see it who work for the run: the process, and the way into the run's next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from ...eventlog.clock import Clock
from ...eventlog.ports import Log, Write
from ...projections.run_state import RunState
from ..agents.registry import Registry
from ..core.commands import Command
from ..journal.journal import Journal
from ..journal.snapshots import SNAPSHOT_EVENTS
from ..ports.runnable import Runnable

Ending = Literal["over", "parked", "fenced", "released"]


class Host(msgspec.Struct, kw_only=True):
    """The process that drives: its log, its registry, its name, and how long its leases hold."""

    log: Log
    registry: Registry
    worker: str
    lease_s: float = 10.0
    snapshot_events: int = SNAPSHOT_EVENTS
    """How many events lie between two snapshots of a run that is driven here; 0 for none."""
    park_after_s: float | None = None
    """How long a run may wait for children that wait themselves until it parks and frees its place; null: for ever."""
    agents: dict[str, Runnable] = {}
    """Agents, swarms and loops given as objects, besides those registered."""
    late: set[asyncio.Task[None]] = set()
    """Who waits for the threads of calls that were given up, to store what became of them."""
    slot_locks: dict[str, asyncio.Lock] = {}
    """One for each agent with slots: in one process they are asked for one after the other."""

    def agent(self, name: str) -> Runnable:
        """The runnable of this name. Raises `NotRegistered`."""
        return self.agents.get(name) or self.registry.agent(name)


class Posted(msgspec.Struct, frozen=True):
    """A command on its way to the next turn, with writes that belong into the same append and whom to tell."""

    command: Command
    extra: tuple[Write, ...] = ()
    stored: asyncio.Future[None] | None = None


class Outbox(Protocol):
    """One driven run, as those see it who perform its effects: they read it, and hand commands to its next turn.

    `Driver` is one.
    """

    @property
    def host(self) -> Host:
        """The process that drives."""
        ...

    @property
    def journal(self) -> Journal:
        """The run's way into the log. Only the driver stores."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the log."""
        ...

    @property
    def state(self) -> RunState:
        """The run as its driver knows it."""
        ...

    @property
    def epoch(self) -> int:
        """The claim under which the run is driven."""
        ...

    def post(
        self, command: Command, extra: Sequence[Write] = (), stored: asyncio.Future[None] | None = None
    ) -> None:
        """Hand a command to the next turn. For the event loop's own thread."""
        ...

    def submit(self, command: Command, *writes: Write) -> asyncio.Future[None]:
        """Hand a command, with writes that belong to it, to the next turn; the future is done once it is stored."""
        ...

    def wake(self) -> None:
        """Have the driver look at its run again."""
        ...
