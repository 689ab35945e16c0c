"""The vendors: their packages and variables, and how to call their SDKs without retries."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import re
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ....eventlog.errors import ConfigError
from ....eventlog.parts import FilePart
from ....runtime.ports.models import InvalidRequest
from ....runtime.ports.native_tools import NativeTool
from ....runtime.ports.settings import ModelSettings
from ..uploads import LIFETIME_S, name_of
from .connection import Connection

ModelOf = Callable[[str], Any]
"""Creates pydantic-ai's model class for a model's name, over one connection."""


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor of pydantic-ai.

    `sdk` is the module of its SDK. `keys` names the environment variables that may hold the key, of which the first
    that is set counts; empty if the SDK finds credentials by itself. `needs` names other variables that must be set.
    `url_env` overrides `url`; a vendor without `url` has no HTTP address of its own. `url_types` are the media types
    that the vendor fetches by itself from a URL. `unknown` names the settings that it does not support, and `marks`
    says that its cache needs marks. `native` are its native tools, each with its options. `makes_files`: it accepts
    files that its models generated. `files_in_results`: the library sends the files of tools with their results, or
    after them. `inline_bytes_max` limits the bytes of files in a request, and `upload` stores a file through its file
    API, with one of the library's models. `max_retries`: the library takes the number of the SDK's retries with each
    request.
    """

    name: str
    sdk: str
    connect: Callable[[Connection], ModelOf]
    modules: tuple[str, ...]
    keys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    url: str = ""
    url_env: str = ""
    url_types: tuple[str, ...] = ("image/",)
    unknown: frozenset[str] = frozenset({"verbosity"})
    marks: bool = False
    native: dict[str, frozenset[str]] = {}
    makes_files: bool = False
    files_in_results: bool = True
    inline_bytes_max: int | None = None
    upload: Callable[[Any, FilePart, bytes], Awaitable[str]] | None = None
    key_optional: bool = False
    max_retries: bool = True

    @property
    def is_installed(self) -> bool:
        """Return whether the library and the SDK are installed, without importing them."""
        return _is_there("pydantic_ai") and _is_there(self.sdk)

    @property
    def key_env(self) -> str | None:
        """Return the variable of the key: the first one that is set, else the first; None for a vendor without keys."""
        is_set = (name for name in self.keys if os.environ.get(name, "").strip())
        first = next(iter(self.keys), None)
        return next(is_set, None if self.key_optional else first)

    @property
    def address(self) -> str:
        """Return the default address; empty if it is unknown."""
        return (os.environ.get(self.url_env, "").strip() if self.url_env else "") or self.url

    def check(self) -> None:
        """Raise `ConfigError`, which says what to install or to set."""
        if not self.is_installed:
            raise ConfigError(f"it needs an extra: pip install 'foldlog[{self.name}]' (or 'foldlog[models]')")
        missing = next((name for name in self.needs if not os.environ.get(name, "").strip()), None)
        if missing is not None:
            raise ConfigError(f"set the environment variable {missing}")

    def fetches(self, file: FilePart) -> bool:
        """Return whether the vendor fetches a file with this URL; otherwise the library would fetch it here."""
        return file.media_type.startswith(self.url_types) if self.url_types else False

    def unknown_settings(self, settings: ModelSettings) -> dict[str, str]:
        """Return the given settings that the vendor does not know, each with the reason."""
        found = dict.fromkeys(sorted(settings.given().keys() & self.unknown), "the vendor has none")
        if isinstance(settings.reasoning, int) and self.name not in _THINKING_TOKENS:
            found["reasoning"] = (
                "the vendor takes a word (off, minimal, low, medium, high), and no number of tokens"
            )
        if settings.cache in {"5m", "1h"} and not self.marks:
            found["cache"] = "the server caches by itself, and takes no marks"
        return found

    def native_tool_problem(self, model: str, tool: NativeTool, *, tools: bool) -> str | None:
        """Return why the vendor cannot offer a native tool to the model; None if it can."""
        options = self.native.get(tool.type)
        if options is None:
            return (
                f"{self.name} has {', '.join(sorted(self.native))}"
                if self.native
                else f"{self.name} has none"
            )
        if unknown := sorted(tool.options.keys() - options):
            return f"{self.name} has no {unknown[0]} for it"
        if self.name == "google" and tools and not _COMBINES.match(model):
            return "Gemini before 3 takes no native tools together with tools of the agent"
        return None

    async def uploaded(self, model: Any, file: FilePart, data: bytes) -> str:
        """Upload a file, and return its id. Raises `InvalidRequest` for a vendor without a file API."""
        if self.upload is None:
            raise InvalidRequest(f"{self.name} has no file API for {file}")
        return await self.upload(model, file, data)

    def thinking_tokens(self, tokens: int) -> dict[str, Any]:
        """Return the vendor's own setting for a thinking budget in tokens."""
        return _THINKING_TOKENS[self.name](tokens)

    def load(self) -> None:
        """Import everything that a call needs. Takes up to seconds: not for the event loop's thread."""
        for module in self.modules:
            importlib.import_module(module)


