"""OpenAI-compatible servers by name, from the project's configuration.

    [providers.cerebras]                            # foldlog.toml; in pyproject.toml: [tool.foldlog.providers.groq]
    base_url = "https://api.cerebras.ai/v1"         # default: OpenAI's
    api_key_env = "CEREBRAS_API_KEY"                # default: no key; without base_url, OPENAI_API_KEY
    api = "chat"                                    # or "responses"

An agent uses it with `model = "cerebras:llama-3.3-70b"`. `ProviderTable` lists all keys.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from ...eventlog.errors import ConfigError
from ...runtime.ports.plugins import installed
from ..configuration.project_file import project_tables
from ..configuration.strict_tables import StrictTable
from .endpoint import OPENAI_KEY, MaxTokensParameter, ReasoningBack
from .openai import Api, HttpOptions, OpenAIProvider

Setting = Literal[
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "seed",
    "parallel_tool_calls",
    "tool_choice",
    "reasoning",
    "verbosity",
    "service_tier",
]
"""A setting of a model that a server may not know."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_DEFAULTS = HttpOptions()
Seconds = Annotated[float, Field(gt=0)]


class ProviderTable(StrictTable):
    """One `[providers.<name>]` table; the keys that concern HTTP are those of `HttpOptions`."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^/\s]+\S*$")] | None = None
    api_key_env: Annotated[str, Field(pattern=r"^\w+$")] | None = None
    api: Api = "chat"
    headers: dict[str, str] = Field(default_factory=dict)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    idle_timeout_s: Seconds = _DEFAULTS.idle_timeout_s
    connect_timeout_s: Seconds = _DEFAULTS.connect_timeout_s
    max_tokens_parameter: MaxTokensParameter | None = None
    usage_in_stream: bool = True
    finish_reason: Literal["required", "optional"] = "required"
    reasoning_back: ReasoningBack | None = None
    inline_bytes_max: Annotated[int, Field(gt=0)] | None = None
    lacks: list[Literal["tools", "output_schema"] | Setting] = Field(default_factory=list)
    """Features that the server lacks: an agent that needs one is refused with its name."""

    def provider(self, name: str) -> OpenAIProvider:
        """Return the provider of this table. OpenAI's key is sent to another server only if the table names it."""
        key = OPENAI_KEY if self.base_url is None and self.api_key_env is None else self.api_key_env
        options = HttpOptions(**{field: getattr(self, field) for field in HttpOptions.__struct_fields__})
        return OpenAIProvider(
            name=name,
            api=self.api,
            base_url=self.base_url,
            api_key_env=key,
            options=options,
            lacks=self.lacks,
        )


def load_providers() -> dict[str, OpenAIProvider]:
    """Return the configured providers by name; none without a configuration.

    Raises `ConfigError`, which names the file, the table and the key.
    """
    configured = project_tables("providers")
    builtin = installed("foldlog.providers")
    found: dict[str, OpenAIProvider] = {}
    for name, table in configured.tables.items():
        where = configured.where(name)
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{where}: a provider's name has letters, digits, - and _, and begins with a letter"
            )
        if name in builtin:
            raise ConfigError(f"{where}: {name!r} is the name of an installed provider; choose another one")
        found[name] = ProviderTable.read(table, where).provider(name)
    return found
