r"""Make text of models, tools and users safe for a terminal: control sequences in it have no effect.

Prose is cleaned (`clean`, `one_line`). Text that an operator decides about is shown exactly (`exact`, `exact_lines`):
nothing is joined, collapsed or left out, and every invisible character is written as in JSON, `\u202e`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# Control characters (C0 without newline and tab, DEL, C1), and those that change the writing direction.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Letters and marks that are invisible although they count as printable: fillers, joiners, variation selectors.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_UNUSUAL = re.compile("[^ -~]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_ELLIPSIS = "…"
LINE, FOLDED = "│ ", "┆ "
"""The prefixes of a line in a block of text, and of the continuation of a line that is too long."""
_WIDTH_MIN = 20


def clean(text: str) -> str:
    """Return the text without control characters, except newlines and tabs."""
    return _COMMANDS.sub("", text.replace("\r\n", "\n"))


def one_line(text: str, width_max: int = 0) -> str:
    """Return the cleaned text on one line, cut to `width_max` characters (0: not cut)."""
    return _cut(" ".join(clean(text).split()), width_max)


def _cut(line: str, width_max: int) -> str:
    return line if not width_max or len(line) <= width_max else line[: max(1, width_max - 1)] + _ELLIPSIS


def shown(value: Any, width_max: int = 0) -> str:
    """Return any JSON value on one line, cut to `width_max` characters: a string as prose, other values as JSON."""
    return one_line(value, width_max) if isinstance(value, str) else _cut(exact(value), width_max)


def visible(text: str) -> str:
    """Return the text on one line, with an escape in place of each invisible character."""
    return _UNUSUAL.sub(_seen, text)


def _seen(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() and not _BLANK.match(char) else json.dumps(char)[1:-1]


def exact(value: Any) -> str:
    """Return a JSON value on one line, complete: it parses back to the same value."""
    return visible(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def exact_lines(value: Any, width: int = 0) -> list[str]:
    r"""Return a JSON value for review, in lines of at most `width` cells (0: of any length).

    One line of JSON; if it contains texts of several lines, a line for each value, and such a text as a block, in
    which every line has a bar before it and a backslash is doubled, as in JSON. The last space of a line is `\u0020`.
    """
    return [piece for head, text in _rows(value, "") for piece in _folded(head, text, width)]


def text_lines(text: str, width: int = 0) -> list[str]:
    """Return a text for review: as it is if it has one line, else as a block."""
    if "\n" in text:
        return exact_lines(text, width)
    return list(_folded("", _in_block(text), width))


def _rows(value: Any, indent: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a value, each as its fixed beginning and the text that may be folded."""
    if not _has_lines(value):
        yield indent, exact(value)
    elif isinstance(value, str):
        yield from ((indent + LINE, _in_block(line)) for line in value.split("\n"))
    else:
        named = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for name, item in named:
            head = f"{indent}- " if name is None else f"{indent}{_key(name)}: "
            if _has_lines(item):
                yield head.rstrip(), ""
                yield from _rows(item, indent + "  ")
            else:
                yield head, exact(item)


def _has_lines(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" in value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(map(_has_lines, items))


def _key(name: Any) -> str:
    text = str(name)
    return text if _PLAIN_KEY.match(text) else exact(text)


def _in_block(line: str) -> str:
    """Return a line of a text as in JSON, but without the quotes."""
    return exact(line)[1:-1].replace('\\"', '"')


def _folded(head: str, text: str, width: int) -> Iterator[str]:
    """Yield the text in pieces that fit; each but the first begins with a mark that text cannot have there."""
    from rich.cells import cell_len, chop_cells

    room = max(_WIDTH_MIN, width - cell_len(head)) if width else 0
    if not room or cell_len(_with_end(text)) <= room:
        yield head + _with_end(text)
        return
    rest = " " * (cell_len(head) - len(LINE) if head.endswith(LINE) else cell_len(head)) + FOLDED
    first, *others = chop_cells(text, max(_WIDTH_MIN, width - cell_len(rest)) - len(r"\u0020"))
    yield head + _with_end(first)
    yield from (rest + _with_end(piece) for piece in others)


def _with_end(piece: str) -> str:
    return f"{piece[:-1]}\\u0020" if piece.endswith(" ") else piece


def json_text(value: Any, *, pretty: bool = False) -> str:
    """Return JSON that is safe on a terminal: control characters are escaped."""
    import msgspec

    data = msgspec.json.encode(value, enc_hook=str)
    text = (msgspec.json.format(data, indent=2) if pretty else data).decode(errors="replace")
    return re.sub(
        "[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda m: f"\\u{ord(m[0]):04x}", text
    )
