"""Money as the log writes it: US dollars as plain decimal text, never a float and never with an exponent."""

from __future__ import annotations

from decimal import Decimal


def usd_text(amount: Decimal) -> str:
    """Return the amount in the shortest plain form: `0.0024750` is `0.002475`, `1E-7` is `0.0000001`."""
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def plus_cost(total: str | None, cost: str | None) -> str | None:
    """Return the sum of two amounts; None if either is None or not a number."""
    if total is None or cost is None:
        return None
    try:
        return usd_text(Decimal(total) + Decimal(cost))
    except ArithmeticError:  # an amount that foldlog did not write
        return None
