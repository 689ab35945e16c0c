"""Find the lines of a patch in a file, and replace them. Text in, text out.

Lines are searched for from the top, each chunk after the one before, in four passes: exactly, ignoring trailing white
space, ignoring white space at both ends, and with typographic dashes, quotes and spaces as their plain forms. Context
lines stay as they are in the file. Lines keep their endings; a new line gets the file's first ending. The last line of
a changed file always has an ending.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...runtime.ports.tools import ToolFailed
from .patch_language import SPACE, Chunk, Line

_ENDING: Final = re.compile(r"(\r\n|\n|\r)")

_PLAIN: Final = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\xa0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
)


def _exact(line: str) -> str:
    return line


def _without_end(line: str) -> str:
    return line.rstrip(SPACE)


def _without_space(line: str) -> str:
    return line.strip(SPACE)


def _plain(line: str) -> str:
    return line.strip(SPACE).translate(_PLAIN)


PASSES: Final[tuple[Callable[[str], str], ...]] = (_exact, _without_end, _without_space, _plain)
"""From strict to lenient; the first match wins."""


class PatchMismatch(ToolFailed):
    """The file does not contain the lines that the patch changes."""


class Replacement(NamedTuple):
    """Replaces `removed` lines, from line `start` (counted from 0), by `added`."""

    start: int
    removed: int
    added: tuple[str, ...]


def updated(content: str, chunks: Sequence[Chunk], path: str) -> str:
    """Return the content with the chunks applied. Raises `PatchMismatch`, which names `path` and the missing lines."""
    lines, endings = _split(content)
    replacements: list[Replacement] = []
    after, sought = 0, Lines(lines)
    for chunk in chunks:
        after, found = _placed(sought, chunk, after, path)
        replacements += found
    return _replaced(lines, endings, sorted(replacements, key=lambda each: each.start))


class Lines:
    """The lines of a file, with the forms that the passes compare, each computed once for all chunks."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._made: list[tuple[list[str], dict[str, list[int]]]] = []

    def __len__(self) -> int:
        return len(self._lines)

    def seek(self, wanted: Sequence[str], start: int) -> int | None:
        """Return the position of the wanted lines at or after `start`, None if there is none; `start` for no lines."""
        if not wanted:
            return start
        for number, form in enumerate(PASSES):
            forms, places = self._form(number)
            looked_for = [form(line) for line in wanted]
            firsts = places.get(looked_for[0], [])
            for index in range(bisect_left(firsts, start), len(firsts)):
                at = firsts[index]
                if forms[at : at + len(looked_for)] == looked_for:
                    return at
        return None

    def _form(self, number: int) -> tuple[list[str], dict[str, list[int]]]:
        """Return the lines in the form of a pass, and the positions of each."""
        if number == len(self._made):
            forms = [PASSES[number](line) for line in self._lines]
            places = defaultdict[str, list[int]](list)
            for at, line in enumerate(forms):
                places[line].append(at)
            self._made.append((forms, places))
        return self._made[number]


def _placed(lines: Lines, chunk: Chunk, start: int, path: str) -> tuple[int, list[Replacement]]:
    """Return the line after a chunk that is at or after `start`, and its replacements."""
    for context in chunk.contexts:
        at = lines.seek([context], start)
        if at is None:
            raise PatchMismatch(f"Failed to find context '{context}' in {path}")
        start = at + 1
    wanted, parts = _old(chunk.lines), chunk.lines
    if not wanted:
        return start, [Replacement(len(lines), 0, tuple(line.text for line in parts))]
    at = _seek_chunk(lines, wanted, start, at_end=chunk.at_end)
    if at is None and not wanted[-1]:
        parts = _without_last_empty(parts)
        at = _seek_chunk(lines, _old(parts), start, at_end=chunk.at_end)
    if at is None:
        raise PatchMismatch(f"Failed to find expected lines in {path}:\n" + "\n".join(wanted))
    following = at + len(_old(parts)) if _old(parts) else start
    return following, _replacements(parts, at)


def _seek_chunk(lines: Lines, wanted: Sequence[str], start: int, *, at_end: bool) -> int | None:
    """Return the position of a chunk; with `at_end` only the last lines of the file can match."""
    return lines.seek(wanted, max(start, len(lines) - len(wanted)) if at_end else start)


def _old(lines: Sequence[Line]) -> list[str]:
    return [line.text for line in lines if line.sign != "+"]


def _without_last_empty(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Remove, on both sides, an empty last line, which stands for the file's last line ending."""
    left = list(lines)
    at = max(n for n, line in enumerate(left) if line.sign != "+")
    left[at : at + 1] = [Line("+", "")] if left[at].sign == " " else []
    news = [n for n, line in enumerate(left) if line.sign != "-"]
    if news and not left[news[-1]].text:
        at = news[-1]
        left[at : at + 1] = [Line("-", "")] if left[at].sign == " " else []
    return tuple(left)


def _replacements(lines: Sequence[Line], at: int) -> list[Replacement]:
    """Return a replacement for each sequence of lines that are not context."""
    found: list[Replacement] = []
    start, added = at, list[str]()
    for line in (*lines, Line(" ", "")):
        if line.sign == "+":
            added.append(line.text)
        elif line.sign == "-":
            at += 1
        else:
            if added or at > start:
                found.append(Replacement(start, at - start, tuple(added)))
            at += 1
            start, added = at, []
    return found


def _split(content: str) -> tuple[list[str], list[str]]:
    """Return the lines and the ending of each; the last one's is empty if the content does not end in one."""
    parts = _ENDING.split(content)
    lines, endings = parts[::2], parts[1::2]
    return (lines, [*endings, ""]) if lines[-1] else (lines[:-1], endings)


def _replaced(lines: Sequence[str], endings: Sequence[str], replacements: Sequence[Replacement]) -> str:
    ending = endings[0] if endings and endings[0] else "\n"
    pieces: list[str] = []
    done = 0
    for start, removed, added in replacements:
        pieces += (f"{lines[n]}{endings[n] or ending}" for n in range(done, start))
        pieces += (f"{line}{ending}" for line in added)
        done = start + removed
    pieces += (f"{lines[n]}{endings[n] or ending}" for n in range(done, len(lines)))
    return "".join(pieces)
