"""Parity: run the same agent on several executors, with the same inputs at the same places, and compare the traces.

    report = await check_parity(agent, "question", script="script.json", faults="crash@20")
    assert report.equal, report.render()

The first executor's trace is the reference: its external inputs are repeated on the others at the same logical places
(R24). Each trace is also checked by itself: by the ordering rules, and by the number of times that the tool of each
call was really started.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import msgspec

from ...eventlog.errors import ConfigError, UnsupportedByExecutor
from ...eventlog.events import (
    ApprovalRequested,
    ApprovalResolved,
    ChildStarted,
    Claimed,
    Error,
    Event,
    McpProgress,
    Prepared,
    ToolAttemptFailed,
    ToolCall,
    ToolResult,
    WaitStarted,
    is_terminal,
)
from ...eventlog.faults import Fault
from ...eventlog.memory import MemoryLog
from ...eventlog.ports import Log
from ...runtime import Executor, Registry
from ...runtime.driving.host import Host
from ...runtime.executors.installed import ExecutorFactory, executor_factory
from ...runtime.ports.executor import require
from ...runtime.ports.files import Content
from ...runtime.ports.runnable import Runnable, all_members
from ..canonical.canonical import Boundary, canonical
from ..canonical.structure import Ignored
from ..ordering.comparison import Compared, Comparison, Difference, compare, is_prefix
from ..ordering.monitor import check_trace
from ..ordering.rule_texts import explain
from ..traces.trace import Trace
from .casts import CountedRegistry
from .fault_spec import FaultsLike, describe, parse_faults
from .inputs import (
    EVERY,
    Answer,
    Cancel,
    Input,
    Inputs,
    Message,
    Pause,
    features_of,
    inputs_of,
    parse_inputs,
    without_cancels,
)
from .live import as_stored
from .scripts import Script, ScriptFiles, ScriptLike, StageModel, check_plans, read_script
from .stage import Case, ForkOf, Played, hands_to_workers, play

ExecutorLike = str | ExecutorFactory
"""The name of an executor, or a factory that makes one from a `Host`."""
InputsLike = Iterable[Input | Mapping[str, Any]] | Trace | None
"""Inputs, the same as JSON objects, or a trace to take them from."""


class Finding(msgspec.Struct, frozen=True):
    """A defect of one trace by itself: the executor, the rule of the contract that it breaks, and a message."""

    executor: str
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.executor}: {self.rule}: {self.message}"


class Pairing(msgspec.Struct, frozen=True):
    """The comparison of two executors.

    `cancelled`: the right run was cancelled, and is compared as a prefix. `undoing`: the rollbacks of the runs are
    compared.
    """

    left: str
    right: str
    comparison: Comparison
    cancelled: bool = False
    undoing: bool = False


class ParityReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. `traces` are by executor, `faults` those planned, `fired` those that happened.

    `rollbacks` are the traces of the rollbacks, by executor, if the runs were rolled back.
    """

    pairings: tuple[Pairing, ...]
    findings: tuple[Finding, ...] = ()
    traces: Mapping[str, Trace] = {}
    rollbacks: Mapping[str, Trace] = {}
    inputs: Inputs = ()
    faults: tuple[Fault, ...] = ()
    fired: tuple[Fault, ...] = ()

    @property
    def equal(self) -> bool:
        """True if all traces are equal and none of them breaks a rule."""
        return not self.findings and all(pairing.comparison.equal for pairing in self.pairings)

    @property
    def boundaries(self) -> tuple[int, int]:
        """The numbers of equal boundaries and of all, in the first pairing that differs, otherwise in the last."""
        chosen = self._worst
        return chosen.comparison.boundaries if chosen is not None else (0, 0)

    @property
    def first_difference(self) -> Difference | None:
        """The first difference of the first pairing that differs."""
        chosen = self._worst
        return chosen.comparison.first_difference if chosen is not None else None

    @property
    def failure(self) -> str:
        """The error with which the run ended on the first executor; empty if it did not fail."""
        trace = next(iter(self.traces.values()), None)
        own = [each for each in trace.events if each.run_id == trace.root] if trace is not None else []
        errors = [f"{each.error_type}: {each.error}" for each in own if isinstance(each, Error)]
        return errors[-1] if errors else ""

    @property
    def rules(self) -> frozenset[str]:
        """The rules named by the differences and the findings."""
        parted = (pairing.comparison.first_difference for pairing in self.pairings)
        return frozenset({found.rule for found in self.findings} | {each.rule for each in parted if each})

    @property
    def _worst(self) -> Pairing | None:
        differing = (pairing for pairing in self.pairings if not pairing.comparison.equal)
        return next(differing, self.pairings[-1] if self.pairings else None)

    def render(self) -> str:
        """Return the report as text without a final newline; one line if all is well."""
        return "\n".join(_lines(self))


