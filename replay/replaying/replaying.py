"""Replay: re-run the decision logic over a stored run and report the first decision that differs.

Each commit is one turn: its commands are recovered from its events (`commanding.py`), the core takes them and advances,
and its decisions are compared with the record event by event, including the digest of each model request. The state is
folded from the recorded events, not from the decided ones, so that a run is replayed in one pass and the first
difference is a decision from a known state, not a consequence of an earlier difference.

A commit does not say at which time the core decided, only when it was stored; so times are not compared. The waits that
the core decides on (backoff, expiries) are, with a tolerance of `TURN_S_MAX`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import msgspec

from ...eventlog.commits import Recorded, head_of
from ...eventlog.errors import ConfigError, LogCorrupted, RunNotFound
from ...eventlog.events import (
    Budget,
    Claimed,
    Custom,
    Event,
    KnowledgeFound,
    LateOutcome,
    MemoryHydrated,
    ModelFailed,
    ModelRequested,
    Offloaded,
    PlannerReplied,
    PlannerToolReturned,
    PolicyRuling,
    Prepared,
    ReplyState,
    ResultRecorded,
    Step,
    StoredEvent,
    Submitted,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolSpec,
    ToolStarted,
    Unknown,
)
from ...eventlog.offload import in_place_of, references
from ...eventlog.ports import COMMIT_BYTES_MAX
from ...projections.fold import apply, check_epoch
from ...projections.run_state import RunState
from ...runtime import Registry
from ...runtime.agents.config import AgentConfig
from ...runtime.core.budgets import BudgetUse, uses
from ...runtime.core.commands import (
    CallbackIssued,
    ChildSpawned,
    Command,
    EvaluationReturned,
    MemoMade,
    ModelCallFailed,
    ModelReplied,
    ToolEmitted,
    ToolReturned,
    ToolsResolved,
)
from ...runtime.core.decide import advance, pending, take, unsafe_starts
from ...runtime.core.effects import CallModel, CallTool, Effect, Evaluate, RunNode, VerifyCall
from ...runtime.core.lineage import with_model
from ...runtime.core.model_request import deciding, prompt_of
from ...runtime.core.policy import Call
from ...runtime.core.rules import Rules, rules_of_run
from ...runtime.core.submission import opening_events
from ...runtime.core.tool_refresh import removed
from ...runtime.core.turn import Turn
from ...runtime.journal.journal import CUT_BEHIND
from ...runtime.ports import conditions
from ...runtime.tools.decorator import expose
from ..canonical.canonical import label_of, label_text
from ..ordering.rule_texts import explain
from ..traces.trace import Trace
from .commanding import Failed, command_of

TURN_S_MAX = 0.25
"""The longest time, in seconds, between a turn's reading of the clock and the time stamp of its commit."""
_TIMES = frozenset(
    {"completed_at", "due_at", "duration_ms", "execution_time_ms", "expires_at", "retry_at", "started_at"}
)
_WAITS = frozenset({"expires_at", "retry_at"})
_TOLERANCE_S = 1e-3
MESSAGES_SHOWN = 4
"""The number of messages shown of a differing request: the first one, and the newest."""
_ENCODER = msgspec.json.Encoder(order="sorted")


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first decision of a run in which the installed code differs.

    `recorded` is the event at `revision`, `decided` the one that the code decides instead; one of them may be None.
    `fields` are those that differ, and `values` has the recorded and the decided value of each.
    """

    run: str
    revision: int
    why: str
    recorded: Event | None = None
    decided: Event | None = None
    fields: tuple[str, ...] = ()
    values: dict[str, tuple[Any, Any]] = {}

    def __str__(self) -> str:
        return f"{self.run} revision {self.revision}: {self.why}"


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying a family: the number of turns and model requests, and the first divergence, if any.

    `shared` counts commits that forks copied from other runs; they are replayed there. `unread` maps runs with events
    of a newer writer to the revision of the first such event; those runs are replayed only up to it.
    """

    root: str
    runs: int
    turns: int
    requests: int
    shared: int = 0
    divergence: Divergence | None = None
    unread: dict[str, int] = {}

    @property
    def agrees(self) -> bool:
        """True if the code decides everything as recorded."""
        return self.divergence is None


class _Diverged(Exception):
    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence.why)
        self.divergence = divergence


