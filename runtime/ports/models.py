"""The model port: a provider-neutral request, the deltas that a provider streams, and the errors it may raise.

A provider is found by the part of the model's name before the colon (`openai:gpt-4o`). Providers are plugins:
entry point group `foldlog.providers`, or `Registry(providers=[...])`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from ...eventlog.errors import FoldlogError
from ...eventlog.events import FinishReason, TokenUsage, ToolSchema
from ...eventlog.parts import FilePart, Part, TextPart, files_of
from ...projections.messages import CallRequest, Message, Place
from ...projections.tokens import TokenSource
from .native_tools import NativeTool
from .settings import BY_THE_RUNTIME, ModelSettings


def _ignore() -> None:
    """Do nothing: outside of a run no timeout is counting."""


HEARD: ContextVar[Callable[[], None]] = ContextVar("HEARD", default=_ignore)
"""The callback that a provider calls, within `stream`, for any sign of life from its server that is not a delta: it
restarts the idle timeout."""


async def _no_artifact(file: FilePart) -> bytes:
    """Raise `InvalidRequest`: outside of a run there are no artifacts."""
    raise InvalidRequest(f"there are no bytes of {file} here")


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines a model's reply, and nothing about how the model is reached."""

    model: str
    """The model's name without the provider."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    output_schema: dict[str, Any] | None = None
    settings: ModelSettings = ModelSettings()
    """The settings of the reply: only those that the provider supports (see `ModelProvider`)."""
    native_tools: tuple[NativeTool, ...] = ()
    """The tools that the provider itself may run while it answers: only those that it has (see `ModelProvider`)."""
    phase: str = ""
    """Empty for the call of a step, else planner, summary or compaction; a transport matter."""
    idempotency_key: str = ""
    """The same for every attempt of a model at one call; a transport matter, not part of the digest."""
    attempt: int = 1
    """The number of this attempt at the call: 1, 2, ..., counting those of models tried before."""
    round: int = 0
    """The number of this model call in the run, or in its phase: 1, 2, ... (0: unknown); a transport matter."""
    places: Mapping[str, Place] = {}
    """The position at which each call in the messages was made; a transport matter."""
    read_artifact: Callable[[FilePart], Awaitable[bytes]] = _no_artifact
    """Returns the bytes of a file part with an artifact; a transport matter: the digest covers the artifact. Raises
    `InvalidRequest` for a missing artifact. A part with a URL is fetched by the provider's server."""
    history: int = 0
    """The number of messages before the run's own input; a transport matter, not part of the digest."""
    stable: int = 0
    """The number of first messages that every later request of the turn begins with, up to the last user message: the
    end of the prefix that a provider may cache, with tools and instructions. Set if `settings.cache` asks for marks."""
    messages_digest: str = ""
    """The chain over the whole conversation (R12), of which `messages` lack what other providers want back."""

    async def file_bytes(self) -> dict[str, bytes]:
        """Return the bytes of all files in the messages that have an artifact, by artifact. Raises `InvalidRequest`."""
        files = [file for message in self.messages for file in files_of(message.parts) if file.artifact]
        return {file.artifact or "": await self.read_artifact(file) for file in files}


class TextDelta(msgspec.Struct, frozen=True):
    """The next piece of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """The next piece of the model's reasoning."""

    text: str


class CallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The next piece of tool call number `index`. `id` and `name` come with its first piece."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class FileDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the model made, whole. `stored` is the part of one that is in the log already, as at a rerun."""

    data: bytes = b""
    media_type: str
    name: str = ""
    stored: FilePart | None = None


