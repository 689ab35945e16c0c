"""The usage and cost of a model call: as its provider reports them, else counted and priced here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from ...eventlog.events import TokenUsage
from ...projections.messages import canonical_json
from ...projections.money import usd_text
from ...projections.tokens import UsageSource, messages_tokens
from ..ports.models import Finished, ModelRequest
from ..ports.tokens import Estimate, TokenCounter

if TYPE_CHECKING:
    from ..agents.registry import Registry

_log = logging.getLogger("foldlog.accounting")


class Account(msgspec.Struct, frozen=True):
    """Tokens, who counted them, and the cost in US dollars as text; null for an unknown price."""

    usage: TokenUsage
    source: UsageSource
    cost_usd: str | None


def account(
    registry: Registry, model: str, request: ModelRequest, finished: Finished, written: Callable[[], str]
) -> Account:
    """Return the account of a call of `provider:model` that wrote `written()`. Never raises: the call is paid for."""
    usage, source = finished.usage, _source_of(finished)
    if usage is None:
        usage = _counted(request, written(), _counter(registry, model))
    stated = _stated(finished.cost_usd)
    return Account(usage, source, _cost_usd(registry, model, usage) if stated is None else stated)


def _source_of(finished: Finished) -> UsageSource:
    """Return the source of the count: only the provider's own count is authoritative, however good a tokenizer is."""
    return "provider" if finished.usage is not None and finished.usage_source == "provider" else "estimate"


def _stated(cost_usd: str | None) -> str | None:
    """Return the cost as the provider reports it; null if it is not an amount."""
    if not cost_usd:
        return None
    try:
        amount = Decimal(cost_usd)
    except ArithmeticError:
        return None
    return usd_text(amount) if amount.is_finite() and amount >= 0 else None


def _counted(request: ModelRequest, written: str, counter: TokenCounter) -> TokenUsage:
    tools = canonical_json(request.tools).decode() if request.tools else ""
    read = messages_tokens(request.messages, counter.count) + counter.count(tools)
    output = counter.count(written)
    return TokenUsage(input_tokens=read, output_tokens=output, total_tokens=read + output)


def _counter(registry: Registry, model: str) -> TokenCounter:
    try:
        return registry.token_counter(model)
    except Exception:  # noqa: BLE001 - a plugin's bug must not kill the run's driver
        _log.exception("the tokens of a call of %s cannot be counted, and are estimated", model)
        return Estimate()


def _cost_usd(registry: Registry, model: str, usage: TokenUsage) -> str | None:
    try:
        cost = registry.price(model, usage)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("the price of a call of %s cannot be looked up", model)
        return None
    return None if cost is None else usd_text(cost)