def replay(trace: Trace, registry: Registry | None = None) -> Replay:
    """Replay every run of a family against the code that is installed.

    With a `registry`, its agents are compared too: their configuration, prompt and tool schemas must be those that the
    runs were submitted with. Raises `ConfigError` for a trace without the artifacts that it refers to.
    """
    check_artifacts(trace)
    runs: dict[str, _Run] = {}
    at = 0
    commits: dict[str, list[_Commit]] = {}
    for recorded in trace.commits:
        count = len(recorded.commit.events)
        events = tuple(map(as_decided, recorded.commit.events, trace.events[at : at + count]))
        commits.setdefault(recorded.commit.run, []).append(_Commit(recorded, events))
        at += count
    found: list[tuple[int, Divergence]] = []
    for run, own in commits.items():
        runs[run] = _Run(own, registry)
        divergence = runs[run].replay()
        if divergence is not None:
            found.append((own[runs[run].number].recorded.position, divergence))
    return Replay(
        root=trace.root,
        runs=len(runs),
        turns=sum(run.turns for run in runs.values()),
        requests=sum(run.requests for run in runs.values()),
        shared=sum(run.shared for run in runs.values()),
        divergence=min(found, key=lambda item: item[0])[1] if found else None,
        unread={name: run.unread for name, run in runs.items() if run.unread},
    )


def check_artifacts(trace: Trace) -> None:
    """Raise `ConfigError` for a trace without the large values that it refers to."""
    for digest in references(trace.events):
        raise ConfigError(f"the trace lacks the artifact {digest[:16]}…; export it with --artifacts")


def as_decided(stored: Event, read: Event) -> Event:
    """Return a stored event as it was decided, with the large values, or the content, that the event as read has."""
    if stored.sealed is None and not isinstance(
        stored,
        (
            MemoryHydrated,
            KnowledgeFound,
            ToolPartial,
            ToolResult,
            Custom,
            LateOutcome,
            PlannerToolReturned,
            ReplyState,
            ResultRecorded,
            Offloaded,
        ),
    ):
        return stored
    return in_place_of(stored, read)


class _Ahead(Sequence[Event]):
    """The remaining events in order, as a view of the reversed list from which they are popped."""

    def __init__(self, rest: list[tuple[int, Event]]) -> None:
        self._rest = rest

    def __len__(self) -> int:
        return len(self._rest)

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...

    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        if isinstance(index, slice):
            return [event for _, event in self._rest[::-1][index]]
        if index >= len(self._rest):
            raise IndexError(index)
        return self._rest[-1 - index][1]


class _Commit(msgspec.Struct, frozen=True):
    """A commit with its events as they were decided."""

    recorded: Recorded
    events: tuple[Event, ...]


class _Run:
    """Replays one run; `number` is the index of the current commit."""

    def __init__(self, commits: Sequence[_Commit], registry: Registry | None) -> None:
        first = commits[0].recorded.commit
        self.commits, self.registry, self.number = commits, registry, 0
        self.state = RunState(run=first.run, root=first.root, path=first.path, submitted_at=first.at)
        self.rules = Rules()
        self.turns = self.requests = self.shared = self.unread = 0

    def replay(self) -> Divergence | None:
        """Replay all commits, and return the first divergence."""
        try:
            while self.number < len(self.commits) and not self._is_newer():
                self._turn()
                self.number += 1
        except _Diverged as found:
            return found.divergence
        except LogCorrupted as error:
            return Divergence(run=self.state.run, revision=error.revision, why=str(error))
        except Exception as error:  # noqa: BLE001 - a recorded trace may contain anything
            revision = self.commits[min(self.number, len(self.commits) - 1)].recorded.commit.rev
            why = f"the code fails on the recorded events ({type(error).__name__}: {error})"
            return Divergence(run=self.state.run, revision=revision, why=why)
        return None

    def _is_newer(self) -> bool:
        commit = self.commits[self.number]
        newer = [index for index, event in enumerate(commit.events) if isinstance(event, Unknown)]
        if newer:
            self.unread = commit.recorded.commit.rev + newer[0]
        return bool(newer)

    def _turn(self) -> None:
        commit = self.commits[self.number]
        check_epoch(self.state, commit.recorded.commit)
        turn = _Guided(self, commit)
        if turn.is_shared():
            turn.take_over()
            self.shared += 1
        else:
            turn.follow()
            self.turns += 1
        self.requests += sum(isinstance(event, ModelRequested) for event in turn.events)
        recorded = self.commits[self.number].recorded
        for index, event in enumerate(recorded.commit.events):
            if isinstance(event, Claimed):
                self.state.owner_revision = recorded.commit.rev + index
        self.state.head, self.state.updated_at = head_of(recorded), recorded.commit.at

    def rest_of_split(self) -> _Commit | None:
        """Return the commit in which the current turn continues, if it was too large for one."""
        following = self.commits[self.number + 1 :][:1]
        if not following:
            return None
        own, more = self.commits[self.number].recorded, following[0].recorded
        cut = isinstance(own.commit.events[-1], CUT_BEHIND) and own.commit.epoch == more.commit.epoch
        size = sum(len(msgspec.json.encode(e)) for r in (own, more) for e in r.commit.events)
        if not cut or size <= COMMIT_BYTES_MAX - 4096:
            return None
        self.number += 1
        return following[0]


