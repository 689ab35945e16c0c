"""Parse the patch language of Codex: text in, a tuple of file changes out. No file is read.

    *** Begin Patch
    *** Add File: new.py
    +print("new")
    *** Update File: old.py
    *** Move to: moved.py
    @@ class Greeter
    @@     def greet(self):
    -        pass
    +        print("hello")
    *** Delete File: gone.py
    *** End Patch

The rules and the messages are those of the reference implementation: white space around the whole patch and around its
markers is ignored, the patch may be in a here-document (`<<EOF`, `<<'EOF'`, `<<"EOF"`), the first chunk of an update
needs no `@@`, an empty line in a chunk is an empty line of context, lines may end in CR LF. One extension: several `@@`
lines in a row, each searched for after the one before, which the reference implementation refuses although its
instructions to models mention it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from ...runtime.ports.tools import ToolFailed

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
ADD: Final = "*** Add File: "
DELETE: Final = "*** Delete File: "
UPDATE: Final = "*** Update File: "
MOVE: Final = "*** Move to: "
END_OF_FILE: Final = "*** End of File"
ENVIRONMENT: Final = "*** Environment ID:"
CONTEXT: Final = "@@"

SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""White space as defined by Unicode. (`str.strip` also strips the separators 0x1c to 0x1f.)"""

_HERE_DOCUMENTS: Final = {"<<EOF", "<<'EOF'", '<<"EOF"'}
_HERE_DOCUMENT_LINES_MIN: Final = 4
_LAST_LINE: Final = f"The last line of the patch must be '{END}'"

Sign = Literal[" ", "+", "-"]

_SIGNS: Final[dict[str, Sign]] = {"": " ", " ": " ", "+": "+", "-": "-"}


class Line(msgspec.Struct, frozen=True):
    """A line of a chunk: context, added or removed; `text` without the sign."""

    sign: Sign
    text: str


class Chunk(msgspec.Struct, frozen=True):
    """One place of an update. `contexts` are lines above it, each searched for after the one before."""

    contexts: tuple[str, ...]
    lines: tuple[Line, ...]
    at_end: bool = False
    """The old lines are the last of the file."""


class AddFile(msgspec.Struct, frozen=True):
    """A file with this content; it replaces an existing one."""

    path: str
    content: str


class DeleteFile(msgspec.Struct, frozen=True):
    """A file to delete."""

    path: str


class UpdateFile(msgspec.Struct, frozen=True):
    """Changes within a file, and optionally its new path. At least one chunk."""

    path: str
    chunks: tuple[Chunk, ...]
    move_to: str | None = None


Change = AddFile | DeleteFile | UpdateFile


