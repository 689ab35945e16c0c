"""A recording: the answers of a family's models, tools and functions, each at its place (run, step, call).

When a family runs again, its runs have other ids. Each is matched with the recorded run at the same place in the
family, not by its requests, so that two agents that send the same request each get their own answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import (
    QUESTION,
    ApprovalRequested,
    ChildFinished,
    ChildStarted,
    Custom,
    Event,
    FileMade,
    KnowledgeFound,
    McpProgress,
    MemoryHydrated,
    ModelFailed,
    ModelRequested,
    PlannerReplied,
    PlannerToolReturned,
    Prepared,
    RalphIteration,
    RalphStop,
    Reasoning,
    ReplyState,
    Status,
    Submitted,
    SummaryMade,
    Text,
    ToolCall,
    ToolPartial,
    ToolResult,
    ToolSpec,
    Usage,
    WaitStarted,
    is_by_provider,
)
from ...eventlog.names import child_run_id
from ...projections.call_texts import made_file
from ...projections.content_files import files_in
from ...projections.fold import apply
from ...projections.messages import canonical_json
from ...projections.run_state import RunState
from ...runtime.agents.kinds import runnable_of
from ...runtime.core.model_request import Prompt, deciding, native_tools_of, prompt_of, settings_of
from ...runtime.core.planning import STEP as PLANNER_STEP
from ...runtime.core.rules import Rules, rules_of
from ...runtime.ports.models import (
    CallDelta,
    Delta,
    FileDelta,
    Finished,
    ProviderCall,
    ReasoningDelta,
    TextDelta,
)
from ...runtime.ports.runnable import Runnable
from ...runtime.tools.decorator import without_injected
from .functions import Values, recorded, values_of
from .requests import Request
from .trace import Trace


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded model call: its request (as in R12) and the reply. `model` is the model that was called.

    `attempt` is the number of the attempt that ended the call, as the run counts attempts. `broken` are the earlier
    failures, from attempt `begin` + 1 on, whose replies broke off and whose usage counts.
    """

    digest: str
    attempt: int
    phase: str
    model: str
    rules: Rules
    prompt: Prompt
    tools: tuple[ToolSpec, ...]
    reply: tuple[Delta, ...] = ()
    failure: ModelFailed | None = None
    broken: tuple[ModelFailed, ...] = ()
    begin: int = 0

    def failure_at(self, attempt: int) -> ModelFailed | None:
        """Return the failure of this attempt, as the run counts attempts; None if it was answered."""
        place = attempt - self.begin - 1
        if 0 <= place < len(self.broken):
            return self.broken[place]
        if self.failure is not None and attempt != self.failure.attempt:  # its usage must count only once
            return msgspec.structs.replace(self.failure, usage=None, cost_usd=None)
        return self.failure

    @property
    def round(self) -> int:
        """The number of this model call within the run, or within its phase."""
        return self.prompt.round

    @property
    def request(self) -> Request:
        """Everything that determines the reply."""
        return Request(
            messages=tuple(self.prompt.messages),
            tools=tuple(tool.schema for tool in self.tools) if self.prompt.tools else (),
            parameters={
                "output_schema": self.prompt.output_schema,
                **deciding(
                    settings_of(self.rules, self.prompt, self.phase), native_tools_of(self.rules, self.phase)
                ),
                "model": self.model,
            },
        )


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded tool call: the events it caused (including started children) in order, and its result, if any."""

    call: ToolCall
    shown: tuple[Event, ...]
    result: ToolResult | None


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded answers of one run. `calls` is keyed by step (0 for the planner) and index in the reply."""

    run: str
    path: str
    submitted: Submitted | None
    answers: tuple[RecordedAnswer, ...]
    calls: dict[tuple[int, int], RecordedCall]
    over: bool
    """True if the run completed or failed; False if it was cancelled or is unfinished."""

    def at(self, phase: str, round_: int) -> list[RecordedAnswer]:
        """Return the answers to one model call, in order: several if it was repeated or a fallback was called."""
        return [each for each in self.answers if (each.phase, each.round) == (phase, round_)]


