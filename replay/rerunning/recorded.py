"""Run a stored run again with its recorded model replies and tool results: no network, no cost, no effects.

    trace = await rerun(recorded)                       # strict: a request that differs fails the run
    trace = await rerun(recorded, agent=AGENT, strict=False)

A request gets the reply recorded at its place (`recording`), if its R12 digest is the same. If it is not, a strict run
fails with the first difference, and a lenient one takes the reply anyway. A tool emits and returns what the call at its
place did. Children are run again, with their own recorded answers. A fork begins with its shared history.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from ...eventlog.errors import ConfigError, LogCorrupted, LogUnavailable, RunNotFound
from ...eventlog.events import (
    ApprovalRequested,
    ChildFinished,
    ChildStarted,
    Custom,
    Event,
    McpProgress,
    TokenUsage,
    ToolPartial,
    ToolResult,
    ToolSpec,
    WaitStarted,
)
from ...eventlog.files import read_regular
from ...eventlog.memory import MemoryLog
from ...eventlog.names import new_run_id, run_subject
from ...eventlog.ports import Log
from ...projections.call_texts import PARTIAL, parts_in
from ...projections.messages import Message, canonical_json, chain
from ...runtime import Agent, Registry
from ...runtime.agents.config import python_tool_names
from ...runtime.core.lineage import given_model, with_model
from ...runtime.core.model_request import closed_digest, deciding
from ...runtime.executors.installed import executor_factory
from ...runtime.forks.family import Ancestors, reopen
from ...runtime.forks.storage import store
from ...runtime.opening import open_log
from ...runtime.ports.evidence import Evidence
from ...runtime.ports.knowledge import KnowledgeItem, KnowledgeStore
from ...runtime.ports.memory import MemoryItem, MemoryKeys, MemoryStore, Scope
from ...runtime.ports.models import (
    Delta,
    InvalidRequest,
    ModelProvider,
    ModelRequest,
    ModelSettings,
    NativeTool,
    TransientModelError,
    WrappedModel,
    model_error,
)
from ...runtime.ports.runnable import Runnable, all_members
from ...runtime.ports.tools import ChildFailed, Tool, ToolFailed, ToolSource, ToolSourceFactory, ToolTimedOut
from ...runtime.tools.context import ArtifactRef
from ...runtime.tools.run_context import RunContext
from ...runtime.tools.verified import Verification
from ..parity.inputs import inputs_of, without_cancels
from ..parity.scripts import OnModelCall, run_and_step
from ..parity.stage import LEASE_S, Case, play
from ..replaying.replaying import as_decided, check_artifacts
from ..traces.archive import from_jsonl
from ..traces.functions import recorded
from ..traces.recording import RecordedAnswer, RecordedCall, RecordedRun, Recording, RecordingEnd, RunMatcher
from ..traces.requests import Request, differing_parts, in_words
from ..traces.trace import Trace, load_trace

SHOWN_MAX = 60
_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


# --- the model --------------------------------------------------------------------------------------------------------


class Again(msgspec.Struct, frozen=True):
    """A recorded family that runs again: its runs matched with the recorded ones, and the end of the recording."""

    places: RunMatcher
    end: RecordingEnd | None = None


class _Answers:
    """Finds the recorded answer to a request."""

    def __init__(self, recording: Recording, places: RunMatcher, again: Again | None = None) -> None:
        self._recording, self._places = recording, places
        self._by_name, self._end = again is not None, again.end if again is not None else None

    async def find(self, request: ModelRequest, *, strict: bool) -> RecordedAnswer:
        """Return the answer at the request's place, otherwise one to the same request.

        Raises `InvalidRequest`: if strict, for a request that differs; if lenient, when that round has no request.
        """
        by_name = self._by_name
        asking = run_and_step(request)[0]
        run = self._places.of(asking, lambda each: _fits(each, request))
        here = run.at(request.phase, request.round) if run is not None else []
        if run is not None and not here and self._end is not None and self._end.is_open(asking):
            await self._end.wait()
        same = [each for each in here if _digest(request, each.model) == each.digest]
        found = _at_attempt(same, request, by_name=by_name) or self._elsewhere(request, run)
        if found is not None and not (strict and by_name and request.model != found.model):
            return found
        nearest = _at_attempt(here, request, by_name=False) or self._nearest(request)
        if nearest is None:
            raise InvalidRequest("the trace has no reply of a model")
        if strict and run is not None and not here:
            raise InvalidRequest(
                f"the recording ends before this: its run {run.run} has no {_call_named(request)}"
            )
        if strict or request.round != nearest.round:
            raise InvalidRequest(
                f"the request differs from the recorded one: {_difference(request, nearest, by_name=by_name)} "
                f"({_call_named(request)})"
            )
        return nearest

    def _elsewhere(self, request: ModelRequest, run: RecordedRun | None) -> RecordedAnswer | None:
        """Return the answer to the same request of another run, for a run that has no place in the recording."""
        if run is not None and run.at(request.phase, request.round):
            return None
        same = [each for each in self._recording.answers if _digest(request, each.model) == each.digest]
        return _at_attempt(same, request, by_name=False)

    def _nearest(self, request: ModelRequest) -> RecordedAnswer | None:
        same = [each for each in self._recording.answers if each.phase == request.phase]
        return max(same, key=lambda each: _likeness(request, each), default=None)


def _answers_of(trace: Trace) -> _Answers:
    recording = Recording(trace)
    return _Answers(recording, RunMatcher(recording))


def _fits(run: RecordedRun, request: ModelRequest) -> bool:
    """Return whether the run's record has this request."""
    here = run.at(request.phase, request.round)
    return any(_digest(request, each.model) == each.digest for each in here)


