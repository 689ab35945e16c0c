"""A run again, with the model's answers and the tools' results from a trace: no network, no cost, no effects.

    trace = await rerun(recorded)                       # strict: a request that differs fails, and says where
    trace = await rerun(recorded, agent=AGENT, strict=False)

A request is found by its R12 digest, under the name of the model that was recorded. Where none fits, a strict run
fails with the first difference to the recorded request that comes nearest; a lenient one takes that one's answer. A
tool shows and returns what the call at its place (agent, step, index) did; children are run again, recorded themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from ..eventlog.errors import ConfigError, LogCorrupted, LogUnavailable, RunNotFound
from ..eventlog.events import (
    QUESTION,
    ApprovalRequested,
    ChildStarted,
    Custom,
    Event,
    KnowledgeFound,
    McpProgress,
    MemoryHydrated,
    ModelFailed,
    ModelRequested,
    PlannerReplied,
    PlannerToolReturned,
    Prepared,
    Reasoning,
    Submitted,
    SummaryMade,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from ..eventlog.memory import MemoryLog
from ..eventlog.ports import Log
from ..projections.fold import apply
from ..projections.messages import Message, canonical_json, chain, sha256_hex
from ..projections.run_state import RunState
from ..runtime import Agent, Registry
from ..runtime.agent_config import python_tool_names
from ..runtime.context import ArtifactRef
from ..runtime.kinds import runnable_of
from ..runtime.knowledge import KnowledgeItem, KnowledgeStore
from ..runtime.memory import MemoryItem, MemoryKeys, MemoryStore, Scope
from ..runtime.models import (
    MODEL_ERRORS,
    CallDelta,
    Delta,
    Finished,
    InvalidRequest,
    ModelProvider,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    TransientModelError,
)
from ..runtime.opening import open_log
from ..runtime.planning import STEP as PLANNER_STEP
from ..runtime.request import Prompt, prompt_of
from ..runtime.rules import Rules, rules_of
from ..runtime.runnable import Runnable, all_members
from ..runtime.toolport import Tool, ToolFailed, ToolSource, ToolSourceFactory, ToolTimedOut
from ..runtime.tools import without_injected
from .archive import from_jsonl
from .inputs import inputs_of, without_cancels
from .recorded_functions import Values, recorded, values_of
from .scripts import Told, run_and_step
from .stage import Case, executor_factory, play
from .trace import Trace, load_trace

SHOWN_MAX = 60
_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded model call: its request as R12 sees it, and the reply. `model` is that which was asked."""

    digest: str
    phase: str
    model: str
    rules: Rules
    prompt: Prompt
    tools: tuple[ToolSpec, ...]
    reply: tuple[Delta, ...] = ()
    failure: ModelFailed | None = None


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded tool call: what was seen of it (children it started among them) in order, and its result."""

    call: ToolCall
    shown: tuple[Event, ...]
    result: ToolResult


class Recording:
    """What a family's models and tools said."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.answers: list[Answered] = []
        self.calls: dict[tuple[str, int | None, int], list[Called]] = {}
        self.submitted: dict[str, Submitted] = {}
        self.values: Values = {}
        self.tools: dict[str, tuple[ToolSpec, ...]] = {}
        self.hydrated: dict[str, MemoryHydrated] = {}
        self.found: dict[str, KnowledgeFound] = {}
        runs: dict[str, list[Event]] = {}
        for event in trace.events:
            runs.setdefault(event.run_id, []).append(event)
            if isinstance(event, Submitted):
                self.submitted[event.run_id] = event
            elif isinstance(event, MemoryHydrated):
                self.hydrated[event.agent] = event
            elif isinstance(event, KnowledgeFound):
                self.found[self.submitted[event.run_id].input] = event
            elif isinstance(event, Prepared):
                injected = self.submitted[event.run_id].config.get("injected_tool_args") or {}
                own = [without_injected(spec, injected) for spec in event.tools]
                copies = {spec.name: spec for spec in (*own, *self.tools.get(event.agent, ()))}
                self.tools[event.agent] = tuple(copies.values())
        for events in runs.values():
            self.answers += _answers(events)
            for key, called in _calls(events):
                self.calls.setdefault(key, []).append(called)
            for asked, values in values_of(events).items():
                self.values.setdefault(asked, []).extend(values)

    @property
    def root(self) -> Submitted:
        """How the root run was submitted. Raises `ConfigError` for a trace without one."""
        found = self.submitted.get(self.trace.root)
        if found is None:
            raise ConfigError("the trace does not hold the first commit of its root run")
        return found

    def runnable(self, submitted: Submitted) -> Runnable[Any]:
        """What ran, with its functions as they are recorded."""
        return recorded(runnable_of(submitted.kind, submitted.config), self.values)


