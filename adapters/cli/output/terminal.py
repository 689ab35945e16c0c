"""The screen: data on stdout, everything else on stderr, coloured on a terminal and plain in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..settings import Settings
from .escaping import exact_lines, json_text

if TYPE_CHECKING:
    from rich.console import Console

    from .tables import Cell, Column

_PIPED_WIDTH = 100_000
"""A line in a pipe is never wrapped."""

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
        """Return whether somebody watches stdout as it is written."""
        return sys.stdout.isatty()

    @property
    def width(self) -> int:
        """How many characters a line of stderr takes."""
        return self.err.width if sys.stderr.isatty() else _PIPED_WIDTH

    @cached_property
    def _together(self) -> bool:
        """Whether both outputs go to one place, where a line of the one must not stand in a line of the other."""
        if sys.stdout.isatty():
            return True
        try:
            return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        except (OSError, ValueError):
            return False  # not files at all

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
        if self._together:
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
        """A value exactly, in the lines that fit stdout (or, if it is not data, stderr) behind an indent."""
        file, console = (sys.stdout, self.out) if data else (sys.stderr, self.err)
        return exact_lines(value, console.width - indent if file.isatty() else 0)

    def prose(self, *parts: Part) -> None:
        """A line of data on stdout, parted between words where it is too long for the terminal."""
        from rich.text import Text

        text = Text.assemble(*parts)
        for line in text.wrap(self.out, self.out.width) if sys.stdout.isatty() else [text]:
            line.rstrip()
            self.out.print(line)

    def field(
        self, name: str, lines: str | Sequence[str], width: int = 10, *, style: str = "", data: bool = True
    ) -> None:
        """A name and what belongs to it, line under line; a text is wrapped for the terminal."""
        write = self.tell if data else self.say
        if isinstance(lines, str):
            lines = self.wrapped(lines, width + 1, data=data)
        for number, line in enumerate(lines):
            write((f"{'' if number else name:<{width}} ", "dim"), (line, style))

    def wrapped(self, text: str, indent: int = 0, *, data: bool = True) -> list[str]:
        """Prose in the lines that fit behind an indent; as it is where nobody watches."""
        from .tables import wrapped

        file, console = (sys.stdout, self.out) if data else (sys.stderr, self.err)
        return wrapped(text, console.width - indent) if file.isatty() else [text]

    def table(self, columns: Sequence[Column | str], rows: Iterable[Sequence[Cell]]) -> None:
        """A table on stdout: laid out for the width of a terminal (`tables`), each cell whole.

        In a pipe it has all columns, whole as well, parted by tabs. A column that is named by a text alone may be cut
        on a terminal; the last one goes below its row where it does not fit.
        """
        from .tables import Column, laid_out, piped

        *before, last = columns
        named = [Column(each, cut=True) if isinstance(each, str) else each for each in before]
        named.append(Column(last, below=True) if isinstance(last, str) else last)
        if not sys.stdout.isatty():
            self.write("".join(f"{line}\n" for line in piped(named, rows)))
            return
        for line in laid_out(named, list(rows), self.out.width):
            self.out.print(line)
