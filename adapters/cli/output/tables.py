"""Tables: laid out for the width of a terminal, or as tab-separated lines for a pipe.

A terminal shows ids, revisions, times and states in full. If a table does not fit, columns that may be cut are cut to
their usual width, then columns are dropped in the order of `Column.leaves`, then the columns that may be cut share the
remaining width. Only if that is not enough, ids become a unique end (`Id`), and then the last columns go below their
row, each with its name. Details are on the line of their row if they fit, else below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from .escaping import exact, exact_lines, visible

if TYPE_CHECKING:
    from rich.text import Text

PROSE_LINES_MAX = 12
"""Maximum number of lines of prose below a row; what an operator decides about is shown in full."""
GAP = "  "
_INDENT = "    "
_CUT_MIN = 8
_CUT_USUAL = 30
"""Width to which a column that may be cut is cut before another column is dropped."""
_ELLIPSIS = "…"


class Column(NamedTuple):
    """A column. `leaves` is when it is dropped (1: first; 0: never), `cut` whether its cells may be cut.

    `again`: a cell that was cut is repeated in full below its row. `below`: the column holds details; such columns come
    last.
    """

    name: str
    leaves: int = 0
    cut: bool = False
    again: bool = False
    below: bool = False


class Id(NamedTuple):
    """An id and its unique end, which is all that a terminal shows for a run `below` another one."""

    whole: str
    end: str
    below: bool = False
    style: str = "bold"

    @property
    def short(self) -> str:
        """Return the end after an ellipsis, if that is shorter."""
        return f"{_ELLIPSIS}{self.end}" if len(self.end) + 1 < len(self.whole) else self.whole


class Exact(NamedTuple):
    """Details that an operator decides about, shown exactly: a JSON value and a text before it."""

    value: Any
    before: str = ""

    def __str__(self) -> str:
        return f"{self.before} {exact(self.value)}" if self.before else exact(self.value)


class Branch(NamedTuple):
    """A name in a tree: its depth, and its whole path for output without trees."""

    path: str
    depth: int
    name: str
    style: str = ""

    def __str__(self) -> str:
        return f"{GAP * (self.depth - 1)}└ {self.name}" if self.depth else self.name


Cell = str | tuple[str, str] | Id | Exact | Branch
"""The content of a cell: text, (text, style), or a value with more than one form."""


def piped(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Yield the head and the rows, tab-separated, every cell in full and without padding."""
    yield "\t".join(column.name for column in columns)
    for row in rows:
        yield "\t".join(visible(_whole(cell)) for cell in row)


