"""What an executor is: a name, the capabilities it has, and how it gets a submitted run driven."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from ...eventlog.errors import FoldlogError, UnsupportedByExecutor
from ...eventlog.events import Submitted
from ...eventlog.ports import Subject

if TYPE_CHECKING:
    from .runnable import Runnable

EXECUTORS = "foldlog.executors"
"""The entry point group of executors."""

CAPABILITIES = frozenset(
    {
        "detailed_events",
        "drafts",
        "messages",
        "memory",
        "context",
        "planning",
        "approvals",
        "progress",
        "inject",
        "pause",
        "children",
        "artifacts",
        "fallback",
        "concurrency",
    }
)
"""The names of what an executor may be able to do (R20). Those that are shipped can do all of it."""

RunsIn = Literal["process", "workers", "elsewhere"]
"""Where an executor has runs driven: in its own process, by workers that serve their agents, or by something else."""


class Executor(Protocol):
    """Gets runs driven. Plugins register a function of a `Host` under the entry point group `foldlog.executors`."""

    @property
    def name(self) -> str:
        """The word for `executor=`."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What it can do."""
        ...

    @property
    def runs_in(self) -> RunsIn:
        """Where its runs are driven.

        Callers ask it: what has to be registered in this process, whether other processes have to notice its death,
        and what a run waits for that nobody drives.
        """
        ...

    async def submit(self, subject: Subject, submitted: Submitted, agent: Runnable[Any]) -> bool:
        """Store the run's first commit and get it driven. False: the run exists already, and nothing was done."""
        ...

    async def drive(self, subject: Subject, agent: Runnable[Any] | None = None) -> None:
        """Get a run that exists driven on, as soon as nobody drives it; by this agent, if it is given as an object."""
        ...

    async def failure(self, run_id: str) -> FoldlogError | None:
        """Wait until this process stops driving the run, and return the error that stopped it.

        None, at once, if it does not drive the run, and if it stopped without an error. Safe to cancel.
        """
        ...

    async def aclose(self) -> None:
        """Stop driving and release claims; cancel nothing."""
        ...


def require(executor: Executor, needed: frozenset[str]) -> None:
    """Raise `UnsupportedByExecutor` for the first capability that is needed and missing."""
    for feature in sorted(needed - executor.capabilities):
        remedy = "switch the feature off in the agent's configuration or use another executor"
        raise UnsupportedByExecutor(feature, executor.name, remedy)
