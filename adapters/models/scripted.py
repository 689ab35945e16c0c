"""The model `scripted:FILE`: answers from a file of turns, for tests and demos.

    {"turns": [
        {"tool_calls": [{"id": "call-1", "name": "search", "arguments": {"q": "answer"}}],
         "usage": {"input_tokens": 10, "output_tokens": 5}},
        {"text": ["Final ", "answer"], "delay_ms": 20, "chunk_delay_ms": 5, "error": {"type": "transient", "times": 1}}
    ]}

Turn k answers the k-th step of the run, according to the request and not to earlier calls of the provider, so that the
answer is the same on any worker. `planner` and `summaries`, besides `turns`, answer the requests of planner and
summaries. The keys of a turn are described at `Turn`. `scenes`, each with `input` or `system` (texts) and turns of its
own, answer runs whose own input and system prompt contain these texts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from pydantic import BeforeValidator, Field

from ...eventlog.clock import Clock, SystemClock
from ...eventlog.errors import ConfigError
from ...eventlog.events import TokenUsage
from ...eventlog.files import read_bounded
from ...eventlog.parts import files_of
from ...runtime.ports.models import (
    CallDelta,
    Delta,
    FileDelta,
    Finished,
    InvalidRequest,
    ModelError,
    ModelRequest,
    ModelSettings,
    NativeTool,
    ProviderCall,
    ReasoningDelta,
    TextDelta,
    model_error,
)
from ..configuration.strict_tables import StrictTable

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[float, Field(ge=0)]
Pieces = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
"""Text in the pieces in which it is streamed; a single string is one piece."""


def _as_model_writes(arguments: Any) -> Any:
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else arguments


class ScriptedCall(StrictTable):
    """A tool call. `arguments`: an object, or a string with the model's text, which need not be JSON."""

    id: str
    name: str
    arguments: Annotated[str, BeforeValidator(_as_model_writes)] = "{}"


class ScriptedProviderCall(StrictTable):
    """A call of a native tool that the provider ran, with its result or its error."""

    id: str = ""
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    result: Any = None
    error: str | None = None