def laid_out(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> Iterator[Text]:
    """Yield the lines of a table that is `width` cells wide; empty columns are left out."""
    from rich.text import Text

    kept = [n for n, column in enumerate(columns) if any(_whole(row[n]) for row in rows)]
    body = [n for n in kept if not columns[n].below]
    details = [n for n in kept if columns[n].below]
    texts = {n: [_text(row[n]) for row in rows] for n in body}
    widths = _fitted(columns, rows, body, texts, width)
    moved = [n for n in body if n not in widths and not columns[n].leaves]
    body = [n for n in body if n in widths]
    room = width - sum(widths.values()) - len(GAP) * len(body)
    cut = [
        [texts[n][number] for n in body if columns[n].again and cell_len(texts[n][number]) > widths[n]]
        for number in range(len(rows))
    ]
    lines = [
        _details(
            [
                *cut[number],
                *(f"{columns[n].name} {texts[n][number]}" for n in moved if texts[n][number]),
                *(row[n] for n in details),
            ],
            room,
            width - len(_INDENT),
        )
        for number, row in enumerate(rows)
    ]
    beside = any(not below for below, found in lines if found)
    names = ", ".join(columns[n].name for n in details) if beside else ""
    yield _line([(_cell(columns[n].name, widths[n]), "bold") for n in body], (names, "bold"))
    for number, row in enumerate(rows):
        cells = [(_cell(_cut(texts[n][number], widths[n]), widths[n]), _style(row[n])) for n in body]
        below, found = lines[number]
        style = _style(row[details[-1]]) if details else ""
        yield _line(cells, (found[0], style) if found and not below else ("", ""))
        for line in found if below else ():
            yield Text(f"{_INDENT}{line}", style)


def wrapped(text: str, width: int) -> list[str]:
    """Return prose in lines of at most `width` cells, broken between words where possible."""
    from rich.console import Console
    from rich.text import Text

    width = max(_CUT_MIN, width)
    console = Console(width=width, color_system=None)
    return [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]


def _fitted(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    body: Sequence[int],
    texts: dict[int, list[str]],
    width: int,
) -> dict[int, int]:
    """Return the width of each column that is kept in its place; ids in `texts` are shortened if necessary."""

    def asked() -> dict[int, int]:
        return {n: max(cell_len(text) for text in [columns[n].name, *texts[n]]) for n in body}

    def taken(widths: Iterable[int]) -> int:
        return sum(each + len(GAP) for each in widths) - len(GAP)

    wanted = asked()
    kept = [n for n in body if not columns[n].leaves]

    def fit() -> bool:
        return taken(min(wanted[n], _CUT_MIN) if columns[n].cut else wanted[n] for n in kept) <= width

    if not fit():
        for n in body:
            texts[n][:] = [_short(row[n]) for row in rows]
        wanted = asked()
    while not fit() and len(kept) > 1:
        kept.pop()
    usual = {n: min(each, _CUT_USUAL) if columns[n].cut else each for n, each in wanted.items()}
    chosen = {n: usual[n] for n in kept}
    for n in sorted((n for n in body if columns[n].leaves), key=lambda n: -columns[n].leaves):
        if taken([*chosen.values(), usual[n]]) <= width:
            chosen[n] = usual[n]
    left = width - taken(0 if columns[n].cut else each for n, each in chosen.items())
    sharing = sorted((n for n in chosen if columns[n].cut), key=lambda n: wanted[n])
    for number, n in enumerate(sharing):
        chosen[n] = min(wanted[n], max(_CUT_MIN, left // (len(sharing) - number)))
        left -= chosen[n]
    return chosen


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + _ELLIPSIS


def _details(cells: Sequence[Cell], room: int, width: int) -> tuple[bool, list[str]]:
    """Return whether the details go below the row, and their lines."""
    found = [cell for cell in cells if _whole(cell)]
    if len(found) == 1:
        line = visible(_whole(found[0]))
        block = isinstance(found[0], Exact) and len(exact_lines(found[0].value)) > 1
        if cell_len(line) <= room and not block:
            return False, [line]
    return True, [line for cell in found for line in _below(cell, width)]


def _below(cell: Cell, width: int) -> list[str]:
    if isinstance(cell, Exact):
        before = wrapped(visible(cell.before), width) if cell.before else []
        return [*before, *exact_lines(cell.value, width)]
    lines = wrapped(visible(_whole(cell)), width)
    more = sum(map(len, lines[PROSE_LINES_MAX:]))
    return [*lines[:PROSE_LINES_MAX], *([f"{_ELLIPSIS} {more:,} more characters"] if more else [])]


def _line(cells: Sequence[tuple[str, str]], detail: tuple[str, str]) -> Text:
    from rich.text import Text

    line = Text.assemble(*(part for cell in cells for part in (cell, GAP)), detail)
    line.rstrip()
    return line


def _cell(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _whole(cell: Cell) -> str:
    match cell:
        case str():
            return cell
        case Exact():
            return str(cell)
        case Id():
            return cell.whole
        case Branch():
            return cell.path
        case _:
            return cell[0]


def _text(cell: Cell) -> str:
    if isinstance(cell, Id) and cell.below:
        return cell.short
    return visible(str(cell) if isinstance(cell, Branch) else _whole(cell))


def _short(cell: Cell) -> str:
    return cell.short if isinstance(cell, Id) else _text(cell)


def _style(cell: Cell) -> str:
    if isinstance(cell, Id | Branch):
        return cell.style
    return cell[1] if isinstance(cell, tuple) and not isinstance(cell, Exact) else ""
