"""The screen: data on stdout, everything else on stderr, coloured on a terminal and plain in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .escaping import exact_lines, json_text, visible
from .settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 100_000
"""A table in a pipe is never wrapped."""

Part = str | tuple[str, str]
"""A piece of a line: text, or (text, style)."""


class Screen:
    """Where a command writes. Nothing is taken for markup; callers clean untrusted text (`escaping`)."""

    def __init__(self, settings: Settings) -> None:
        self.quiet = settings.quiet
        self._color = settings.color
        self._line_open = False

    @cached_property
    def out(self) -> Console:
        """Standard output."""
        return self._console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Standard error."""
        return self._console(stderr=True)

    @property
    def live(self) -> bool:
        """Whether somebody watches stdout as it is written."""
        return sys.stdout.isatty()

    @property
    def width(self) -> int:
        """How many characters a line of stderr takes."""
        return self.err.width if sys.stderr.isatty() else _PIPED_WIDTH

    def _console(self, *, stderr: bool) -> Console:
        from rich.console import Console

        file = sys.stderr if stderr else sys.stdout
        return Console(
            stderr=stderr,
            markup=False,
            highlight=False,
            emoji=False,
            soft_wrap=True,
            no_color=None if self._color else True,
            width=None if file.isatty() else _PIPED_WIDTH,
        )

    def write(self, text: str) -> None:
        """A piece of data on stdout, at once."""
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._line_open = not text.endswith("\n")

    def end_line(self) -> None:
        """Begin a new line on stdout, unless one has begun."""
        if self._line_open:
            self.write("\n")

    def say(self, *parts: Part, important: bool = False) -> None:
        """A line on stderr, for people; not with `--quiet`, unless it is important."""
        if self.quiet and not important:
            return
        if sys.stdout.isatty():
            self.end_line()
        from rich.text import Text

        self.err.print(Text.assemble(*parts))

    def tell(self, *parts: Part) -> None:
        """A line of data on stdout."""
        from rich.text import Text

        self.out.print(Text.assemble(*parts))

    def json(self, value: Any) -> None:
        """A whole document on stdout."""
        self.write(json_text(value, pretty=True) + "\n")

    def json_line(self, value: Any) -> None:
        """One object of a stream on stdout, on a line of its own."""
        self.write(json_text(value) + "\n")

    def lines(self, value: Any, indent: int = 0, *, data: bool = True) -> list[str]:
        """A value exactly, in the lines that fit stdout (or, if it is no data, stderr) behind an indent."""
        file, console = (sys.stdout, self.out) if data else (sys.stderr, self.err)
        return exact_lines(value, console.width - indent if file.isatty() else 0)

    def field(self, name: str, lines: str | Sequence[str], width: int = 10, *, data: bool = True) -> None:
        """A name and what belongs to it, line under line."""
        write = self.tell if data else self.say
        for number, line in enumerate([lines] if isinstance(lines, str) else lines):
            write((f"{'' if number else name:<{width}} ", "dim"), line)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Part]]) -> None:
        """A table on stdout. The first column is never cut; a pipe gets every cell whole."""
        from rich.table import Table
        from rich.text import Text

        cells = [[Text.assemble(_harmless(cell)) for cell in row] for row in rows]
        first = max((row[0].cell_len for row in cells), default=0)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for number, column in enumerate(columns):
            table.add_column(column, no_wrap=True, overflow="ellipsis", min_width=0 if number else first)
        for row in cells:
            table.add_row(*row)
        self.out.print(table, soft_wrap=False)


def _harmless(cell: Part) -> Part:
    return visible(cell) if isinstance(cell, str) else (visible(cell[0]), cell[1])
