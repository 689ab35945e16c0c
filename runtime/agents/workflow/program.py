"""The code of a workflow at work: it is run by hand, from one operation to the next, over the outcomes of its log.

A program is a deterministic function of the log: it begins at the code's beginning, and gets the outcomes of its
operations one by one, in log order. After each it goes on until every branch waits again; what it asks for on the
way is matched with what the log has, and the rest is new. So a worker that goes on with a run, after a crash or a wait
of weeks, has the same code at the same point, and a program that lives on between two turns is only a saving.

The code is not a task of the event loop: it awaits operations, gathers and races, and anything else is refused, since
the log would not have what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ....eventlog.errors import OperationFailed
from ....eventlog.events import ToldAs
from ....projections.flow_state import Asked, Ended, FlowState
from ....projections.fold.operations import code_began_at
from ....projections.run_state import RunState
from ...core.workflow.facts import Choose, Ending, Fact, Mark
from ...core.workflow.places import described, related
from ...ports.json_values import bounded
from ...ports.tools import in_a_line
from .operations import FOREIGN, Gather, Operation
from .run import told_itself

Main = Callable[["Program"], Coroutine[Any, Any, str]]


class Divergence(Exception):
    """The code does not fit the log at a place."""

    def __init__(self, place: str, recorded: str, asked: str) -> None:
        super().__init__(
            f"{place}: the log has {recorded or 'nothing'}, the code asks for {asked or 'nothing'}"
        )
        self.place, self.recorded, self.asked = place, recorded, asked


class Progress(msgspec.Struct, frozen=True):
    """The progress of the code: the operations that it asks for now, and its end. `idle` as in `CodeAdvanced`."""

    facts: tuple[Fact, ...] = ()
    end: Ending | None = None
    idle: bool = False


class _Strand:
    """One coroutine of the code: the workflow itself, or a branch."""

    __slots__ = ("code", "index", "join", "prefix")

    def __init__(
        self, code: Coroutine[Any, Any, Any], join: _Join | None = None, index: int = 0, prefix: str = ""
    ) -> None:
        self.code, self.join, self.index, self.prefix = code, join, index, prefix


class _Join:
    """A gather or a race that a strand waits for."""

    __slots__ = ("draining", "gather", "left", "results", "waiting", "won")

    def __init__(self, gather: Gather, waiting: _Strand) -> None:
        self.gather, self.waiting = gather, waiting
        self.results: dict[int, tuple[Any, BaseException | None]] = {}
        self.left = len(gather.branches)
        self.won: int | None = None
        self.draining: set[str] = set()
        """Operations of branches that lost, which still have to end."""


class _Arm(NamedTuple):
    """An operation that is a branch of its own: the `number`-th of its gather or race."""

    join: _Join
    number: int


class _Drain(NamedTuple):
    """A race that waits for the end of an operation whose branch lost."""

    join: _Join


class Program:
    """The code of one run in this process. `go_on` as often as the log has grown."""

    def __init__(self, state: RunState, main: Main, *, operations_max: int) -> None:
        flow = _flow_of(state)
        self.state, self.at, self.is_at_work = state, code_began_at(state), False
        self._wanted: dict[str, Operation[Any]] = {}
        self._flow, self._main, self._max = flow, main, operations_max
        self._begun = False
        self._cursor = 0
        self._given: set[str] = set()
        self._unseen = dict.fromkeys(flow.asked)
        self._waiting: dict[str, list[_Strand | _Arm | _Drain]] = {}
        """The parts of the code that go on with the end of an operation, by its place."""
        self._operations: dict[str, Operation[Any]] = {}
        """The operations that are waited for, by place."""
        self._unawaited: dict[int, Operation[Any] | Gather] = {}
        self._ready: deque[tuple[_Strand, Any, BaseException | None]] = deque()
        self._strands: set[_Strand] = set()
        self._new: list[Fact] = []
        self._fresh: list[Operation[Any]] = []
        """The operations asked for since the last check, which the log does not have."""
        self._end: Ending | None = None

    @property
    def wanted(self) -> Mapping[str, Operation[Any]]:
        """The children, values and callbacks that the code waits for, by place."""
        return self._wanted

    @property
    def unasked(self) -> list[str]:
        """The operations that the log has and the code did not ask for, but for those that lost a race."""
        self._forget_lost()
        return list(self._unseen)

    # --- for the driver -----------------------------------------------------------------------------------------------

    def go_on(self, state: RunState) -> Progress:
        """Feed the code the outcomes that are new in the log, and return what it asks for. Raises `Divergence`."""
        flow = self._flow = _flow_of(state)
        self.state = state
        if not self._begun:
            self._begun = True
            self._start(_Strand(self._main(self)))
        while self._cursor < len(flow.order) and self._end is None:
            place = flow.order[self._cursor]
            self._cursor += 1
            self._given.add(place)
            self._give(place, flow.ended[place])
        self._check_new()
        if self._end is not None:
            self._check_end()
        facts, self._new = tuple(self._new), []
        started = {*flow.children.values()}
        idle = not any(place not in started and not _is_told(state, place) for place in self._wanted)
        return Progress(facts, self._end, idle)

    def close(self) -> None:
        """Drop the code where it stands."""
        for strand in self._strands:
            _close(strand.code)
        self._strands.clear()
        self._unawaited.clear()

    # --- for the code -------------------------------------------------------------------------------------------------

    @property
    def told(self) -> ToldAs:
        """The run whose id the code sees as its own: in a fork, the original's, over the history that both share."""
        return _told(self.state, self._cursor)

    def written(self, awaitable: Operation[Any] | Gather) -> None:
        """Note an awaitable of the run: the code must await it before it ends."""
        self._unawaited[id(awaitable)] = awaitable

    def mark(self, place: str, name: str, value: Any) -> Any:
        """Return the value that the log has at this place; without one, store `value` and return it."""
        if place in self._flow.marks:
            return self._flow.marks[place]
        self._new.append(Mark(place=place, name=name, value=value))
        return value

    def is_past(self, place: str) -> bool:
        """Return whether the log has operations that come after this place."""
        self._forget_lost()
        return any(related(place, other) for other in self._unseen)

    def has_mark(self, place: str) -> bool:
        """Return whether the log has a value at this place."""
        return place in self._flow.marks or any(isinstance(f, Mark) and f.place == place for f in self._new)

    # --- strands ------------------------------------------------------------------------------------------------------

    def _start(self, strand: _Strand) -> None:
        self._strands.add(strand)
        self._ready.append((strand, None, None))
        self._run_ready()

    def _run_ready(self) -> None:
        self.is_at_work = True
        try:
            with _outside_of_tasks():
                while self._ready and self._end is None:
                    strand, value, error = self._ready.popleft()
                    if strand in self._strands:
                        self._step(strand, value, error)
        finally:
            self.is_at_work = False

    def _step(self, strand: _Strand, value: Any, error: BaseException | None) -> None:
        """Run a strand up to its next wait for an outcome that the log does not have."""
        while True:
            try:
                asked = strand.code.throw(error) if error is not None else strand.code.send(value)
            except StopIteration as stop:
                self._strands.discard(strand)
                self._ended(strand, stop.value, None)
                return
            except (Divergence, KeyboardInterrupt):
                raise
            except BaseException as failure:  # noqa: BLE001 - the code of users may raise anything
                self._strands.discard(strand)
                self._ended(strand, None, failure)
                return
            value, error = None, None
            if isinstance(asked, Operation):
                self._unawaited.pop(id(asked), None)
                ended = self._ask(asked, strand)
                if ended is None:
                    return
                value = ended
            elif isinstance(asked, Gather):
                self._unawaited.pop(id(asked), None)
                self._fan_out(asked, strand)
                return
            elif asked is not None:
                error = RuntimeError(FOREIGN)

    def _ask(self, operation: Operation[Any], waiting: _Strand | _Arm) -> Ended | None:
        """Ask for an operation; return its end if the code has it already. Raises `Divergence`."""
        place, flow = operation.place, self._flow
        recorded = flow.asked.get(place)
        if place in self._waiting:  # asked for before, and awaited twice at once
            self._waiting[place].append(waiting)
            return None
        if recorded is not None:
            if not _same(recorded, operation.asked):
                raise Divergence(place, described(recorded), described(operation.asked))
            self._unseen.pop(place, None)
            if place in self._given:
                return flow.ended[place]
        else:
            self._fresh.append(operation)
            if operation.wanted.fact is not None:
                self._new.append(operation.wanted.fact)
            if len(flow.asked) + len(self._fresh) > self._max:
                message = f"the workflow asks for more than {self._max:,} operations (operations_max)"
                self._end = Ending(error_type="operations_max", message=message)
        has_effect = operation.wanted.fact is None or operation.wanted.make is not None
        if has_effect and place not in flow.ended:
            self._wanted[place] = operation
        self._waiting[place], self._operations[place] = [waiting], operation
        return None

    def _give(self, place: str, ended: Ended) -> None:
        """Give the code the end of an operation, and let it go on."""
        self.at = ended.at
        self._wanted.pop(place, None)
        operation = self._operations.pop(place, None)
        for waiting in self._waiting.pop(place, ()):
            match waiting:
                case _Drain(join):
                    join.draining.discard(place)
                    self._leave(join)
                case _Arm(join, number) if operation is not None:
                    self._branch_ended(join, number, *_outcome(operation, ended))
                case _Strand():
                    self._ready.append((waiting, ended, None))
                case _:
                    pass
        self._run_ready()

    def _fan_out(self, gather: Gather, strand: _Strand) -> None:
        join = _Join(gather, strand)
        if not gather.branches:
            self._ready.append((strand, [], None))
            return
        for index, branch in gather.branches.items():
            if isinstance(branch, Operation):
                self._unawaited.pop(id(branch), None)
                ended = self._ask(branch, _Arm(join, index))
                if ended is not None:
                    self._branch_ended(join, index, *_outcome(branch, ended))
            else:
                prefix = f"{gather.place}.{index}/"
                own = _Strand(branch, join, index, prefix)
                self._strands.add(own)
                self._ready.append((own, None, None))

    def _ended(self, strand: _Strand, value: Any, error: BaseException | None) -> None:
        if strand.join is not None:
            self._branch_ended(strand.join, strand.index, value, error)
        elif error is None:
            self._end = Ending(output=value)
        else:
            self._end = Ending(error_type="workflow_failed", message=bounded(_explained(error)))

    def _branch_ended(self, join: _Join, index: int, value: Any, error: BaseException | None) -> None:
        """Note the end of a branch. A gather ends with its last branch, a race with its first."""
        join.results[index] = value, error
        join.left -= 1
        if not join.gather.is_race:
            self._leave(join)
            return
        recorded = self._flow.chosen.get(join.gather.place)
        if join.won is None and recorded in {None, index}:
            self._choose(join, index)

    def _choose(self, join: _Join, index: int) -> None:
        """End a race: stop the branches that lost, and wait for the end of their operations in the log."""
        join.won = index
        place, lost = join.gather.place, list[str]()
        for number, branch in join.gather.branches.items():
            if number == index:
                continue
            direct = isinstance(branch, Operation)
            lost.append(branch.place if direct else f"{place}.{number}/")
            self._drop(lost[-1], join)
        self._unawaited = {key: each for key, each in self._unawaited.items() if not _is_at(each.place, lost)}
        if place not in self._flow.chosen:
            self._new.append(Choose(place=place, index=index, lost=tuple(lost)))
        self._leave(join)

    def _drop(self, where: str, join: _Join) -> None:
        """End the strands at or below a branch, and withdraw their operations that the log does not have."""
        for strand in [each for each in self._strands if each.prefix and _is_at(each.prefix, [where])]:
            self._strands.discard(strand)
            _close(strand.code)
        for place in [each for each in self._waiting if _is_at(each, [where])]:
            operation, others = self._operations.get(place), list[_Strand | _Arm | _Drain]()
            if place == where:  # an operation of its own, which others may wait for, too
                others = [
                    each
                    for each in self._waiting[place]
                    if not (isinstance(each, _Arm) and each.join is join)
                ]
            if place in self._flow.asked:
                self._waiting[place] = [*others, _Drain(join)]
                join.draining.add(place)
            elif others:
                self._waiting[place] = others
            else:
                self._waiting.pop(place)
                self._operations.pop(place, None)
                self._wanted.pop(place, None)
                self._fresh = [each for each in self._fresh if each is not operation]
        kept = {*self._flow.asked, *self._waiting}
        self._new = [fact for fact in self._new if not _is_at(fact.place, [where]) or fact.place in kept]

    def _leave(self, join: _Join) -> None:
        """Continue the code after a gather or a race, once none of its branches runs any more."""
        if join.gather.is_race:
            if join.won is None or join.draining:
                return
            value, error = join.results[join.won]
            self._ready.append((join.waiting, (join.won, value), error))
        elif join.left == 0:
            results = [join.results[index] for index in sorted(join.results)]
            failed = next((error for _, error in results if error is not None), None)
            self._ready.append((join.waiting, [value for value, _ in results], failed))

    # --- checks -------------------------------------------------------------------------------------------------------

    def _forget_lost(self) -> None:
        if self._unseen:
            self._unseen = {place: None for place in self._unseen if not self._flow.has_lost(place)}

    def _check_new(self) -> None:
        """Raise `Divergence` for a new operation before one of the log that the code never asked for."""
        fresh, self._fresh = self._fresh, []
        if not self._unseen or not fresh:
            return
        self._forget_lost()
        for operation in fresh:
            for place in self._unseen:
                if related(place, operation.place):
                    raise Divergence(place, described(self._flow.asked[place]), described_new(operation))

    def _check_end(self) -> None:
        assert self._end is not None  # noqa: S101 - for the type checker
        self._forget_lost()
        if self._end.error_type == "operations_max":
            return
        for place in self._unseen:
            raise Divergence(place, described(self._flow.asked[place]), "")
        if not self._end.error_type and self._unawaited:
            named = ", ".join(dict.fromkeys(each.place for each in self._unawaited.values()))
            self._end = Ending(error_type="workflow_failed", message=f"never awaited: {named}")


