"""Prices of models: the project's own `[prices]` first, then the data of genai-prices.

    [prices."here:llama-3.3-70b"]        # foldlog.toml; in pyproject.toml: [tool.foldlog.prices."..."]
    input_usd = 0.10                     # per million tokens
    cached_input_usd = 0.05              # default: input_usd
    cache_write_usd = 0.15               # default: input_usd
    cache_write_1h_usd = 0.20            # for writes that are kept for an hour; default: cache_write_usd
    output_usd = 0.40

The data of genai-prices is looked up by the address of the provider's API, so that a self-hosted server that serves a
model of a known name does not get another provider's prices. The context window does not depend on the provider:
`openai:gpt-4o` at a gateway has the same window as at OpenAI. The data is read from the installed package only.
"""

from __future__ import annotations

import importlib
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, cast

from pydantic import Field

from ...eventlog.errors import ConfigError
from ...eventlog.events import TokenUsage
from ..configuration.project_file import project_tables
from ..configuration.strict_tables import StrictTable

_MILLION = 1_000_000
_OPENAI = "https://api.openai.com/v1"
_OF_OPENAI = frozenset({"openai", "openai-responses"})
"""Providers whose models are priced as OpenAI's, whatever their address."""
UsdPerMillion = Annotated[Decimal, Field(ge=0, strict=False, allow_inf_nan=False)]


class PriceTable(StrictTable):
    """One `[prices."<provider:model>"]` table, in US dollars per million tokens."""

    input_usd: UsdPerMillion
    output_usd: UsdPerMillion
    cached_input_usd: UsdPerMillion | None = None
    cache_write_usd: UsdPerMillion | None = None
    cache_write_1h_usd: UsdPerMillion | None = None

    def price(self, usage: TokenUsage) -> Decimal:
        """Return the price of the tokens; cache reads and writes are part of the input."""
        read = min(usage.cache_read_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - read)
        read_usd = self.input_usd if self.cached_input_usd is None else self.cached_input_usd
        long = min(usage.cache_write_1h_tokens, written)
        written_usd = self.input_usd if self.cache_write_usd is None else self.cache_write_usd
        long_usd = written_usd if self.cache_write_1h_usd is None else self.cache_write_1h_usd
        fresh = (usage.input_tokens - read - written) * self.input_usd
        cached = read * read_usd + (written - long) * written_usd + long * long_usd
        return (fresh + cached + usage.output_tokens * self.output_usd) / _MILLION


class ModelPrices:
    """The price book of a project (`foldlog.runtime.ports.prices.PriceBook`).

    Raises `ConfigError`, which names the file, the table and the key, for an invalid price.
    """

    def __init__(self) -> None:
        found = project_tables("prices", exact=True)
        for model in found.tables:
            provider, colon, name = model.partition(":")
            if not (provider and colon and name):
                raise ConfigError(f"{found.where(model)}: prices belong to a model, written provider:model")
        self._own = {
            model: PriceTable.read(table, found.where(model)) for model, table in found.tables.items()
        }

    def price(self, model: str, usage: TokenUsage, api_url: str | None) -> Decimal | None:
        """Return the price of the tokens in US dollars; None if neither the project nor the data has one."""
        if model in self._own:
            return self._own[model].price(usage)
        known = _known(model, api_url)
        return None if known is None else _listed_price(*known, usage)

    def window_tokens(self, model: str, api_url: str | None) -> int | None:
        """Return the model's context window according to the data; None if it has none."""
        known = _known(model, api_url)
        if known is None and api_url is not None and model.partition(":")[0] in _OF_OPENAI:
            known = _known(model, _OPENAI)
        return None if known is None else cast("int | None", known[1].context_window)


@lru_cache(maxsize=1)
def load_data() -> Any:
    """Return the price data; None if it is not installed, so that only the project's own prices are used.

    The first call takes a few tenths of a second, so callers make it in a thread if they can.
    """
    try:
        return importlib.import_module("genai_prices.data_snapshot").get_snapshot()
    except ModuleNotFoundError:
        return None


@lru_cache(maxsize=256)
def _known(model: str, api_url: str | None) -> tuple[Any, Any] | None:
    """Return the provider and the model in the data."""
    data = load_data() if api_url is not None else None
    try:
        return data and data.find_provider_model(model.partition(":")[2], None, None, api_url)
    except LookupError:
        return None


def _listed_price(provider: Any, info: Any, usage: TokenUsage) -> Decimal | None:
    """Return the price by the current list; None unless it prices both input and output per token."""
    counted = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": min(usage.cached_input_tokens, usage.input_tokens),
    }
    if usage.cache_write_tokens:
        room = usage.input_tokens - counted["cache_read_tokens"]
        counted["cache_write_tokens"] = min(usage.cache_write_tokens, room)
        if usage.cache_write_1h_tokens:
            counted["cache_write_1h_tokens"] = min(usage.cache_write_1h_tokens, counted["cache_write_tokens"])
    try:
        calculated = info.calc_price(counted, provider)
    except ValueError:
        return None
    listed = calculated.model_price
    if listed.input_mtok is None or listed.output_mtok is None:
        return None
    return Decimal(calculated.total_price)
