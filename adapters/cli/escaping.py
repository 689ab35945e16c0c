"""Text of models, tools and users, made harmless: nothing in it may command the terminal."""

from __future__ import annotations

import re
from typing import Any

# Control characters (C0 without newline and tab, DEL, C1), and those that turn the direction of writing around.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ELLIPSIS = "…"


def clean(text: str) -> str:
    """The text without what a terminal would obey; newlines and tabs stay."""
    return _COMMANDS.sub("", text.replace("\r\n", "\n"))


def one_line(text: str, width_max: int = 0) -> str:
    """The text harmless, on one line, cut to `width_max` characters (0: not cut)."""
    line = " ".join(clean(text).split())
    return line if not width_max or len(line) <= width_max else line[: max(1, width_max - 1)] + _ELLIPSIS


def shown(value: Any, width_max: int = 0) -> str:
    """Any JSON value on one line: a string as it is, the rest as JSON."""
    if isinstance(value, str):
        return one_line(value, width_max)
    import msgspec

    return one_line(msgspec.json.encode(value, enc_hook=str).decode(errors="replace"), width_max)


def json_text(value: Any, *, pretty: bool = False) -> str:
    """JSON that is also harmless on a terminal: what it would obey is escaped."""
    import msgspec

    data = msgspec.json.encode(value, enc_hook=str)
    text = (msgspec.json.format(data, indent=2) if pretty else data).decode(errors="replace")
    return re.sub(
        "[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda m: f"\\u{ord(m[0]):04x}", text
    )
