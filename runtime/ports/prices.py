"""The port to what models cost and how much they can read: facts about a model that its provider does not tell.

A price book is found under entry point group `foldlog.prices`, name `default`, or given as `Registry(prices=...)`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from ...eventlog.events import TokenUsage


class PriceBook(Protocol):
    """Prices and windows by model. `model` is written `provider:model`; `api_url` is where its provider is called.

    `api_url` is null for a provider that is not a billed HTTP API. Nothing here waits, or reaches out of the process.
    """

    def price(self, model: str, usage: TokenUsage, api_url: str | None) -> Decimal | None:
        """What the tokens cost in US dollars; null where the price is not known."""
        ...

    def window_tokens(self, model: str, api_url: str | None) -> int | None:
        """How many tokens of input the model reads at most; null where that is not known."""
        ...


class NoPrices:
    """The price book of a process that has none: nothing is known."""

    def price(self, model: str, usage: TokenUsage, api_url: str | None) -> Decimal | None:
        """Null."""
        return None

    def window_tokens(self, model: str, api_url: str | None) -> int | None:
        """Null."""
        return None