class _Guided(Turn):
    """A turn that compares each decision of the core with the record, and folds the recorded event."""

    def __init__(self, run: _Run, commit: _Commit) -> None:
        super().__init__(run.state, run.rules, _clock_of(commit))
        self._run, self._commit = run, commit
        self._rest: list[tuple[int, Event]] = list(enumerate(commit.events, commit.recorded.commit.rev))
        self._rest.reverse()
        self._before: frozenset[Effect] = frozenset(pending(run.state, self.now))
        starts = {start.tool_call_id for start in unsafe_starts(run.state, self.now)}
        self._startable = starts | {effect.call_id for effect in self._before if isinstance(effect, CallTool)}
        self._revision = commit.recorded.commit.rev

    def add(self, *events: StoredEvent) -> None:
        """Compare each event that the core decides with the next one of the record."""
        for decided in events:
            recorded = self._next(decided)
            try:
                _compare(self.state.run, self._revision, recorded, decided)
            except _Diverged as found:
                if isinstance(decided, ModelRequested) and "digest" in found.divergence.fields:
                    why = f"{found.divergence.why}. {self._asked(decided)}"
                    raise _Diverged(msgspec.structs.replace(found.divergence, why=why)) from None
                raise
            apply(self.state, recorded, self._commit.recorded.commit.at)  # type: ignore[arg-type] # a stored event
            self.events.append(recorded)  # type: ignore[arg-type]

    def ruling(self, call: Call) -> PolicyRuling:
        """Return the ruling on a call: the recorded one if this installation cannot evaluate conditions."""
        if conditions.installed() or not self.rules.policy.is_conditional or not self._rest:
            return super().ruling(call)
        match self._rest[-1][1]:
            case ToolCall(policy=PolicyRuling() as ruling):
                return ruling
            case PlannerReplied(calls=calls):
                made = ((each.policy, each.tool_name, each.arguments) for each in calls)
                return next(
                    ruling
                    for ruling, tool, arguments in made
                    if ruling is not None and (tool, arguments) == (call.tool, call.arguments)
                )
            case _:  # the answer that edits a call was stored, so nothing denies it
                return PolicyRuling(action="allow")

    def _asked(self, decided: ModelRequested) -> str:
        """Describe the request that the code composes, and what is known of the recorded one."""
        prompt = prompt_of(self.state, self.rules, decided.phase)
        tools = ", ".join(self.state.tools) if prompt.tools else ""
        messages = list(enumerate(prompt.messages, start=1))
        ends = messages if len(messages) <= MESSAGES_SHOWN else [messages[0], *messages[1 - MESSAGES_SHOWN :]]
        shown = "; ".join(
            f"message {number} ({each.role}) {label_text(each.content)}" for number, each in ends
        )
        return (
            "The log has only the digest of the recorded request. Its instructions, tools, parameters, model and "
            "messages come from the same recorded events, so the code composes them differently (or the "
            "digest is wrong). The request is now: "
            f"model {decided.model or self.rules.model}, settings "
            f"{deciding(self.rules.settings) or 'none'}, tools {tools or 'none'}, {len(messages)} messages: {shown}"
        )

    def _next(self, decided: Event) -> Event:
        if not self._rest:
            more = self._run.rest_of_split()
            if more is not None:
                self._commit = more
                self._rest = list(enumerate(more.events, more.recorded.commit.rev))[::-1]
        if not self._rest:
            raise _Diverged(
                Divergence(
                    run=self.state.run,
                    revision=self._revision + (1 if self.events else 0),
                    why=f"the code also decides {label_of(decided)}, which was not recorded",
                    decided=decided,
                )
            )
        self._revision, recorded = self._rest.pop()
        return recorded

    def is_shared(self) -> bool:
        """Return whether a fork copied these events from another run, where they were decided."""
        first = self._rest[-1][1]
        submitted = first if isinstance(first, Submitted) else self.state.submitted
        fork = submitted.fork if submitted is not None else None
        return fork is not None and self._revision <= fork.shared

    def take_over(self) -> None:
        """Fold the copied events of a fork as they are."""
        if isinstance(self._rest[-1][1], Submitted):
            self._open()
        for _, event in reversed(self._rest):
            apply(self.state, event, self._commit.recorded.commit.at)  # type: ignore[arg-type] # a stored event
        self._rest.clear()

    def follow(self) -> None:
        """Take the commands of the commit, and advance."""
        if isinstance(self._rest[-1][1], Submitted):
            self._open()
        if self._rest and isinstance(self._rest[-1][1], ToolStarted):
            self.add(*self._starts())
        elif self._rest and isinstance(self._rest[-1][1], LateOutcome):
            self._late()
        else:
            self._take_all()
        if self._rest:
            self._revision, recorded = self._rest.pop()
            raise _Diverged(
                Divergence(
                    run=self.state.run,
                    revision=self._revision,
                    why=f"{label_of(recorded)} was recorded, but the code does not decide it",
                    recorded=recorded,
                )
            )

    def _open(self) -> None:
        submitted = self._rest[-1][1]
        assert isinstance(submitted, Submitted)  # noqa: S101 - for the type checker
        self._check_agent(submitted)
        self.rules = self._run.rules = rules_of_run(submitted)
        self.add(*opening_events(submitted))
        while self._rest and isinstance(
            self._rest[-1][1], ResultRecorded
        ):  # the result of a node, recorded by the fork above
            self.add(self._rest[-1][1])

    def _starts(self) -> Iterator[ToolStarted]:
        """Yield the starts that the core decides; a call that waits for a slot, a limit or its key starts later."""
        stored = {event.tool_call_id for _, event in self._rest if isinstance(event, ToolStarted)}
        for start in unsafe_starts(self.state, self.now):
            if start.tool_call_id in stored:
                yield start

    def _late(self) -> None:
        """Accept late outcomes of abandoned effects: the executor appends them without a decision."""
        while self._rest and isinstance(self._rest[-1][1], LateOutcome):
            self.add(self._rest[-1][1])

    def _take_all(self) -> None:
        """Take the commands, and advance; the code of a workflow goes on after what follows from the first ones."""
        while self._rest:
            before = len(self.events)
            self._take_some()
            if self.state.flow is None or len(self.events) == before:
                return

    def _take_some(self) -> None:
        advances = self._commit.recorded.commit.epoch > 0
        while self._rest:
            command = command_of(self.state, _Ahead(self._rest), self.now)
            if command is None:
                break
            before = len(self.events)
            self._carry_out(command, self._rest[-1][1])
            if len(self.events) == before:
                return
            taken = self.events[before]
            advances = advances and not (isinstance(taken, Claimed) and taken.worker == "canceller")
        if advances:
            advance(self)

    def _carry_out(self, command: Command | Failed, event: Event) -> None:
        if isinstance(command, Failed):
            error = command.error
            self.fail(error.error_type, error.error, recoverable=error.recoverable, step=error.step)
            return
        self._check_awaited(command, event)
        prepared = next((e for _, e in reversed(self._rest[-3:]) if isinstance(e, Prepared)), None)
        if isinstance(command, ToolsResolved) and prepared is not None:
            self._check_tools(prepared)
        take(self, command)

    def _check_awaited(self, command: Command, event: Event) -> None:
        """Check that an outcome belongs to an effect that the core had requested."""
        match command:
            case ModelReplied() | ModelCallFailed():
                call = CallModel(step=command.step, attempt=command.attempt, phase=command.phase)
                awaited = call in self._before
            case ChildSpawned(call_id=None) | MemoMade() | CallbackIssued() if self._is_of_code(command):
                return
            case ChildSpawned(call_id=None):
                places = {(e.name, e.ordinal) for e in self._before if isinstance(e, RunNode)}
                awaited = (command.name, command.ordinal) in places
            case EvaluationReturned():
                awaited = any(
                    isinstance(e, Evaluate) and (e.name, e.ordinal) == (command.name, command.ordinal)
                    for e in self._before
                )
            case ToolReturned(call_id=call_id, slot_cycle=slot, once=once) if (
                slot or once
            ):  # the call gave way in a deadlock, or to the owner of its key, before it started
                awaited = call_id in self._startable
            case (
                ToolReturned(call_id=call_id)
                | ToolEmitted(call_id=call_id)
                | MemoMade(call_id=call_id)
                | CallbackIssued(call_id=call_id)
            ):
                awaited = any(
                    isinstance(e, CallTool | VerifyCall) and e.call_id == call_id for e in self._before
                )
            case _:
                return
        if not awaited:
            self._differ(
                event, f"{label_of(event)} was recorded, but the code would not have requested it yet"
            )

    def _is_of_code(self, command: ChildSpawned | MemoMade | CallbackIssued) -> bool:
        """Return whether the code of a workflow asked for a child, a value or a token: only it knows for which."""
        if self.state.flow is None:
            return False
        call = self.state.calls.get(command.call_id or "")
        return isinstance(command, ChildSpawned) or call is None or call.kind != "tool"

    def _differ(self, event: Event, why: str, values: Mapping[str, tuple[Any, Any]] | None = None) -> None:
        raise _Diverged(
            Divergence(
                run=self.state.run,
                revision=self._rest[-1][0],
                why=why,
                recorded=event,
                fields=tuple(values or ()),
                values=dict(values or {}),
            )
        )

    # --- the user's part of the code ----------------------------------------------------------------------------------

    def _check_agent(self, submitted: Submitted) -> None:
        """Compare the registered agent with the one that was submitted."""
        registry, name = self._run.registry, self.state.path.rpartition("/")[2]
        if registry is None or not registry.serves(name):
            return
        now = registry.agent(name).to_config()
        if submitted.kind == "agent" and _may_have_another_model(submitted):
            now["model"] = submitted.config.get("model", now.get("model"))
        elif submitted.fork is not None and submitted.fork.model is not None:
            now = with_model(submitted.kind, now, submitted.fork.model)
        default = AgentConfig(name=name).to_config()
        values = {
            key: (submitted.config.get(key, default.get(key)), now.get(key, default.get(key)))
            for key in sorted(now.keys() | submitted.config.keys())
            if submitted.config.get(key, default.get(key)) != now.get(key, default.get(key))
        }
        if values:
            self._differ(submitted, f"agent {name!r} has changed: {', '.join(values)}", values)

    def _check_tools(self, prepared: Prepared) -> None:
        """Compare the registered Python tools with those that the run was prepared with."""
        registry, name = self._run.registry, self.state.path.rpartition("/")[2]
        if registry is None or not registry.serves(name):
            return
        now = registry.resolve(registry.agent(name))
        for recorded in prepared.tools:
            tool = now.get(recorded.name)
            if recorded.source != "python":
                continue
            if tool is None:
                self._differ(prepared, f"agent {name!r} no longer has the tool {recorded.name!r}")
                return
            values = _changes(recorded, expose(tool.spec, self.rules.injected_tool_args))
            if values:
                self._differ(prepared, f"tool {recorded.name!r} has changed: {', '.join(values)}", values)
        added = now.keys() - {tool.name for tool in prepared.tools} - removed(self.state)
        if added:
            self._differ(prepared, f"agent {name!r} has a new tool {min(added)!r}")


