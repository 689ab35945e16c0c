"""LLM agents as folds over an append-only log, with executors proven equal by replay.

What most programs need is here. It is loaded when it is first used, so importing `foldlog` alone costs nothing; the
packages below have the rest: `foldlog.runtime`, `foldlog.eventlog`, `foldlog.projections`, `foldlog.adapters` and
`foldlog.replay`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it, without an import of `typing`
if TYPE_CHECKING:
    from .runtime import (
        Agent,
        Answer,
        ArtifactRef,
        ChildFailed,
        Custom,
        Evidence,
        OutputRefused,
        RalphLoop,
        Registry,
        Retryable,
        RunContext,
        RunHandle,
        RunOptions,
        RunResult,
        Runtime,
        Schedule,
        Signal,
        Swarm,
        ToolContext,
        ToolFailed,
        Worker,
        Workflow,
        WorkflowRun,
        WorkflowTable,
        postcondition,
        tool,
        workflow,
    )

    __version__: str

__all__ = [
    "Agent",
    "Answer",
    "ArtifactRef",
    "ChildFailed",
    "Custom",
    "Evidence",
    "OutputRefused",
    "RalphLoop",
    "Registry",
    "Retryable",
    "RunContext",
    "RunHandle",
    "RunOptions",
    "RunResult",
    "Runtime",
    "Schedule",
    "Signal",
    "Swarm",
    "ToolContext",
    "ToolFailed",
    "Worker",
    "Workflow",
    "WorkflowRun",
    "WorkflowTable",
    "__version__",
    "postcondition",
    "tool",
    "workflow",
]


if not TYPE_CHECKING:  # for a checker, a name that is not imported above does not exist

    def __getattr__(name: str) -> object:
        """Load a public name when it is first asked for."""
        if name == "__version__":
            from importlib.metadata import version

            value: object = version("foldlog")
        elif name in __all__:
            from . import runtime

            value = getattr(runtime, name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
