"""`OpenAIProvider`: one call of the official SDK per model request, without its retries (ours are events)."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator, Collection
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from ....eventlog.errors import ConfigError
from ....eventlog.parts import FilePart
from ....runtime.ports.models import (
    HEARD,
    AuthenticationFailed,
    Delta,
    Finished,
    InvalidRequest,
    ModelError,
    ModelRequest,
    ModelSettings,
    NativeTool,
    TextDelta,
    TransientModelError,
)
from .. import prices
from ..endpoint import OPENAI_KEY, Api, Endpoint, HttpOptions, filled
from ..failures import Callee, malformed_call, translated
from ..images import openai_tokens
from ..uploads import LIFETIME_S, Uploads, name_of
from . import chat, content, known, native, responses

if TYPE_CHECKING:
    from openai import AsyncOpenAI, Omit

# Importing these takes a second, which must not block the event loop.
_SDK_MODULES = ("openai", "openai.resources.chat.completions", "openai.resources.responses")
_DRAIN_S = 0.1


class OpenAIProvider:
    """Calls an OpenAI-compatible server (`foldlog.runtime.ports.models.ModelProvider`).

    `name` is the part of a model's name before the colon. `base_url` null is OpenAI's, or `OPENAI_BASE_URL`. The key is
    read from the environment variable `api_key_env`; null sends none, and a server on this machine may go without.
    `lacks` names features that its server lacks.
    One HTTP client is kept per event loop, until `aclose`.
    """

    def __init__(
        self,
        *,
        name: str = "openai",
        api: Api = "chat",
        base_url: str | None = None,
        api_key_env: str | None = OPENAI_KEY,
        options: HttpOptions | None = None,
        lacks: Collection[str] = (),
    ) -> None:
        self.name, self.api, self.lacks = name, api, frozenset(lacks)
        self.endpoint = Endpoint(base_url=base_url, api_key_env=api_key_env, options=options or HttpOptions())
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = WeakKeyDictionary()
        self._uploaded: WeakKeyDictionary[asyncio.AbstractEventLoop, Uploads] = WeakKeyDictionary()

    @property
    def api_url(self) -> str:
        """Return the server's address, by which prices are looked up."""
        return self.endpoint.url

    def check(self, model: str) -> None:
        """Raise `ConfigError` if the server's address, key or headers are not set or not usable."""
        try:
            self.endpoint.check()
        except ConfigError as error:
            raise ConfigError(f"{self.name}:{model} cannot be called: {error}") from None

    def refuses(self, model: str, media_type: str) -> bool:
        """Return whether the model is known not to take such files. Only OpenAI's own models are known."""
        return _is_openai(self.endpoint) and content.refuses(self.api, model, media_type)

    def file_tokens(self, model: str, file: FilePart, data: bytes | None) -> int | None:
        """Return the tokens of a file by OpenAI's published rule; None if it is unknown."""
        return openai_tokens(model, file, data)

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        """Return why the server cannot offer a native tool; None if it can."""
        return native.problem(self.api, tool)

    def unknown_settings(self, model: str, settings: ModelSettings) -> dict[str, str]:
        """Return the given settings that the API, or OpenAI's model, does not know, each with the reason."""
        return known.unknown_settings(self.api, self.endpoint, model, settings)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Yield the answer in pieces, then `Finished`. Raises `ModelError`, which names the model, never the key."""
        callee = self._callee(request)
        optional = self.endpoint.options.finish_reason == "optional"
        reader = (
            chat.ChatReader(
                request, reason_optional=optional, reasoning_back=bool(self.endpoint.reasoning_back)
            )
            if self.api == "chat"
            else responses.ResponsesReader(request, callee)
        )
        chunks, content_type = 0, ""
        try:
            async with await self._open(request) as stream:
                content_type = stream.response.headers.get("content-type", "")
                _listen(stream.response)
                async for chunk in stream:
                    chunks += 1
                    for delta in reader.feed(chunk):
                        yield delta
                    if reader.is_over():
                        await _drain(stream)
                        break
            reader.end()
        except ModelError:
            raise
        except Exception as error:
            if (written := malformed_call(error)) is not None:
                yield TextDelta(written)
                yield Finished(reason="malformed_call", model=request.model)
                return
            failure = translated(callee, error)
            if failure is None:
                raise
            # After the end of the answer only its usage is missing, which is not worth another call.
            if reader.finished() is None:
                raise failure from None
        finished = reader.finished()
        if finished is None:
            raise _cut(callee, self.endpoint, content_type, chunks)
        yield finished

    async def aclose(self) -> None:
        """Close this event loop's client. Safe to repeat; a later call opens a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _callee(self, request: ModelRequest) -> Callee:
        model = f"{self.name}:{request.model}"
        try:
            self.endpoint.check()
            secrets = self.endpoint.secrets(request.settings.headers or {})
        except ConfigError as error:
            raise AuthenticationFailed(f"{model} cannot be called: {error}") from None
        return Callee(model, self.endpoint.url, self.endpoint.options.idle_timeout_s, secrets)

    async def _open(self, request: ModelRequest) -> Any:
        """Return the SDK's stream once the response has begun."""
        client = await self._client()
        files = await self._uploads().files(
            request,
            self._inline_bytes_max,
            partial(_upload, client),
            partial(content.can_be_uploaded, self.api),
        )
        headers = filled(request.settings.headers or {})
        if request.idempotency_key:
            headers["Idempotency-Key"] = request.idempotency_key
        chosen = (
            chat.parameters(request, self.endpoint, files)
            if self.api == "chat"
            else responses.parameters(request, files)
        )
        body = _merged(self.endpoint.options.extra_body, request.settings.extra_body or {})
        extra: dict[str, Any] = {
            "extra_headers": headers or None,
            "extra_body": {name: _merged(chosen.get(name), value) for name, value in body.items()} or None,
        }
        if self.api == "chat":
            return await client.chat.completions.create(**chosen, **extra)
        return await client.responses.create(**chosen, **extra)

    @property
    def _inline_bytes_max(self) -> int | None:
        """Return the limit of bytes of files in one request; None if no limit is known."""
        known = INLINE_BYTES_MAX if _is_openai(self.endpoint) else None
        return self.endpoint.options.inline_bytes_max or known

    def _uploads(self) -> Uploads:
        return self._uploaded.setdefault(asyncio.get_running_loop(), Uploads())

    async def _client(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            await anyio.to_thread.run_sync(_import_sdk, abandon_on_cancel=True)
        if loop not in self._clients:  # Another task may have been faster; no other task runs from here on.
            self._clients[loop] = _new_client(self.endpoint)
        return self._clients[loop]


INLINE_BYTES_MAX = 37_000_000
"""OpenAI's limit is 50 MB a request, in which base64 makes files a third longer."""


async def _upload(client: AsyncOpenAI, file: FilePart, data: bytes) -> str:
    made = await client.files.create(
        file=(name_of(file), data, file.media_type),
        purpose="vision" if file.media_type.startswith("image/") else "user_data",
        expires_after={"anchor": "created_at", "seconds": LIFETIME_S},
    )
    return made.id


def _is_openai(endpoint: Endpoint) -> bool:
    return f".{endpoint.host}".endswith(".openai.com")


def _merged(one: Any, other: Any) -> Any:
    """Merge two values: tables recursively, key by key; otherwise `other` wins."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return one | {name: _merged(one.get(name), value) for name, value in other.items()}


def responses_provider() -> OpenAIProvider:
    """Return the provider of OpenAI's Responses API: `openai-responses:<model>`."""
    return OpenAIProvider(name="openai-responses", api="responses")


def _listen(response: Any) -> None:
    """Report each further piece of the response to the runtime."""
    from ..activity import Heard

    response.stream = Heard(response.stream, HEARD.get())


async def _drain(stream: Any) -> None:
    """Read the rest for a moment: a connection can be reused only after its response is read to the end."""
    with anyio.move_on_after(_DRAIN_S):
        async for _ in stream:
            pass


def _import_sdk() -> None:
    for module in _SDK_MODULES:
        importlib.import_module(module)
    prices.load_data()


def _new_client(endpoint: Endpoint) -> AsyncOpenAI:
    import openai

    idle_s, connect_s = endpoint.options.idle_timeout_s, endpoint.options.connect_timeout_s
    headers: dict[str, str | Omit] = {} if endpoint.is_openai_account else _without_ambient_headers()
    return openai.AsyncOpenAI(
        api_key=endpoint.key(),
        base_url=endpoint.url,
        max_retries=0,
        timeout=openai.Timeout(idle_s, connect=connect_s),
        default_headers={**headers, **endpoint.headers()},  # type: ignore[dict-item]
        # Connections to this machine never use a proxy.
        http_client=openai.DefaultAsyncHttpxClient(trust_env=not endpoint.is_loopback),
    )


def _without_ambient_headers() -> dict[str, str | Omit]:
    """Omit the headers that the SDK takes from `OPENAI_ORG_ID` and the like and sends to any server."""
    import openai

    custom = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    names = ["OpenAI-Organization", "OpenAI-Project", *(line.partition(":")[0].strip() for line in custom)]
    return {name: openai.Omit() for name in names if name}


def _cut(callee: Callee, endpoint: Endpoint, content_type: str, chunks: int) -> ModelError:
    if chunks == 0 and content_type and not content_type.startswith("text/event-stream"):
        return InvalidRequest(
            callee.says(
                f"{endpoint.url} answers with {content_type}, not with an event stream; is it the base URL of the API?"
            )
        )
    return TransientModelError(callee.says("the stream ended before the answer was complete"))