class ProviderCall(msgspec.Struct, frozen=True, kw_only=True):
    """A native tool that the provider ran while it answered, whole. `error` is null if it succeeded.

    `id` is the provider's own. The call is recorded, and never run, approved or retried by the runtime. What the
    provider wants back of it is part of `Finished.reply_items`.
    """

    id: str = ""
    name: str
    arguments: dict[str, Any] = {}
    result: Any = None
    error: str | None = None


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The reply is complete. A provider yields this last; a stream without it was cut off."""

    reason: str
    """stop, tool_calls, length, content_filter, malformed_call, or the provider's own word (see `cut_reason`)."""
    usage: TokenUsage | None = None
    """Null if the server does not report it; tokens are counted then."""
    usage_source: TokenSource = "provider"
    model: str = ""
    cost_usd: str | None = None
    """The cost as the provider reports it; null leaves it to the price book."""
    reply_items: list[Any] = []
    """State that the provider wants back with this reply: JSON in its own form and order, opaque to the runtime.

    The items come back unchanged as `Message.reply_state.items` of the reply's message, in every later request to the
    same provider and model family, so that the provider can put them in their place. An item refers to a call by its
    index in the reply (`message.tool_calls[index]`) and to a piece of the text by its length, so that nothing is stored
    twice. Empty if the provider wants nothing back.
    """


Delta = TextDelta | ReasoningDelta | CallDelta | FileDelta | ProviderCall | Finished

_CUT_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_completion_tokens": "length",
    "max_length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "token_limit": "length",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "sensitive": "content_filter",
    "malformed_call": "malformed_call",
    "malformed_function_call": "malformed_call",
}
"""The words of OpenAI, Anthropic, Bedrock, Gemini, Mistral, Cohere, Zhipu and compatible servers."""


def cut_reason(reason: str) -> FinishReason:
    """Return why the provider cut a reply off, from its own word in any case; empty if the reply ended by itself."""
    return _CUT_REASONS.get(reason.lower(), "")


class ModelError(FoldlogError):
    """A model call failed. `error_type` decides how the run reacts.

    transient, rate_limit: retried, not before `retry_after_s` if the server sent it.
    context_overflow: the history has to shrink. quota, auth, content_filter, invalid_request: never retried.

    A provider that knows the usage of the failed call sets `usage`, and `cost_usd` (a decimal) if it knows the cost;
    otherwise the tokens that had arrived are counted.
    """

    error_type: str = "transient"
    usage: TokenUsage | None = None
    cost_usd: str | None = None

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TransientModelError(ModelError):
    """A network error, a 5xx, or a stream that was cut off or went silent."""

    error_type = "transient"


class RateLimited(ModelError):
    """429: too many requests or tokens at the moment."""

    error_type = "rate_limit"


class CircuitOpen(ModelError):
    """The call was not made because a circuit breaker is open. Not for providers to raise."""

    error_type = "circuit_open"


class BudgetSpent(ModelError):
    """The call was not made because a budget of the namespace is used up. Not for providers to raise."""

    error_type = "budget_spent"


class ContextOverflow(ModelError):
    """The request does not fit the model's window.

    `window_tokens`: the most that the model reads, minus the room for the reply; `request_tokens`: the size of the
    request. Both as the server reports them, null if it does not.
    """

    error_type = "context_overflow"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        window_tokens: int | None = None,
        request_tokens: int | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.window_tokens, self.request_tokens = window_tokens, request_tokens


class QuotaExceeded(ModelError):
    """The account has no credit left."""

    error_type = "quota"


class AuthenticationFailed(ModelError):
    """The key is missing, wrong, or not allowed to use this model."""

    error_type = "auth"


class ContentFiltered(ModelError):
    """The provider's filter rejected the request."""

    error_type = "content_filter"


class InvalidRequest(ModelError):
    """The provider rejected the request as invalid."""

    error_type = "invalid_request"


MODEL_ERRORS: dict[str, type[ModelError]] = {
    kind.error_type: kind
    for kind in (
        TransientModelError,
        RateLimited,
        CircuitOpen,
        BudgetSpent,
        ContextOverflow,
        QuotaExceeded,
        AuthenticationFailed,
        ContentFiltered,
        InvalidRequest,
    )
}
"""Every kind of model error, by its `error_type`."""


def model_error(
    error_type: str,
    message: str,
    *,
    retry_after_s: float | None = None,
    window_tokens: int | None = None,
    request_tokens: int | None = None,
) -> ModelError:
    """Return the error of this type, `InvalidRequest` if unknown; the token counts are those of an overflow."""
    if error_type == ContextOverflow.error_type:
        return ContextOverflow(
            message,
            retry_after_s=retry_after_s,
            window_tokens=window_tokens,
            request_tokens=request_tokens,
        )
    return MODEL_ERRORS.get(error_type, InvalidRequest)(message, retry_after_s=retry_after_s)