class ParityViolation(AssertionError):
    """Executors differ, or one breaks a rule. Attribute: `report`."""

    def __init__(self, report: ParityReport) -> None:
        super().__init__(report.render())
        self.report = report


class ParityOptions(TypedDict, total=False):
    """The optional arguments of `check_parity`."""

    executors: Sequence[ExecutorLike]
    faults: FaultsLike
    inputs: InputsLike
    log: Log | None
    shape: bool
    ignore: Collection[Ignored]
    registry: Registry | None
    messages: Sequence[Mapping[str, Any]]
    metadata: Mapping[str, Any]
    fork: ForkOf | None
    rollback: bool
    timeout_s: float


async def assert_parity(
    runnable: Runnable[Any],
    input: Content | None = None,  # noqa: A002 - as in `start`
    *,
    script: ScriptLike,
    **options: Unpack[ParityOptions],
) -> ParityReport:
    """Run `check_parity`, and raise `ParityViolation` with the rendered report unless all traces are equal."""
    report = await check_parity(runnable, input, script=script, **options)
    if not report.equal:
        raise ParityViolation(report)
    return report


async def check_parity(  # noqa: PLR0913 - all but two have defaults, and are named at the call
    runnable: Runnable[Any],
    input: Content | None = None,  # noqa: A002 - as in `start`
    *,
    script: ScriptLike,
    executors: Sequence[ExecutorLike] = ("local", "durable"),
    faults: FaultsLike = None,
    inputs: InputsLike = None,
    log: Log | None = None,
    shape: bool = False,
    ignore: Collection[Ignored] = (),
    registry: Registry | None = None,
    messages: Sequence[Mapping[str, Any]] = (),
    metadata: Mapping[str, Any] = MappingProxyType({}),
    fork: ForkOf | None = None,
    rollback: bool = False,
    timeout_s: float = 60.0,
) -> ParityReport:
    """Run an agent on each executor with the model of `script`, and compare the traces.

    - `input` is a text, a `File`, or a list of both; a text may be in the script instead.
    - `executors`: names (entry points `foldlog.executors`) or factories that take a `Host`; the first is the reference.
    - `faults`: text (`crash@20,lost-ack@7,duplicate`) or faults of `foldlog.eventlog.faults`, for the log of the worker
      that serves the durable side; if it dies, another one takes over.
    - `inputs`: external inputs; a run with a `Cancel` among them is compared as a prefix of a complete one.
    - `log`: default a new `MemoryLog`; no other worker may serve the agent there.
    - `shape`: compare only types and places, for tools that are not deterministic.
    - `ignore`: counts in which a real provider differs each time (see `canonical`).
    - `registry`: has the agent's tools and the agents that it runs.
    - `messages` and `metadata`: as in `start`.
    - `fork`: a run in `log` that is forked on each executor instead of starting a new one; its inputs may be answers
      and cancels.
    - `rollback`: after the run's end, roll it back on the same executor, and compare the rollbacks, too. The faults
      also apply to the worker of the rollback, and `inputs` include the answers to its approvals. Calls that ran in
      parallel are undone in the order of their results, which may differ.
    - `timeout_s`: bounds each run, in seconds.

    Raises `ConfigError` for a check that is not possible, and `UnsupportedByExecutor` for an executor that lacks a
    capability which the agent, the inputs or the reference trace need; nothing is skipped silently.
    """
    read = read_script(script)
    planned, given = parse_faults(faults), _inputs(inputs, read)
    asked = input if input is not None else read.input
    if asked is None:
        raise ConfigError(f"{read.source} has no `input`, and no other one is given")
    more: dict[str, Any] = {"messages": tuple(map(dict, messages)), "metadata": dict(metadata), "fork": fork}
    with staged(runnable, asked, read, log=log, registry=registry, timeout_s=timeout_s, **more) as case:
        needed = frozenset({"drafts"}) if read.streams else frozenset()
        check = _Check(
            case, [_Contestant(each) for each in executors], planned, needed, shape=shape, ignore=ignore
        )
        return await check.run(given, rolls_back=rollback)


