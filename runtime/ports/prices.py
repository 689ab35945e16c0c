"""The port to prices and context windows of models: facts that a model's provider does not report.

A price book is found under entry point group `foldlog.prices`, name `default`, or passed as `Registry(prices=...)`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from ...eventlog.events import TokenUsage


class PriceBook(Protocol):
    """Prices and windows by model. `model` has the form `provider:model`; `api_url` is the URL of its provider.

    `api_url` is null for a provider that is not a billed HTTP API. No method blocks or does network I/O.
    """

    def price(self, model: str, usage: TokenUsage, api_url: str | None) -> Decimal | None:
        """Return the price of the tokens in US dollars; null if it is unknown."""
        ...

    def window_tokens(self, model: str, api_url: str | None) -> int | None:
        """Return the most input tokens that the model reads; null if unknown."""
        ...


class NoPrices:
    """The price book of a process without one: it knows nothing."""

    def price(self, model: str, usage: TokenUsage, api_url: str | None) -> Decimal | None:
        """Return null."""
        return None

    def window_tokens(self, model: str, api_url: str | None) -> int | None:
        """Return null."""
        return None
