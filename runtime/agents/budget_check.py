"""Checks before a run starts: the context window and the prices that its budgets need must be known."""

from __future__ import annotations

from typing import Protocol

from ...eventlog.errors import ConfigError
from ..core.rules import Rules


class ModelFacts(Protocol):
    """The facts that a process knows about models, each named `provider:model`. `Registry` implements it."""

    def window_tokens(self, model: str) -> int | None:
        """Return the most input tokens that the model reads; null if unknown. Raises `ConfigError`."""
        ...

    def price_known(self, model: str) -> bool:
        """Return whether calls of the model have a price. Raises `ConfigError`."""
        ...


def window_tokens(models: ModelFacts, rules: Rules) -> int | None:
    """Return the context window of the run's model: as configured, else as known; null if unknown."""
    return rules.context.window_tokens or models.window_tokens(rules.model)


def check(models: ModelFacts, rules: Rules) -> None:
    """Raise `ConfigError` for a budget that cannot be enforced because the window or a price is unknown."""
    if (rules.limit_pct is not None or rules.tells_window) and window_tokens(models, rules) is None:
        raise ConfigError(
            f"budget_awareness needs the window of {rules.model!r}, which is unknown: set context.window_tokens"
        )
    costs = next((each for each in rules.ceilings if each.scope == "cost"), None)
    unpriced = [model for model in rules.models if costs is not None and not models.price_known(model)]
    if unpriced:
        raise ConfigError(
            f"budgets.{costs.name if costs else ''} needs the price of {unpriced[0]!r}, which is unknown: "
            "configure it, or leave the budget out"
        )