def _may_have_another_model(submitted: Submitted) -> bool:
    """Return whether the run is a fork, or a node of one."""
    parent = submitted.parent
    return submitted.fork is not None or (parent is not None and parent.fork_model is not None)


def _changes(recorded: ToolSpec, now: ToolSpec) -> dict[str, tuple[Any, Any]]:
    names = ToolSpec.__struct_fields__
    pairs = {name: (getattr(recorded, name), getattr(now, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if _plain(pair[0]) != _plain(pair[1])}


def _clock_of(commit: _Commit) -> float:
    """Return when the turn decided: known exactly if a step began or ended, otherwise about when it was stored."""
    for event in commit.events:
        if isinstance(event, Step) and not event.agent_path:
            at = event.started_at if event.status == "started" else event.completed_at
            if at is not None:
                return at
    last, at = commit.events[-1], commit.recorded.commit.at
    if isinstance(last, ModelFailed) and last.retry_at is not None:  # even a very short wait was not over yet
        return min(at, math.nextafter(last.retry_at, 0.0))
    return at


def _plain(value: Any) -> Any:
    return msgspec.json.decode(_ENCODER.encode(value))


def _compare(run: str, revision: int, recorded: Event, decided: Event) -> None:
    """Raise the divergence between two events, if there is one."""
    if type(recorded) is not type(decided):
        why = f"{label_of(recorded)} was recorded, but the code decides {label_of(decided)}"
        raise _Diverged(Divergence(run=run, revision=revision, why=why, recorded=recorded, decided=decided))
    values: dict[str, tuple[Any, Any]] = {}
    for name in recorded.__struct_fields__:
        before, after = getattr(recorded, name), getattr(decided, name)
        if before is after or _agree(name, before, after, decided):
            continue
        values[name] = (_shown(before), _shown(after))
    if values:
        raise _Diverged(
            Divergence(
                run=run,
                revision=revision,
                why=_reason(recorded, values),
                recorded=recorded,
                decided=decided,
                fields=tuple(values),
                values=values,
            )
        )


def _agree(name: str, before: Any, after: Any, decided: Event) -> bool:
    if name in _WAITS and isinstance(before, float) and isinstance(after, float):
        return -_TOLERANCE_S <= after - before <= TURN_S_MAX
    if name in _WAITS:
        return bool(before == after)
    if name in _TIMES:
        return True
    if isinstance(decided, Budget) and decided.scope == "seconds" and name in {"used", "message"}:
        return name == "message" or abs(before - after) <= TURN_S_MAX
    if name == "tool_call_id" and isinstance(decided, ToolCall) and str(before).startswith("call-"):
        return str(after).rstrip("-") == str(
            before
        )  # an id that an earlier run of the session has gets a suffix
    if name == "metadata" and isinstance(decided, ToolResult):
        before, after = ({k: v for k, v in each.items() if k not in _TIMES} for each in (before, after))
    return bool(before == after) or _plain(before) == _plain(after)


def _shown(value: Any) -> Any:
    return _plain(value)


def _reason(recorded: Event, values: Mapping[str, Any]) -> str:
    if isinstance(recorded, ModelRequested) and "digest" in values:
        return f"the code sends the model a different request in step {recorded.step}; {explain('R12')}"
    if "retry_at" in values:
        return f"{label_of(recorded)}: the code decides another backoff before the retry"
    return f"{label_of(recorded)}: the code decides another {', '.join(values)}"


# --- the state at any point -------------------------------------------------------------------------------------------


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A run right after one of its revisions: its state, the event there, its budgets and its pending effects."""

    state: RunState
    revision: int
    event: Event
    at: float
    pending: tuple[Effect | ToolStarted, ...]
    budgets: tuple[BudgetUse, ...] = ()


def state_at(trace: Trace, revision: int, run: str | None = None) -> Point:
    """Return the state of a run (default: the root) right after a revision. Raises `RunNotFound`, `ConfigError`."""
    run = run or trace.root
    state = RunState()
    last = 0
    for recorded, event in _events_of(trace, run):
        commit = recorded.commit
        if not last:
            state = RunState(run=commit.run, root=commit.root, path=commit.path, submitted_at=commit.at)
        last = event.revision or last
        apply(state, _without_reading(event, commit.path), commit.at)  # type: ignore[arg-type] # a stored event
        if isinstance(event, Claimed):
            state.owner_revision = last
        state.updated_at = commit.at
        if last == revision:
            todo = (*unsafe_starts(state, commit.at), *pending(state, commit.at))
            budgets = tuple(uses(state, rules_of_run(state.submitted))) if state.submitted else ()
            return Point(
                state=state, revision=revision, event=event, at=commit.at, pending=todo, budgets=budgets
            )
    if not last:
        raise RunNotFound(f"the trace of {trace.root!r} has no run {run!r}")
    raise ConfigError(f"run {run} has revisions 1 to {last}, not {revision}")


def _events_of(trace: Trace, run: str) -> Iterator[tuple[Recorded, Event]]:
    events: Iterable[Event] = iter(trace.events)
    for recorded in trace.commits:
        for _ in recorded.commit.events:
            event = next(iter(events))
            if recorded.commit.run == run:
                yield recorded, event


def _without_reading(event: Event, path: str) -> Event:
    """Return an event as read in its stored form, in which only forwarded events have a path."""
    return event if event.agent_path != path else msgspec.structs.replace(event, agent_path="")