class Recording:
    """The answers of a family's models, tools and functions."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.runs: dict[str, RecordedRun] = {}
        self.submitted: dict[str, Submitted] = {}
        self.values: Values = {}
        self.files = frozenset(
            file.artifact for event in trace.events for file in files_in(event) if file.artifact
        )
        """The artifacts of all files of the family."""
        self.tools: dict[str, tuple[ToolSpec, ...]] = {}
        self.hydrated: dict[str, MemoryHydrated] = {}
        self.found: dict[str, KnowledgeFound] = {}
        self.instructions: dict[str, str] = {}
        """The instructions that a function returned, by run."""
        self.standing_plans: dict[str, str] = {}
        """The standing plans as the prompts of runs have them, by run."""
        runs: dict[str, list[Event]] = {}
        for event in trace.events:
            runs.setdefault(event.run_id, []).append(event)
            self._note(event)
        for run, events in runs.items():
            self.runs[run] = RecordedRun(
                run=run,
                path=events[0].agent_path,
                submitted=self.submitted.get(run),
                answers=tuple(_answers(events)),
                calls=dict(_calls(events)),
                over=any(_ends(e) and e.agent_path == events[0].agent_path for e in events),
            )
            for asked, values in values_of(events).items():
                self.values.setdefault(asked, []).extend(values)

    def _note(self, event: Event) -> None:
        if isinstance(event, Submitted):
            self.submitted[event.run_id] = event
        elif isinstance(event, MemoryHydrated):
            self.hydrated[event.run_id] = event
        elif isinstance(event, KnowledgeFound):
            self.found[self.submitted[event.run_id].input] = event
        elif isinstance(event, Prepared):
            if event.instructions:
                self.instructions[event.run_id] = event.instructions
            if event.standing_plan:
                self.standing_plans[event.run_id] = event.standing_plan
            injected = self.submitted[event.run_id].config.get("injected_tool_args") or {}
            own = [without_injected(spec, injected) for spec in event.tools]
            copies = {spec.name: spec for spec in (*own, *self.tools.get(event.agent, ()))}
            self.tools[event.agent] = tuple(copies.values())

    @property
    def root(self) -> Submitted:
        """The `submitted` of the root run. Raises `ConfigError` for a trace without one."""
        found = self.submitted.get(self.trace.root)
        if found is None:
            raise ConfigError("the trace does not hold the first commit of its root run")
        return found

    @property
    def over(self) -> bool:
        """True if the root run completed or failed."""
        return self.runs[self.trace.root].over

    def open_ends(self) -> frozenset[str]:
        """Return the unfinished runs of agents at which the recording stops: those without an unfinished run below."""
        going_on = {run for run, each in self.runs.items() if not each.over}
        above = {
            submitted.parent.run
            for run, submitted in self.submitted.items()
            if submitted.parent and run in going_on
        }
        return frozenset(
            run for run in going_on - above if run in self.submitted and self.submitted[run].kind == "agent"
        )

    @property
    def answers(self) -> list[RecordedAnswer]:
        """The answers of all runs."""
        return [each for run in self.runs.values() for each in run.answers]

    def runnable(self, submitted: Submitted) -> Runnable[Any]:
        """Return the runnable of a submission with its recorded functions."""
        return recorded(runnable_of(submitted.kind, submitted.config), self.values)


def _ends(event: Event) -> bool:
    return isinstance(event, Status) and event.status in {"completed", "error"}


class RunMatcher:
    """Matches each new run with the recorded run that it repeats.

    With the id of the new `root`, runs are matched by their place in the family, because child ids are derived from it.
    Without it, or if the place is unknown, a run is matched with the least used recorded run that fits its first
    request.
    """

    def __init__(self, recording: Recording, root: str | None = None) -> None:
        self._runs = recording.runs
        self._known: dict[str, RecordedRun | None] = {}
        self._uses: dict[str, int] = dict.fromkeys(recording.runs, 0)
        if root is not None:
            self._learn(recording, root)

    def _learn(self, recording: Recording, root: str) -> None:
        names = {recording.trace.root: root}
        for run, submitted in recording.submitted.items():
            above = submitted.parent
            if above is not None and above.run in names:
                name = self._runs[run].path.rpartition("/")[2]
                place = above.tool_call_id or f"node {name}"
                names[run] = child_run_id(names[above.run], place, above.ordinal)
        self._known = {now: self._runs[was] for was, now in names.items() if was in self._runs}
        self._uses |= {each.run: 1 for each in self._known.values() if each is not None}

    def of(self, run: str, fits: Callable[[RecordedRun], bool]) -> RecordedRun | None:
        """Return the recorded run that `run` repeats; None if no recorded run fits."""
        if run not in self._known:
            fitting = [each for each in self._runs.values() if fits(each)]
            found = min(fitting, key=lambda each: self._uses[each.run], default=None)
            if found is None:
                return None
            self._known[run] = found
            self._uses[found.run] += 1
        return self._known[run]


def request_behind(events: Iterable[Event], run: str, digest: str) -> Request | None:
    """Return the answered request of a run with this digest, rebuilt from the family's events as read."""
    own = [event for event in events if event.run_id == run]
    return next((each.request for each in _answers(own) if each.digest == digest), None)


