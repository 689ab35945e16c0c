"""Checks before a run starts: the window and the prices that its budgets need are known."""

from __future__ import annotations

from typing import Protocol

from ...eventlog.errors import ConfigError
from ..core.rules import Rules


class ModelFacts(Protocol):
    """What a process knows of models, each named `provider:model`. `Registry` is one."""

    def window_tokens(self, model: str) -> int | None:
        """How many tokens of input the model reads at most; null where unknown. Raises `ConfigError`."""
        ...

    def price_known(self, model: str) -> bool:
        """Return whether calls of the model have a price. Raises `ConfigError`."""
        ...


def window_tokens(models: ModelFacts, rules: Rules) -> int | None:
    """Return how much the run's model reads at most: as configured, else as known; null where unknown."""
    return rules.context.window_tokens or models.window_tokens(rules.model)


def check(models: ModelFacts, rules: Rules) -> None:
    """Raise `ConfigError` for a budget that could not be kept because the window or a price is unknown."""
    if (rules.limit_pct is not None or rules.tells_window) and window_tokens(models, rules) is None:
        raise ConfigError(
            f"budget_awareness needs the window of {rules.model!r}, which is not known: set context.window_tokens"
        )
    costs = next((each for each in rules.ceilings if each.scope == "cost"), None)
    unpriced = [model for model in rules.models if costs is not None and not models.price_known(model)]
    if unpriced:
        raise ConfigError(
            f"budgets.{costs.name if costs else ''} needs the price of {unpriced[0]!r}, which is not known: "
            "configure it, or leave the budget out"
        )