def _at_attempt(
    answers: Sequence[RecordedAnswer], request: ModelRequest, *, by_name: bool
) -> RecordedAnswer | None:
    """Return the answer that ended this attempt: the first of a call's answers that is not from an earlier attempt.

    A failure that led to a fallback model applies only to the model that failed.
    """
    named = [each for each in answers if each.model == request.model]
    others = (
        []
        if by_name and named
        else [
            each
            for each in answers
            if each.model != request.model and (each.failure is None or not each.failure.next_model)
        ]
    )
    fitting = [*named, *others]
    return next(
        (each for each in fitting if each.attempt >= request.attempt), fitting[-1] if fitting else None
    )


def _call_named(request: ModelRequest) -> str:
    """Return the call in words."""
    return f"{request.phase} call {request.round}" if request.phase else f"model call of step {request.round}"


class RecordedProvider:
    """Replies from traces: the model's name is the path of one or the id of a run; any name, if a recording is given.

    A run is loaded from the log at `NATS_URL` (default: the project's own), namespace `FOLDLOG_NAMESPACE`.
    """

    def __init__(
        self, recording: Recording | None = None, *, strict: bool = True, again: Again | None = None
    ) -> None:
        """`again` is given if the recording's root is run again; then the names of the models must match too."""
        self._given, self._strict = recording, strict
        self._read: dict[str, _Answers] = {}
        places = (
            again.places if again is not None else RunMatcher(recording) if recording is not None else None
        )
        self._of_given = (
            _Answers(recording, places, again) if recording is not None and places is not None else None
        )

    def check(self, model: str) -> None:
        """Raise `ConfigError` for a file without a trace. A run is looked up when it is needed."""
        if self._given is None and not _is_run(model):
            self._read_file(model)

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        """Return no unknown settings; the recording was made with those of its requests."""
        return {}

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        """Return None: the recording contains the calls of native tools."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the recorded reply. Raises `InvalidRequest` if there is no trace or (strict) the request differs."""
        try:
            answers = await self._answers(request.model)
        except (ConfigError, RunNotFound, LogCorrupted) as error:
            raise InvalidRequest(str(error)) from None
        except LogUnavailable as error:
            raise TransientModelError(str(error)) from None
        found = await answers.find(request, strict=self._strict)
        failure = found.failure_at(request.attempt)
        if failure is not None:
            failed = model_error(
                failure.error_type,
                failure.error,
                window_tokens=failure.window_tokens,
                request_tokens=failure.request_tokens,
            )
            failed.usage, failed.cost_usd = failure.usage, failure.cost_usd
            raise failed
        for delta in found.reply:
            yield delta

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    async def _answers(self, model: str) -> _Answers:
        if self._of_given is not None:
            return self._of_given
        if model in self._read or not _is_run(model):
            return self._read_file(model)
        namespace = os.environ.get("FOLDLOG_NAMESPACE", "default")
        async with open_log(None, namespace, name="recorded", lease_s=10.0) as log:
            self._read[model] = _answers_of(await load_trace(log, model))
        return self._read[model]

    def _read_file(self, model: str) -> _Answers:
        if model not in self._read:
            try:
                self._read[model] = _answers_of(from_jsonl(read_regular(model)))
            except OSError as error:
                raise ConfigError(f"the trace {model} cannot be read: {error.strerror}") from None
        return self._read[model]