class ScriptedUsage(StrictTable):
    """Tokens; the total is the sum of input and output unless given."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    total_tokens: Count | None = None
    cached_input_tokens: Count = 0
    reasoning_tokens: Count = 0
    cache_write_tokens: Count = 0
    cache_write_1h_tokens: Count = 0


class ScriptedFile(StrictTable):
    """A file that the model generates."""

    media_type: str
    name: str = ""
    base64: str = ""


class ScriptedError(StrictTable):
    """The first `times` attempts fail, each after `after_chunks` pieces of the answer, or at its end if it has fewer.

    A `context_overflow` may state `window_tokens` and `request_tokens`, as servers do.
    """

    type: Literal["transient", "rate_limit", "context_overflow", "quota", "auth", "invalid_request"]
    times: Count = 1
    after_chunks: Count = 0
    retry_after_ms: Milliseconds | None = None
    window_tokens: Positive | None = None
    request_tokens: Positive | None = None


class Turn(StrictTable):
    """One answer: reasoning, then calls of the provider's own tools, then text, files and tool calls.

    `delay_ms` passes before the first piece, `chunk_delay_ms` between the pieces. `retry_text` replaces
    `text` from the second attempt on. Without `usage` the answer uses no tokens. `finish_reason` marks the answer as
    cut. `reply_items` are sent back with the answer's message, as reasoning models require.
    `reads_files` are the names of the files that the request must contain, complete and in this order.
    """

    text: Pieces = Field(default_factory=list)
    retry_text: Pieces | None = None
    reasoning: Pieces = Field(default_factory=list)
    provider_calls: list[ScriptedProviderCall] = Field(default_factory=list)
    files: list[ScriptedFile] = Field(default_factory=list)
    reads_files: list[str] | None = None
    tool_calls: list[ScriptedCall] = Field(default_factory=list)
    usage: ScriptedUsage = ScriptedUsage()
    delay_ms: Milliseconds = 0
    chunk_delay_ms: Milliseconds = 0
    error: ScriptedError | None = None
    finish_reason: Literal["length", "content_filter", "malformed_call"] | None = None
    reply_items: list[Any] = Field(default_factory=list)

    def pieces(self, attempt: int) -> Iterator[Delta]:
        """Yield the answer without its end, as the `attempt`-th attempt gives it."""
        text = self.text if self.retry_text is None or attempt == 1 else self.retry_text
        yield from map(ReasoningDelta, self.reasoning)
        for made in self.provider_calls:
            yield ProviderCall(
                id=made.id, name=made.name, arguments=made.arguments, result=made.result, error=made.error
            )
        yield from map(TextDelta, text)
        for file in self.files:
            yield FileDelta(data=base64.b64decode(file.base64), media_type=file.media_type, name=file.name)
        for index, call in enumerate(self.tool_calls):
            yield CallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)

    def end(self, model: str) -> Finished:
        """Return the end of the answer."""
        read, written, total = self.usage.input_tokens, self.usage.output_tokens, self.usage.total_tokens
        return Finished(
            reason=self.finish_reason or ("tool_calls" if self.tool_calls else "stop"),
            usage=TokenUsage(
                input_tokens=read,
                output_tokens=written,
                total_tokens=read + written if total is None else total,
                cached_input_tokens=self.usage.cached_input_tokens,
                reasoning_tokens=self.usage.reasoning_tokens,
                cache_writes=self.usage.cache_write_tokens or msgspec.UNSET,
                cache_writes_1h=self.usage.cache_write_1h_tokens or msgspec.UNSET,
            ),
            model=model,
            reply_items=self.reply_items,
        )


_KEYS = {"planner": "planner", "summary": "summaries", "compaction": "summaries"}
"""The key of a file for each phase other than steps."""


class _Scene(StrictTable):
    input: str = ""
    system: str = ""
    turns: list[Any]
    planner: list[Any] = Field(default_factory=list)
    summaries: list[Any] = Field(default_factory=list)


class _File(StrictTable):
    turns: list[Any] = Field(default_factory=list)
    refuses: list[str] = Field(default_factory=list)
    planner: list[Any] = Field(default_factory=list)
    summaries: list[Any] = Field(default_factory=list)
    scenes: list[Any] = Field(default_factory=list)


class Scene(NamedTuple):
    """The turns of a phase for runs whose own input and system prompt contain these texts."""

    input: str
    system: str
    phase: str
    turns: tuple[Turn, ...]

    def is_for(self, request: ModelRequest) -> bool:
        """Return whether the request is from one of these runs."""
        if self.phase != ("summary" if request.phase == "compaction" else request.phase):
            return False
        own = request.messages[request.history : request.history + 1]
        fits = not self.input or any(self.input in message.content for message in own)
        return fits and (not self.system or self.system in _system_of(request))


def _system_of(request: ModelRequest) -> str:
    return "".join(message.content for message in request.messages if message.role == "system")


class Script(NamedTuple):
    """The first scene that matches a run is used; the file's own turns come last and match every run."""

    scenes: tuple[Scene, ...]
    refuses: frozenset[str] = frozenset()
    """The media types that the model does not take."""