_POLL_S = 1.0
_COMBINES = re.compile(r"gemini-([3-9]|\d\d)")

_THINKING_TOKENS: dict[str, Callable[[int], dict[str, Any]]] = {
    "anthropic": lambda tokens: {"anthropic_thinking": {"type": "enabled", "budget_tokens": tokens}},
    "google": lambda tokens: {
        "google_thinking_config": {"thinking_budget": tokens, "include_thoughts": tokens > 0}
    },
}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _pydantic_ai(module: str, model: str) -> Any:
    return _load(f"pydantic_ai.models.{module}:{model}")


def _anthropic(connection: Connection) -> ModelOf:
    client = _load("anthropic:AsyncAnthropic")(
        api_key=connection.key,
        base_url=connection.url,
        http_client=connection.http2(),
        max_retries=0,
        timeout=connection.http2().timeout,
    )
    provider = _load("pydantic_ai.providers.anthropic:AnthropicProvider")(anthropic_client=client)
    return partial(_pydantic_ai("anthropic", "AnthropicModel"), provider=provider)


def _google(connection: Connection) -> ModelOf:
    provider = _load("pydantic_ai.providers.google:GoogleProvider")(
        api_key=connection.key, base_url=connection.url, http_client=connection.http2()
    )
    return partial(_pydantic_ai("google", "GoogleModel"), provider=provider)


def _openai(connection: Connection) -> Any:
    return _load("openai:AsyncOpenAI")(
        api_key=connection.key,
        base_url=connection.url,
        http_client=connection.http2(),
        max_retries=0,
        timeout=connection.http2().timeout,
        # The headers from `OPENAI_ORG_ID` and the like are only for OpenAI.
        default_headers={name: _load("openai:Omit")() for name in ("OpenAI-Organization", "OpenAI-Project")},
    )


_CHAT = {"openai_chat_streaming_requires_finish_reason": True}
"""Without this, the library mistakes a stream that was cut off for a short answer."""


def _openrouter(connection: Connection) -> ModelOf:
    provider = _load("pydantic_ai.providers.openrouter:OpenRouterProvider")(openai_client=_openai(connection))
    return partial(_pydantic_ai("openrouter", "OpenRouterModel"), provider=provider, profile=_CHAT)


def _ollama(connection: Connection) -> ModelOf:
    provider = _load("pydantic_ai.providers.ollama:OllamaProvider")(openai_client=_openai(connection))
    return partial(_pydantic_ai("ollama", "OllamaModel"), provider=provider, profile=_CHAT)


def _azure(connection: Connection) -> ModelOf:
    provider = _load("pydantic_ai.providers.azure:AzureProvider")(
        azure_endpoint=connection.url, api_key=connection.key, http_client=connection.http2()
    )
    return partial(_pydantic_ai("openai", "OpenAIChatModel"), provider=provider, profile=_CHAT)