def _holds(answered: RecordedAnswer, attempt: int) -> bool:
    """Return whether the answer is that of this attempt; a failure applies up to the attempt that gave up."""
    return answered.failure is None or attempt <= answered.failure.attempt


def _is_run(model: str) -> bool:
    """Return whether the name is that of a run, not of an existing file."""
    return _RUN.fullmatch(model) is not None and not Path(model).exists()


def _digest(request: ModelRequest, model: str) -> str:
    """Return the R12 digest of a request as if it were sent to the recorded model."""
    digest = request.messages_digest
    for message in () if digest else request.messages:
        digest = chain(digest, message, request.places)
    deciders = deciding(request.settings, request.native_tools)
    return closed_digest(digest, request.tools, request.output_schema, deciders, model)


def _likeness(request: ModelRequest, answered: RecordedAnswer) -> tuple[bool, int]:
    """Rank a recorded request: whether it is of the same round, and how many of the first messages are equal."""
    prompt = answered.prompt
    pairs = zip(request.messages, prompt.messages, strict=False)
    common = next((n for n, (a, b) in enumerate(pairs) if _said(a) != _said(b)), len(prompt.messages))
    return request.round == prompt.round, common


def _said(message: Message) -> tuple[Any, ...]:
    return message.role, message.content, tuple((call.name, call.arguments) for call in message.tool_calls)


def _difference(request: ModelRequest, answered: RecordedAnswer, *, by_name: bool) -> str:
    """Describe how a request differs from a recorded one."""
    now = Request(
        messages=tuple(request.messages),
        tools=tuple(request.tools),
        parameters={
            "output_schema": request.output_schema,
            **deciding(request.settings, request.native_tools),
            "model": request.model if by_name else answered.model,
        },
    )
    return in_words(differing_parts(answered.request, now), "in the recording", "now")


def _short(value: Any) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


# --- the tools --------------------------------------------------------------------------------------------------------


