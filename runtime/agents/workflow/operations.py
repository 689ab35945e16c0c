"""Operations as the code of a workflow asks for them: awaitables that the workflow's program ends."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol

from typing_extensions import TypeVar

from ....eventlog.errors import OperationFailed
from ....projections.flow_state import Asked, Ended
from ...core.workflow.facts import AskPerson, AskTool, AskWait
from ...ports.runnable import Runnable

if TYPE_CHECKING:
    from ...tools.context import ChildOptions


class Program(Protocol):
    """The runner of the code: `program.Program`."""

    is_at_work: bool

    def written(self, awaitable: Operation[Any] | Gather) -> None:
        """Note an awaitable of the run."""
        ...


T = TypeVar("T", default=Any)

FOREIGN = (
    "a workflow awaits only what its run gives: use run.gather for branches, and put input and output into a tool or "
    "into run.memo"
)
"""The message to code that awaits something whose outcome the log does not have."""


class Wanted:
    """The content of an operation besides its identity: one of the fields, by its kind; a callback has two."""

    __slots__ = ("fact", "make", "options", "runnable", "text")

    def __init__(
        self,
        *,
        fact: AskTool | AskWait | AskPerson | None = None,
        runnable: Runnable[Any] | None = None,
        text: str = "",
        options: ChildOptions | None = None,
        make: Callable[..., Any] | None = None,
    ) -> None:
        self.fact, self.runnable, self.text, self.options, self.make = fact, runnable, text, options, make


class Operation(Generic[T]):
    """An operation that was written; await it to have it done. Awaited again, it gives the same."""

    __slots__ = ("_convert", "_ended", "_program", "asked", "place", "wanted")

    def __init__(
        self,
        program: Program,
        place: str,
        asked: Asked,
        wanted: Wanted,
        convert: Callable[[Ended], T],
    ) -> None:
        self._program, self._convert = program, convert
        self._ended: Ended | None = None
        self.place, self.asked, self.wanted = place, asked, wanted
        program.written(self)

    def __repr__(self) -> str:
        return f"<operation {self.place}>"

    def __await__(self) -> Generator[Operation[T], Ended, T]:
        if not self._program.is_at_work:
            raise RuntimeError(f"{self.place}: {FOREIGN}")
        if self._ended is None:
            self._ended = yield self
        return self.value(self._ended)

    def value(self, ended: Ended) -> T:
        """Return what the code gets. Raises `OperationFailed`."""
        return self._convert(ended)


def result_of(place: str) -> Callable[[Ended], Any]:
    """Return the conversion of a tool's result or of a memo: the value, or `OperationFailed`."""

    def convert(ended: Ended) -> Any:
        if ended.status == "success":
            return copied(ended.value)
        raise OperationFailed(place, ended.status, ended.error)

    return convert


def copied(value: Any) -> Any:
    """Return JSON that the code may change without changing the state of the run."""
    match value:
        case dict():
            return {name: copied(each) for name, each in value.items()}
        case list():
            return [copied(each) for each in value]
        case _:
            return value


def output_of(place: str, runnable: Runnable[Any], decode: Callable[[str], Any]) -> Callable[[Ended], Any]:
    """Return the conversion of a child run's output: text, or the value of its `output_type`."""

    def convert(ended: Ended) -> Any:
        if ended.status != "success":
            raise OperationFailed(place, ended.status, ended.error or "the child run was cancelled")
        text = ended.value or ""
        return text if runnable.output_type is None else runnable.parse_output(decode(text))

    return convert


class Gather:
    """Branches that run at once, all of which are waited for (`WorkflowRun.gather`)."""

    __slots__ = ("_program", "branches", "is_race", "place")

    def __init__(self, program: Program, place: str, branches: Mapping[int, Any], *, is_race: bool) -> None:
        self._program = program
        self.place, self.branches, self.is_race = place, branches, is_race
        program.written(self)

    def __repr__(self) -> str:
        return f"<{'first' if self.is_race else 'gather'} {self.place}>"

    def __await__(self) -> Generator[Gather, Any, Any]:
        if not self._program.is_at_work:
            raise RuntimeError(f"{self.place}: {FOREIGN}")
        outcome = yield self
        return outcome
