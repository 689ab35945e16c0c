"""The `ToolContext` that is passed to a tool which declares one: everything a running tool may do besides returning."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from ...eventlog.errors import ConfigError
from ...eventlog.events import (
    DRAFTS,
    OBSERVABLE,
    Custom,
    Event,
    McpProgress,
    Status,
    Step,
    ToolPartial,
    WaitKind,
)
from ...eventlog.offload import inline_bytes
from ...eventlog.parts import TextPart
from ...eventlog.ports import COMMIT_BYTES_MAX
from ...projections.call_texts import memo_mark, question_mark, wait_mark
from ..ports.evidence import Evidence, sound_evidence
from ..ports.files import Content, parts_of
from ..ports.json_schema import given_form, given_schema
from ..ports.json_values import NotJson, StructT, as_json, as_stored, sound
from ..ports.runnable import DepsT_co, is_runnable
from ..ports.tools import (
    Answer,
    Asked,
    Signal,
    ToolFailed,
    check_length,
    check_signal_name,
    check_sleep,
)
from .run_context import RunContext, RunFacts

if TYPE_CHECKING:
    from ...eventlog.clock import Clock
    from ...eventlog.ports import FamilyArtifacts
    from ..ports.runnable import Runnable

P = ParamSpec("P")
T = TypeVar("T")

ENVELOPE_BYTES = 16 * 1024
"""The size reserved for the fields around an event."""

__all__ = ["ArtifactRef", "Callback", "Custom", "ToolContext"]


class ArtifactRef(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes in the log's artifact store. `id` is the SHA-256 of the content in hex."""

    id: str
    media_type: str
    size_bytes: int


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a call that are known before it runs."""

    run: RunFacts
    tool_call_id: str
    tool_name: str
    idempotency_key: str
    memos: Mapping[str, Any] = {}
    memo_evidence: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    answers: Mapping[str, Answer] = {}
    marks: Mapping[str, tuple[int, int]] = {}
    """The call's position when a part was done, or a question asked (`CallState.marks`)."""
    waits: Mapping[str, Signal | None] = {}
    """The outcomes of the waits of earlier attempts, by their ids; null for a time that is over."""
    may_ask: bool = True
    emit_progress: bool = True


class ChildOptions(msgspec.Struct, frozen=True):
    """Settings of a child run that replace those of its parent; null keeps the parent's."""

    user: str | None = None
    metadata: Mapping[str, Any] | None = None


class Question(msgspec.Struct, frozen=True):
    """A call's question: its name, its text, and its form."""

    name: str
    message: str
    form: dict[str, Any] | None


class Wait(msgspec.Struct, frozen=True):
    """A wait that an attempt ends with; `until` is in Unix seconds, null for no limit."""

    id: str
    kind: WaitKind
    name: str = ""
    until: float | None = None
    form: dict[str, Any] | None = None


class Callback:
    """A callback of a running call: the holder of its token may answer it, once."""

    def __init__(self, token: str, public_url: str, wait: Callable[[], Signal | None]) -> None:
        self.token, self._public_url, self._wait = token, public_url, wait

    def __repr__(self) -> str:
        return "Callback(...)"  # a token must not get into a log file

    @property
    def url(self) -> str:
        """The URL to which the answer is posted, as JSON. Raises `ToolFailed` if `FOLDLOG_PUBLIC_URL` is not set."""
        if not self._public_url:
            raise _misused(
                "the URL of a callback needs FOLDLOG_PUBLIC_URL, the address of `foldlog serve --hooks` for others"
            )
        return f"{self._public_url}/v1/callbacks/{self.token}"

    async def outcome(self) -> Signal | None:
        """Wait for the answer; null if none came in time.

        As with `ToolContext.wait_for`, the attempt may end here, and the call is run again from its beginning.
        """
        return self._wait()


SLEEP_IN_PLACE_S = 10.0
"""A shorter sleep holds its worker: parking and taking up again would take longer than it saves (ADR 0009)."""


