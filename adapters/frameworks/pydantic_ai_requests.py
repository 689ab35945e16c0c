"""Convert what an agent of pydantic-ai sends to the model: model names, settings, and native tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from ...runtime.ports.settings import Cache
from ..models.vendors.vendors import VENDORS
from .foreign_tool import Reading, is_elsewhere, openai_servers

_MODELS = {
    "anthropic": "anthropic",
    "azure": "azure",
    "bedrock": "bedrock",
    "cohere": "cohere",
    "google": "google",
    "groq": "groq",
    "huggingface": "huggingface",
    "mistral": "mistral",
    "ollama": "ollama",
    "openai": "openai-responses",
    "openai-chat": "openai",
    "openai-responses": "openai-responses",
    "openrouter": "openrouter",
    "xai": "xai",
}
"""foldlog's providers by their names in pydantic-ai."""
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "seed": "seed",
    "stop_sequences": "stop",
    "parallel_tool_calls": "parallel_tool_calls",
    "timeout": "timeout_s",
    "thinking": "reasoning",
    "service_tier": "service_tier",
    "extra_headers": "headers",
    "extra_body": "extra_body",
    "tool_choice": "tool_choice",
    "cache": "cache",
    "openai_reasoning_effort": "reasoning",
    "openai_service_tier": "service_tier",
    "openai_text_verbosity": "verbosity",
}
_VALUES: dict[str, Callable[[Any], Any]] = {
    "stop_sequences": list,
    "thinking": lambda level: "off" if level is False else level,
    "extra_headers": dict,
    "cache": lambda cache: {True: "auto", False: "off"}[cache] if isinstance(cache, bool) else cache,
    "openai_reasoning_effort": lambda effort: "off" if effort == "none" else effort,
}
"""Conversions of the values of settings that have another form in foldlog."""
_NATIVE: dict[str, dict[str, str]] = {
    "web_search": {
        name: name
        for name in ("allowed_domains", "blocked_domains", "max_uses", "search_context_size", "user_location")
    },
    "code_execution": {},
    "file_search": {"file_store_ids": "store_ids", "max_num_results": "max_results"},
}
"""foldlog's native tools, each with its options by their names in pydantic-ai."""
_SAYS_NOTHING = (("search_context_size", "medium"),)
"""Default options that every native tool of pydantic-ai has, even for vendors that do not support them."""


def models_of(reading: Reading, model: Any) -> list[str]:
    """Return the model and its fallbacks as `provider:name`. Raises `ConfigError` if no provider here serves one."""
    model = bare(model)
    if type(model).__name__ != "FallbackModel":
        return [_model(reading, model)]
    if any(bare(each).settings for each in model.models):
        reading.refuse("the settings of one of several models: give them to the agent")
    return [_model(reading, bare(each)) for each in model.models]


def bare(model: Any) -> Any:
    """Return a model without its instrumentation wrapper."""
    return bare(model.wrapped) if type(model).__name__ == "InstrumentedModel" else model


def _model(reading: Reading, model: Any) -> str:
    if model is None:
        reading.refuse("it has no model; say from_pydantic_ai(model=...)")
    if isinstance(model, str):
        prefix, colon, name = model.partition(":")
    else:
        prefix, colon, name = model.system, ":", model.model_name
        if "Responses" not in type(model).__name__ and prefix == "openai":
            prefix = "openai-chat"
    if not colon or prefix not in _MODELS:
        reading.refuse(f"the model {prefix}:{name} has no provider here; say from_pydantic_ai(model=...)")
    provider = _MODELS[prefix]
    vendor, at = VENDORS.get(provider), str(getattr(model, "base_url", None) or "")
    known = openai_servers() if vendor is None else (vendor.url, vendor.address)
    if is_elsewhere(at, *known):
        reading.refuse(
            f"the model {prefix}:{name} is called at {at}: name that server in foldlog.toml, and say "
            "from_pydantic_ai(model=...)"
        )
    return f"{provider}:{name}"


def settings_of(reading: Reading, *settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert settings; later ones win. Raises `ConfigError` for a setting without an equivalent."""
    if any(map(callable, settings)):
        reading.refuse("model_settings are a function")
    found: dict[str, Any] = {}
    for name, value in {name: value for each in settings for name, value in (each or {}).items()}.items():
        if name not in _SETTINGS:
            reading.refuse(f"the model setting {name!r} has no equivalent; extra_body may carry it")
        found[_SETTINGS[name]] = _VALUES[name](value) if name in _VALUES else value
    if found.get("reasoning") is True:
        reading.refuse("the model setting 'thinking' is True; say how much: minimal, low, medium or high")
    if isinstance(choice := found.get("tool_choice", "auto"), list):
        found["tool_choice"] = choice = choice[0] if len(choice) == 1 else None
    if not isinstance(choice, str):
        reading.refuse("the model setting 'tool_choice' does not name one tool")
    if not isinstance(cache := found.get("cache", "auto"), str) or cache not in get_args(Cache):
        reading.refuse(
            f"the model setting 'cache' is {cache!r}; here it is one of {', '.join(get_args(Cache))}"
        )
    return reading.settings(found)


def native_tool(reading: Reading, tool: Any) -> dict[str, Any]:
    """Convert a native tool into its table. Raises `ConfigError` for one without an equivalent."""
    kind = getattr(tool, "kind", None)
    if kind not in _NATIVE:
        reading.refuse(f"the native tool {kind!r}" if kind else "a native tool that is a function")
    table: dict[str, Any] = {"type": kind}
    for name, value in vars(tool).items():
        if value is None or name in {"kind", "optional"} or (name, value) in _SAYS_NOTHING:
            continue
        if name not in _NATIVE[kind]:
            reading.refuse(f"{name} of the native tool {kind!r}")
        table[_NATIVE[kind][name]] = list(value) if isinstance(value, tuple) else value
    return table
