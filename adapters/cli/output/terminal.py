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
"""Width of a line in a pipe: it is never wrapped."""

Part = str | tuple[str, str]
"""A piece of a line: text, or (text, style)."""


class Screen:
    """The output of a command. Text is never parsed as markup; callers clean untrusted text (`escaping`)."""

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
        """Return whether stdout is a terminal."""
        return sys.stdout.isatty()

    @property
    def width(self) -> int:
        """Width of a line on stderr, in characters."""
        return self.err.width if sys.stderr.isatty() else _PIPED_WIDTH

    @cached_property
    def _together(self) -> bool:
        """Return whether both outputs go to the same file, where their lines must not mix."""
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
        """Write a piece of data to stdout, and flush it."""
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._line_open = not text.endswith("\n")

    def end_line(self) -> None:
        """Begin a new line on stdout, unless it is at the beginning of one."""
        if self._line_open:
            self.write("\n")

    def say(self, *parts: Part, important: bool = False) -> None:
        """Write a line for the user to stderr; not with `--quiet`, unless it is important."""
        if self.quiet and not important:
            return
        if self._together:
            self.end_line()
        from rich.text import Text

        self.err.print(Text.assemble(*parts))

    def tell(self, *parts: Part) -> None:
        """Write a line of data to stdout."""
        from rich.text import Text

        self.out.print(Text.assemble(*parts))

    def json(self, value: Any) -> None:
        """Write a whole document to stdout."""
        self.write(json_text(value, pretty=True) + "\n")

    def json_line(self, value: Any) -> None:
        """Write one object of a stream to stdout, on a line of its own."""
        self.write(json_text(value) + "\n")

    def lines(self, value: Any, indent: int = 0, *, data: bool = True) -> list[str]:
        """Return a value exactly, in lines that fit stdout (or, if it is not data, stderr) after an indent."""
        file, console = (sys.stdout, self.out) if data else (sys.stderr, self.err)
        return exact_lines(value, console.width - indent if file.isatty() else 0)

    def prose(self, *parts: Part) -> None:
        """Write a line of data to stdout, broken between words if it is too long for the terminal."""
        from rich.text import Text

        text = Text.assemble(*parts)
        for line in text.wrap(self.out, self.out.width) if sys.stdout.isatty() else [text]:
            line.rstrip()
            self.out.print(line)

    def field(
        self, name: str, lines: str | Sequence[str], width: int = 10, *, style: str = "", data: bool = True
    ) -> None:
        """Write a name and its value, line under line; a text is wrapped for the terminal."""
        write = self.tell if data else self.say
        if isinstance(lines, str):
            lines = self.wrapped(lines, width + 1, data=data)
        for number, line in enumerate(lines):
            write((f"{'' if number else name:<{width}} ", "dim"), (line, style))

    def wrapped(self, text: str, indent: int = 0, *, data: bool = True) -> list[str]:
        """Return prose in lines that fit after an indent; unchanged if the output is not a terminal."""
        from .tables import wrapped

        file, console = (sys.stdout, self.out) if data else (sys.stderr, self.err)
        return wrapped(text, console.width - indent) if file.isatty() else [text]

    def table(self, columns: Sequence[Column | str], rows: Iterable[Sequence[Cell]]) -> None:
        """Write a table to stdout: laid out for the width of a terminal (`tables`), or in a pipe separated by tabs.

        In a pipe it has all columns, uncut. A column given as a plain name may be cut on a terminal; the last one goes
        below its row if it does not fit.
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
