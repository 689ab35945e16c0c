"""Format numbers for people."""

from __future__ import annotations

import math


def short(value: float) -> str:
    """Return a number with three significant digits and thousands separators."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