def _answers(events: list[Event]) -> Iterator[Answered]:
    """The model calls of one run whose replies were stored."""
    path = events[0].agent_path
    state = RunState()
    asked: Answered | None = None
    reply: list[Delta] = []
    for event in events:
        if len(event.agent_path) > len(path):
            continue
        match event:
            case ModelRequested() if state.submitted is not None:
                asked, reply = _asked(state, rules_of(state.submitted.config), event), []
            case Reasoning():
                reply.append(ReasoningDelta(event.text))
            case Text() if event.step is not None:
                reply.append(TextDelta(event.text))
            case ModelFailed(retry_at=None) if asked is not None:  # given up, or a fallback was asked instead
                yield msgspec.structs.replace(asked, failure=event)
            case Usage() if asked is not None:
                calls = [each for each in events if isinstance(each, ToolCall) and each.step == event.step]
                reply += _deltas(calls)
                yield msgspec.structs.replace(asked, reply=(*reply, _end(event, calls)))
            case SummaryMade() if asked is not None:
                yield msgspec.structs.replace(asked, reply=(TextDelta(event.text), _end(event, ())))
            case PlannerReplied() if asked is not None:
                said = [TextDelta(event.text), *_deltas(_planner_calls(event))]
                yield msgspec.structs.replace(asked, reply=(*said, _end(event, event.calls)))
            case _:
                pass
        apply(state, _own(event), event.at)  # type: ignore[arg-type] # an event as it is stored


def _asked(state: RunState, rules: Rules, event: ModelRequested) -> Answered:
    """A model call as it is decided on."""
    prompt = prompt_of(state, rules, event.phase)
    return Answered(
        digest=event.digest,
        phase=event.phase,
        model=event.model or rules.model,
        rules=rules,
        prompt=msgspec.structs.replace(prompt, messages=tuple(prompt.messages)),
        tools=tuple(state.tools.values()),
    )


def _end(event: Usage | PlannerReplied | SummaryMade, calls: Sequence[object]) -> Finished:
    return Finished(
        reason="tool_calls" if calls else "stop",
        usage=event.usage,
        usage_source=event.source,
        model=event.model,
        cost_usd=event.cost_usd,
    )


def _own(event: Event) -> Event:
    """The event as stored: without its path, by which a fold tells forwarded ones."""
    return msgspec.structs.replace(event, agent_path="")


def _deltas(calls: Sequence[ToolCall]) -> Iterator[CallDelta]:
    for index, call in enumerate(calls):
        written = {**call.arguments, **call.injected_args}
        text = call.raw_arguments if call.raw_arguments is not None else canonical_json(written).decode()
        yield CallDelta(index=index, id=call.tool_call_id or "", name=call.tool_name, arguments=text)


def _planner_calls(event: PlannerReplied) -> list[ToolCall]:
    """What the planner asked for, as a step would."""
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


def _calls(events: list[Event]) -> Iterator[tuple[tuple[str, int | None, int], Called]]:
    """The settled tool calls of one run by (path, step, index)."""
    path = events[0].agent_path
    indices: dict[int | None, int] = {}
    for event in _asked_for(events):
        if event.agent_path != path:
            continue
        index = indices[event.step] = indices.get(event.step, -1) + 1
        own = [e for e in events if (e.step or 0, e.tool_call_id) == (event.step, event.tool_call_id)]
        results = [e for e in map(_as_result, own) if e is not None and e.agent_path == path]
        shown = tuple(
            e
            for e in own
            if isinstance(e, McpProgress | Custom | ChildStarted) or e.agent_path != path or _is_question(e)
        )
        if results:
            yield (path, event.step, index), Called(call=event, shown=shown, result=results[-1])


def _is_question(event: Event) -> bool:
    return isinstance(event, ApprovalRequested) and event.kind == QUESTION


def _asked_for(events: list[Event]) -> Iterator[ToolCall]:
    for event in events:
        if isinstance(event, ToolCall):
            yield event
        elif isinstance(event, PlannerReplied):
            yield from _planner_calls(event)


def _as_result(event: Event) -> ToolResult | None:
    if isinstance(event, PlannerToolReturned):
        return ToolResult(
            tool_name=event.tool_name,
            success=event.success,
            result=event.result,
            error=event.error,
            agent_path=event.agent_path,
        )
    return event if isinstance(event, ToolResult) else None


# --- the model --------------------------------------------------------------------------------------------------------