class RecordedTool:
    """A tool that emits and returns what the recorded calls at its places did, without any effect."""

    def __init__(self, spec: ToolSpec, recording: Recording, again: Again, *, strict: bool) -> None:
        self.spec = spec
        self._recording, self._strict = recording, strict
        self._places, self._end = again.places, again.end
        keys = itertools.count()
        self.once = lambda _: f"recorded-{id(self)}-{next(keys)}"
        """Returns a new key for each call, since each call has its own recorded outcome."""

    async def call(self, arguments: Mapping[str, Any], context: Any) -> Any:
        """Emit and return what was recorded. Raises `ToolFailed` if the recorded call failed, or is a different one."""
        run, step, index = context.idempotency_key.rsplit(":", 2)
        place = int(step), int(index)
        recorded = self._places.of(run, lambda each: self._has(each, context.agent_path, place, arguments))
        called = recorded.calls.get(place) if recorded is not None else None
        if called is None or not self._fits(called, arguments):
            was = f"{called.call.tool_name} {_short(called.call.arguments)}" if called is not None else "none"
            asked = f"{self.spec.name} with {_short(dict(arguments))}"
            raise ToolFailed(f"no recorded call of {asked} at {step}.{index}; there was {was}")
        await self._show_all(called, context)
        if called.result is not None:
            return self._returned(called.result, context)
        if self._end is not None and self._end.is_open(run):
            await self._end.wait()
        raise ToolFailed(f"the recording has no result of the call at {step}.{index}")

    async def verify(self, arguments: Mapping[str, Any], context: Any, own: Evidence | None) -> Verification:
        """Return the recorded verification; nothing is verified again."""
        run, step, index = context.idempotency_key.rsplit(":", 2)
        recorded = self._places.of(run, lambda _: False)
        called = recorded.calls.get((int(step), int(index))) if recorded is not None else None
        metadata = called.result.metadata if called is not None and called.result is not None else {}
        return Verification(report=metadata.get("postcondition", ()))

    def _has(self, run: RecordedRun, path: str, place: tuple[int, int], arguments: Mapping[str, Any]) -> bool:
        return run.path == path and place in run.calls and self._fits(run.calls[place], arguments)

    def _fits(self, called: RecordedCall, arguments: Mapping[str, Any]) -> bool:
        same = called.call.tool_name == self.spec.name
        metadata = called.result.metadata if called.result is not None else {}
        edited = metadata.get("edited_arguments", called.call.arguments)
        return same and (not self._strict or dict(arguments) == edited)

    async def _show_all(self, called: RecordedCall, context: Any) -> None:
        """Emit the call's events in order; a child runs for as long, relative to them, as it did when recorded."""
        running: dict[str, asyncio.Future[None]] = {}
        for event in called.shown:
            inner = len(event.agent_path) > len(called.call.agent_path)
            if isinstance(event, ChildStarted) and not inner:
                if event.child_run in self._recording.submitted:
                    running[event.child_run] = asyncio.ensure_future(self._run(event.child_run, context))
            elif isinstance(event, ChildFinished) and not inner:
                if event.child_run in running:
                    await running.pop(event.child_run)
            else:
                for _ in range(
                    len(running) + 1 if running else 0
                ):  # let each child announce itself before the next one
                    await asyncio.sleep(0)
                await self._show(called, event, context)
        await asyncio.gather(*running.values())

    async def _run(self, child_run: str, context: Any) -> None:
        child = self._recording.submitted[child_run]
        with contextlib.suppress(ToolFailed):  # the tool's reaction is recorded
            await context.run(self._recording.runnable(child), list(child.parts) or child.input)

    def _returned(self, result: ToolResult, context: Any) -> Any:
        if PARTIAL in result.metadata:
            raise ToolTimedOut(0.0)
        evidence = result.metadata.get("evidence", ())
        context.evidence += [msgspec.convert(each, ArtifactRef) for each in evidence]
        if result.success or "postcondition" in result.metadata:  # a postcondition reports its own failure
            return list(parts_in(result.result)) if result.in_parts else result.result
        status = result.metadata.get("status")
        if status == "timed_out":
            late = ToolTimedOut(0.0)
            late.args, late.result = (result.error or "",), result.result
            raise late
        if status == "aborted":
            raise ChildFailed(result.error or "", status="cancelled", run_id="")
        raise ToolFailed(result.error or "", result=result.result)

    async def _show(self, called: RecordedCall, event: Event, context: Any) -> None:
        inner = event.agent_path[len(called.call.agent_path) + 1 :]
        match event:
            case ApprovalRequested() if not inner:
                asked = event.arguments
                await context.ask(asked["message"], asked["schema"], name=asked["name"])
            case WaitStarted(kind="sleep") if not inner:
                await context.sleep(until=datetime.fromtimestamp(event.until or 0.0, UTC))
            case WaitStarted(kind="callback") if not inner:
                timeout_s = None if event.until is None else max(0.0, event.until - event.at)
                await (await context.callback(event.name, timeout_s=timeout_s)).outcome()
            case WaitStarted() if not inner:
                timeout_s = None if event.until is None else max(0.0, event.until - event.at)
                await context.wait_for(event.name, schema=event.schema, timeout_s=timeout_s)
            case _ if inner:
                context.emit(msgspec.structs.replace(event, agent_path=inner))
            case McpProgress(tool_name=name) if name == called.call.tool_name:
                context.progress(event.progress, event.total, event.message)
            case McpProgress() | Custom() | ToolPartial():
                context.emit(msgspec.structs.replace(event, agent="", agent_path=""))
            case _:
                pass


