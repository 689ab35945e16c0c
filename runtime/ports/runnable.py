"""The port of runnables: agents, and what coordinates other runnables. All of them start, stream and end alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeGuard

from typing_extensions import TypeVar

OutputT_co = TypeVar("OutputT_co", covariant=True, default=Any)
DepsT_contra = TypeVar("DepsT_contra", contravariant=True, default=Any)
DepsT_co = TypeVar("DepsT_co", covariant=True, default=Any)
DepsT = TypeVar("DepsT", default=Any)


class Runnable(Protocol[OutputT_co, DepsT_contra]):
    """A named thing that a run executes, by its output and by the dependencies that its code takes.

    `kind` selects the part of the core that decides for its runs: `agent`, or the name of a coordinator
    (`coordination.py`).
    """

    @property
    def name(self) -> str:
        """The name: the run's agent, and the last part of its agent path."""
        ...

    @property
    def kind(self) -> str:
        """The kind of its runs: agent, swarm, ralph."""
        ...

    @property
    def members(self) -> Mapping[str, Runnable[Any]]:
        """The runnables that its runs start as children without a tool call, by name; none for an agent."""
        ...

    @property
    def functions(self) -> frozenset[str]:
        """The names of the functions that `evaluate` can call in this process."""
        ...

    @property
    def output_type(self) -> Any:
        """The type that `parse_output` returns; null for text."""
        ...

    def parse_output(self, value: Any) -> OutputT_co:
        """Return the output (JSON builtins) as `output_type`. Raises `ValueError`."""
        ...

    def check_deps(self, deps: DepsT_contra) -> None:
        """Raise `ConfigError` if the opened dependencies are not of the type that its own code takes."""
        ...

    def to_config(self) -> dict[str, Any]:
        """Return the configuration as JSON builtins."""
        ...

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that an executor needs for it, without those for its members (R20)."""
        ...

    async def evaluate(self, name: str, argument: str) -> Any:
        """Call a function that the configuration names (a predicate, a scorer); its result, JSON, is stored."""
        ...


_MEMBERS = tuple(name for name in vars(Runnable) if not name.startswith("_"))


def is_runnable(given: Any) -> TypeGuard[Runnable[Any]]:
    """Return whether it is a runnable object, not a class of such objects.

    Equivalent to `isinstance` with the protocol, in a tenth of the time.
    """
    return not isinstance(given, type) and all(hasattr(given, name) for name in _MEMBERS)


def all_members(runnable: Runnable[Any]) -> Iterator[Runnable[Any]]:
    """Yield the runnable and all below it, each before its members."""
    yield runnable
    for member in runnable.members.values():
        yield from all_members(member)
