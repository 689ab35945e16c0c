"""What an agent asks of its models, held against what their providers say that they lack: refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...eventlog.errors import ConfigError
from ..core.rules import Rules
from ..ports.models import ModelProvider

ProviderOf = Callable[[str], tuple[ModelProvider, str]]
"""Returns the provider of `provider:model` and the model's own name, as `Registry.provider`. Raises `ConfigError`."""

FEATURES: dict[str, tuple[str, ...]] = {
    "tools": ("tools", "mcp_servers", "allow_self_spawn", "allow_parallel_subagents"),
    "output_schema": ("output_schema",),
    "temperature": ("temperature",),
    "max_tokens": ("max_tokens",),
}
"""What a provider may lack, with the keys of a configuration that ask for it."""


def check(provider_of: ProviderOf, config: Mapping[str, Any], rules: Rules) -> None:
    """Raises `ConfigError` for the first thing that a provider of the agent's lacks."""
    for problem in problems(provider_of, config, rules):
        raise ConfigError(problem)


def problems(provider_of: ProviderOf, config: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    """All that the providers of the agent's models lack. Raises `ConfigError` for an unknown one, with its key."""
    for model in dict.fromkeys(rules.models):
        lacks = getattr(_provider(provider_of, config, model), "lacks", ())
        for feature, keys in FEATURES.items():
            asking = [key for key in keys if _asks(config.get(key))]
            if feature in lacks and asking:
                yield (
                    f"the provider of {model!r} lacks {feature!r}, which {' and '.join(asking)} of agent "
                    f"{config.get('name')!r} asks for: choose another model, or leave it out"
                )


def _provider(provider_of: ProviderOf, config: Mapping[str, Any], model: str) -> ModelProvider:
    try:
        return provider_of(model)[0]
    except ConfigError as error:
        keys = [key for key in ("model", "planning_model") if config.get(key) == model]
        raise ConfigError(f"agent {config.get('name')!r}: {(*keys, 'fallback_models')[0]}: {error}") from None


def _asks(value: object) -> bool:
    return value is not None and value is not False and value not in ([], {})