class ScriptedProvider:
    """Answers from files (`foldlog.runtime.ports.models.ModelProvider`).

    Relative names start at `FOLDLOG_SCRIPT_DIR`, or else at the working directory. A changed file is reloaded.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._read: dict[Path, tuple[tuple[int, int], Script]] = {}

    def check(self, model: str) -> None:
        """Raise `ConfigError`, which names file, turn and key, if the script cannot be used."""
        self._script(model)

    def refuses(self, model: str, media_type: str) -> bool:
        """Return whether the script says that its model does not take such files."""
        return media_type in self._script(model).refuses

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        """Return no settings: a script accepts all of them."""
        return {}

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        """Return None: a script may contain calls of any native tool."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the turn for the request's step. Raises the turn's error, and `InvalidRequest` if there is no turn."""
        number, turn = self._turn(request)
        if turn.reads_files is not None:
            await _read_files(request, turn.reads_files, f"scripted:{request.model}: turn {number}")
        error = turn.error if turn.error is not None and request.attempt <= turn.error.times else None
        await self._pause(turn.delay_ms)
        for count, piece in enumerate(turn.pieces(request.attempt)):
            if error is not None and count == error.after_chunks:
                break
            if count:
                await self._pause(turn.chunk_delay_ms)
            yield piece
        if error is not None:
            raise _failure(error, f"scripted:{request.model}: turn {number}, attempt {request.attempt}")
        yield turn.end(request.model)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    async def _pause(self, delay_ms: float) -> None:
        if delay_ms:
            await self._clock.sleep(delay_ms / 1000)

    def _turn(self, request: ModelRequest) -> tuple[int, Turn]:
        """Return the turn that answers the request, and its number (from 1)."""
        try:
            script = self._script(request.model)
        except ConfigError as error:
            raise InvalidRequest(str(error)) from None
        turns = next((scene.turns for scene in script.scenes if scene.is_for(request)), ())
        own = request.messages[request.history :]
        number = request.round or 1 + sum(message.role == "assistant" for message in own)
        if number > len(turns):
            where = f"scripted:{request.model}: {_path(request.model)}"
            key = _KEYS.get(request.phase)
            told = f"{len(turns)} turns" + (f" in {key!r}" if key else "")
            raise InvalidRequest(f"{where} has {told}, but the run needs turn {number}")
        return number, turns[number - 1]

    def _script(self, model: str) -> Script:
        """Return the script, reloaded if the file has changed."""
        path = _path(model)
        try:
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_size)
            known = self._read.get(path)
            if known is None or known[0] != version:
                known = self._read[path] = (version, _parsed(path, read_bounded(path)))
        except OSError as error:
            raise ConfigError(
                f"scripted:{model}: the script {path} cannot be read: {error.strerror}. "
                "Relative names start at FOLDLOG_SCRIPT_DIR, or else at the working directory."
            ) from None
        return known[1]


async def _read_files(request: ModelRequest, names: list[str], where: str) -> None:
    files = [file for message in request.messages for file in files_of(message.parts)]
    if [file.name for file in files] != names:
        raise InvalidRequest(f"{where} reads {names}, and the request has {[file.name for file in files]}")
    for artifact, data in (await request.file_bytes()).items():
        if hashlib.sha256(data).hexdigest() != artifact:
            raise InvalidRequest(f"{where}: the bytes of {artifact} are others")


def _path(model: str) -> Path:
    return _resolved(model, os.environ.get("FOLDLOG_SCRIPT_DIR") or ".", os.getcwd())  # noqa: PTH109 - the cheap one


@lru_cache(maxsize=256)
def _resolved(model: str, start: str, working_directory: str) -> Path:
    return Path(working_directory) / Path(start).expanduser() / Path(model).expanduser()


def _parsed(path: Path, content: bytes) -> Script:
    try:
        data = json.loads(content)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    file = _File.read(data, str(path))
    if not {"turns", "scenes", "planner", "summaries"} & file.model_fields_set:
        raise ConfigError(f"{path}: turns: Field required (or scenes)")
    scenes: list[Scene] = []
    for number, entry in enumerate(file.scenes, start=1):
        where = f"{path}: scene {number}"
        scenes += _scenes(_Scene.read(entry, where), where)
    own = _Scene(turns=file.turns, planner=file.planner, summaries=file.summaries)
    return Script((*scenes, *_scenes(own, str(path))), frozenset(file.refuses))


def _scenes(scene: _Scene, where: str) -> tuple[Scene, ...]:
    return (
        Scene(scene.input, scene.system, "", _turns(scene.turns, f"{where}: turn")),
        Scene(scene.input, scene.system, "planner", _turns(scene.planner, f"{where}: planner turn")),
        Scene(scene.input, scene.system, "summary", _turns(scene.summaries, f"{where}: summary")),
    )


def _turns(turns: Sequence[Any], where: str) -> tuple[Turn, ...]:
    return tuple(Turn.read(turn, f"{where} {number}") for number, turn in enumerate(turns, start=1))


def _failure(error: ScriptedError, where: str) -> ModelError:
    retry_after_s = None if error.retry_after_ms is None else error.retry_after_ms / 1000
    message = f"{where}: {error.type} error, as scripted"
    return model_error(
        error.type,
        message,
        retry_after_s=retry_after_s,
        window_tokens=error.window_tokens,
        request_tokens=error.request_tokens,
    )
