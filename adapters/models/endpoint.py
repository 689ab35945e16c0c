"""A provider's server: address, key and headers, read from the environment at the time of each call."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ...eventlog.errors import ConfigError

Api = Literal["chat", "responses"]
ReasoningBack = Literal["reasoning_content", "reasoning", "none"]
MaxTokensParameter = Literal["max_tokens", "max_completion_tokens"]

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
_NO_KEY = "no-key"  # The SDK insists on one.
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# OpenAI's own parameter; most compatible servers know only the older one.
_KNOWS_MAX_COMPLETION_TOKENS = re.compile(r"(^|\.)(openai\.com|openai\.azure\.com)$")

# They answer 400 to a request whose tool calls come without their reasoning.
_WANTS_REASONING_BACK = re.compile(r"(^|\.)(deepseek\.com|moonshot\.(ai|cn)|kimi\.com)$")


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the requests to a server. The defaults are right for OpenAI.

    `headers` are sent with each request; `${NAME}` in a value is the environment variable NAME.
    `extra_body` is merged into each request, for options without a field here (`{"reasoning": {"summary": "auto"}}`).
    `idle_timeout_s` limits how long the server may send nothing at all, in addition to the agent's own limit
    (`model_idle_timeout_s`); `connect_timeout_s` limits how long connecting may take.
    `max_tokens_parameter`: null chooses by the host. `usage_in_stream`: false for a server that refuses
    `stream_options` (usage is then unknown). `finish_reason`: optional for a server whose streams end without one; an
    answer that such a server cuts off cleanly then looks complete. `reasoning_back`: the field of an assistant message
    in which a chat server requires the model's earlier reasoning; null chooses by the host (DeepSeek and Moonshot).
    `inline_bytes_max`: the limit of bytes of files in a request; further files go through the server's file API. Null
    is the provider's own limit.
    """

    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    idle_timeout_s: float = 600.0
    connect_timeout_s: float = 10.0
    max_tokens_parameter: MaxTokensParameter | None = None
    usage_in_stream: bool = True
    finish_reason: Literal["required", "optional"] = "required"
    reasoning_back: ReasoningBack | None = None
    inline_bytes_max: int | None = None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One server as configured. `base_url` None is OpenAI's (or `OPENAI_BASE_URL`); `api_key_env` None sends no key."""

    base_url: str | None = None
    api_key_env: str | None = OPENAI_KEY
    options: HttpOptions = HttpOptions()

    @property
    def url(self) -> str:
        """Return the address in effect."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL

    @property
    def host(self) -> str:
        """Return the host of the address; empty if it has none."""
        try:
            return urlsplit(self.url).hostname or ""
        except ValueError:
            return ""

    @property
    def is_loopback(self) -> bool:
        """Return whether the server runs on this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_openai_account(self) -> bool:
        """Return whether the ambient `OPENAI_*` settings (organization, project, headers) apply to this server."""
        return self.api_key_env == OPENAI_KEY

    @property
    def max_tokens_parameter(self) -> MaxTokensParameter:
        """Return the name of the parameter that limits the output in chat completions."""
        if self.options.max_tokens_parameter is not None:
            return self.options.max_tokens_parameter
        return "max_completion_tokens" if _KNOWS_MAX_COMPLETION_TOKENS.search(self.host) else "max_tokens"

    @property
    def is_openai(self) -> bool:
        """Return whether the server is OpenAI's or Azure's, whose models' abilities are known."""
        return _KNOWS_MAX_COMPLETION_TOKENS.search(self.host) is not None

    @property
    def reasoning_back(self) -> str:
        """The field in which a chat server requires the model's earlier reasoning; empty if it requires none."""
        chosen = self.options.reasoning_back
        if chosen is None:
            return "reasoning_content" if _WANTS_REASONING_BACK.search(self.host) else ""
        return "" if chosen == "none" else chosen

    def key(self) -> str:
        """Return the key to send. Raises `ConfigError`, which names the variable to set, never its value."""
        if self.api_key_env is None:
            return _NO_KEY
        key = os.environ.get(self.api_key_env, "").strip()
        if not key and self.is_loopback:
            return _NO_KEY
        if not key:
            raise ConfigError(f"no API key: set the environment variable {self.api_key_env}")
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(
                f"the environment variable {self.api_key_env} holds characters that no API key has"
            )
        return key

    def headers(self) -> dict[str, str]:
        """Return the configured headers with variables replaced. Raises `ConfigError` for an unset variable."""
        return filled(self.options.headers)

    def secrets(self, headers: Mapping[str, str] = MappingProxyType({})) -> tuple[str, ...]:
        """Return the values that must not appear in messages: the key, and header values from the environment.

        `headers` are those of one request. Raises `ConfigError` for an unset variable.
        """
        written = {**self.options.headers, **headers}
        found = [self.key(), *(value for name, value in filled(written).items() if value != written[name])]
        return tuple(secret for secret in found if secret and secret != _NO_KEY)

    def check(self) -> None:
        """Raise `ConfigError` if the server cannot be called with the current environment."""
        if not self.host or urlsplit(self.url).scheme not in {"http", "https"}:
            raise ConfigError(
                f"{self.url!r} is not the base URL of an HTTP API: it must look like {OPENAI_URL}"
            )
        self.key()
        self.headers()


def filled(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with their variables filled in. Raises `ConfigError` for a variable that is not set."""
    return {name: _VARIABLE.sub(_variable, value) for name, value in headers.items()}


def _variable(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise ConfigError(f"a header needs the environment variable {match[1]}, which is not set")
    return value
