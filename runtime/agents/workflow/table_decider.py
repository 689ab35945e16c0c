"""A table as it runs: the outcomes of its steps in the log, and the operations that are wanted next.

Like the code of a function it is a deterministic function of the log, and may be dropped and begun again at any time.
The result of a condition is in the log: either the step has an operation, or it is skipped. So a condition is never
evaluated again for a step that the log has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from ....eventlog.errors import ConfigError, NotRegistered
from ....eventlog.events import ToldAs
from ....projections.flow_state import Ended, FlowState
from ....projections.fold.operations import code_began_at
from ....projections.run_state import RunState
from ...core.templates import Missing, Template
from ...core.workflow.facts import Ending, Fact, Skip
from ...core.workflow.places import described
from ...core.workflow.table import Outcome, Step, next_move
from ...ports.conditions import Condition, ConditionFailed
from ...ports.runnable import Runnable
from ...ports.tools import Answer, Signal
from .operations import Gather, Operation
from .program import Divergence, Progress
from .run import KnowsTools, WorkflowRun, told_itself
from .table_config import INPUT, StepConfig, TableConfig


class Tabled(KnowsTools, Protocol):
    """The table of a run. `WorkflowTable` implements it."""

    config: TableConfig
    known_agents: dict[str, Runnable[Any]]
    plan: list[Step]

    def ordered(self) -> list[StepConfig]:
        """Return the steps so that each comes after all that it needs."""
        ...

    def read_input(self, text: str) -> Any:
        """Return the input as references see it. Raises `ConfigError`."""
        ...


WHY_CHARS_MAX = 1000
"""The longest reason of a skipped step."""
ROLLBACK = "rollback#0"
"""The place at which a table that failed notes the run that rolls it back."""


class _Broken(Exception):
    """A step cannot be asked for: a reference or a condition that fails."""


class TableDecider:
    """The table of one run in this process. `go_on` as often as the log has grown."""

    def __init__(self, table: Tabled, state: RunState) -> None:
        self._table = table
        self._steps = {step.id: step for step in table.ordered()}
        """Each comes after all that it needs."""
        self.state, self.at, self.is_at_work = state, code_began_at(state), True
        self._run = WorkflowRun(self, table)
        self._flow: FlowState = _flow_of(state)
        submitted = state.submitted
        self._input = table.read_input(submitted.input if submitted is not None else "")
        self._operations: dict[str, list[Operation[Any]]] = {step: [] for step in self._steps}
        """The operations of each step, one for each time that it was tried."""
        self._skips: dict[str, Ended] = {}
        self._wanted: dict[str, Operation[Any]] = {}
        self._new: list[Fact] = []
        self.roll_back: Callable[[], Awaitable[str]] | None = None
        """Starts the rollback of the run; null where nothing is driven."""

    # --- for the driver -----------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> Mapping[str, Operation[Any]]:
        """The children that it waits for, by place."""
        return self._wanted

    @property
    def unasked(self) -> list[str]:
        """The operations that the log has and no step asks for."""
        known = {each.place for tried in self._operations.values() for each in tried}
        return [place for place in self._flow.asked if place not in known and place != ROLLBACK]

    def go_on(self, state: RunState) -> Progress:
        """Return what the table asks for after what the log has. Raises `Divergence`."""
        self.state, self._flow = state, _flow_of(state)
        end: Ending | None = None
        while True:
            found = self._outcomes()
            move = next_move(self._table.plan, found)
            for skipped in move.skip:
                self._skip(self._steps[skipped.id], skipped.why)
            for step in move.start:
                self._begin(self._steps[step])
            if move.end and (self._rollback is not None or not self._is_rolled_back(move.failed)):
                end = self._ending(move.failed)
            if end is not None or not (move.skip or move.start):
                break
        facts, self._new = tuple(self._new), []
        if len(self._flow.asked) + len(facts) > self._table.config.operations_max:
            end = Ending(error_type="operations_max", message=self._too_many())
        self._wanted = {place: each for place, each in self._wanted.items() if place not in self._flow.ended}
        started = {*self._flow.children.values()}
        idle = not any(place not in started for place in self._wanted)
        return Progress(facts, end, idle)

    def close(self) -> None:
        """Drop the table where it stands."""
        self._wanted = {}

    # --- for its operations -------------------------------------------------------------------------------------------

    @property
    def told(self) -> ToldAs:
        """The run itself: a table has no code that asks."""
        return told_itself(self.state)

    def written(self, awaitable: Operation[Any] | Gather) -> None:
        """Note nothing: what a table writes it asks for at once."""

    def mark(self, place: str, name: str, value: Any) -> Any:
        """Return the value: a table marks nothing."""
        return value

    def is_past(self, place: str) -> bool:
        """Return whether the log has operations that come after this place: a table never asks."""
        return False

    def has_mark(self, place: str) -> bool:
        """Return whether the log has a value at this place: a table marks nothing."""
        return False

    # --- steps --------------------------------------------------------------------------------------------------------

    def place_of(self, step: StepConfig) -> str:
        """Return the place of a step's first operation."""
        return f"{step.id}/{step.name}#0"

    def _outcomes(self) -> dict[str, Outcome]:
        """Return the outcome of each step so far; a failed step with attempts left is asked for again."""
        found: dict[str, Outcome] = {}
        for step in self._steps.values():
            outcome = self._outcome(step)
            if outcome is not None:
                found[step.id] = outcome
        return found

    def _outcome(self, step: StepConfig) -> Outcome | None:
        skipped = self._skipped(step)
        if skipped is not None:
            return "failed" if skipped.status == "failed" else "skipped"
        tried = self._operations[step.id]
        if not tried:
            if self.place_of(step) not in self._flow.asked:
                return None
            self._ask(step)
        while (ended := self._end_of(tried[-1])) is not None:
            if not _has_failed(step, ended):
                return "done"
            if not self._is_tried_again(step, ended) or not self._ask(step):
                return "failed"
        return "open"

    def _is_tried_again(self, step: StepConfig, ended: Ended) -> bool:
        """Return whether the step asks for another operation; the attempts of a call are those of its tool."""
        tried = len(self._operations[step.id])
        return step.kind == "agent" and ended.status == "error" and tried < step.attempts

    def _begin(self, step: StepConfig) -> None:
        """Ask for a step whose needs are done, or skip it if its condition is not met."""
        if step.when is not None:
            names = [*self._steps, INPUT]
            try:
                if not Condition(step.when, f"step {step.id}: when", names).is_met(self._values()):
                    self._skip(step, f"its condition is not met: {step.when}")
                    return
            except ConditionFailed as error:
                self._skip(step, f"its condition cannot be evaluated: {error}", failed=True)
                return
        self._ask(step)

    def _skip(self, step: StepConfig, why: str, *, failed: bool = False) -> None:
        place = self.place_of(step)
        why = why[:WHY_CHARS_MAX]  # it may quote what a condition has read
        self._skips[step.id] = Ended(status="failed" if failed else "skipped", error=why)
        self._new.append(Skip(place=place, why=why, failed=failed))

    def _ask(self, step: StepConfig) -> bool:
        """Ask for the next operation of a step; return whether it can be asked for.

        Raises `Divergence` if the log has another one.
        """
        place = f"{step.id}/{step.name}#{len(self._operations[step.id])}"
        recorded = self._flow.asked.get(place)
        try:
            operation = self._operation(step)
        except NotRegistered:
            raise
        except (_Broken, ConfigError) as error:
            if recorded is not None:
                raise Divergence(place, described(recorded), f"nothing: {error}") from None
            self._skip(step, str(error), failed=True)
            return False
        if recorded is not None and not (
            recorded.kind == operation.asked.kind
            and recorded.name == operation.asked.name
            and recorded.request == operation.asked.request
        ):
            raise Divergence(place, described(recorded), described(operation.asked))
        self._operations[step.id].append(operation)
        if operation.wanted.fact is None:
            self._wanted[place] = operation
        elif recorded is None:
            self._new.append(operation.wanted.fact)
        return True

    def _operation(self, step: StepConfig) -> Operation[Any]:
        """Return the next operation of a step. Raises `_Broken`, `ConfigError`."""
        run = self._run.step(step.id, step.rules)
        match step.kind:
            case "tool":
                return run.call(str(step.tool), **self._filled(step.arguments))
            case "agent":
                runnable = self._table.known_agents.get(str(step.agent))
                if runnable is None:
                    raise NotRegistered(f"there is no agent {step.agent!r} in this process")
                return run.agent(runnable, self._filled(step.input))
            case "ask":
                return run.ask(_text(self._filled(step.ask)), step.schema_)
            case "wait":
                return run.wait_for(str(step.wait), schema=step.schema_, timeout_s=step.timeout_s)
            case _:
                return run.sleep(**_time(self._filled(step.sleep)))

    # --- values -------------------------------------------------------------------------------------------------------

    def _filled(self, value: Any) -> Any:
        """Return JSON with its references filled in. Raises `_Broken` for one without a value."""
        return filled(value, self._values())

    def _values(self) -> dict[str, Any]:
        """Return the values for references and conditions: the input, and the outcome of each finished step."""
        values: dict[str, Any] = {INPUT: self._input}
        for step in self._steps.values():
            ended = self._skipped(step)
            if ended is not None:
                values[step.id] = {
                    "status": "error" if ended.status == "failed" else "skipped",
                    "error": ended.error,
                }
                continue
            tried = self._operations[step.id]
            last = self._end_of(tried[-1]) if tried else None
            if last is not None:
                values[step.id] = _value(step, tried[-1], last)
        return values

    def _ending(self, failed: tuple[str, ...]) -> Ending:
        if failed:
            why = f"step {failed[0]!r} failed: {self._why(failed[0])}{_rolled_back(self._rollback)}"
            return Ending(error_type="workflow_failed", message=why)
        values = self._values()
        for step in self._steps.values():
            if values[step.id]["status"] == "skipped":
                values[step.id] = None
        try:
            value = filled(self._table.config.output, values, below_null=True)
        except _Broken as error:
            return Ending(error_type="workflow_failed", message=f"output: {error}")
        if value is None:
            return Ending(output="")
        return Ending(output=_text(value))

    def _is_rolled_back(self, failed: tuple[str, ...]) -> bool:
        """Ask for the rollback of the run, if a step that failed says so; return whether it does."""
        if not any(self._steps[step].on_error == "rollback" for step in failed):
            return False
        if ROLLBACK not in self._wanted:
            self._wanted[ROLLBACK] = self._run.memo("rollback", self._start_rollback)
        return True

    @property
    def _rollback(self) -> Ended | None:
        """The outcome of the rollback's start; null while there is none."""
        return self._flow.ended.get(ROLLBACK)

    async def _start_rollback(self) -> str:
        """Start the rollback; return its run, empty if there is nothing to roll back. Raises `FoldlogError`."""
        if self.roll_back is None:
            raise ConfigError("the process that drives it starts no rollbacks: use foldlog rollback")
        return await self.roll_back()

    def _why(self, step: str) -> str:
        value = self._values().get(step, {})
        return str(value.get("error") or value.get("status"))

    def _skipped(self, step: StepConfig) -> Ended | None:
        return self._flow.skipped.get(self.place_of(step)) or self._skips.get(step.id)

    def _end_of(self, operation: Operation[Any]) -> Ended | None:
        return self._flow.ended.get(operation.place)

    def _too_many(self) -> str:
        return f"the workflow asks for more than {self._table.config.operations_max:,} operations (operations_max)"