class PatchSyntaxError(ToolFailed):
    """The text is not a patch. Attribute: `line` (from 1, without the here-document); None if no line is at fault.

    The message is the one for models; `terminal_message` is the one of the command line.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(
            f"invalid patch: {problem}" if line is None else f"invalid hunk at line {line}, {problem}"
        )
        self.problem, self.line = problem, line

    @property
    def terminal_message(self) -> str:
        """Return the message in the form of the command line."""
        if self.line is None:
            return f"Invalid patch: {self.problem}"
        return f"Invalid patch hunk on line {self.line}: {self.problem}"


def parse(text: str) -> tuple[Change, ...]:
    """Return the changes of a patch in order, none for an empty one. Raises `PatchSyntaxError`."""
    lines = _within_markers(text)
    reader = _Reader()
    for number, line in enumerate(lines[1:-1], start=2):
        reader.take(number, line)
    reader.take(len(lines), END)
    return reader.changes()


def _within_markers(text: str) -> list[str]:
    lines = [line.removesuffix("\r").removesuffix("\r") for line in text.strip(SPACE).split("\n")]
    try:
        return _checked(lines)
    except PatchSyntaxError:
        wrapped = lines[0] in _HERE_DOCUMENTS and lines[-1].endswith("EOF")
        if not wrapped or len(lines) < _HERE_DOCUMENT_LINES_MIN:
            raise
    return _checked(lines[1:-1])


def _checked(lines: list[str]) -> list[str]:
    first, last = lines[0].strip(SPACE), lines[-1].strip(SPACE)
    if first != BEGIN and lines != [""]:  # for empty text, the error is about the last line
        raise PatchSyntaxError(f"The first line of the patch must be '{BEGIN}'")
    if last != END:
        raise PatchSyntaxError(_LAST_LINE)
    return lines


@dataclass(slots=True)
class _OpenChunk:
    contexts: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    at_end: bool = False


@dataclass(slots=True)
class _OpenFile:
    """The file whose lines are being parsed. `number`: the line of its header."""

    kind: Literal["add", "delete", "update"]
    path: str
    number: int
    move_to: str | None = None
    added: list[str] = field(default_factory=list)
    chunks: list[_OpenChunk] = field(default_factory=list)

    def change(self) -> Change:
        match self.kind:
            case "add":
                return AddFile(self.path, "".join(f"{line}\n" for line in self.added))
            case "delete":
                return DeleteFile(self.path)
            case "update":
                chunks = (Chunk(tuple(c.contexts), tuple(c.lines), c.at_end) for c in self.chunks)
                return UpdateFile(self.path, tuple(chunks), self.move_to)


class _Reader:
    """Takes the lines between the markers one by one, then the end marker."""

    def __init__(self) -> None:
        self._files: list[_OpenFile] = []
        self._ended = False
        self._placed = False
        """An environment line was seen; it is parsed but has no meaning here."""
        self._number = 0

    def changes(self) -> tuple[Change, ...]:
        return tuple(each.change() for each in self._files)

    def take(self, number: int, line: str) -> None:
        self._number = number
        file = self._files[-1] if self._files else None
        # In an update an indented marker is a line of context that looks like one.
        header = line.rstrip(SPACE) if file is not None and file.kind == "update" else line.strip(SPACE)
        if self._ended:
            if header not in {"", END}:
                raise PatchSyntaxError(_LAST_LINE)
        elif header == END:
            self._close(file, header)
            self._ended = True
        elif not self._header(file, header):
            self._content(file, line, header)

    def _header(self, file: _OpenFile | None, header: str) -> bool:
        kinds: tuple[tuple[str, Literal["add", "delete", "update"]], ...] = (
            (ADD, "add"),
            (DELETE, "delete"),
            (UPDATE, "update"),
        )
        for marker, kind in kinds:
            if header.startswith(marker):
                self._close(file, header)
                self._files.append(_OpenFile(kind, header.removeprefix(marker), self._number))
                return True
        return False

    def _close(self, file: _OpenFile | None, header: str) -> None:
        """Check a finished update: it must have chunks, and the last one must have lines."""
        if file is None or file.kind != "update":
            return
        if not file.chunks:
            raise PatchSyntaxError(f"Update file hunk for path '{file.path}' is empty", file.number)
        if not file.chunks[-1].lines:
            raise self._no_lines() if header == END else self._unexpected(header)

    def _content(self, file: _OpenFile | None, line: str, header: str) -> None:
        if file is None and header.startswith(ENVIRONMENT):
            self._environment(header.removeprefix(ENVIRONMENT).strip(SPACE))
        elif file is not None and file.kind == "update":
            self._update(file, line, header)
        elif file is not None and file.kind == "add" and line.startswith("+"):
            file.added.append(line[1:])
        else:
            raise PatchSyntaxError(
                f"'{header}' is not a valid hunk header. Valid hunk headers: '{ADD}{{path}}', "
                f"'{DELETE}{{path}}', '{UPDATE}{{path}}'",
                self._number,
            )

    def _environment(self, name: str) -> None:
        if not name:
            raise PatchSyntaxError("apply_patch environment_id cannot be empty")
        if self._placed:
            raise PatchSyntaxError("apply_patch environment_id cannot be specified more than once")
        self._placed = True

    def _update(self, file: _OpenFile, line: str, header: str) -> None:
        last = file.chunks[-1] if file.chunks else None
        if header == CONTEXT or header.startswith(f"{CONTEXT} "):
            self._context(file, line, header)
        elif last is not None and last.at_end:
            if header:
                raise self._no_context(line)
        elif header.startswith(MOVE) and last is None and file.move_to is None:
            file.move_to = header.removeprefix(MOVE)
        elif header == END_OF_FILE:
            self._end_of_file(last)
        else:
            self._line(file, line)

    def _context(self, file: _OpenFile, line: str, header: str) -> None:
        empty = bool(file.chunks) and not file.chunks[-1].lines
        if empty and header == CONTEXT:
            raise self._unexpected(line)
        if not empty:
            file.chunks.append(_OpenChunk())
        if header != CONTEXT:
            file.chunks[-1].contexts.append(header.removeprefix(f"{CONTEXT} "))

    def _end_of_file(self, last: _OpenChunk | None) -> None:
        if last is None:
            return  # later lines begin the first chunk, or the update is empty and refused
        if not last.lines:
            raise self._no_lines()
        last.at_end = True

    def _line(self, file: _OpenFile, line: str) -> None:
        sign = _SIGNS.get(line[:1])
        if sign is None:
            raise self._no_context(line) if file.chunks and file.chunks[-1].lines else self._unexpected(line)
        if not file.chunks:
            file.chunks.append(_OpenChunk())
        file.chunks[-1].lines.append(Line(sign, line[1:]))

    def _unexpected(self, line: str) -> PatchSyntaxError:
        return PatchSyntaxError(
            f"Unexpected line found in update hunk: '{line}'. Every line should start with ' ' (context line), "
            "'+' (added line), or '-' (removed line)",
            self._number,
        )

    def _no_context(self, line: str) -> PatchSyntaxError:
        return PatchSyntaxError(
            f"Expected update hunk to start with a @@ context marker, got: '{line}'", self._number
        )

    def _no_lines(self) -> PatchSyntaxError:
        return PatchSyntaxError("Update hunk does not contain any lines", self._number)