def _answers(events: list[Event]) -> Iterator[RecordedAnswer]:  # noqa: C901 - one case each
    """Yield the model calls of one run whose replies were stored."""
    path = events[0].agent_path
    state = RunState()
    asked: RecordedAnswer | None = None
    reply: list[Delta] = []
    wanted: list[Any] = []
    broken: list[ModelFailed] = []
    begin = 0
    for event in events:
        if len(event.agent_path) > len(path):
            continue
        match event:
            case ModelRequested() if state.submitted is not None:
                asked, reply, wanted = _asked(state, rules_of(state.submitted.config), event), [], []
                asked = msgspec.structs.replace(asked, broken=tuple(broken), begin=begin)
            case Reasoning():
                reply.append(ReasoningDelta(event.text))
            case Text() if event.step is not None:
                reply.append(TextDelta(event.text))
            case FileMade():
                file = made_file(event)
                reply.append(FileDelta(media_type=file.media_type, name=file.name, stored=file))
            case ModelFailed(retry_at=None) if (
                asked is not None
            ):  # no retry: given up, or a fallback comes next
                yield msgspec.structs.replace(asked, failure=event)
                broken, begin = [], event.attempt
            case ModelFailed() if event.usage is not None:
                broken.append(event)
            case ReplyState(items=list(items)):
                wanted = items
            case Usage() | SummaryMade() | PlannerReplied() if asked is not None:
                yield msgspec.structs.replace(asked, reply=_reply(event, reply, events, wanted))
                broken, begin = [], 0
            case _:
                pass
        apply(state, _own(event), event.at)  # type: ignore[arg-type] # an event as it is stored


def _reply(
    event: Usage | SummaryMade | PlannerReplied, said: list[Delta], events: list[Event], wanted: list[Any]
) -> tuple[Delta, ...]:
    """Return a reply as deltas, in order. For a step, `said` (text and reasoning) comes before the tool calls.

    `wanted` is the provider's state, to be sent back with it.
    """
    match event:
        case Usage():
            path = events[0].agent_path
            asked = [each for each in _asked_in(events, event.step) if each.agent_path == path]
            calls = [each for each in asked if not is_by_provider(each)]
            made = [each for each in asked if is_by_provider(each)]
            return (*said, *_provider_calls(made, events), *_deltas(calls), _end(event, calls, wanted))
        case SummaryMade():
            return (TextDelta(event.text), _end(event, ()))
        case PlannerReplied():
            return (TextDelta(event.text), *_deltas(_planner_calls(event)), _end(event, event.calls, wanted))


def _asked_in(events: list[Event], step: int | None) -> Iterator[ToolCall]:
    return (each for each in events if isinstance(each, ToolCall) and each.step == step)


def _provider_calls(made: Iterable[ToolCall], events: list[Event]) -> Iterator[ProviderCall]:
    """Yield the native tools of a reply, each with its result."""
    for call in made:
        result = next(
            event
            for event in events
            if isinstance(event, ToolResult)
            and is_by_provider(event)
            and (event.step, event.tool_call_id) == (call.step, call.tool_call_id)
        )
        yield ProviderCall(
            id=call.tool_call_id or "",
            name=call.tool_name,
            arguments=call.arguments,
            result=result.result,
            error=result.error,
        )


def _asked(state: RunState, rules: Rules, event: ModelRequested) -> RecordedAnswer:
    """Return the model call that the state leads to, still without a reply."""
    prompt = prompt_of(state, rules, event.phase)
    return RecordedAnswer(
        digest=event.digest,
        attempt=event.attempt,
        phase=event.phase,
        model=event.model or rules.model,
        rules=rules,
        prompt=msgspec.structs.replace(prompt, messages=tuple(prompt.messages)),
        tools=tuple(state.tools.values()),
    )


def _end(
    event: Usage | PlannerReplied | SummaryMade, calls: Sequence[object], wanted: Sequence[Any] = ()
) -> Finished:
    return Finished(
        reason=event.finish_reason or ("tool_calls" if calls else "stop"),
        usage=event.usage,
        usage_source=event.source,
        model=event.model,
        cost_usd=event.cost_usd,
        reply_items=list(wanted),
    )


def _own(event: Event) -> Event:
    """Return the event as stored: without the path, which only forwarded events have in the log."""
    return msgspec.structs.replace(event, agent_path="")