def filled(value: Any, values: Mapping[str, Any], *, below_null: bool = False) -> Any:
    """Return JSON with its references filled in from `values`. Raises `_Broken` for one without a value.

    `below_null`: a reference into a step whose value is null is null, too, and the rest of its text is kept.
    """
    match value:
        case str():
            template = Template(value, "", None)
            null = [name for name, held in values.items() if held is None] if below_null else []
            try:
                return template.value(values, null=null)
            except Missing as error:
                raise _Broken(f"there is no {error.path}") from None
        case Mapping():
            return {key: filled(each, values, below_null=below_null) for key, each in value.items()}
        case list() | tuple():
            return [filled(each, values, below_null=below_null) for each in value]
        case _:
            return value


def _rolled_back(started: Ended | None) -> str:
    if started is None:
        return ""
    if started.status != "success":
        return f"; its rollback could not be started: {started.error}"
    return "; its rollback was started" if started.value else "; nothing had to be rolled back"


def _has_failed(step: StepConfig, ended: Ended) -> bool:
    match step.kind:
        case "ask":
            return step.approval is not None and ended.status != "approved"
        case "wait" | "sleep":
            return ended.status == "cancelled"
        case _:
            return ended.status != "success"


def _value(step: StepConfig, operation: Operation[Any], ended: Ended) -> dict[str, Any]:
    """Return the value of a finished step, as references see it."""
    if _has_failed(step, ended):
        error = ended.error or (f"the answer was no: {ended.note}" if ended.note else ended.status)
        return {"status": ended.status, "error": error}
    if step.kind == "agent":
        return {"status": ended.status, "result": _of_child(operation, ended)}
    value = operation.value(ended)
    match value:
        case Answer():
            answer = {
                "accepted": value.accepted,
                "content": value.content,
                "note": value.note,
                "by": value.by,
            }
            return {"status": ended.status, "result": answer}
        case Signal():
            return {"status": ended.status, "result": value.data, "key": value.key, "by": value.by}
        case _:
            return {"status": ended.status, "result": value}