def _mistral(connection: Connection) -> ModelOf:
    provider = _load("pydantic_ai.providers.mistral:MistralProvider")(
        api_key=connection.key, base_url=connection.url, http_client=connection.http2()
    )
    return partial(_pydantic_ai("mistral", "MistralModel"), provider=provider)


def _groq(connection: Connection) -> ModelOf:
    client = _load("groq:AsyncGroq")(
        api_key=connection.key, base_url=connection.url, http_client=connection.http1(), max_retries=0
    )
    provider = _load("pydantic_ai.providers.groq:GroqProvider")(groq_client=client)
    return partial(_pydantic_ai("groq", "GroqModel"), provider=provider)


def _cohere(connection: Connection) -> ModelOf:
    client = _load("cohere:AsyncClientV2")(
        api_key=connection.key, base_url=connection.url, httpx_client=connection.http1()
    )
    provider = _load("pydantic_ai.providers.cohere:CohereProvider")(cohere_client=client)
    return partial(_pydantic_ai("cohere", "CohereModel"), provider=provider)


def _huggingface(connection: Connection) -> ModelOf:
    provider = _load("pydantic_ai.providers.huggingface:HuggingFaceProvider")(
        api_key=connection.key,
        # Without an address the library has to be told that Hugging Face may choose who serves the model.
        **({"base_url": at} if (at := connection.endpoint.base_url) else {"provider_name": "auto"}),
    )
    connection.closes(provider.client.close)
    return partial(_pydantic_ai("huggingface", "HuggingFaceModel"), provider=provider)


def _xai(connection: Connection) -> ModelOf:
    at = urlsplit(connection.url)
    client = _load("xai_sdk:AsyncClient")(
        api_key=connection.key,
        api_host=at.netloc,
        use_insecure_channel=at.scheme == "http",
        channel_options=[("grpc.enable_retries", 0)],
    )
    connection.closes(client.close)
    provider = _load("pydantic_ai.providers.xai:XaiProvider")(xai_client=client)
    return partial(_pydantic_ai("xai", "XaiModel"), provider=provider)


def _bedrock(connection: Connection) -> ModelOf:
    """Return the model class for botocore, which finds keys, regions and profiles by itself."""
    options = connection.endpoint.options
    config = _load("botocore.config:Config")(
        retries={"total_max_attempts": 1, "mode": "standard"},
        read_timeout=options.idle_timeout_s,
        connect_timeout=options.connect_timeout_s,
    )
    client = _load("boto3:client")(
        "bedrock-runtime", config=config, endpoint_url=connection.endpoint.base_url or None
    )
    provider = _load("pydantic_ai.providers.bedrock:BedrockProvider")(bedrock_client=client)
    return partial(_pydantic_ai("bedrock", "BedrockConverseModel"), provider=provider)


async def _upload_to_anthropic(model: Any, file: FilePart, data: bytes) -> str:
    made = await model.client.beta.files.upload(
        file=(name_of(file), data, file.media_type), expires_in_seconds=LIFETIME_S
    )
    return str(made.id)


async def _upload_to_google(model: Any, file: FilePart, data: bytes) -> str:
    """Upload to the Gemini API, which deletes files after 48 hours, and wait until it has read the file."""
    files = model.client.aio.files
    made = await files.upload(
        file=io.BytesIO(data), config={"mime_type": file.media_type, "display_name": name_of(file)}
    )
    while str(getattr(made.state, "value", made.state)) == "PROCESSING":
        await asyncio.sleep(_POLL_S)
        made = await files.get(name=made.name)
    if str(getattr(made.state, "value", made.state)) == "FAILED":
        raise InvalidRequest(f"the vendor could not read {file}")
    return str(made.uri)


VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            name="anthropic",
            sdk="anthropic",
            connect=_anthropic,
            modules=("pydantic_ai.models.anthropic",),
            keys=("ANTHROPIC_API_KEY",),
            url_types=("image/", "application/pdf"),
            url="https://api.anthropic.com",
            url_env="ANTHROPIC_BASE_URL",
            unknown=frozenset({"seed", "verbosity"}),
            marks=True,
            inline_bytes_max=24_000_000,
            upload=_upload_to_anthropic,
            native={
                "web_search": frozenset({"allowed_domains", "blocked_domains", "max_uses", "user_location"}),
                "code_execution": frozenset(),
            },
        ),
        Vendor(
            name="google",
            sdk="google.genai",
            connect=_google,
            modules=("pydantic_ai.models.google",),
            keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            url_types=(),
            url="https://generativelanguage.googleapis.com",
            url_env="GOOGLE_GEMINI_BASE_URL",
            unknown=frozenset({"extra_body", "parallel_tool_calls", "verbosity"}),
            makes_files=True,
            inline_bytes_max=15_000_000,
            upload=_upload_to_google,
            native={
                "web_search": frozenset(),
                "code_execution": frozenset(),
                "file_search": frozenset({"store_ids"}),
            },
        ),
        Vendor(
            name="bedrock",
            sdk="boto3",
            connect=_bedrock,
            modules=("pydantic_ai.models.bedrock",),
            url_types=(),
            max_retries=False,
            unknown=frozenset({"extra_body", "headers", "parallel_tool_calls", "seed", "verbosity"}),
            marks=True,
        ),
        Vendor(
            name="mistral",
            sdk="mistralai",
            connect=_mistral,
            modules=("pydantic_ai.models.mistral",),
            keys=("MISTRAL_API_KEY",),
            url="https://api.mistral.ai",
            unknown=frozenset({"extra_body", "headers", "service_tier", "verbosity"}),
        ),
        Vendor(
            name="groq",
            sdk="groq",
            connect=_groq,
            modules=("pydantic_ai.models.groq",),
            keys=("GROQ_API_KEY",),
            url="https://api.groq.com",
            inline_bytes_max=3_000_000,
            url_env="GROQ_BASE_URL",
            unknown=frozenset({"service_tier", "verbosity"}),
        ),
        Vendor(
            name="cohere",
            sdk="cohere",
            connect=_cohere,
            modules=("pydantic_ai.models.cohere",),
            keys=("CO_API_KEY",),
            url="https://api.cohere.com",
            files_in_results=False,
            inline_bytes_max=15_000_000,
            url_env="CO_BASE_URL",
            unknown=frozenset({"extra_body", "headers", "parallel_tool_calls", "service_tier", "verbosity"}),
        ),
        Vendor(
            name="xai",
            sdk="xai_sdk",
            connect=_xai,
            modules=("pydantic_ai.models.xai",),
            keys=("XAI_API_KEY",),
            url="https://api.x.ai",
            max_retries=False,
            unknown=frozenset({"extra_body", "headers", "service_tier", "verbosity"}),
        ),
        Vendor(
            name="openrouter",
            sdk="openai",
            connect=_openrouter,
            modules=("pydantic_ai.models.openrouter",),
            keys=("OPENROUTER_API_KEY",),
            url="https://openrouter.ai/api/v1",
            marks=True,
        ),
        Vendor(
            name="azure",
            sdk="openai",
            connect=_azure,
            modules=("pydantic_ai.models.openai", "pydantic_ai.providers.azure"),
            keys=("AZURE_OPENAI_API_KEY",),
            needs=("AZURE_OPENAI_ENDPOINT",),
            url_env="AZURE_OPENAI_ENDPOINT",
        ),
        Vendor(
            name="huggingface",
            sdk="huggingface_hub",
            connect=_huggingface,
            modules=("pydantic_ai.models.huggingface",),
            keys=("HF_TOKEN",),
            max_retries=False,
            unknown=frozenset({"headers", "parallel_tool_calls", "service_tier", "verbosity"}),
        ),
        Vendor(
            name="ollama",
            sdk="openai",
            connect=_ollama,
            modules=("pydantic_ai.models.ollama",),
            keys=("OLLAMA_API_KEY",),
            key_optional=True,
            url="http://localhost:11434/v1",
            url_env="OLLAMA_BASE_URL",
        ),
    )
}
"""Every vendor by the prefix of its models."""
