"""The check of an agent's settings against the features that its models' providers lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from ...eventlog.errors import ConfigError, UnsupportedSetting
from ...eventlog.parts import FilePart
from ..core.content import CountTokens
from ..core.rules import Rules
from ..ports.models import ModelProvider, native_tool_problem, unknown_settings
from .native_tools import denied

ProviderOf = Callable[[str], tuple[ModelProvider, str]]
"""Returns the provider of `provider:model` and the model's own name, as `Registry.provider`. Raises `ConfigError`."""

FEATURES: dict[str, tuple[str, ...]] = {
    "tools": ("tools", "mcp_servers", "allow_self_spawn", "allow_parallel_subagents"),
    "output_schema": ("output_schema",),
}
"""The features that a provider may lack, with the keys of a configuration that use them."""


def check(provider_of: ProviderOf, config: Mapping[str, Any], rules: Rules) -> None:
    """Raise `ConfigError` for the first feature that a provider of the agent lacks."""
    for problem in problems(provider_of, config, rules):
        raise problem


def check_files(
    provider_of: ProviderOf,
    models: Iterable[str],
    messages: Sequence[Sequence[FilePart]],
    data: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Raise `ConfigError` if one of the models is known not to take a file, or so many; `data` by artifact.

    `messages` are the files of each message.
    """
    asked = dict.fromkeys(models)
    for model in asked if any(messages) else ():
        provider, name = provider_of(model)
        for file in chain.from_iterable(messages):
            refuses = getattr(provider, "refuses", None)
            if refuses is not None and refuses(name, file.media_type):
                raise ConfigError(f"the model {model!r} does not take {file.media_type}: {file}")
            problem = getattr(provider, "file_problem", None)
            why = problem(name, file, data.get(file.artifact or "")) if problem is not None else None
            if why is not None:
                raise ConfigError(f"the model {model!r} does not take {file}: {why}")
        together = getattr(provider, "files_problem", None)
        why = together(name, messages, data) if together is not None else None
        if why is not None:
            raise ConfigError(f"the model {model!r} does not take so many files: {why}")


def known_models(provider_of: ProviderOf, models: Iterable[str]) -> list[str]:
    """Return those of the models whose providers this process has."""
    return [model for model in models if _is_known(provider_of, model)]


def _is_known(provider_of: ProviderOf, model: str) -> bool:
    try:
        provider_of(model)
    except ConfigError:
        return False
    return True


def tokens_by(provider_of: ProviderOf, model: str) -> CountTokens:
    """Return the function that counts the tokens of a file for the model, by the published rule of its provider."""

    def count(file: FilePart, data: bytes | None) -> int | None:
        provider, name = provider_of(model)
        rule: Callable[[str, FilePart, bytes | None], int | None] | None = getattr(
            provider, "file_tokens", None
        )
        return rule(name, file, data) if rule is not None else None

    return count


def problems(provider_of: ProviderOf, config: Mapping[str, Any], rules: Rules) -> Iterator[ConfigError]:
    """Yield all that the agent's providers lack. Raises `ConfigError` for an unknown one, with its key."""
    names = [tool.type for tool in rules.native_tools]
    yield from (ConfigError(f"agent {config.get('name')!r}: {why}") for why in denied(rules.policy, names))
    for model in dict.fromkeys(rules.models):
        provider, name = _provider(provider_of, config, model)
        lacks = getattr(provider, "lacks", ())
        for feature, keys in FEATURES.items() if lacks else ():
            using = [key for key in keys if _is_used(config.get(key))]
            if feature in lacks and using:
                yield ConfigError(
                    f"the provider of {model!r} lacks {feature!r}, which {' and '.join(using)} of agent "
                    f"{config.get('name')!r} uses: choose another model, or remove it"
                )
        for tool in rules.native_tools:
            has_tools = any(_is_used(config.get(key)) for key in FEATURES["tools"])
            why = native_tool_problem(provider, name, tool, tools=has_tools)
            if why is not None:
                yield ConfigError(
                    f"agent {config.get('name')!r}: native_tools: {model!r} has no {tool.type!r}: {why}"
                )
        if rules.settings.is_strict:
            unknown = unknown_settings(provider, name, rules.settings)
            yield from (UnsupportedSetting(setting, model, why) for setting, why in unknown.items())


def _provider(provider_of: ProviderOf, config: Mapping[str, Any], model: str) -> tuple[ModelProvider, str]:
    try:
        return provider_of(model)
    except ConfigError as error:
        keys = [key for key in ("model", "planning_model") if config.get(key) == model]
        raise ConfigError(f"agent {config.get('name')!r}: {(*keys, 'fallback_models')[0]}: {error}") from None


def _is_used(value: object) -> bool:
    return value is not None and value is not False and value not in ([], {})