def _deltas(calls: Sequence[ToolCall]) -> Iterator[CallDelta]:
    for index, call in enumerate(calls):
        written = {**call.arguments, **call.injected_args}
        text = call.raw_arguments if call.raw_arguments is not None else canonical_json(written).decode()
        yield CallDelta(index=index, id=call.tool_call_id or "", name=call.tool_name, arguments=text)


def _planner_calls(event: PlannerReplied) -> list[ToolCall]:
    """Return the planner's calls in the form of a step's calls."""
    return [
        ToolCall(
            step=PLANNER_STEP,
            tool_call_id=call.id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            raw_arguments=call.raw_arguments,
            injected_args=call.injected_args,
            agent_path=event.agent_path,
        )
        for call in event.calls
    ]


def _calls(events: list[Event]) -> Iterator[tuple[tuple[int, int], RecordedCall]]:
    """Yield the tool calls of one run by (step, index)."""
    path = events[0].agent_path
    indices: dict[int | None, int] = {}
    told: dict[tuple[int, str | None], list[Event]] = {}
    for event in events:
        if event.tool_call_id is not None:
            told.setdefault((event.step or 0, event.tool_call_id), []).append(event)
    for event in _asked_for(events):
        if event.agent_path != path:
            continue
        index = indices[event.step] = indices.get(event.step, -1) + 1
        own = told.get((event.step or 0, event.tool_call_id), [])
        results = [e for e in map(_as_result, own) if e is not None and e.agent_path == path]
        shown = tuple(
            e
            for e in own
            if isinstance(e, McpProgress | Custom | ToolPartial | ChildStarted | ChildFinished)
            or e.agent_path != path
            or _is_question(e)
            or isinstance(e, WaitStarted)
        )
        result = results[-1] if results else None
        yield (event.step or 0, index), RecordedCall(call=event, shown=shown, result=result)


def _is_question(event: Event) -> bool:
    return isinstance(event, ApprovalRequested) and event.kind == QUESTION


def _asked_for(events: list[Event]) -> Iterator[ToolCall]:
    for event in events:
        if isinstance(event, ToolCall) and not is_by_provider(event):
            yield event
        elif isinstance(event, PlannerReplied):
            yield from _planner_calls(event)


def _as_result(event: Event) -> ToolResult | None:
    if isinstance(event, PlannerToolReturned):
        return ToolResult(
            tool_name=event.tool_name,
            success=event.success,
            result=event.result,
            in_parts=event.in_parts,
            error=event.error,
            agent_path=event.agent_path,
        )
    return event if isinstance(event, ToolResult) else None


class RecordingEnd:
    """The end of an unfinished recording: a model or tool that is called after it waits for ever.

    `reached` is set once every unfinished run has come to where its recording stops, and all others have ended.
    """

    def __init__(self, recording: Recording, places: RunMatcher) -> None:
        self._places, self._runs = places, recording.runs
        self._left = set(recording.open_ends())
        self._owed = Counter(event.run_id for event in recording.trace.events if self._is_landmark(event))
        self.reached = asyncio.Event()

    def see(self, event: Event) -> None:
        """Take note of an event that the new family has stored."""
        child = getattr(event, "child_run", "")
        was = self._places.of(event.run_id, lambda _: False), self._places.of(child, lambda _: False)
        run, below = (each.run if each is not None else "" for each in was)
        if run in self._runs and self._is_landmark(event, run, below):
            self._owed[run] -= 1
            self._judge()

    def _is_landmark(self, event: Event, run: str = "", child: str = "") -> bool:
        """Return whether the event shows the progress of a run that is over or has runs below it."""
        recorded = self._runs[run or event.run_id]
        if event.agent_path != recorded.path:
            return False
        if isinstance(event, ChildFinished):
            known = self._runs.get(child or event.child_run)
            return known is not None and known.over
        return isinstance(event, ChildStarted | RalphIteration | RalphStop) or _ends(event)

    def is_open(self, run: str) -> bool:
        """Return whether the run's recording is unfinished; if so, note that the run has reached the end of it."""
        recorded = self._places.of(run, lambda _: False)
        if recorded is None or recorded.over:
            return False
        self._left.discard(recorded.run)
        self._judge()
        return True

    def _judge(self) -> None:
        if not self._left and all(owed <= 0 for owed in self._owed.values()):
            self.reached.set()

    async def wait(self) -> NoReturn:
        """Wait for ever, in the place of an answer that was never recorded."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the future is never set")