@contextlib.contextmanager
def staged(
    runnable: Runnable[Any],
    input: Content,  # noqa: A002 - as in `start`
    script: Script,
    *,
    log: Log | None,
    registry: Registry | None = None,
    **fields: Any,
) -> Iterator[Case]:
    """Provide the case of a runnable whose models are the script; `fields` are further fields of `Case`.

    The script's files are removed with the context. Raises `ConfigError` for an invalid turn.
    """
    with tempfile.TemporaryDirectory(prefix="foldlog-parity-") as directory:
        files = ScriptFiles(script, runnable.name, Path(directory))
        files.check()
        if log is None:
            check_plans(script, runnable)
        yield Case(
            agent=runnable,
            input=input,
            registry=lambda called: CountedRegistry(runnable, registry, StageModel(files, called)),
            log=log if log is not None else MemoryLog(),
            plans=script.plans,
            **fields,
        )


def _inputs(inputs: InputsLike, script: Script) -> Inputs:
    if inputs is None:
        return script.inputs
    if isinstance(inputs, Trace):
        return inputs_of(inputs)
    return parse_inputs([msgspec.to_builtins(item) for item in inputs], "inputs")


class _Contestant:
    """One executor of a check."""

    def __init__(self, like: ExecutorLike) -> None:
        self.factory = executor_factory(like) if isinstance(like, str) else like
        self.name = like if isinstance(like, str) else ""

    def probe(self, case: Case) -> Executor:
        """Return an executor that is used only for its capabilities."""
        executor = self.factory(Host(log=case.log, registry=Registry(), worker="parity-probe"))
        self.name = self.name or executor.name
        return executor


class _Check:
    """One check: runs the reference first, then the others with its inputs."""

    def __init__(
        self,
        case: Case,
        contestants: list[_Contestant],
        faults: tuple[Fault, ...],
        needed: frozenset[str],
        *,
        shape: bool,
        ignore: Collection[Ignored],
    ) -> None:
        self._case, self._contestants, self._faults = case, contestants, faults
        self._needed, self._shape, self._ignore = needed, shape, ignore
        self._plays: list[Played] = []

    async def run(self, given: Inputs, *, rolls_back: bool) -> ParityReport:
        probes = self._probe(given)
        uncancelled, cancels = (
            without_cancels(given),
            tuple(item for item in given if isinstance(item, Cancel)),
        )
        if cancels and rolls_back:
            raise ConfigError("a cancelled run is compared with a complete one; leave rollback out")
        if cancels and self._shape:
            raise ConfigError("a cancelled run is compared with a complete one by content; leave shape out")
        if uncancelled != _imposed(uncancelled, forked=self._case.fork is not None):
            raise ConfigError(
                "messages and pauses are not possible in a fork, because its steps began before it; leave them out"
            )
        first = self._contestants[0]
        measure = await self._play(first, uncancelled)
        found = _imposed(inputs_of(measure.trace), forked=self._case.fork is not None)
        inputs = without_cancels((*found, *_besides(uncancelled)))
        for probe in probes[1:]:
            require(probe, _features(measure.trace))
        others = self._contestants if cancels else self._contestants[1:]
        pairings = [
            self._pair(measure, await self._play(contestant, (*inputs, *cancels))) for contestant in others
        ]
        traces = {played.executor: played.trace for played in self._plays}
        rollbacks: dict[str, Trace] = {}
        if rolls_back and all(played.over for played in self._plays):
            pairings += await self._undo(traces, given, rollbacks)
        return ParityReport(
            pairings=tuple(pairings),
            findings=tuple(finding for played in self._plays for finding in _findings(played)),
            traces=traces,
            rollbacks=rollbacks,
            inputs=(*inputs, *cancels),
            faults=self._faults,
            fired=tuple(fault for played in self._plays for fault in played.fired),
        )

    def _probe(self, given: Inputs) -> list[Executor]:
        """Check the capabilities of all executors before anything is started."""
        case = self._case
        probes = [contestant.probe(case) for contestant in self._contestants]
        names = [contestant.name for contestant in self._contestants]
        if len(set(names)) < max(len(names), 2):
            raise ConfigError(
                f"parity needs two or more executors with different names, not {', '.join(names)}"
            )
        if self._faults and not any(map(hands_to_workers, probes)):
            raise ConfigError(
                "faults apply to the worker of the durable executor, which is not among the executors"
            )
        needed = self._needed | features_of(given) | {"detailed_events"}
        needed |= frozenset[str]().union(*(each.capabilities() for each in all_members(case.agent)))
        needed |= {"messages"} if case.messages else set()
        for contestant, probe in zip(self._contestants, probes, strict=True):
            _require(probe, contestant.name, frozenset(needed))
        return probes

    async def _play(self, contestant: _Contestant, inputs: Inputs) -> Played:
        played = await play(self._case, contestant.name, contestant.factory, inputs, self._faults)
        self._plays.append(played)
        return played

    async def _undo(
        self, traces: Mapping[str, Trace], inputs: Inputs, rollbacks: dict[str, Trace]
    ) -> list[Pairing]:
        """Roll back the run of each executor; the answers given on the first are repeated on the others."""
        first: Played | None = None
        pairings: list[Pairing] = []
        for contestant in self._contestants:
            case = msgspec.structs.replace(
                self._case, rollback=traces[contestant.name].root, fork=None, messages=()
            )
            played = await play(case, contestant.name, contestant.factory, inputs, self._faults)
            self._plays.append(played)
            rollbacks[contestant.name] = played.trace
            if first is None:
                first, inputs = played, (*inputs_of(played.trace), *_besides(inputs))
            else:
                pairings.append(msgspec.structs.replace(self._pair(first, played), undoing=True))
        return pairings

    def _pair(self, measure: Played, other: Played) -> Pairing:
        cancelled = _is_cancelled(other.trace)
        if cancelled and not _is_cancelled(measure.trace):
            part = is_prefix(other.trace, measure.trace, ignore=self._ignore)
            return Pairing(measure.executor, other.executor, part, cancelled=True)
        by: Compared = "shape" if self._shape else "content"
        comparison = compare(measure.trace, other.trace, by=by, ignore=self._ignore)
        return Pairing(measure.executor, other.executor, comparison)