@contextlib.contextmanager
def _outside_of_tasks() -> Iterator[None]:
    """Run code outside of any task, so that `asyncio.timeout` raises instead of cancelling the driver's task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        task = None
    if task is None:
        yield
        return
    loop = task.get_loop()
    asyncio.tasks._leave_task(loop, task)  # noqa: SLF001 - for those who run coroutines themselves, as asyncio's docs say
    try:
        yield
    finally:
        asyncio.tasks._enter_task(loop, task)  # noqa: SLF001


def _told(state: RunState, given: int) -> ToldAs:
    """Return the run whose id the code sees as its own after `given` outcomes."""
    fork = state.submitted.fork if state.submitted is not None else None
    shared = fork.code.told if fork is not None and fork.code is not None else ()
    return next((each for each in shared if given < each.ends), told_itself(state))


def _is_told(state: RunState, place: str) -> bool:
    return place in state.calls and bool(state.calls[place].memos)


def described_new(operation: Operation[Any]) -> str:
    """Return an operation that the log does not have, as text, with its place."""
    return f"{operation.place}: {described(operation.asked)}"


def _flow_of(state: RunState) -> FlowState:
    assert state.flow is not None  # noqa: S101 - only a workflow has a program
    return state.flow


def _same(recorded: Asked, asked: Asked) -> bool:
    return (
        recorded.kind == asked.kind
        and recorded.name == asked.name
        and (asked.kind == "memo" or recorded.request == asked.request)
    )


def _is_at(place: str, where: Iterable[str]) -> bool:
    """Return whether a place, or the prefix of a branch, is in `where`, or below a branch that is."""
    return any(place == each or (each.endswith("/") and place.startswith(each)) for each in where)


def _outcome(operation: Operation[Any], ended: Ended) -> tuple[Any, BaseException | None]:
    try:
        return operation.value(ended), None
    except Exception as error:  # noqa: BLE001 - the conversion of an output may be code of users
        return None, error


def _explained(error: BaseException) -> str:
    return str(error) if isinstance(error, OperationFailed) else in_a_line(error)


def _close(code: Coroutine[Any, Any, Any]) -> None:
    """End a coroutine, and ignore its errors, such as that it awaits while it is being closed."""
    try:
        code.close()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