class _RecordedMemory:
    """The recorded memories as a `MemoryStore`."""

    def __init__(self, recording: Recording, places: RunMatcher) -> None:
        self._recording, self._places = recording, places

    async def recall(self, scope: Scope, keys: MemoryKeys, limit: int) -> Sequence[MemoryItem]:
        """Return the messages recorded for this run, or for the first unmatched run of its agent."""
        hydrated = self._recording.hydrated
        run = self._places.of(keys.run, lambda each: each.run in hydrated and _agent_of(each) == keys.agent)
        recorded = hydrated.get(run.run) if run is not None else None
        messages = msgspec.convert(recorded.messages if recorded is not None else [], tuple[Message, ...])
        return [MemoryItem(id="recorded", messages=messages)] if messages else []

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def _agent_of(run: RecordedRun) -> str:
    return run.path.rpartition("/")[2]


class _RecordedKnowledge:
    """The recorded findings as a `KnowledgeStore`."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def search(self, query: str, limit: int) -> Sequence[KnowledgeItem]:
        """Return the findings recorded for a run with this input."""
        recorded = self._recording.found.get(query)
        return msgspec.convert(recorded.items if recorded is not None else [], list[KnowledgeItem])

    async def add(self, text: str, source: str = "") -> Sequence[KnowledgeItem]:
        """Add nothing; a recording is read-only."""
        return ()


class _NoServers:
    """Replaces tool servers by their recorded tools."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools

    def check(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        """Accept any servers; none is connected."""

    async def open(self, servers: Mapping[str, Mapping[str, Any]]) -> ToolSource:
        return self

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class _Announced(WrappedModel):
    """A model provider that announces each call before it answers."""

    def __init__(self, inner: ModelProvider, called: OnModelCall) -> None:
        super().__init__(inner)
        self._called = called

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        await self._called(*run_and_step(request))
        async for delta in super().stream(request):
            yield delta


class RecordedRegistry(Registry):
    """The agents of a recording, one of which may be replaced, with recorded tools and models."""

    def __init__(
        self,
        recording: Recording,
        agent: Runnable[Any] | None = None,
        *,
        strict: bool = True,
        called: OnModelCall | None = None,
        again: Again | None = None,
    ) -> None:
        agents: dict[str, Runnable[Any]] = {}
        for each in (
            recording.submitted.values()
        ):  # the first wins: later ones may be copies with another configuration
            agents.setdefault(each.config["name"], recording.runnable(each))
        if agent is not None:
            agents[agent.name] = recorded(agent, recording.values)
        super().__init__(agents=agents.values())
        self._recording, self._strict = recording, strict
        self.files_elsewhere = recording.files
        self._again = again or Again(RunMatcher(recording))
        self._model: ModelProvider = RecordedProvider(recording, strict=strict, again=again)
        if called is not None:
            self._model = _Announced(self._model, called)

    def check(self, runnable: Runnable[Any]) -> None:
        """Check the runnable and those members that ran; nothing is recorded of the others."""
        for each in all_members(runnable):
            if each is runnable or each.name in self._recording.tools:
                self.resolve(each)

    def resolve(self, agent: Runnable[Any]) -> dict[str, Tool]:
        """Return the agent's tools, recorded; each has the agent's own specification if there is one."""
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
        return RecordedTool(spec, self._recording, self._again, strict=self._strict)

    def provider(self, model: str) -> tuple[ModelProvider, str]:
        """Return the recording as the provider of every model; it gets the whole name."""
        return self._model, model

    def price(self, model: str, usage: TokenUsage) -> Decimal | None:
        """Return None: the recording has the costs, where they are known."""
        return None

    async def instructions(self, agent: Agent[Any], run: RunContext[Any]) -> str:
        """Return the recorded instructions; the function of an agent that replaces the recorded one is called."""
        if agent.has_instructions_function:
            return await super().instructions(agent, run)
        told = self._recording.instructions
        found = self._again.places.of(
            run.run_id, lambda each: each.run in told and each.path == run.agent_path
        )
        return told.get(found.run, "") if found is not None else ""

    def told_plan(self, run: RunContext[Any]) -> str | None:
        """Return the plan as the recorded run's model saw it."""
        told = self._recording.standing_plans
        found = self._again.places.of(
            run.run_id, lambda each: each.run in told and each.path == run.agent_path
        )
        return told[found.run] if found is not None else None

    async def refusal_of(self, agent: Agent[Any], name: str, output: str, run: RunContext[Any]) -> str | None:
        """Return the recorded verdict on the same output; a registered validator judges any other output."""
        verdicts = self._recording.values.get((agent.name, name, output))
        if not verdicts:
            agent.check_functions()
            return await super().refusal_of(agent, name, output, run)
        verdict = verdicts.pop(0) if len(verdicts) > 1 else verdicts[0]
        if verdict.error is not None:
            raise ConfigError(verdict.error)
        refusal: str | None = verdict.value
        return refusal

    def memory(self, backend: str, log: Log) -> MemoryStore:
        """Return the memories of the recorded runs."""
        return _RecordedMemory(self._recording, self._again.places)

    def knowledge(self, namespace: str) -> KnowledgeStore:
        """Return the findings of the recorded runs."""
        return _RecordedKnowledge(self._recording)

    def tool_sources(self) -> ToolSourceFactory:
        """Return the recorded tools of all servers; none is connected."""
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
    """Run a recorded family again with its recorded inputs and answers, and return the new trace.

    `agent` replaces the recorded agent of its name; its tools are still recorded ones. With `strict`, a request or call
    that differs fails the run, and its `error` names the difference. `executor` is `local` or `durable`. `log` defaults
    to a new `MemoryLog`. A fork begins with its shared history. An unfinished or cancelled run is repeated as far as
    its recording goes; its trace has no end. Files keep their digests; the log gets none of
    their bytes, which nothing reads.

    Raises `ConfigError` for an incomplete trace.
    """
    recording = trace if isinstance(trace, Recording) else Recording(trace)
    check_artifacts(recording.trace)
    root, log = recording.root, log if log is not None else MemoryLog()
    name = str(root.config["name"])
    if agent is not None and agent.name != name:
        raise ConfigError(f"the trace is of the agent {name!r}, not of {agent.name!r}")
    runnable = recorded(agent, recording.values) if agent is not None else recording.runnable(root)
    run = new_run_id(0, log.clock)
    places = RunMatcher(recording, run)
    end = RecordingEnd(recording, places) if not recording.over else None
    again = Again(places, end)
    case = Case(
        agent=runnable,
        input=list(root.parts) or root.input,
        registry=lambda called: RecordedRegistry(recording, agent, strict=strict, called=called, again=again),
        log=log,
        messages=tuple(root.messages),
        session=root.session,
        user=root.user,
        metadata=root.metadata,
        policy=root.policy,
        timeout_s=timeout_s,
        run_id=run,
        begin=_begin_fork(recording, agent, log, run) if root.fork is not None else None,
        end=end,
    )
    inputs = without_cancels(inputs_of(recording.trace))
    return (await play(case, executor, executor_factory(executor), inputs)).trace


def _begin_fork(
    recording: Recording, agent: Runnable[Any] | None, log: Log, run: str
) -> Callable[[], Awaitable[None]]:
    """Return a function that stores the shared history of a recorded fork under the id of the new run."""
    trace = recording.trace
    ancestors, events = Ancestors(trace.root), iter(trace.events)
    for commit in trace.commits:
        read = [next(events) for _ in commit.commit.events]
        whole = [as_decided(a, b) for a, b in zip(commit.commit.events, read, strict=True)]
        ancestors.add(commit, whole)  # type: ignore[arg-type] # stored events
    submitted = ancestors.family[trace.root].submitted or recording.root
    if agent is not None:
        model, config = given_model(submitted), agent.to_config()
        config = config if model is None else with_model(submitted.kind, config, model)
        submitted = msgspec.structs.replace(submitted, config=config)

    async def begin() -> None:
        opening = reopen(ancestors.family, submitted, run, log.clock.now())
        await store(log, run_subject(0, run, run), opening, LEASE_S)

    return begin