def _require(executor: Executor, name: str, needed: frozenset[str]) -> None:
    try:
        require(executor, needed)
    except UnsupportedByExecutor as error:
        raise UnsupportedByExecutor(error.feature, name, error.remedy) from None


def _imposed(found: Inputs, *, forked: bool) -> Inputs:
    """Return the inputs to repeat. Messages and pauses of a fork are left out: its history contains them."""
    return tuple(item for item in found if not (forked and isinstance(item, Message | Pause)))


def _besides(given: Inputs) -> Inputs:
    """Return the answers without a place: those for every call, and those for recovery on the other executors."""
    answers = (item for item in given if isinstance(item, Answer))
    return tuple(item for item in answers if item.call == EVERY or item.kind == "unverifiable")


def _is_cancelled(trace: Trace) -> bool:
    return any(
        is_terminal(event) and getattr(event, "status", "") == "cancelled" and event.run_id == trace.root
        for event in trace.events
    )


def _features(trace: Trace) -> frozenset[str]:
    """Return the capabilities that a run used."""
    events = trace.events
    used = features_of(inputs_of(trace))
    used |= {"children"} if any(isinstance(event, ChildStarted) for event in events) else set()
    used |= {"progress"} if any(isinstance(event, McpProgress) for event in events) else set()
    used |= {"approvals"} if any(isinstance(event, ApprovalRequested) for event in events) else set()
    used |= {"artifacts"} if any(b'"$artifact"' in stored.data for stored in trace.stored) else set()
    return frozenset(used)


# --- one trace by itself ----------------------------------------------------------------------------------------------


def _findings(played: Played) -> Iterator[Finding]:
    if not played.over:
        yield Finding(played.executor, "R6", "the run did not end in time")
    for violation in check_trace(played.trace, ended=played.over):
        earlier, own = violation.revisions
        at = f"revisions {earlier} and {own}" if earlier else f"revision {own}"
        yield Finding(played.executor, violation.rule, f"{violation.message} ({violation.run}, {at})")
    yield from _repeated_tools(played)
    yield from _shown_otherwise(played)


def _shown_otherwise(played: Played) -> Iterator[Finding]:
    """Yield differences of the live stream from the log, and events that it showed too late (R14, R15)."""
    for late in played.unshown:
        emitted = f"call {late.tool_call_id} of {late.run} emitted {late.emitted} events"
        yield Finding(
            played.executor, "R15", f"{emitted}, of which {late.shown} were shown while it was running"
        )
    if not played.over:
        return
    found = compare(canonical(played.trace.observable), canonical(as_stored(played.shown))).first_difference
    if found is not None:
        sides = f"stored {_side(found.left)}, shown {_side(found.right)}"
        yield Finding(played.executor, "R14", f"the live stream differs from the log: {sides}")


