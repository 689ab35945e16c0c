"""The executor port: a name, a set of capabilities, and a way to get submitted runs driven."""

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
"""The names of an executor's possible capabilities (R20). The shipped executors have all of them."""

RunsIn = Literal["process", "workers", "elsewhere"]
"""The place that drives the runs: this process, workers that serve their agents, or something else."""


class Executor(Protocol):
    """Gets runs driven. Plugins register a function of a `Host` under the entry point group `foldlog.executors`."""

    @property
    def name(self) -> str:
        """The value for `executor=`."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities that it has."""
        ...

    @property
    def runs_in(self) -> RunsIn:
        """The place where its runs are driven.

        Callers derive from it what must be registered in this process, whether other processes have to notice its
        death, and what a run that no one drives is waiting for.
        """
        ...

    async def submit(self, subject: Subject, submitted: Submitted, agent: Runnable[Any]) -> bool:
        """Store the run's first commit and get it driven. False: the run already exists, and nothing was done."""
        ...

    async def drive(self, subject: Subject, agent: Runnable[Any] | None = None) -> None:
        """Get an existing run driven on as soon as no one else drives it; with this agent object, if one is given."""
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
    """Raise `UnsupportedByExecutor` for the first capability that is needed but missing."""
    for feature in sorted(needed - executor.capabilities):
        remedy = "switch the feature off in the agent's configuration or use another executor"
        raise UnsupportedByExecutor(feature, executor.name, remedy)
