"""The interface of a driven run for those that perform its effects: the process, and the run's next turn."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any, Literal, Protocol

import msgspec

from ...eventlog.clock import Clock
from ...eventlog.errors import ConfigError
from ...eventlog.ports import Log, Presence, Subject, Write
from ...projections.run_state import RunState
from ..agents.registry import Registry
from ..core.commands import Command
from ..core.shared_budgets import SharedBudget
from ..journal.journal import Journal
from ..journal.snapshots import SNAPSHOT_EVENTS
from ..ports.runnable import Runnable
from .namespace import NamespacePolicy

BUILD_CHARS_MAX = 128
_BUILD = re.compile(rf"[A-Za-z0-9._+:/@-]{{1,{BUILD_CHARS_MAX}}}")

Ending = Literal["over", "parked", "fenced", "released"]


class Host(msgspec.Struct, kw_only=True):
    """The process that drives: its log, its registry, its name, and the length of its leases (seconds)."""

    log: Log
    registry: Registry
    worker: str
    build: str = ""
    """The operator's name for the code that this process runs; kept with its claims."""
    lease_s: float = 10.0
    snapshot_events: int = SNAPSHOT_EVENTS
    """The number of events between two snapshots of a run driven here; 0 for no snapshots."""
    park_after_s: float | None = None
    """The time that a run waits for waiting children before it parks and frees its place; null: for ever."""
    public_url: str = ""
    """The address under which other systems reach `foldlog serve`, for the URLs of callbacks."""
    limits: dict[str, int] = {}
    """The most calls, model calls or runs that work at once in the namespace, by the names of the limits."""
    budgets: tuple[SharedBudget, ...] = ()
    """The budgets of models, users and agents that all runs of the namespace share."""
    roll_back: Callable[[Subject], Awaitable[str]] | None = None
    """Starts the rollback of a run on the executor that drives it, and returns its id; empty if there is nothing."""
    policy: NamespacePolicy | None = None
    """The policy of runs that this process starts by itself; null for none."""
    agents: dict[str, Runnable] = {}
    """Agents, swarms and loops given as objects, besides those registered."""
    removed: set[str] = set()
    """The stored agents that were removed: nothing is started of them."""
    late: set[asyncio.Task[None]] = set()
    """Tasks that wait for the threads of abandoned calls, to store their outcomes."""
    slot_locks: dict[str, asyncio.Lock] = {}
    """One lock for each slots name: within one process, changes are made one after another."""

    def agent(self, name: str) -> Runnable:
        """Return the runnable of this name. Raises `NotRegistered`."""
        return self.agents.get(name) or self.registry.agent(name)

    def runnable_of(self, state: RunState) -> Runnable:
        """Return the runnable of a run; that of a table is what the run stored. Raises `NotRegistered`."""
        submitted = state.submitted
        if submitted is not None and submitted.kind == "workflow" and "steps" in submitted.config:
            live = self.agents.get(state.agent) or self.registry.agents.get(state.agent)
            return self.registry.table(submitted.config, live)
        return self.agent(state.agent)

    async def policy_of(self, agent: Runnable) -> dict[str, Any]:
        """Return the policy of a run that this process starts by itself: that of the namespace, empty for none."""
        return {} if self.policy is None else await self.policy.of_run(self.registry.reachable(agent))

    def presence(self, serves: Iterable[str] = (), concurrency: int = 0) -> Presence:
        """Return what this process announces of itself: a worker of these agents, or a program with runs of its own."""
        return Presence(
            worker=self.worker,
            serves=tuple(sorted(serves)),
            concurrency=concurrency,
            host=socket.gethostname(),
            pid=os.getpid(),
            release=release(),
            build=self.build,
            since=self.log.clock.now(),
        )


@functools.cache
def release() -> str:
    """Return the installed release of foldlog; its file is read once."""
    return version("foldlog")


def build_setting(given: str | None = None) -> str:
    """Return the name of the build, from `FOLDLOG_BUILD` unless given; empty for none. Raises `ConfigError`."""
    name = os.environ.get("FOLDLOG_BUILD", "") if given is None else given
    if name and _BUILD.fullmatch(name) is None:
        raise ConfigError(
            f"the build {name!r:.80} is not a name: up to {BUILD_CHARS_MAX} letters, digits and any of ._+:/@-, "
            "such as a commit or the tag of an image"
        )
    return name


def public_url_setting() -> str:
    """Return `FOLDLOG_PUBLIC_URL`, without the slash at its end. Raises `ConfigError`."""
    given = os.environ.get("FOLDLOG_PUBLIC_URL", "").rstrip("/")
    if given and not given.startswith(("http://", "https://")):
        raise ConfigError(f"FOLDLOG_PUBLIC_URL must be a URL of http or https, not {given!r:.80}")
    return given


class Posted(msgspec.Struct, frozen=True):
    """A command for the next turn, with writes for the same append, and the future to resolve once it is stored."""

    command: Command
    extra: tuple[Write, ...] = ()
    stored: asyncio.Future[None] | None = None


class Outbox(Protocol):
    """One driven run, for those that perform its effects: they read its state, and add commands to its next turn.

    `Driver` implements it.
    """

    @property
    def host(self) -> Host:
        """The process that drives."""
        ...

    @property
    def journal(self) -> Journal:
        """The run's journal. Only the driver stores."""
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
        """Add a command to the next turn. Only for the event loop's own thread."""
        ...

    def submit(self, command: Command, *writes: Write) -> asyncio.Future[None]:
        """Add a command to the next turn, with writes that belong to it; the future is done once it is stored."""
        ...

    def wake(self) -> None:
        """Make the driver check its run again."""
        ...