def _repeated_tools(played: Played) -> Iterator[Finding]:
    """Yield tools that were really started more often than the trace accounts for (R16)."""
    calls = {call.key: call for call in _calls(played.trace.events)}
    for key, times in played.starts.items():
        call = calls.get(key)
        if call is not None and times > call.allowed:
            yield Finding(
                played.executor,
                "R16",
                f"{call.name} of {call.where} was started {times} times, its trace accounts for {call.allowed}",
            )


class _Call:
    """The number of times that the tool of a call may have been started, according to the log."""

    def __init__(self, key: str, where: str, name: str, *, repeatable: bool) -> None:
        self.key, self.where, self.name, self._repeatable = key, where, name, repeatable
        self.allowed, self.settled = 1, False

    def see(self, event: Event) -> None:
        """Take note of a later event of the call's run."""
        match event:
            case (
                ToolAttemptFailed()
                | ApprovalResolved(outcome="retry")
                | ApprovalRequested(kind="elicitation")
                | WaitStarted()
            ):
                self.allowed += 1
            case Claimed():
                self.allowed += self._repeatable
            case ToolResult():
                self.settled = True
            case _:
                pass


def _calls(events: Iterable[Event]) -> list[_Call]:
    found: list[_Call] = []
    open_calls: dict[str, dict[str, _Call]] = {}
    effects: dict[tuple[str, str], str] = {}
    indices: Counter[tuple[str, int | None]] = Counter()
    for event in events:
        run = open_calls.setdefault(event.run_id, {})
        match event:
            case Prepared():
                effects |= {(event.run_id, spec.name): spec.effect for spec in event.tools}
            case ToolCall(executed_by=""):
                if event.step is None:  # of a workflow
                    at, where = f"{event.tool_call_id}", f"place {event.tool_call_id}"
                else:
                    at, where = f"{event.step}:{indices[event.run_id, event.step]}", f"step {event.step}"
                indices[event.run_id, event.step] += 1
                key = f"{event.run_id}:{at}"
                repeatable = effects.get((event.run_id, event.tool_name), "unsafe") != "unsafe"
                call = run[event.tool_call_id or ""] = _Call(
                    key, where, event.tool_name, repeatable=repeatable
                )
                found.append(call)
            case Claimed():
                for each in run.values():
                    each.see(event)
            case _ if event.tool_call_id in run:
                run[event.tool_call_id or ""].see(event)
                if isinstance(event, ToolResult):
                    del run[event.tool_call_id or ""]
            case _:
                pass
    return found


# --- as text ----------------------------------------------------------------------------------------------------------


def _lines(report: ParityReport) -> Iterator[str]:
    for pairing in report.pairings:
        yield from _pairing_lines(pairing)
    if report.failure:
        yield f"the run failed: {report.failure}"
    if report.findings:
        yield "broken rules:"
        yield from (f"  {finding}" for finding in report.findings)
        yield from (f"  {explain(rule)}" for rule in sorted({each.rule for each in report.findings}))
    if report.faults:
        missed = [fault for fault in report.faults if fault not in report.fired]
        yield f"faults that happened: {', '.join(map(describe, report.fired)) or 'none'}"
        if missed:
            yield f"not reached: {', '.join(map(describe, missed))}"


def _pairing_lines(pairing: Pairing) -> Iterator[str]:
    equal, total = pairing.comparison.boundaries
    sides = f"{pairing.left} and {pairing.right}"
    if pairing.cancelled:
        word = "a prefix" if pairing.comparison.equal else "not a prefix"
        yield f"parity: {pairing.right}, cancelled, is {word} of {pairing.left} ({equal} of {total} boundaries)"
    else:
        word = "equal" if pairing.comparison.equal else "different"
        what = f"the rollbacks of {sides}" if pairing.undoing else sides
        yield f"parity: {word} ({equal} of {total} boundaries), {what}"
    found = pairing.comparison.first_difference
    if found is not None:
        left, right = (pairing.right, pairing.left) if pairing.cancelled else (pairing.left, pairing.right)
        width = max(len(left), len(right))
        yield f"level {found.level}, rule {found.rule}: {found.why}"
        yield f"  {left:{width}}  {_side(found.left)}"
        yield f"  {right:{width}}  {_side(found.right)}"
        yield f"  {explain(found.rule)}"


def _side(level: Iterable[Boundary]) -> str:
    shown = [f"{each.label} [{each.run}, revision {', '.join(map(str, each.revisions))}]" for each in level]
    return "; ".join(shown) or "nothing"
