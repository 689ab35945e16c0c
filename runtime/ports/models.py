"""The model port: a provider-neutral request, what a provider streams back, and the errors it may raise.

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


def _nobody_listens() -> None:
    """Outside of a run."""


HEARD: ContextVar[Callable[[], None]] = ContextVar("HEARD", default=_nobody_listens)
"""What a provider calls, within `stream`, for all that its server sends and that is no delta: a server that says that
it is at work is not silent."""


async def _no_artifact(file: FilePart) -> bytes:
    """Outside of a run."""
    raise InvalidRequest(f"there are no bytes of {file} here")


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what a model answers, and nothing of how it is reached."""

    model: str
    """The model's name without the provider."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    tool_choice: str | None = None
    output_schema: dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    phase: str = ""
    """Empty for the call of a step, else what it is for besides: planner, summary, compaction; a transport matter."""
    idempotency_key: str = ""
    """The same for every attempt of a model at one call; a transport matter, not part of the digest."""
    attempt: int = 1
    """Which attempt at the call this is: 1, 2, ..., those of the models asked before it included."""
    round: int = 0
    """Which model call of the run, or of its phase, this is: 1, 2, ... (0: not told); a transport matter."""
    places: Mapping[str, Place] = {}
    """Where each call of the messages was made; a transport matter."""
    read_artifact: Callable[[FilePart], Awaitable[bytes]] = _no_artifact
    """Gives the bytes of a file part with an artifact; a transport matter: the digest covers the artifact. Raises
    `InvalidRequest` for one that is gone. A part with a URL is fetched by the provider's server."""
    history: int = 0
    """How many of the first messages stand before the run's own input; a transport matter, not part of the digest."""

    async def file_bytes(self) -> dict[str, bytes]:
        """The bytes of all files in the messages that have an artifact, by that. Raises `InvalidRequest`."""
        files = [file for message in self.messages for file in files_of(message.parts) if file.artifact]
        return {file.artifact or "": await self.read_artifact(file) for file in files}


class TextDelta(msgspec.Struct, frozen=True):
    """The next piece of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """The next piece of what the model thinks aloud."""

    text: str


class CallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The next piece of tool call number `index`. `id` and `name` come with its first piece."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class FileDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the model made, whole; not a draft of one."""

    data: bytes
    media_type: str
    name: str = ""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The answer is complete. It is the last thing a provider yields; a stream without it was cut."""

    reason: str
    """stop, tool_calls, length, content_filter, malformed_call, or the provider's own word (`cut_reason`)."""
    usage: TokenUsage | None = None
    """Null where the server says nothing of it; it is counted then."""
    usage_source: TokenSource = "provider"
    model: str = ""
    cost_usd: str | None = None
    """What the provider itself says that the call cost; null leaves it to the price book."""


Delta = TextDelta | ReasoningDelta | CallDelta | FileDelta | Finished

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
"""The words of OpenAI, Anthropic, Bedrock, Gemini, Mistral, Cohere, Zhipu and servers that speak like them."""


def cut_reason(reason: str) -> FinishReason:
    """Why the provider cut an answer, from its own word in any case; empty for one that ended by itself."""
    return _CUT_REASONS.get(reason.lower(), "")


class ModelError(FoldlogError):
    """A model call failed. `error_type` decides what happens.

    transient, rate_limit: tried again, not before `retry_after_s` when the server gave one.
    context_overflow: the history has to shrink. quota, auth, content_filter, invalid_request: never tried again.

    A provider that knows what the broken answer took says so in `usage`, and in `cost_usd` (a decimal) what it cost;
    else what had arrived is counted.
    """

    error_type: str = "transient"
    usage: TokenUsage | None = None
    cost_usd: str | None = None

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TransientModelError(ModelError):
    """Network, 5xx, a stream that was cut or went silent."""

    error_type = "transient"


class RateLimited(ModelError):
    """429: too many requests or tokens for now."""

    error_type = "rate_limit"


class CircuitOpen(ModelError):
    """The call was not made: a circuit breaker lets none through for now. Not for providers to raise."""

    error_type = "circuit_open"


class ContextOverflow(ModelError):
    """The request does not fit the model's window.

    `window_tokens`: how much the model reads at most, what the answer may take left out; `request_tokens`: what the
    request takes. Both as the server states them, null where it does not.
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
    """The provider's filter refuses the request."""

    error_type = "content_filter"


class InvalidRequest(ModelError):
    """The provider refuses the request as it stands."""

    error_type = "invalid_request"


MODEL_ERRORS: dict[str, type[ModelError]] = {
    kind.error_type: kind
    for kind in (
        TransientModelError,
        RateLimited,
        CircuitOpen,
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
    """Return the error of this type, an `InvalidRequest` for an unknown one; the tokens are those of an overflow."""
    if error_type == ContextOverflow.error_type:
        return ContextOverflow(
            message,
            retry_after_s=retry_after_s,
            window_tokens=window_tokens,
            request_tokens=request_tokens,
        )
    return MODEL_ERRORS.get(error_type, InvalidRequest)(message, retry_after_s=retry_after_s)


class ModelProvider(Protocol):
    """Answers model requests. One object serves many runs at once and keeps no state about any of them.

    One that calls a billed HTTP API may have an attribute `api_url`, by which its prices are looked up; one that cannot
    do all that a request may ask for an attribute `lacks` with the names of it (tools, output_schema, temperature,
    max_tokens): an agent that asks for it is refused before its first event.
    """

    def check(self, model: str) -> None:
        """Raise `ConfigError` if the model cannot be called from here (no key, no such file)."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """The answer in pieces, closed by exactly one `Finished`. Raises `ModelError`.

        Closing the iterator, or cancelling the task that reads it, closes the connection. Never retries by itself.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections. Safe to repeat."""
        ...


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
    "Part",
    "QuotaExceeded",
    "RateLimited",
    "ReasoningDelta",
    "TextDelta",
    "TextPart",
    "ToolSchema",
    "TransientModelError",
    "cut_reason",
    "model_error",
]