class RecordedProvider:
    """Answers from traces: the model is the path of one, or the id of a run; any name with a recording given.

    A run is looked for in the log of `NATS_URL` (else the project's own), namespace `FOLDLOG_NAMESPACE`.
    """

    def __init__(self, recording: Recording | None = None, *, strict: bool = True) -> None:
        self._given, self._strict = recording, strict
        self._read: dict[str, Recording] = {}

    def check(self, model: str) -> None:
        """Raise `ConfigError` for a file that holds no trace. A run is looked for when it is needed."""
        if self._given is None and not _is_run(model):
            self._read_file(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """The recorded reply. Raises `InvalidRequest` where a strict one differs, and for a trace that is not there."""
        try:
            recording = await self._recording(request.model)
        except (ConfigError, RunNotFound, LogCorrupted) as error:
            raise InvalidRequest(str(error)) from None
        except LogUnavailable as error:
            raise TransientModelError(str(error)) from None
        found = self._answer(request, recording.answers)
        if found.failure is not None:
            raise MODEL_ERRORS.get(found.failure.error_type, InvalidRequest)(found.failure.error)
        for delta in found.reply:
            yield delta

    async def aclose(self) -> None:
        """Nothing is held open."""

    async def _recording(self, model: str) -> Recording:
        if self._given is not None:
            return self._given
        if model in self._read or not _is_run(model):
            return self._read_file(model)
        namespace = os.environ.get("FOLDLOG_NAMESPACE", "default")
        async with open_log(None, namespace, name="recorded", lease_s=10.0) as log:
            self._read[model] = Recording(await load_trace(log, model))
        return self._read[model]

    def _read_file(self, model: str) -> Recording:
        if model not in self._read:
            try:
                self._read[model] = Recording(from_jsonl(Path(model).read_bytes()))
            except OSError as error:
                raise ConfigError(f"the trace {model} cannot be read: {error.strerror}") from None
        return self._read[model]

    def _answer(self, request: ModelRequest, answers: Sequence[Answered]) -> Answered:
        answers = [
            each
            for each in sorted(answers, key=lambda each: each.model != request.model)
            if each.model == request.model or each.failure is None or not each.failure.next_model
        ]
        asked = [each for each in answers if _digest(request, each.model) == each.digest]
        asked.sort(key=lambda each: each.prompt.round != request.round)  # a cut may make two rounds alike
        if asked:
            return next((each for each in asked if _holds(each, request.attempt)), asked[-1])
        same = [answered for answered in answers if answered.phase == request.phase]
        nearest = max(same, key=lambda answered: _likeness(request, answered), default=None)
        if nearest is None:
            raise InvalidRequest("the trace holds no reply of a model")
        if self._strict or request.round != nearest.prompt.round:
            raise InvalidRequest(
                f"the request differs from the recorded one: {_difference(request, nearest)}"
            )
        return nearest


def _holds(answered: Answered, attempt: int) -> bool:
    """Whether it is what this attempt came to: a failure holds until the run gave up, and maybe paused and went on."""
    return answered.failure is None or attempt <= answered.failure.attempt


def _is_run(model: str) -> bool:
    """Whether the name is that of a run, and not of a file that is there."""
    return _RUN.fullmatch(model) is not None and not Path(model).exists()


def _digest(request: ModelRequest, model: str) -> str:
    """The R12 digest of a request, as if it went to the recorded model."""
    digest = ""
    for message in request.messages:
        digest = chain(digest, message, request.places)
    closing = {
        "messages": digest,
        "tools": [msgspec.to_builtins(tool) for tool in request.tools],
        "tool_choice": None,
        "output_schema": request.output_schema,
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "model": model,
    }
    return sha256_hex(canonical_json(closing))


def _likeness(request: ModelRequest, answered: Answered) -> tuple[bool, int]:
    """How near a recorded request comes: the same round of a run, and how many messages are the same first."""
    prompt = answered.prompt
    pairs = zip(request.messages, prompt.messages, strict=False)
    common = next((n for n, (a, b) in enumerate(pairs) if _said(a) != _said(b)), len(prompt.messages))
    return request.round == prompt.round, common


def _said(message: Message) -> tuple[Any, ...]:
    return message.role, message.content, tuple((call.name, call.arguments) for call in message.tool_calls)


def _difference(request: ModelRequest, answered: Answered) -> str:
    """The first difference in words."""
    for number, (now, then) in enumerate(zip_longest(request.messages, answered.prompt.messages), start=1):
        if now is None or then is None or _said(now) != _said(then):
            return f"message {number} is {_shown(now)}, and was {_shown(then)}"
    rules = answered.rules
    tools = [msgspec.to_builtins(tool) for tool in request.tools]
    for name, now_, then_ in (
        ("tools", tools, [msgspec.to_builtins(tool.schema) for tool in answered.tools]),
        ("output_schema", request.output_schema, answered.prompt.output_schema),
        ("temperature", request.temperature, rules.temperature),
        ("max_tokens", request.max_tokens, rules.max_tokens),
    ):
        if now_ != then_:
            return f"{name}: {_short(now_)}, and was {_short(then_)}"
    return "the calls of its messages stand at other places"


def _shown(message: Message | None) -> str:
    return "nothing" if message is None else f"{message.role}: {_short(_said(message)[1:])}"


def _short(value: Any) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


# --- the tools --------------------------------------------------------------------------------------------------------


class RecordedTool:
    """A tool that does again what the recorded calls at its places did, and nothing in the world."""

    def __init__(self, spec: ToolSpec, recording: Recording, *, strict: bool) -> None:
        self.spec = spec
        self._recording, self._strict = recording, strict

    async def call(self, arguments: Mapping[str, Any], context: Any) -> Any:
        """Show and return what was recorded. Raises `ToolFailed` where the recorded call failed, or is another one."""
        _, step, index = context.idempotency_key.rsplit(":", 2)
        known = self._recording.calls.get((context.agent_path, int(step), int(index)), [])
        fitting = [each for each in known if self._fits(each, arguments)]
        if not fitting:
            was = f"{known[0].call.tool_name} {_short(known[0].call.arguments)}" if known else "none"
            asked = f"{self.spec.name} with {_short(dict(arguments))}"
            raise ToolFailed(f"no recorded call of {asked} at {step}.{index}; there was {was}")
        return await self._again(fitting[0], context)

    def _fits(self, called: Called, arguments: Mapping[str, Any]) -> bool:
        same = called.call.tool_name == self.spec.name
        edited = called.result.metadata.get("edited_arguments", called.call.arguments)
        return same and (not self._strict or dict(arguments) == edited)

    async def _again(self, called: Called, context: Any) -> Any:
        for event in called.shown:
            await self._show(called, event, context)
        result = called.result
        evidence = result.metadata.get("evidence", ())
        context.evidence += [msgspec.convert(each, ArtifactRef) for each in evidence]
        if result.success:
            return result.result
        if result.metadata.get("status") == "timed_out":
            late = ToolTimedOut(0.0)
            late.args, late.result = (result.error or "",), result.result
            raise late
        raise ToolFailed(result.error or "", result=result.result)

    async def _show(self, called: Called, event: Event, context: Any) -> None:
        inner = event.agent_path[len(called.call.agent_path) + 1 :]
        match event:
            case ApprovalRequested() if not inner:
                asked = event.arguments
                await context.ask(asked["message"], asked["schema"], name=asked["name"])
            case _ if inner:
                context.emit(msgspec.structs.replace(event, agent_path=inner))
            case McpProgress():
                context.progress(event.progress, event.total, event.message)
            case Custom():
                context.emit(Custom(event.name, event.data))
            case ChildStarted() if event.child_run in self._recording.submitted:
                child = self._recording.submitted[event.child_run]
                with contextlib.suppress(ToolFailed):  # what the tool made of it is recorded
                    await context.run(self._recording.runnable(child), child.input)
            case _:
                pass


class _RecordedMemory:
    """Remembers what the recorded runs remembered (`MemoryStore`)."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def recall(self, scope: Scope, keys: MemoryKeys, limit: int) -> Sequence[MemoryItem]:
        """What a run of this agent was told."""
        recorded = self._recording.hydrated.get(keys.agent)
        messages = msgspec.convert(recorded.messages if recorded is not None else [], tuple[Message, ...])
        return [MemoryItem(id="recorded", messages=messages)] if messages else []

    async def aclose(self) -> None:
        """Nothing is held open."""


class _RecordedKnowledge:
    """Finds what the recorded runs found (`KnowledgeStore`)."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        """What a run with this input found."""
        recorded = self._recording.found.get(query)
        return msgspec.convert(recorded.items if recorded is not None else [], list[KnowledgeItem])

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        """Nothing is added to a recording."""
        return ()


class _NoServers:
    """Stands for tool servers: their tools are recorded."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools

    def check(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        """Nothing is connected to."""

    async def open(self, servers: Mapping[str, Mapping[str, Any]]) -> ToolSource:
        return self

    async def aclose(self) -> None:
        """Nothing is held open."""


class _Announced:
    """A model that says that it was called, before it answers."""

    def __init__(self, inner: ModelProvider, called: Told) -> None:
        self._inner, self._called = inner, called

    def check(self, model: str) -> None:
        self._inner.check(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        await self._called(*run_and_step(request))
        async for delta in self._inner.stream(request):
            yield delta

    async def aclose(self) -> None:
        await self._inner.aclose()


class RecordedRegistry(Registry):
    """Agents of a recording, or one given instead, with recorded tools and models."""

    def __init__(
        self,
        recording: Recording,
        agent: Runnable[Any] | None = None,
        *,
        strict: bool = True,
        called: Told | None = None,
    ) -> None:
        agents: dict[str, Runnable[Any]] = {}
        for each in recording.submitted.values():  # a copy that an agent made of itself does not stand for it
            agents.setdefault(each.config["name"], recording.runnable(each))
        if agent is not None:
            agents[agent.name] = recorded(agent, recording.values)
        super().__init__(agents=agents.values())
        self._recording, self._strict = recording, strict
        self._model: ModelProvider = RecordedProvider(recording, strict=strict)
        if called is not None:
            self._model = _Announced(self._model, called)

    def check(self, runnable: Runnable[Any]) -> None:
        """As every registry, but for members that did not run: nothing of them is recorded."""
        for each in all_members(runnable):
            if each is runnable or each.name in self._recording.tools:
                self.resolve(each)

    def resolve(self, agent: Runnable[Any]) -> dict[str, Tool]:
        """The agent's tools, recorded: each under its own specification if the agent brings it, else the recorded."""
        if not isinstance(agent, Agent):
            return {}
        specs = {spec.name: spec for spec in self._recording.tools.get(agent.name, ())}
        specs |= {name: each.spec for name, each in agent.tools.items()}
        names = python_tool_names(agent.config)
        missing = [name for name in names if name not in specs]
        if missing:
            raise ConfigError(f"agent {agent.name!r}: the recording has no tool {missing[0]!r}")
        return {name: self._tool(specs[name]) for name in names}

    def _tool(self, spec: ToolSpec) -> Tool:
        return RecordedTool(spec, self._recording, strict=self._strict)

    def provider(self, model: str) -> tuple[ModelProvider, str]:
        """The recording, whatever the model; the request names it with its provider."""
        return self._model, model

    def price(self, model: str, usage: TokenUsage) -> Decimal | None:
        """What a call cost is in the recording, or is not known."""
        return None

    def memory(self, backend: str, log: Log) -> MemoryStore:
        """What the recorded runs were told of earlier ones, by the agent that asks."""
        return _RecordedMemory(self._recording)

    def knowledge(self, namespace: str) -> KnowledgeStore:
        """What the recorded runs found, by their input."""
        return _RecordedKnowledge(self._recording)

    def tool_sources(self) -> ToolSourceFactory:
        """No server is connected to."""
        every = {spec.name: spec for specs in self._recording.tools.values() for spec in specs}
        return _NoServers({name: self._tool(spec) for name, spec in every.items() if spec.source != "python"})


async def rerun(
    trace: Trace | Recording,
    *,
    agent: Runnable[Any] | None = None,
    strict: bool = True,
    executor: str = "local",
    log: Log | None = None,
    timeout_s: float = 60.0,
) -> Trace:
    """Run a recorded family again, told what it was told, and return the trace of that.

    `agent`: as it is now, in the place of the recorded one of its name; its tools are recorded all the same. `strict`:
    a request or a call that differs fails the run, and its `error` says where. `executor`: `local` or `durable`. `log`:
    a fresh `MemoryLog` if none. A cancel is not repeated: the run fails where its recording ends.

    Raises `ConfigError` for a trace that is not whole.
    """
    recording = trace if isinstance(trace, Recording) else Recording(trace)
    root = recording.root
    if root.fork is not None:
        raise ConfigError(
            f"a fork shares what it did not do itself: run {root.fork.run} again, which it left"
        )
    name = str(root.config["name"])
    if agent is not None and agent.name != name:
        raise ConfigError(f"the trace is of the agent {name!r}, not of {agent.name!r}")
    case = Case(
        agent=recorded(agent, recording.values) if agent is not None else recording.runnable(root),
        input=root.input,
        cast=lambda called: RecordedRegistry(recording, agent, strict=strict, called=called),
        log=log if log is not None else MemoryLog(),
        messages=tuple(root.messages),
        session=root.session,
        metadata=root.metadata,
        timeout_s=timeout_s,
    )
    played = await play(
        case, executor, executor_factory(executor), without_cancels(inputs_of(recording.trace))
    )
    return played.trace