_KNOWN_TO_ALL = frozenset({"temperature", "max_tokens"})


def unknown_settings(provider: ModelProvider, model: str, settings: ModelSettings) -> dict[str, str]:
    """Return the names of the given settings that the provider does not know for this model, each with a reason."""
    given = settings.given().keys() - BY_THE_RUNTIME
    if not given:
        return {}
    lacks = given & set(getattr(provider, "lacks", ()))
    tell = getattr(provider, "unknown_settings", None)
    told = dict.fromkeys(sorted(given - _KNOWN_TO_ALL), "") if tell is None else tell(model, settings)
    return told | dict.fromkeys(sorted(lacks), "its provider lacks it")


def native_tool_problem(provider: ModelProvider, model: str, tool: NativeTool, *, tools: bool) -> str | None:
    """Return why the provider cannot offer a native tool to the model; null if it can.

    `tools`: the request has tools of the agent, too.
    """
    tell = getattr(provider, "native_tool_problem", None)
    if tell is None:
        return "its provider has none"
    problem: str | None = tell(model, tool, tools=tools)
    return problem


class ModelProvider(Protocol):
    """Answers model requests. One object serves many runs at once and keeps no state about any of them.

    A provider of a billed HTTP API may have an attribute `api_url`, by which its prices are looked up. A provider that
    does not support all of a request may have an attribute `lacks` with the names of what it does not (tools,
    output_schema, or a setting): an agent that needs one of them is rejected before its first event.

    A provider that knows other settings than temperature and max_tokens has `unknown_settings(model, settings)`, which
    returns the names of the given settings that the model does not know, each with a reason, or an empty text. Its
    requests have no others.

    A provider with tools of its own has `native_tool_problem(model, tool, *, tools) -> str | None`: why it cannot offer
    a native tool; null if it can. Its requests have no others, and without the method none.

    A provider may have `refuses(model, media_type) -> bool`, for what a model is known not to take: a run with such
    a file is refused before its first event. So it is for a file of which `file_problem(model, file, data) -> str |
    None` says why it is too large (`data` may be null), and for those of which `files_problem(model, messages,
    data) -> str | None` says why they are too many (the files of each message, and their bytes by artifact). And
    `file_tokens(model, file, data) -> int | None`, what a file part takes of a prompt by the published rule (`data`
    is null for a URL); null counts four bytes as a token.
    """

    def check(self, model: str) -> None:
        """Raise `ConfigError` if the model cannot be called from this process (no key, no such file)."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the reply in pieces, ended by exactly one `Finished`. Raises `ModelError`.

        Closing the iterator, or cancelling the task that reads it, closes the connection. Never retries on its own.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. Safe to repeat."""
        ...


class WrappedModel:
    """A provider that wraps another one, with exactly the optional attributes that the other has."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy is made without `__init__`
            raise AttributeError(name)
        return getattr(self._inner, name)

    def check(self, model: str) -> None:
        """Check with the wrapped provider."""
        self._inner.check(model)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the reply of the wrapped provider."""
        return self._inner.stream(request)

    async def aclose(self) -> None:
        """Close the wrapped provider."""
        await self._inner.aclose()


__all__ = [
    "HEARD",
    "MODEL_ERRORS",
    "AuthenticationFailed",
    "CallDelta",
    "CallRequest",
    "CircuitOpen",
    "ContentFiltered",
    "ContextOverflow",
    "Delta",
    "FileDelta",
    "FilePart",
    "Finished",
    "InvalidRequest",
    "Message",
    "ModelError",
    "ModelProvider",
    "ModelRequest",
    "ModelSettings",
    "NativeTool",
    "Part",
    "ProviderCall",
    "QuotaExceeded",
    "RateLimited",
    "ReasoningDelta",
    "TextDelta",
    "TextPart",
    "ToolSchema",
    "TransientModelError",
    "WrappedModel",
    "cut_reason",
    "model_error",
    "native_tool_problem",
    "unknown_settings",
]