def _of_child(operation: Operation[Any], ended: Ended) -> Any:
    """Return the output of a child as JSON: text, or the value of an agent with an output type."""
    text = ended.value or ""
    runnable = operation.wanted.runnable
    if runnable is None or runnable.output_type is None:
        return text
    return msgspec.json.decode(text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _time(value: Any) -> dict[str, Any]:
    """Return the arguments of a sleep. Raises `_Broken`."""
    match value:
        case bool() | None:
            pass
        case int() | float():
            return {"seconds": float(value)}
        case str():
            return {"until": _moment(value)}
        case {"until": str() as text}:
            return {"until": _moment(text)}
        case dict() if value and all(
            isinstance(each, (int, float)) and not isinstance(each, bool) for each in value.values()
        ):
            return {name: float(each) for name, each in value.items()}
        case _:
            pass
    raise _Broken(f"sleep takes seconds, a time or a table of these, not {value!r:.60}")


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _Broken(f"sleep ends at a time such as 2026-03-01T12:00+00:00, not {text!r:.60}") from None
    if found.tzinfo is None:
        raise _Broken(f"sleep ends at a time with a time zone, not {text!r:.60}")
    return found


def _flow_of(state: RunState) -> FlowState:
    assert state.flow is not None  # noqa: S101 - only a workflow has a decider
    return state.flow
