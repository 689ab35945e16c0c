"""`ModelSettings`: the settings of a model's replies, in words that mean the same for every provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from ...eventlog.errors import ConfigError

Effort = Literal["off", "minimal", "low", "medium", "high"]
Cache = Literal["auto", "off", "5m", "1h"]
EFFORTS: tuple[str, ...] = get_args(Effort)

TOOL_CHOICES = ("auto", "none", "required")
"""The values of `tool_choice` other than the name of a tool."""
TRANSPORT = frozenset({"cache", "headers", "strict", "timeout_s"})
"""Settings about how a model is reached: they are not part of the request digest (R12)."""
BY_THE_RUNTIME = frozenset({"strict", "timeout_s"})
"""Settings that the runtime itself implements, for any provider."""


class ModelSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The settings of a model's replies; null leaves a setting to the provider.

    A setting that the provider or the model does not support is rejected by name, before the run's first event if that
    is known; with `strict=False` it is left out.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """The longest reply, including the reasoning if the provider counts it."""
    stop: tuple[str, ...] | None = None
    """Texts that end the reply."""
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: str | None = None
    """auto, none, required or the name of a tool. A choice that forces a call only applies to the first step: a model
    that always has to make a call never answers."""
    reasoning: Effort | int | None = None
    """The amount of reasoning before the answer: a level, or a number of tokens if the provider counts them."""
    verbosity: Literal["low", "medium", "high"] | None = None
    service_tier: str | None = None
    cache: Cache | None = None
    """auto marks the stable prefix if the provider needs marks; 5m and 1h are the time to keep it."""
    timeout_s: float | None = None
    """The timeout of one reply, instead of the agent's `model_timeout_s`."""
    headers: dict[str, str] | None = None
    """Sent with each request; `${NAME}` in a value is the environment variable NAME of the worker."""
    extra_body: dict[str, Any] | None = None
    """Merged into each request unchanged, for settings that have no field here."""
    strict: bool | None = None
    """If false, a setting that the provider or model does not support is left out; otherwise it is rejected."""

    @property
    def is_strict(self) -> bool:
        """Return whether an unsupported setting is rejected."""
        return self.strict is not False

    def given(self) -> dict[str, Any]:
        """Return the settings that are not null, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def without(self, names: frozenset[str]) -> ModelSettings:
        """Return these settings without some of them."""
        return msgspec.structs.replace(self, **dict.fromkeys(names)) if names else self


def as_table(settings: ModelSettings | Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, as users give them, as a table of a configuration; a null in a mapping stays there."""
    given: object = settings
    if isinstance(given, ModelSettings):
        return {name: list(value) if name == "stop" else value for name, value in given.given().items()}
    if isinstance(given, Mapping):
        return dict(given)
    raise ConfigError(f"settings: must be ModelSettings or a table, not {type(given).__name__}")
