"""A run again, with the model's answers and the tools' results from a trace: no network, no cost, no effects.

    trace = await rerun(recorded)                       # strict: a request that differs fails, and says where
    trace = await rerun(recorded, agent=AGENT, strict=False)

A request is answered by what was answered at its place (`recording`), if its R12 digest is the same. Where it is not, a
strict run fails with the first difference; a lenient one takes the answer all the same. A tool shows and returns what
the call at its place did; children are run again, recorded themselves. A fork begins with what it shares.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
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
    ToolResult,
    ToolSpec,
)
from ...eventlog.files import read_regular
from ...eventlog.memory import MemoryLog
from ...eventlog.names import new_run_id, run_subject
from ...eventlog.ports import Log
from ...projections.messages import Message, canonical_json, chain, sha256_hex
from ...runtime import Agent, Registry
from ...runtime.agents.config import python_tool_names
from ...runtime.core.lineage import given_model, with_model
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
    TransientModelError,
    model_error,
)
from ...runtime.ports.runnable import Runnable, all_members
from ...runtime.ports.tools import ChildFailed, Tool, ToolFailed, ToolSource, ToolSourceFactory, ToolTimedOut
from ...runtime.tools.context import ArtifactRef
from ...runtime.tools.verified import Verification
from ..parity.inputs import inputs_of, without_cancels
from ..parity.scripts import Told, run_and_step
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
    """A recorded family that runs again: which run stands for which, and the end of a recording that has none."""

    places: RunMatcher
    end: RecordingEnd | None = None


class _Answers:
    """The answers of a recording, for runs that ask."""

    def __init__(self, recording: Recording, places: RunMatcher, again: Again | None = None) -> None:
        self._recording, self._places = recording, places
        self._by_name, self._end = again is not None, again.end if again is not None else None

    async def find(self, request: ModelRequest, *, strict: bool) -> RecordedAnswer:
        """The answer at the request's place, else one to the same request.

        Raises `InvalidRequest`: strict, for a request that differs; lenient, where nothing was asked in that round.
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
            raise InvalidRequest("the trace holds no reply of a model")
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
        """The answer to the same request of another run; for one that hangs nowhere in the recording."""
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
    """Of the answers to one call the one that ended this attempt: the first that came no earlier.

    One by which the call was handed to a fallback model was that model's only.
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
    """The call in words."""
    return f"{request.phase} call {request.round}" if request.phase else f"model call of step {request.round}"


class RecordedProvider:
    """Answers from traces: the model is the path of one, or the id of a run; any name with a recording given.

    A run is looked for in the log of `NATS_URL` (else the project's own), namespace `FOLDLOG_NAMESPACE`.
    """

    def __init__(
        self, recording: Recording | None = None, *, strict: bool = True, again: Again | None = None
    ) -> None:
        """`again`: the recording's root is run again; then the models' names count, too."""
        self._given, self._strict = recording, strict
        self._read: dict[str, _Answers] = {}
        places = (
            again.places if again is not None else RunMatcher(recording) if recording is not None else None
        )
        self._of_given = (
            _Answers(recording, places, again) if recording is not None and places is not None else None
        )

    def check(self, model: str) -> None:
        """Raise `ConfigError` for a file that holds no trace. A run is looked for when it is needed."""
        if self._given is None and not _is_run(model):
            self._read_file(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """The recorded reply. Raises `InvalidRequest` where a strict one differs, and for a trace that is not there."""
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
        """Nothing is held open."""

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
    """Whether it is what this attempt came to: a failure holds until the run gave up, and maybe paused and went on."""
    return answered.failure is None or attempt <= answered.failure.attempt


def _is_run(model: str) -> bool:
    """Return whether the name is that of a run, and not of a file that is there."""
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


def _likeness(request: ModelRequest, answered: RecordedAnswer) -> tuple[bool, int]:
    """How near a recorded request comes: the same round of a run, and how many messages are the same first."""
    prompt = answered.prompt
    pairs = zip(request.messages, prompt.messages, strict=False)
    common = next((n for n, (a, b) in enumerate(pairs) if _said(a) != _said(b)), len(prompt.messages))
    return request.round == prompt.round, common


def _said(message: Message) -> tuple[Any, ...]:
    return message.role, message.content, tuple((call.name, call.arguments) for call in message.tool_calls)


def _difference(request: ModelRequest, answered: RecordedAnswer, *, by_name: bool) -> str:
    """In what a request differs from a recorded one, in words."""
    now = Request(
        messages=tuple(request.messages),
        tools=tuple(request.tools),
        parameters={
            "output_schema": request.output_schema,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "model": request.model if by_name else answered.model,
        },
    )
    return in_words(differing_parts(answered.request, now), "in the recording", "now")


def _short(value: Any) -> str:
    text = canonical_json(value).decode()
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


# --- the tools --------------------------------------------------------------------------------------------------------


class RecordedTool:
    """A tool that does again what the recorded calls at its places did, and nothing in the world."""

    def __init__(self, spec: ToolSpec, recording: Recording, again: Again, *, strict: bool) -> None:
        self.spec = spec
        self._recording, self._strict = recording, strict
        self._places, self._end = again.places, again.end

    async def call(self, arguments: Mapping[str, Any], context: Any) -> Any:
        """Show and return what was recorded. Raises `ToolFailed` where the recorded call failed, or is another one."""
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
        """What was found of the recorded call; nothing is looked at again."""
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
        """All that was seen of the call, in its order; children run as long as they did beside the rest of it."""
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
                ):  # each announces itself behind the one before
                    await asyncio.sleep(0)
                await self._show(called, event, context)
        await asyncio.gather(*running.values())

    async def _run(self, child_run: str, context: Any) -> None:
        child = self._recording.submitted[child_run]
        with contextlib.suppress(ToolFailed):  # what the tool made of it is recorded
            await context.run(self._recording.runnable(child), child.input)

    def _returned(self, result: ToolResult, context: Any) -> Any:
        evidence = result.metadata.get("evidence", ())
        context.evidence += [msgspec.convert(each, ArtifactRef) for each in evidence]
        if result.success or "postcondition" in result.metadata:  # which tells what is wrong
            return result.result
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
            case _ if inner:
                context.emit(msgspec.structs.replace(event, agent_path=inner))
            case McpProgress(tool_name=name) if name == called.call.tool_name:
                context.progress(event.progress, event.total, event.message)
            case McpProgress() | Custom():
                context.emit(msgspec.structs.replace(event, agent="", agent_path=""))
            case _:
                pass


class _RecordedMemory:
    """Remembers what the recorded runs remembered (`MemoryStore`)."""

    def __init__(self, recording: Recording, places: RunMatcher) -> None:
        self._recording, self._places = recording, places

    async def recall(self, scope: Scope, keys: MemoryKeys, limit: int) -> Sequence[MemoryItem]:
        """What the run was told, or the first of its agent."""
        hydrated = self._recording.hydrated
        run = self._places.of(keys.run, lambda each: each.run in hydrated and _agent_of(each) == keys.agent)
        recorded = hydrated.get(run.run) if run is not None else None
        messages = msgspec.convert(recorded.messages if recorded is not None else [], tuple[Message, ...])
        return [MemoryItem(id="recorded", messages=messages)] if messages else []

    async def aclose(self) -> None:
        """Nothing is held open."""


def _agent_of(run: RecordedRun) -> str:
    return run.path.rpartition("/")[2]


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
        again: Again | None = None,
    ) -> None:
        agents: dict[str, Runnable[Any]] = {}
        for each in recording.submitted.values():  # a copy that an agent made of itself does not stand for it
            agents.setdefault(each.config["name"], recording.runnable(each))
        if agent is not None:
            agents[agent.name] = recorded(agent, recording.values)
        super().__init__(agents=agents.values())
        self._recording, self._strict = recording, strict
        self._again = again or Again(RunMatcher(recording))
        self._model: ModelProvider = RecordedProvider(recording, strict=strict, again=again)
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
        return RecordedTool(spec, self._recording, self._again, strict=self._strict)

    def provider(self, model: str) -> tuple[ModelProvider, str]:
        """The recording, whatever the model; the request names it with its provider."""
        return self._model, model

    def price(self, model: str, usage: TokenUsage) -> Decimal | None:
        """What a call cost is in the recording, or is not known."""
        return None

    def memory(self, backend: str, log: Log) -> MemoryStore:
        """What the recorded runs were told of earlier ones, by the agent that asks."""
        return _RecordedMemory(self._recording, self._again.places)

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
    a fresh `MemoryLog` if none. A fork begins with the history that it shares. A run that is still going, or that was
    cancelled, is run again as far as its recording goes; the trace has no end then.

    Raises `ConfigError` for a trace that is not whole.
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
        input=root.input,
        cast=lambda called: RecordedRegistry(recording, agent, strict=strict, called=called, again=again),
        log=log,
        messages=tuple(root.messages),
        session=root.session,
        metadata=root.metadata,
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
    """What stores the history that a recorded fork shares, under the id of the run that runs it again."""
    trace = recording.trace
    ancestors, events = Ancestors(trace.root), iter(trace.events)
    for commit in trace.commits:
        read = [next(events) for _ in commit.commit.events]
        whole = [as_decided(a, b) for a, b in zip(commit.commit.events, read, strict=True)]
        ancestors.add(commit, whole)  # type: ignore[arg-type] # stored events
    submitted = ancestors.family[trace.root].submitted or recording.root
    if agent is not None:
        told = {
            "input": submitted.input,
            "session": None,
            "metadata": submitted.metadata,
            "agent": agent.name,
        }
        model, config = given_model(submitted), agent.submission_config(told)
        config = config if model is None else with_model(submitted.kind, config, model)
        submitted = msgspec.structs.replace(submitted, config=config)

    async def begin() -> None:
        opening = reopen(ancestors.family, submitted, run, log.clock.now())
        await store(log, run_subject(0, run, run), opening, LEASE_S)

    return begin
