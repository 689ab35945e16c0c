"""Page tokens of lists: the time and id of a page's last row, as one string that callers send back."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any, Generic, TypeVar

import msgspec

from ..http.answers import Refused

T = TypeVar("T")


class Rows(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list. `next` is the `before` of the next page; null on the last one."""

    rows: list[T]
    next: str | None = None


def place_of(at: float, name: str) -> str:
    """Return the page token that follows a row."""
    return base64.urlsafe_b64encode(msgspec.json.encode((at, name))).decode().rstrip("=")


def parse_place(text: str) -> tuple[float, str] | None:
    """Parse a page token into time (Unix seconds) and id; None without one. Raises `Refused` (422)."""
    if not text:
        return None
    try:
        raw: Any = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        at, name = msgspec.json.decode(raw, type=tuple[float, str])
    except (ValueError, binascii.Error, RecursionError):
        raise Refused(422, "before: this is not the `next` of a page") from None
    if not math.isfinite(at):
        raise Refused(422, "before: this is not the `next` of a page")
    return at, name