class ToolContext(RunContext[DepsT_co]):
    """One attempt at one tool call. Methods that emit never block, and may be called from any thread of the process.

    Events and drafts emitted after the call has returned are dropped, and counted in `dropped`.
    """

    def __init__(  # noqa: PLR0913 - one for each thing that a call may do
        self,
        call: CallFacts,
        *,
        deps: DepsT_co,
        emit: Callable[[Event], None],
        run_child: Callable[[Runnable, Content, ChildOptions], Awaitable[str]],
        remember: Callable[[str, Any, Sequence[ArtifactRef]], Awaitable[None]],
        issue: Callable[[str, float | None], Awaitable[str]],
        public_url: str = "",
        artifacts: FamilyArtifacts,
        skip: Callable[[int, int], None],
        clock: Clock,
        hide: Callable[[str], str] = str,
    ) -> None:
        super().__init__(call.run, deps)
        self.tool_call_id, self.tool_name = call.tool_call_id, call.tool_name
        self.idempotency_key = call.idempotency_key
        self.dropped = 0
        self.differed = 0
        """The number of events of a repeated attempt that differ from the stored ones, which are kept."""
        self.emitted = 0
        """The number of events that this attempt has emitted, not counting dropped ones."""
        self._emit, self._run_child, self._emit_progress = emit, run_child, call.emit_progress
        self._open, self._cancelled = True, False
        self._stored_memos, self._remember = call.memos, remember
        self._marks, self._skip, self._memo_evidence = dict(call.marks), skip, call.memo_evidence
        self._memos: dict[str, asyncio.Task[Any]] = {}
        self._artifacts, self._hide = artifacts, hide
        self._issue, self._public_url = issue, public_url
        self._answers, self._may_ask, self._asked = call.answers, call.may_ask, 0
        self.question: Question | None = None
        """The question that ended the attempt. For executors."""
        self._clock, self._waits, self._begun_waits = clock, call.waits, dict[tuple[str, str], int]()
        self.wait: Wait | None = None
        """The wait that ended the attempt. For executors."""
        self.evidence: list[ArtifactRef] = []
        """The artifacts of this attempt, including those of parts that were done before, in order."""
        self.begun = False
        """Set once the tool itself has been called. For executors."""
        self.observed: Evidence | None = None
        """The evidence that the call reported. For executors."""

    @property
    def cancelled(self) -> bool:
        """Return whether the call was cancelled. Synchronous tools, which cannot be interrupted, should check it."""
        return self._cancelled

    def emit(self, event: Event) -> None:
        """Add an observable event (or `Custom(name=..., data=...)`) to the run's stream.

        An event that has an `agent` of its own keeps it; its path is extended by this run's. So the stream of another
        runtime can be forwarded event by event: its drafts, which are never stored, are left out and counted in
        `dropped`. Raises `ToolFailed` for an event that is not observable, or that the log cannot store.
        """
        if isinstance(event, DRAFTS):
            self.dropped += 1
            return
        if not isinstance(event, OBSERVABLE):
            kind = getattr(event, "type", type(event).__name__)
            raise _misused(f"a tool cannot emit an event of type {kind!r}: it is not observable")
        if self._emit_progress or event.agent or event.agent_path or not isinstance(event, McpProgress):
            self._send(_forwarded(event, self.agent_path))

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report the progress of the call; the numbers are passed on as given."""
        if self._emit_progress:
            self._send(McpProgress(tool_name=self.tool_name, progress=done, total=total, message=message))

    def partial(self, value: Any) -> None:
        """Report what the call has so far, as JSON; the last report counts.

        It is stored and shown. If the call times out, it is the call's result with `@tool(on_timeout="partial")`.
        Raises `ToolFailed` for a value that JSON cannot hold.
        """
        self._send(ToolPartial(tool_name=self.tool_name, value=_json("a partial result", value)))

    def run(
        self,
        runnable: Runnable,
        input: Content,  # noqa: A002 - the word of the field
        *,
        user: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Awaitable[str]:
        """Run an agent, a swarm or a loop as a child and return its output.

        The child is a run of its own in this run's family. Durable: a repeated call finds the child it started, and
        never starts a second one. Several may run at once; they start when `run` is called. Awaiting it raises
        `ChildFailed` if the child fails or is cancelled. It has this run's user and metadata, unless others are given.
        The input is a text, a `File`, or a list of both; `files` are those that this run has.
        """
        if not is_runnable(runnable):
            raise _misused(
                f"only agents, swarms, loops and workflows can be run, not a {type(runnable).__name__}"
            )
        content = _content(input)
        options = ChildOptions(user, metadata)
        self._check_open("run a child")
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a synchronous tool, in a thread of its own: it may return an awaitable
            return self._run_later(runnable, content, options)
        return self._run_child(runnable, content, options)

    async def _run_later(self, runnable: Runnable, content: Content, options: ChildOptions) -> str:
        self._check_open("run a child")
        return await self._run_child(runnable, content, options)

    async def memo(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the value of a named part of the call: computed once, stored, and read from the log on a repeat.

        `make` may be async; its errors are not stored, so the next call of `memo` runs it again. The value is returned
        as JSON builtins. Raises `ToolFailed` if JSON cannot hold it.
        """
        name = self._hide(_text("the name of a memo", name))
        if not callable(make):
            raise _misused(f"memo {name!r} takes a function that returns its value, not {make!r:.60}")
        if name in self._stored_memos:
            self._skip(*self._marks.get(memo_mark(name), (0, 0)))
            self._show(msgspec.convert(self._memo_evidence.get(name, ()), list[ArtifactRef]))
            return copy.deepcopy(self._stored_memos[name])
        self._check_open("compute a memo")
        if name not in self._memos:
            self._memos[name] = asyncio.ensure_future(self._make(name, make))
        making = self._memos[name]
        try:
            return copy.deepcopy(await making)
        except BaseException:
            if self._memos.get(name) is making:
                del self._memos[name]  # the next call of `memo` tries again
            raise

    async def _make(self, name: str, make: Callable[[], Any]) -> Any:
        before = len(self.evidence)
        made = make()
        value = await made if inspect.isawaitable(made) else made
        plain = _json(f"memo {name!r}", value)
        await self._remember(name, plain, self.evidence[before:])
        return plain

    def answer(self, name: str) -> Answer | None:
        """Return the answer to the question of this name, if there is one already; never asks."""
        return copy.deepcopy(self._answers.get(self._hide(name)))

    async def ask(self, message: str, schema: Mapping[str, Any] | None = None, *, name: str = "") -> Answer:
        """Ask a person, and return the answer.

        While there is no answer, the attempt ends here, the run waits without a worker, and the call is run again from
        the beginning once the answer is there: code before the question runs again, unless it is in a `memo`.
        Questions of a call are identified by `name`, or by their order. `schema` is the JSON Schema of an object, used
        as a form; without one the answer is a yes or a no. Raises `ToolFailed` for an invalid schema, and in a planner.
        """
        message, key = _text("a question", message), _text("the name of a question", name)
        key = self._hide(key) or f"question-{self._asked}"
        self._asked += 1
        if key in self._answers:
            self._skip(*self._marks.get(question_mark(key), (0, 0)))
            return copy.deepcopy(self._answers[key])
        if not self._may_ask:
            raise _misused("questions are not available while planning")
        self._check_open("ask")
        if self.question is None and self.wait is None:
            form = None if schema is None else _valid(given_form, schema)
            question = Question(key, message, form)
            _check_size("a question", len(msgspec.json.encode(question)))
            self.question = question
        raise Asked

    async def sleep(
        self,
        seconds: float = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        until: datetime | None = None,
    ) -> None:
        """Wait for a time, or until an aware `datetime`.

        A sleep of up to ten seconds holds its worker. For a longer one, and for one `until` a time, the attempt ends
        here, the run waits without a worker, and once the time is over the call is run again from its beginning: what
        comes before is done again, unless it is in a `memo`. Raises `ToolFailed` for a negative time, and in a planner.
        """
        now = self._clock.now()
        length_s, at = _valid(check_sleep, now, seconds, minutes, hours, days, until)
        if at is None and length_s <= SLEEP_IN_PLACE_S:
            await self._clock.sleep(length_s)
        else:
            self._wait("sleep", "", now + length_s if at is None else at, None)

    async def wait_for(
        self, name: str, *, schema: Mapping[str, Any] | None = None, timeout_s: float | None = None
    ) -> Signal | None:
        """Wait for a signal of this name, sent by `RunHandle.signal`; null if none came in time.

        A signal that came before is taken at once, the oldest first. Otherwise the attempt ends here, the run waits
        without a worker, and the call is run again from its beginning, as for a question. Data that does not fit
        `schema`, a JSON Schema, is refused where it is sent. Raises `ToolFailed` for a wrong name, schema or time, and
        in a planner.
        """
        name = self._hide(_valid(check_signal_name, "a signal", name))
        form = None if schema is None else _valid(given_schema, "the schema of a signal", schema)
        until = None if timeout_s is None else self._clock.now() + _valid(check_length, timeout_s)
        return self._wait("signal", name, until, form)

    async def callback(self, name: str, *, timeout_s: float | None = None) -> Callback:
        """Return a callback: give its `url` or `token` to another system, then await its `outcome()`.

        The token is stored, as its SHA-256, before this returns. Each attempt at the call gets a further one, until
        the callback is answered with any of them: tell it in a `memo`, so that it is told once. `timeout_s` counts
        from the first attempt. Raises `ToolFailed` for a wrong name or time, and in a planner.
        """
        name = self._hide(_valid(check_signal_name, "a callback", name))
        wait_id = self._next_wait("callback", name)
        until = None if timeout_s is None else self._clock.now() + _valid(check_length, timeout_s)
        if not self._may_ask:
            raise _misused("waits are not available while planning")
        self._check_open("make a callback")
        token = await self._issue(wait_id, until)
        return Callback(
            token, self._public_url, lambda: self._wait("callback", name, until, None, wait_id=wait_id)
        )

    def _wait(
        self,
        kind: WaitKind,
        name: str,
        until: float | None,
        form: dict[str, Any] | None,
        *,
        wait_id: str = "",
    ) -> Signal | None:
        """Return what the wait came to, or end the attempt with it."""
        wait_id = wait_id or self._next_wait(kind, name)
        if wait_id in self._waits:
            self._skip(*self._marks.get(wait_mark(wait_id), (0, 0)))
            return copy.deepcopy(self._waits[wait_id])
        if not self._may_ask:
            raise _misused("waits are not available while planning")
        self._check_open("wait")
        if self.wait is None and self.question is None:
            self.wait = Wait(wait_id, kind, name, until, form)
        raise Asked

    def _next_wait(self, kind: str, name: str) -> str:
        """Return the id of the attempt's next wait of this kind and name: the same in every attempt."""
        number = self._begun_waits.get((kind, name), 0)
        self._begun_waits[kind, name] = number + 1
        return f"{kind}-{name}-{number}" if name else f"{kind}-{number}"

    async def artifact(self, data: bytes, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store bytes under their digest, and list them in the call's result (`metadata.evidence`).

        Raises `LogUnavailable`, `ToolFailed`.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise _misused(f"an artifact must be bytes, not {data!r:.60}")
        media_type = self._hide(_text("a media type", media_type))
        reference = _stored("an artifact", ArtifactRef(id="", media_type=media_type, size_bytes=len(data)))
        reference = msgspec.structs.replace(reference, id=await self._artifacts.put(data))
        self._show([reference])
        return reference

    def observe(self, evidence: Evidence) -> None:
        """Report evidence of the call's effect, for the tool's postcondition; the last report counts.

        Without it, the call's result is the evidence. A tool with a probe is judged by the probe alone. Raises
        `ToolFailed` for a value that is not `Evidence`, or contains what JSON cannot hold.
        """
        if not isinstance(evidence, Evidence):
            raise _misused(f"observe() takes Evidence, not {evidence!r:.60}")
        self.observed = sound_evidence(evidence)

    def _check_open(self, what: str) -> None:
        if not self._open:
            raise _misused(f"cannot {what}: the attempt at the call {self.tool_call_id!r} is over")

    def _show(self, references: Sequence[ArtifactRef]) -> None:
        """Add artifacts to the result, each once."""
        self.evidence += [each for each in references if each not in self.evidence]

    def close(self, *, cancelled: bool = False) -> None:
        """End the attempt: events emitted from now on are dropped. For executors."""
        self._open, self._cancelled = False, self._cancelled or cancelled

    def _send(self, event: Event) -> None:
        if self._open:
            event = _stored(f"an event of type {event.type!r}", event)
            _check_size(f"an event of type {event.type!r}", inline_bytes(event))
            self.emitted += 1
            self._emit(event)
        else:
            self.dropped += 1


def _misused(problem: str) -> ToolFailed:
    """Return the error for a misuse of the context. The call is in doubt: the tool may have done something before."""
    return ToolFailed(problem, in_doubt=True)


def _json(what: str, value: object) -> Any:
    try:
        return as_json(value)
    except NotJson as error:
        raise _misused(f"{what} cannot be stored as JSON: {error}") from None


def _stored(what: str, value: StructT) -> StructT:
    try:
        return as_stored(value)
    except NotJson as error:
        raise _misused(f"{what} cannot be stored: {error}") from None


def _valid(check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a check of an argument returns. Raises `ToolFailed` where it raises `ValueError`."""
    try:
        return check(*args, **kwargs)
    except ValueError as error:
        raise _misused(str(error)) from None


def _check_size(what: str, size_bytes: int) -> None:
    if size_bytes > COMMIT_BYTES_MAX - ENVELOPE_BYTES:
        raise _misused(
            f"{what} has {size_bytes:,} bytes, more than the {COMMIT_BYTES_MAX - ENVELOPE_BYTES:,} that the log accepts"
        )


def _text(what: str, value: object) -> str:
    """Return text that the log can store. Raises `ToolFailed` for anything else."""
    if not isinstance(value, str):
        raise _misused(f"{what} must be text, not {value!r:.60}")
    return sound(value)


def _content(given: Content) -> Content:
    """Return content that the log can store. Raises `ToolFailed` for anything else."""
    if isinstance(given, str):
        return sound(given)
    try:
        return [
            TextPart(text=sound(part.text)) if isinstance(part, TextPart) else part
            for part in parts_of(given)
        ]
    except ConfigError as error:
        raise _misused(f"the input of a child run: {error}") from None


def _forwarded(event: Event, agent_path: str) -> Event:
    """Return an inner agent's event under its own name; an event of the tool itself unchanged."""
    inner = event.agent_path or event.agent
    if not inner and isinstance(event, (Custom, McpProgress, ToolPartial)):
        return event
    if not inner and isinstance(event, (Status, Step)):
        raise _misused(
            f"an emitted {event.type!r} needs an `agent`: without one it would begin or end a step or the run itself"
        )
    path = f"{agent_path}/{inner or 'tool'}"
    changes: dict[str, Any] = {"agent": event.agent or path.rpartition("/")[2], "agent_path": path}
    if event.inner_step is None and event.inner_tool_call_id is None:  # not forwarded by the inner run
        changes |= {"inner_step": event.step, "inner_tool_call_id": event.tool_call_id}
    return msgspec.structs.replace(
        event, run_id="", root_id="", revision=None, cursor=None, at=0.0, is_end=False, **changes
    )
